"""studies/label_free/details.md: its tables are those of its data, and the data are what the studies' results say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats
from synthetic_study import NO_PAIRS

from ccrank.metrics.order import evaluate
from ccrank.study.results.schema import table_of
from studies.common import sections
from studies.label_free import label_free as script
from studies.label_free import page

EMPTY = "\n".join(f"<!-- generated: {name} -->\n<!-- end: {name} -->" for name in page.SECTIONS)
TASKS = 9


def rows_of(
    generator: np.random.Generator, model: str, dataset: str, shift: float = 0.0
) -> list[dict[str, Any]]:
    """Random scores of three methods, one of them with two seeds; those of `auto` are near the gold values."""
    rows = []
    for number in range(TASKS):
        gold = generator.permutation(5).astype(float)
        for method, seeds, part in (("auto", 1, 1.0), ("poles", 1, 0.5), ("triplet", 2, 0.0)):
            for seed in range(seeds):
                scores = (part - shift) * gold + generator.normal(size=5)
                found = evaluate(scores, gold)
                rows.append(
                    {
                        **{"dataset": dataset, "task": f"task {number}", "n_items": 5, "model": model},
                        **{"method": method, "layer": 3, "seed": seed, "fold": -1},
                        "split": "same-task" if method == "triplet" else "none",
                        **{"tau": found.tau, "abs_tau": found.abs_tau, "accuracy": found.accuracy},
                        "free_accuracy": found.free_accuracy,
                        "chance_abs_tau": found.chance_abs_tau,
                        "chance_free_accuracy": found.chance_free_accuracy,
                        **NO_PAIRS,
                        **{"consistency": 0.5, "distinct_tokens": 10, "seconds": 0.1, "directed": True},
                        **{"kind": "facts", "family": "label-free", "scores": scores.tolist()},
                    }
                )
    return rows


def study(
    folder: Path, rows: list[dict[str, Any]], datasets: dict[str, list[str]], *, exemplars: bool = False
) -> Path:
    """A study's folder: results, tasks, options and environment."""
    folder.mkdir()
    pq.write_table(table_of(rows), folder / "results.parquet")
    lines = [
        json.dumps({"id": f"task {number}", "about": {"dataset": name, **({"half": half} if half else {})}})
        for name, halves in datasets.items()
        for number, half in enumerate(halves)
    ]
    (folder / "tasks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    options = "" if exemplars else 'exemplars = "no"\n'
    (folder / "config.toml").write_text(f"[options.auto]\n{options}", encoding="utf-8")
    models = {rows[0]["model"]: {"dtype": "float32"}}
    known = {"models": models, "gpu": [], "ccrank": "1", "torch": "2", "transformers": "5"}
    (folder / "environment.json").write_text(json.dumps(known), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two studies of the first model that share a dataset, one with exemplars, and one of the second model."""
    generator, root = np.random.default_rng(5), tmp_path_factory.mktemp("studies")
    halves = [("choose", "report")[number % 2] for number in range(TASKS)]
    plain = [""] * TASKS
    first = rows_of(generator, "default", "everyday")
    again = rows_of(generator, "default", "everyday") + rows_of(generator, "default", "entsalience")
    more = [one for one in rows_of(generator, "default", "everyday") if one["method"] == "auto"]
    second = rows_of(generator, "gemma-3-270m", "everyday", 0.8)
    return [
        study(root / "first", first, {"everyday": halves}),
        study(root / "again", again, {"everyday": halves, "entsalience": plain}),
        study(root / "more", more, {"everyday": halves}, exemplars=True),
        study(root / "second", second, {"everyday": halves}),
    ]


@pytest.fixture(scope="module")
def values(folders: list[Path]) -> pd.DataFrame:
    found: pd.DataFrame = script.task_values(folders)
    return found


def test_the_page_shows_its_data() -> None:
    """The committed page is what the committed data give: no number was changed by hand."""
    text = script.PAGE.read_text(encoding="utf-8")
    assert page.fill_page(text, script.load_data(script.DATA)) == text


def test_stored_means_and_tests_follow_from_every_tasks_value() -> None:
    """Each mean and each difference is that of the stored values of all tasks; p is that of fewer sign flips."""
    values = pd.read_csv(script.table_path(script.DATA), keep_default_na=False, na_values=[""])
    values["half"] = values["half"].fillna("")
    stored = script.load_data(script.DATA)
    again = script.summarise_values(values, 2_000)
    for name, numbers in (("rows", ("tau", "low", "high")), ("halves", ("tau",)), ("tests", ("difference",))):
        assert len(stored[name]) == len(again[name]) > 0
        for one, other in zip(stored[name], again[name], strict=True):
            texts = {key: value for key, value in other.items() if isinstance(value, str)}
            assert texts.items() <= one.items()
            for number in numbers:
                assert one[number] == pytest.approx(
                    other[number], abs=2e-3 if number in ("low", "high") else 2e-4
                )
    for one, other in zip(stored["tests"], again["tests"], strict=True):
        assert one["tasks"] == other["tasks"]
        assert one["p"] == pytest.approx(other["p"], abs=0.05)


def test_all_tests_of_the_page_are_one_family() -> None:
    """Both models' tests are corrected together, each table with p shows Holm's p, and no sentence has a p-value."""
    data = script.load_data(script.DATA)
    raw = [one["p"] for one in data["tests"]]
    ordered = sorted(raw)
    by_definition = [
        min(1.0, max((len(raw) - place) * ordered[place] for place in range(ordered.index(value) + 1)))
        for value in raw
    ]
    np.testing.assert_allclose([one["holm"] for one in data["tests"]], by_definition, atol=1e-4)
    assert {one["model"] for one in data["tests"]} == {script.FIRST, script.SECOND}
    text = script.PAGE.read_text(encoding="utf-8")
    assert f"One family of {len(raw)} tests" in text
    for head in re.findall(r"^\|.*\n(?=\| ---)", text, re.MULTILINE):
        assert ("(p" in head) <= ("(p; Holm)" in head), head
    prose = sections.without_sections(text)
    assert not re.findall(r"\bp ?[<=≤] ?0\.(?!05\b)\d+", prose)


def test_values_are_means_over_seeds_of_the_first_folder(folders: list[Path], values: pd.DataFrame) -> None:
    """A dataset that two folders have counts once; τ and |τ| are averaged over seeds; halves and positions are those
    of the tasks."""
    assert {*zip(values["model"], values["dataset"], strict=True)} == {
        ("default", "everyday"),
        ("default", "entsalience"),
        ("gemma-3-270m", "everyday"),
    }
    results = pq.read_table(folders[0] / "results.parquet").to_pandas()
    own = values[(values["model"] == "default") & (values["dataset"] == "everyday")]
    assert own["task"].tolist() == list(range(TASKS))
    for row in own.itertuples(index=False):
        part = results[(results["task"] == f"task {row.task}") & (results["method"] == "triplet")]
        assert row.triplet == pytest.approx(part["tau"].mean())
        assert row[own.columns.get_loc("|triplet|")] == pytest.approx(part["abs_tau"].mean())
        assert row.half == ("choose", "report")[row.task % 2]
    with_exemplars = pq.read_table(folders[2] / "results.parquet").to_pandas()
    np.testing.assert_allclose(own["auto-exemplars"], with_exemplars["tau"])
    articles = values[values["dataset"] == "entsalience"]
    assert articles["half"].tolist() == [("even", "odd")[number % 2] for number in range(TASKS)]


def test_comparisons_are_those_of_scipy(values: pd.DataFrame) -> None:
    """`auto` against every other method, in the better direction where that is arbitrary, and the second model against
    the first on the same tasks; p-values are exact for few tasks."""
    found = script.summarise_values(values, 500)["tests"]
    assert [(one["model"], one["dataset"], one["against"]) for one in found] == [
        ("default", "everyday", "auto-exemplars"),
        ("default", "everyday", "poles"),
        ("default", "everyday", "triplet"),
        ("default", "everyday", "|triplet|"),
        ("default", "entsalience", "poles"),
        ("default", "entsalience", "triplet"),
        ("default", "entsalience", "|triplet|"),
        ("gemma-3-270m", "everyday", "poles"),
        ("gemma-3-270m", "everyday", "triplet"),
        ("gemma-3-270m", "everyday", "default"),
    ]
    table = values.set_index(["model", "dataset", "task"]).sort_index()
    for one in found:
        model, dataset = one["model"], one["dataset"]
        across = one["against"] == "default"
        other = table.loc["default" if across else model, dataset]["auto" if across else one["against"]]
        difference = (table.loc[model, dataset]["auto"] - other).to_numpy()
        if one["against"] == "auto-exemplars":
            difference = -difference  # what they add
        assert one["difference"] == pytest.approx(difference.mean(), abs=1e-4)
        wanted = stats.permutation_test(
            (difference,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert one["p"] == pytest.approx(wanted.pvalue, abs=2e-3)


def test_sections_show_the_numbers(values: pd.DataFrame) -> None:
    """Tables have each mean, each difference with both p-values, bold where it survives, and a dash for what is
    missing."""
    data = {"about": [], **script.summarise_values(values, 500)}
    script.adjust(data)
    wanted = script.holm([one["p"] for one in data["tests"]])
    np.testing.assert_allclose([one["holm"] for one in data["tests"]], wanted, atol=1e-4)
    filled = page.fill_page(EMPTY, data)
    assert page.fill_page(filled, data) == filled
    row = next(one for one in data["rows"] if (one["model"], one["dataset"]) == ("default", "everyday"))
    assert f"{row['tau']:+.3f} [{row['low']:+.2f}, {row['high']:+.2f}]".replace("-", "−") in filled
    strong = next(one for one in data["tests"] if one["holm"] < 0.05)
    assert f"**{page.signed(strong['difference'])} ({page.p_text(strong['p'])}; " in filled
    weak = next(one for one in data["tests"] if one["holm"] >= 0.05)
    assert f"| {page.signed(weak['difference'])} ({page.p_text(weak['p'])}; " in filled
    assert f"One family of {len(data['tests'])} tests" in filled
    assert "| everyday (9) |" in filled
    assert "`triplet`, its \\|τ\\|" in filled
    assert "the default model's `auto`" in filled
    assert "| everyday (9) | +" in page.SECTIONS["exemplars"](data)
    assert "–" in page.SECTIONS["halves"](data)


def test_the_program_writes_page_data_and_table(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From folders to three files; `--render` fills the page from the data alone."""
    target, data = tmp_path / "page.md", tmp_path / "data" / "numbers.json"
    target.write_text(f"By hand.\n{EMPTY}\n", encoding="utf-8")
    arguments = ["--data", str(data), "--page", str(target)]
    monkeypatch.setattr("sys.argv", ["label_free.py", *map(str, folders), "--resamples", "200", *arguments])
    script.main()
    first = target.read_text(encoding="utf-8")
    assert first.startswith("By hand.\n")
    assert len(pd.read_csv(tmp_path / "data" / "numbers_tasks.csv")) == 3 * TASKS
    target.write_text(first.replace("`triplet`", "`changed`"), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["label_free.py", "--render", *arguments])
    script.main()
    assert target.read_text(encoding="utf-8") == first


def survivors(data: dict[str, Any], model: str, kind: str | None = None) -> tuple[set[tuple[str, str]], ...]:
    """(other side, dataset) of one model's tests that survive the correction, and of those that do not."""
    own = [
        one
        for one in data["tests"]
        if one["model"] == model
        and (kind is None or kind in page.kind_of(one))
        and "exemplars" not in one["against"]
    ]
    kept = {(one["against"], one["dataset"]) for one in own if one["holm"] < 0.05}
    return kept, {(one["against"], one["dataset"]) for one in own} - kept


def test_the_sentences_about_the_tests_hold() -> None:
    """What the page says in words of the default model's tests is what its data say."""
    data = script.load_data(script.DATA)
    prose = " ".join(script.PAGE.read_text(encoding="utf-8").split())
    kept, lost = survivors(data, script.FIRST)
    sure = {"everyday", "reviews", "entsalience"}
    assert {dataset for _, dataset in lost} == {*script.DATASETS} - sure
    assert "On `everyday`, `reviews` and `entsalience` every comparison survives" in prose
    others = {(against, dataset) for against, dataset in kept if dataset not in sure}
    assert not any(against.startswith("|") for against, _ in others)
    signals = {one for one in others if one[0] in page.SIGNALS}
    assert signals == {("poles", "scalaradj"), ("likelihood", "worldlists"), ("axis", "unseen")}
    assert (
        "`poles` on `scalaradj`, `likelihood` on `worldlists`, `axis` on `unseen`. On `wikilists` none"
        in prose
    )
    _, signed = survivors(data, script.FIRST, "signed")
    assert signed == {
        ("length", "scalaradj"),
        ("frequency", "wikilists"),
        ("frequency", "worldlists"),
        ("pca", "worldlists"),
    }
    assert (
        "`length` on `scalaradj`, `frequency` on `wikilists` and `worldlists`, `pca` on `worldlists`" in prose
    )
    gains = {one["dataset"]: one for one in data["tests"] if one["against"] == page.EXEMPLARS}
    assert all(one["holm"] > 0.05 for one in gains.values())
    assert max(gains, key=lambda name: gains[name]["difference"]) == "everyday"
    assert "On lists of names no difference survives the correction; it is largest on `everyday`" in prose


def test_the_sentences_about_the_second_model_hold() -> None:
    """What the page says in words of the second model is what its data say."""
    data = script.load_data(script.DATA)
    prose = " ".join(script.PAGE.read_text(encoding="utf-8").split())
    rows = {
        (one["dataset"], one["method"]): one["tau"] for one in data["rows"] if one["model"] == script.SECOND
    }
    datasets = list(dict.fromkeys(dataset for dataset, _ in rows))
    assert len(datasets) == 5
    assert all(rows[name, "auto"] > rows[name, signal] for name in datasets for signal in page.SIGNALS[1:])
    kept, _ = survivors(data, script.SECOND)
    certain = ("scalaradj", "everyday", "entsalience")
    assert {one for one in kept if one[0] in page.SIGNALS} == {
        (signal, name) for signal in ("poles", "axis") for name in certain
    }
    assert (
        "`poles` and `axis` on `scalaradj`, `everyday` and `entsalience`, and of `likelihood` nowhere"
        in prose
    )
    prompted = {dataset for against, dataset in kept if against == "prompt-point"}
    assert prompted == {*datasets} - {"wikilists"}
    between = [one for one in data["tests"] if one["against"] == script.FIRST]
    assert all(one["holm"] > 0.05 for one in between)
    least, most = (page.signed(pick(one["difference"] for one in between)) for pick in (min, max))
    assert f"survives the correction; they are {least} to {most}." in prose


def test_numbers_in_sentences_are_those_of_the_data() -> None:
    """What was reached, and what smoothing and anchoring add, follow from the stored values."""
    text = script.PAGE.read_text(encoding="utf-8")
    prose = " ".join(text.split())
    values = pd.read_csv(script.table_path(script.DATA), keep_default_na=False, na_values=[""])
    values = values[values["model"] == script.FIRST].assign(half=values["half"].fillna(""))
    means = values.groupby("dataset")["auto"].mean()
    halves = values.groupby(["dataset", "half"])[["auto", "auto-plain", "likelihood"]].mean()
    named = " | ".join(f"{means[name]:.3f}" for name in ("reviews", "scalaradj", "wikilists", "entsalience"))
    report, second = halves.loc["everyday", "report"]["auto"], halves.loc["unseen", "second"]["auto"]
    odd = f"(odd tasks {halves.loc['entsalience', 'odd']['auto']:.3f})"
    assert (
        f"| `auto` | {named} {odd} | `everyday`, report: {report:.3f}; `unseen`, second: {second:.3f} |"
        in text
    )
    smoothed = halves["auto"] - halves["auto-plain"]
    parts = [("everyday", "report"), ("everyday", "choose"), ("unseen", "second"), ("unseen", "first")]
    shown = ", ".join(f"`{half}` {page.signed(smoothed[name, half], 3)}" for name, half in parts)
    assert f"**Smoothing**: {shown}, `worldlists` {page.signed(smoothed['worldlists', ''], 3)}." in prose
    anchored = values[values["dataset"] == "entsalience"]
    gain = anchored["auto"] - anchored["likelihood"]
    by_half = [page.signed(gain[anchored["half"] == half].mean(), 3) for half in ("even", "odd")]
    whole = page.signed(gain.mean(), 3)
    assert f"**Anchoring**: `entsalience` {whole} (even tasks {by_half[0]}, odd {by_half[1]})" in prose
