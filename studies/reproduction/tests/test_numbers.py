"""studies/reproduction/README.md: its tables are those of its data, and the data are what a study's results say."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats
from synthetic_study import NO_PAIRS

from ccrank.metrics.order import evaluate, kendall_tau
from ccrank.metrics.tasks import common_direction
from ccrank.study.results.schema import table_of
from studies.reproduction import family, page, tables
from studies.reproduction import numbers as script

ROOT = Path(__file__).parents[3]
UNITS = {  # family, whether there are seeds
    "prompt-pair": ("prompting", 1),
    "random": ("baseline", 2),
    "triplet:same-task": ("probing", 2),
    "margin:same-task": ("probing", 2),
    "margin@pairs:same-task": ("probing", 2),
    "triplet:across-tasks": ("probing", 2),
    "random:across-tasks": ("baseline", 2),
    "sup-ordreg:across-tasks": ("supervised", 2),
}
SIZES = {"reviews": 9, "scalaradj": 12}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Random scores by a few methods on two of the paper's datasets; half of triplet's are those of random."""
    generator, rows = np.random.default_rng(4), []
    for dataset, count in SIZES.items():
        for number in range(count):
            gold = generator.permutation(4 + number % 3).astype(float)
            start = {seed: generator.normal(size=len(gold)) for seed in range(2)}
            for unit, (kind, seeds) in UNITS.items():
                method, _, split = unit.partition(":")
                for seed in range(seeds):
                    scores = generator.normal(size=len(gold))
                    if unit == "random" or (unit == "triplet:same-task" and number % 2):
                        scores = start[seed]
                    if kind == "supervised":
                        scores = gold + 0.5 * scores
                    found = evaluate(scores, gold)
                    rows.append(
                        {
                            **{"dataset": dataset, "task": f"task {number}", "n_items": len(gold)},
                            **{"model": "tiny", "method": method, "layer": 3, "seed": seed},
                            "split": split or "none",
                            "fold": number % 4 if split == "across-tasks" else -1,
                            **{"tau": found.tau, "abs_tau": found.abs_tau, "accuracy": found.accuracy},
                            "free_accuracy": found.free_accuracy,
                            "chance_abs_tau": found.chance_abs_tau,
                            "chance_free_accuracy": found.chance_free_accuracy,
                            **NO_PAIRS,
                            **{"consistency": 0.25, "distinct_tokens": 10, "seconds": 0.1},
                            "directed": family in ("supervised", "prompting"),
                            "kind": "facts" if dataset == "scalaradj" else "context",
                            "family": kind,
                            "scores": scores.tolist(),
                        }
                    )
    return table_of(rows).to_pandas()


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers of that study, as they are stored and read back."""
    folder = tmp_path_factory.mktemp("study")
    table = table_of(frame.to_dict("records"))
    pq.write_table(table, folder / "results.parquet")
    found = script.summarise_study(folder)
    (folder / "reproduction.json").write_text(script.data_text(found), encoding="utf-8")
    assert json.loads((folder / "reproduction.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(found)
    )
    stored: dict[str, Any] = script.load_data(folder / "reproduction.json")
    return stored


def means(frame: pd.DataFrame, dataset: str, unit: str) -> pd.Series:
    """|τ| of each task, mean over seeds."""
    method, _, split = unit.partition(":")
    own = frame[
        (frame["dataset"] == dataset) & (frame["method"] == method) & (frame["split"] == (split or "none"))
    ]
    return own.groupby("task")["abs_tau"].mean()


def test_the_page_has_the_numbers_of_its_data() -> None:
    """Every generated section of the page is what the committed data give: no number was changed by hand."""
    text = script.PAGE.read_text(encoding="utf-8")
    assert page.fill_page(text, script.load_data(script.DATA)) == text


def test_claims_of_the_page_lead_to_sections_that_exist() -> None:
    """Each link of the table of claims is a heading of the page, and each section that is about a claim has numbers."""
    text = script.PAGE.read_text(encoding="utf-8")
    claims = script.PAGE.with_name("README.md").read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^## (.*)$", text, re.MULTILINE)
    }
    linked = {*re.findall(r"\]\(#([\w-]+)\)", text), *re.findall(r"\]\(details\.md#([\w-]+)\)", claims)}
    assert len(linked) > 10
    assert linked <= headings


def test_paired_tests_are_those_of_scipy(frame: pd.DataFrame, data: dict[str, Any]) -> None:
    """Differences, p and what could have been found, from the tasks' means over seeds; methods that are missing have
    no tests."""
    assert {(test["first"], test["second"]) for test in data["tests"]} == {
        ("triplet:same-task", "prompt-pair"),
        ("triplet:same-task", "margin:same-task"),
        ("triplet:same-task", "random"),
        ("margin:same-task", "random"),
        ("triplet:across-tasks", "random:across-tasks"),
        ("triplet:across-tasks", "sup-ordreg:across-tasks"),
        ("margin@pairs:same-task", "margin:same-task"),
    }
    for test in data["tests"]:
        difference = means(frame, test["dataset"], test["first"]) - means(
            frame, test["dataset"], test["second"]
        )
        assert test["difference"] == pytest.approx(difference.mean(), abs=1e-4)
        wanted = stats.permutation_test(
            (difference.to_numpy(),), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert test["p"] == pytest.approx(wanted.pvalue, abs=2e-3)
        wanted_difference = script.detectable_difference(difference.std(ddof=1), SIZES[test["dataset"]])
        assert test["detectable"] == pytest.approx(wanted_difference, abs=2e-4)
        assert test["detectable_corrected"] > test["detectable"]


def test_common_directions_and_their_correction(frame: pd.DataFrame, data: dict[str, Any]) -> None:
    """Supervised probes share a direction, the others do not; all tests of the page are corrected together."""
    rows = [row for row in data["rows"] if "common_tau" in row]
    assert {row["unit"] for row in rows} == {unit for unit in UNITS if unit.endswith("across-tasks")}
    for row in rows:
        own = frame[
            (frame["dataset"] == row["dataset"])
            & (frame["method"] == row["unit"].partition(":")[0])
            & (frame["split"] == "across-tasks")
        ]
        wide = own.pivot_table(index="seed", columns=["task", "fold"], values="tau", sort=False)
        folds = wide.columns.get_level_values("fold").to_numpy()
        wanted = common_direction(wide.to_numpy(), folds, np.random.default_rng(0))
        assert row["common_tau"] == pytest.approx(wanted.value, abs=1e-4)
        assert row["common_tau_p"] == pytest.approx(wanted.p_value, abs=1e-4)
        assert (row["common_tau_p"] < 0.05) == row["unit"].startswith("sup-")
    values = [test["p"] for test in data["tests"]] + [row["common_tau_p"] for row in rows]
    adjusted = [test["holm"] for test in data["tests"]] + [row["common_tau_holm"] for row in rows]
    np.testing.assert_allclose(adjusted, family.holm(values), atol=1e-4)
    assert len(family.family(data)) == len(values)


def test_the_draws_are_enough_for_the_family() -> None:
    """A difference that no random sign reaches keeps a Holm's p far below 0.05, in the file as in the test."""
    generator, tests = np.random.default_rng(0), len(family.family(script.load_data(script.DATA)))
    steady = 1 + generator.uniform(size=40)
    tau = np.tile(0.5 + 0.1 * generator.uniform(size=40), (2, 1))
    found = [
        script.paired_test(steady, np.zeros(40), generator, resamples=100, flips=script.DRAWS).p_value,
        common_direction(tau, np.arange(40) % 4, generator, script.DRAWS).p_value,
    ]
    for p_value in found:
        assert 0 < script.rounded(p_value, script.P_DIGITS) * tests < 0.001


