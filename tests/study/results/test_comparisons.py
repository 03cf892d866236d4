"""`compare`: paired differences over tasks, tested and corrected, of one study or several."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_study import make_results, make_tasks
from typer.testing import CliRunner

from ccrank.cli.commands import app
from ccrank.errors import CcrankError
from ccrank.metrics.tasks import holm
from ccrank.study.results.comparisons import compare
from ccrank.study.results.load import load_studies
from ccrank.study.results.summary import one_layer
from ccrank.task import Criterion, Task


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Eight tasks of four datasets, two of the others; two seeds."""
    rng = np.random.default_rng(3)
    tasks = make_tasks(rng, {name: 8 if name[0] in "rsw" else 2 for name in (
        "synth-facts", "scalar-adj", "wiki-lists", "synth-context", "reviews", "ent-salience"
    )})  # fmt: skip
    return make_results(rng, tasks, seeds=2, layers=(4, 20))


def per_task(frame: pd.DataFrame, model: str, method: str, split: str, dataset: str) -> np.ndarray:
    rows = one_layer(frame)
    for name, value in (("model", model), ("method", method), ("split", split), ("dataset", dataset)):
        rows = rows[rows[name] == value]
    return rows.groupby("task", sort=True)["abs_tau"].mean().to_numpy()


def test_differences_and_p_values_are_those_of_a_plain_loop(frame: pd.DataFrame) -> None:
    """Means over tasks of means over seeds; p from all sign flips; over all datasets with equal weights."""
    rows = compare(frame, ["triplet", "sup-ccs:across-tasks"], ["tiny-lm-135M"])
    differences = {}
    for row in rows[:-1]:
        first = per_task(frame, "tiny-lm-135M", "triplet", "same-task", row["dataset"])
        second = per_task(frame, "tiny-lm-135M", "sup-ccs", "across-tasks", row["dataset"])
        differences[row["dataset"]] = own = first - second
        assert row["tasks"] == len(own)
        assert row["difference"] == pytest.approx(own.mean())
        assert row["first_mean"] - row["second_mean"] == pytest.approx(row["difference"])
        if len(own) < 6:
            assert math.isnan(row["p"])
            continue
        assert row["low"] <= row["difference"] <= row["high"]
        flips = np.array(list(itertools.product((1, -1), repeat=len(own))))
        assert row["p"] == pytest.approx((np.abs(flips @ own) >= abs(own.sum()) - 1e-12).mean())
    tested = [own for own in differences.values() if len(own) >= 6]
    assert rows[-1]["dataset"] == f"mean of {len(tested)}"
    assert rows[-1]["difference"] == pytest.approx(np.mean([own.mean() for own in tested]))
    with_p = [row for row in rows if not math.isnan(row["p"])]
    np.testing.assert_allclose([row["holm"] for row in with_p], holm([row["p"] for row in with_p]))


def test_all_pairs_within_a_model_and_models_by_each_method(frame: pd.DataFrame) -> None:
    """Three methods are three pairs for each model; models are compared only if they are asked for."""
    methods = ["triplet", "pca", "random"]
    pairs = {(row["model"], row["first"], row["second"]) for row in compare(frame, methods)}
    assert len(pairs) == 2 * 3
    models = list(dict.fromkeys(frame["model"]))
    pairs = {(row["model"], row["first"], row["second"]) for row in compare(frame, ["triplet"], models)}
    assert pairs == {("triplet", *models)}


def test_a_method_against_itself_differs_by_nothing(frame: pd.DataFrame) -> None:
    """p is 1, and the interval is 0; a second name of the same results stands for the second method."""
    twin = frame[frame["method"] == "pca"].assign(method="twin")
    for row in compare(pd.concat([frame, twin]), ["pca", "twin"]):
        assert (row["difference"], row["low"], row["high"]) == (0, 0, 0)
        assert math.isnan(row["p"]) or row["p"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["triplet"]}, "nothing to compare"),
        ({"methods": ["triplet", "triplet"]}, "'triplet' twice"),
        ({"methods": ["triplet", "triplt"]}, "did you mean 'triplet'"),
        ({"methods": ["triplet:leave-one-out", "pca"]}, "no graded results of 'triplet:leave-one-out'"),
        ({"methods": ["triplet", "pca"], "models": ["gpt"]}, "no model 'gpt'"),
        ({"methods": ["triplet", "pca"], "measure": "ndcg"}, "unknown measure 'ndcg'"),
        ({"methods": ["triplet", "prompt-pair"], "measure": "tau"}, "does not give the direction"),
    ],
)
def test_what_cannot_be_compared_is_refused(frame: pd.DataFrame, arguments: dict, message: str) -> None:
    """With the value and what there is instead."""
    with pytest.raises(CcrankError, match=message):
        compare(frame, **arguments)


def stored(folder: Path, frame: pd.DataFrame, shift: float = 0.0) -> Path:
    """A study's folder with these results."""
    folder.mkdir()
    frame.to_parquet(folder / "results.parquet")
    task = Task(Criterion("size"), ("a", "b", "c"), None, (1.0 + shift, 2.0, 3.0), "t", {"dataset": "d"})
    (folder / "tasks.jsonl").write_text(json.dumps(task.to_json()) + "\n")
    return folder


def test_studies_are_read_together(frame: pd.DataFrame, tmp_path: Path) -> None:
    """A model that two studies have is called after the study, others keep their names; other tasks are refused."""
    small, tiny = (frame[frame["model"] == name] for name in ("small-lm-1B", "tiny-lm-135M"))
    first, second = stored(tmp_path / "one", frame), stored(tmp_path / "two", tiny)
    together, _ = load_studies([first, second])
    assert set(together["model"]) == {"tiny-lm-135M@one", "tiny-lm-135M@two", "small-lm-1B"}
    apart, _ = load_studies([second, stored(tmp_path / "three", small)])
    assert set(apart["model"]) == {"tiny-lm-135M", "small-lm-1B"}
    for row in compare(together, ["triplet"], ["tiny-lm-135M@one", "tiny-lm-135M@two"]):
        assert row["difference"] == 0
    with pytest.raises(CcrankError, match="other items or values"):
        load_studies([first, stored(tmp_path / "other", tiny, shift=9.0)])


@pytest.mark.parametrize("form", ["", "--json", "--csv", "--latex"])
def test_the_command_prints_every_row_in_each_form(frame: pd.DataFrame, tmp_path: Path, form: str) -> None:
    """One row for each dataset and pair, and the mean over datasets."""
    folder = stored(tmp_path / "one", frame)
    words = ["compare", str(folder), "--methods", "prompt-pair,prompt-list", "--measure", "tau"]
    done = CliRunner().invoke(app, [*words, *([form] if form else [])], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    rows = compare(frame, ["prompt-pair", "prompt-list"], measure="tau")
    if form == "--json":
        assert [row["dataset"] for row in json.loads(done.output)] == [row["dataset"] for row in rows]
    elif form == "--csv":
        assert len(done.output.splitlines()) == 1 + len(rows)
    elif form == "--latex":
        assert sum(line.endswith(r"\\") for line in done.output.splitlines()) == 1 + len(rows)
    else:
        for row in rows:
            assert f"{row['difference']:+.3f}" in done.output
        assert "Holm's correction is for" in done.output