def holm_by_definition(values: list[float]) -> list[float]:
    """The largest of p(j)·(number of tests with a p no smaller than the j-th) over the tests before, at most 1."""
    ordered = sorted(values)
    steps = [(len(values) - place) * value for place, value in enumerate(ordered)]
    return [min(1.0, max(steps[: ordered.index(value) + 1])) for value in values]


def test_every_p_value_of_the_page_is_in_one_family() -> None:
    """All p-values in the committed data files, but those of datasets with two tasks, are corrected together; each
    table that shows p shows Holm's p, and the prose has no p-value of its own."""
    data = script.load_data(script.DATA)
    stored = json.loads(script.DATA.read_text(encoding="utf-8"))
    values = [test["p"] for test in stored["tests"]]
    values += [
        row["common_tau_p"]
        for row in stored["rows"]
        if "common_tau_p" in row and row["dataset"] in tables.TESTED
    ]
    claims = json.loads(script.DATA.with_name("claims_prompting.json").read_text(encoding="utf-8"))
    values += [
        row["p"]
        for name, own in claims["datasets"].items()
        if own["tasks"] > 2
        for question in own.values()
        if isinstance(question, dict)
        for row in question.values()
        if row.get("p") is not None
    ]
    tests = family.family(data)
    assert sorted(test.p for test in tests) == sorted(values)
    np.testing.assert_allclose(
        [test.holm for test in tests], holm_by_definition([test.p for test in tests]), atol=1e-4
    )
    text = script.PAGE.read_text(encoding="utf-8")
    for head in re.findall(r"^\|.*\n(?=\| ---)", text, re.MULTILINE):
        cells = [cell.strip() for cell in head.strip().strip("|").split("|")]
        assert ("p" in cells) <= ("Holm" in cells), head
        assert ("(p" in head) <= ("(p; Holm)" in head), head
    prose = re.sub(r"<!-- generated.*?<!-- end: [\w-]+ -->", "", text, flags=re.DOTALL)
    assert not re.findall(r"\bp [<>=≤≥] 0\.(?!05\b)\d+", prose)


def test_claims_about_prompting_join_the_family(data: dict[str, Any]) -> None:
    """Their tests change the correction of all others, except those of datasets that are not tested, which lose p."""
    triads = {"triads": 10.0, "by_chance": 2.5, "share_net": 0.05, "p": 1e-9}
    claims = {
        "calibration": {"none": {"abs_tau": 0.25, "p": None}, "task": {"abs_tau": 0.375, "p": 0.5}},
        "transitivity": {"prompt-pair": triads},
        "wordings": {"pca": {"mean": 0.5}},
    }
    more = json.loads(json.dumps({key: value for key, value in data.items() if key != "sizes"}))
    more["claims_prompting"] = {"datasets": json.loads(json.dumps({"reviews": claims, "synthfacts": claims}))}
    family.adjust(more)
    before, after = family.family(data), family.family(more)
    assert len(after) == len(before) + 2
    smallest = min(range(len(before)), key=lambda place: before[place].p)
    assert after[smallest].holm == pytest.approx(min(1, before[smallest].p * (len(before) + 1)), abs=1e-4)
    added = {test.claim: test for test in after[len(before) :]}
    assert added["calibration"].comparison == "`prompt-pair`: task − none"
    assert added["calibration"].value == pytest.approx(0.125)
    assert added["circular triads"].value == pytest.approx(0.05 - 0.25)
    shown = page.section_text("prompting", more)
    assert "| reviews | `prompt-pair` | 10.000 | 2.500 | 0.050 | < 0.001 | **< 0.001** |" in shown
    assert "| synthfacts | `prompt-pair` | 10.000 | 2.500 | 0.050 | – | – |" in shown
    assert "share of circular triads − chance | reviews | −0.200 |" in page.section_text("significant", more)


def test_initialisation_and_agreement_are_those_of_loops(frame: pd.DataFrame, data: dict[str, Any]) -> None:
    """The correlation with `random` of the same seed and the share with the same τ; τ between whole and sub-batches."""
    runs = {
        (row.dataset, row.task, row.seed, row.method, row.split): row
        for row in frame.itertuples()
        if row.split in ("none", "same-task")
    }
    for one in data["initialisation"]:
        method = one["unit"].partition(":")[0]
        pairs = [
            (row.tau, runs[row.dataset, row.task, row.seed, "random", "none"].tau)
            for row in runs.values()
            if (row.method, row.dataset) == (method, one["dataset"])
        ]
        first, second = np.array(pairs).T
        assert one["correlation"] == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-4)
        assert one["same"] == pytest.approx(np.mean(first == second), abs=1e-4)
    same = {(one["dataset"], one["unit"]): one["same"] for one in data["initialisation"]}
    assert same["scalaradj", "triplet:same-task"] >= 0.5
    for one in data["sub_batches"]:
        taus = [
            kendall_tau(row.scores, runs[row.dataset, row.task, row.seed, "margin", "same-task"].scores)
            for row in runs.values()
            if (row.method, row.dataset) == ("margin@pairs", one["dataset"])
        ]
        assert one["tau"] == pytest.approx(np.mean(taus), abs=1e-4)
    assert len(data["sub_batches"]) == 2


def test_sections_show_what_the_data_say(data: dict[str, Any]) -> None:
    """Each kind of section has the numbers of its rows; what a study lacks is said or left out, not invented."""
    text = "\n".join(f"<!-- generated: {name} -->\n<!-- end: {name} -->" for name in page.SECTIONS)
    filled = page.fill_page(text, data)
    assert page.fill_page(filled, data) == filled
    rows = {(row["dataset"], row["unit"]): row for row in data["rows"]}
    row = rows["scalaradj", "triplet:same-task"]
    assert f"{row['abs_tau']:.3f} ± {row['abs_tau_sd']:.3f}" in page.section_text(
        "probing-and-prompting", data
    )
    assert f"{row['abs_tau']:.2f} ± {row['abs_tau_sd']:.2f}, " in page.section_text("free-results", data)
    signed = page.section_text("signed-results", data)
    assert f"{row['tau']:+.2f}".replace("-", "−") in signed
    orders = page.section_text("both-orders", data)
    assert "the same winner | 0.25 | 0.25 |" in orders
    assert "the same word | 0.75 | 0.75 |" in orders
    assert "Not in this study" in page.section_text("volatility", data)
    assert "Not measured yet" in page.section_text("sensitivity", data)
    assert "no accuracies of single answers" in page.section_text("pair-accuracy", data)
    assert f"{len(family.family(data))} tests" in page.section_text("significant", data)
    assert "part of the data" not in page.section_text("setup", data)
    part = {**data, "about": {**data["about"], "limit": 12}}
    assert "at most 12 tasks" in page.section_text("setup", part)


def test_columns_and_files_of_other_benchmarks_are_taken_up(data: dict[str, Any]) -> None:
    """Accuracies of single answers, single listwise runs, sensitivity and the claims about prompting are shown once
    they exist."""
    accuracy = {"free_pair_accuracy": 0.625, "chance_free_pair_accuracy": 0.55}
    rows = [{**row, **accuracy} if row["unit"] == "prompt-pair" else row for row in data["rows"]]
    rows.append({**rows[0], "unit": "prompt-list:single", "abs_tau": 0.123})
    points = [
        {"dataset": "reviews", "probe": "ccs", "setting": "epochs", "value": value, "abs_tau": tau, "sd": 0.0}
        for value, tau in ((0, 0.25), (200, 0.375))
    ]
    more = {
        **data,
        "rows": rows,
        "sensitivity": {
            **{"points": points, "chance": {"reviews": 0.3}, "seeds": 3, "limit": None},
            **{"seconds": 10.0, "device": "cuda"},
        },
        "claims_prompting": {
            "datasets": {"reviews": {"calibration": {"none": {"yes": 0.75, "p": math.nan}}, "tasks": 9}},
        },
    }
    assert "| 0.625 | 0.550 |" in page.section_text("pair-accuracy", more)
    assert "`prompt-list` · single runs" in page.section_text("listwise", more)
    assert "0.123" in page.section_text("listwise", more)
    assert "| `ccs` | 0.250 – 0.375 |" in page.section_text("sensitivity", more)
    assert "| reviews | `none` | 0.750 |" in page.section_text("prompting", more)


def test_the_second_model_is_that_of_the_study_of_sizes(data: dict[str, Any]) -> None:
    """Both models' means of studies/sizes/sizes.csv, side by side for the four datasets, with their mean."""
    sizes = pd.read_csv(script.SIZES, keep_default_na=False).set_index(
        ["model", "dataset", "method", "split"]
    )
    shown = page.section_text("second-model", data)
    for method, split, value, label in (
        ("triplet", "same-task", "abs_tau", "`triplet` · same"),
        ("prompt-pair", "none", "tau", "`prompt-pair`"),
    ):
        cells = [
            [sizes.loc[(model, name, method, split), value] for name in tables.FOUR]
            for model in ("SmolLM2-135M", "Gemma-3-270M")
        ]
        form = tables.number if value == "abs_tau" else tables.signed
        wanted = [
            " / ".join(map(form, pair)) for pair in zip(*([*own, np.mean(own)] for own in cells), strict=True)
        ]
        assert f"| {label} | {' | '.join(wanted)} |" in shown


def test_a_page_with_other_sections_is_refused(data: dict[str, Any]) -> None:
    """A marker that no function fills, or a section that was removed, is an error and not an old number."""
    with pytest.raises(ValueError, match="nonsense"):
        page.fill_page("<!-- generated: nonsense -->\n<!-- end: nonsense -->", data)
    with pytest.raises(ValueError, match="setup"):
        page.fill_page("no sections at all", data)


def test_the_program_writes_data_and_page(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder to both files; `--render` fills the page from the data alone."""
    pq.write_table(table_of(frame.to_dict("records")), tmp_path / "results.parquet")
    target = tmp_path / "page.md"
    empty = "\n".join(f"<!-- generated: {name} -->\n<!-- end: {name} -->" for name in page.SECTIONS)
    target.write_text(f"By hand.\n{empty}\n", encoding="utf-8")
    arguments = ["--data", str(tmp_path / "data" / "numbers.json"), "--page", str(target)]
    monkeypatch.setattr("sys.argv", ["reproduction.py", str(tmp_path), *arguments])
    script.main()
    first = target.read_text(encoding="utf-8")
    assert first.startswith("By hand.\n")
    assert "`sup-ordreg`" in first
    target.write_text(first.replace("`sup-ordreg`", "`changed`"), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["reproduction.py", "--render", *arguments])
    script.main()
    assert target.read_text(encoding="utf-8") == first


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_limited_run_leaves_the_published_numbers_alone() -> None:
    """`make reproduction LIMIT=2` writes nothing under studies/; without a limit it writes the page and its data. Each
    program that it runs exists."""

    def commands(*given: str) -> list[str]:
        arguments = ["make", "--dry-run", "--no-print-directory", "reproduction", *given]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    limited = commands("LIMIT=2")
    assert [line for line in limited if "studies/" in line] == [
        "cp studies/reproduction/details.md build/reproduction-2/details.md"
    ]
    programs = {name for line in limited for name in re.findall(r"-m (studies[\w.]+)", line)}
    assert len(programs) == 4
    assert all((ROOT / f"{name.replace('.', '/')}.py").exists() for name in programs)
    assert all("--limit 2" in line for line in limited if "/python -m studies" in line and "--device" in line)
    full = "\n".join(commands())
    assert "--data studies/reproduction/data/reproduction.json --page studies/reproduction/details.md" in full
    assert "--limit" not in full
