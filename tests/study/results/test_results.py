"""Summaries of results, and the forms that other tools read."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccrank.errors import CcrankError
from ccrank.metrics.chance import chance_abs_tau
from ccrank.metrics.order import evaluate
from ccrank.study.results.load import load_results
from ccrank.study.results.schema import SCHEMA, table_of
from ccrank.study.results.summary import choose, summarise_results
from ccrank.study.results.tables import RESULTS, Field, to_csv, to_latex, trec_judgements, trec_run
from ccrank.task import Criterion, Task


def synthetic() -> tuple[pd.DataFrame, dict[tuple[str, str], Task]]:
    """Random scores for two models, three datasets and two methods, one of them of three seeds."""
    generator = np.random.default_rng(3)
    tasks: dict[tuple[str, str], Task] = {}
    for dataset, count in (("lists_1", 4), ("few & odd", 2), ("texts", 5)):
        for number in range(count):
            items = ["a b", "a_b", "c", "x\ty%", "d{}"][: 3 + number % 3]
            values = tuple(generator.permutation(len(items)).astype(float).tolist())
            tasks[dataset, f"task {number}"] = Task(
                Criterion("size"), tuple(items), None, values, f"task {number}", {"dataset": dataset}
            )
    rows = []
    for (model, method), ((dataset, name), task) in itertools.product(
        itertools.product(("m/1", "m_2"), ("prompt-pair", "random")), tasks.items()
    ):
        for seed in range(3 if method == "random" else 1):
            scores = generator.normal(size=len(task.items))
            found = evaluate(scores, task.values)  # type: ignore[arg-type]
            rows.append(
                {
                    "dataset": dataset,
                    "task": name,
                    "n_items": len(scores),
                    "model": model,
                    "method": method,
                    "layer": 4 if method == "random" else -1,
                    "seed": seed,
                    "split": "none",
                    "fold": -1,
                    "tau": found.tau,
                    "abs_tau": found.abs_tau,
                    "accuracy": found.accuracy,
                    "free_accuracy": found.free_accuracy,
                    "chance_abs_tau": found.chance_abs_tau,
                    "chance_free_accuracy": found.chance_free_accuracy,
                    "pair_accuracy": 0.25 if method == "prompt-pair" else math.nan,
                    "free_pair_accuracy": 0.75 if method == "prompt-pair" else math.nan,
                    "chance_free_pair_accuracy": 0.625 if method == "prompt-pair" else math.nan,
                    "consistency": math.nan,
                    "distinct_tokens": 10 * seed,
                    "seconds": 0.5,
                    "directed": method == "prompt-pair",
                    "kind": "context" if dataset == "texts" else "facts",
                    "family": "baseline" if method == "random" else "prompting",
                    "scores": scores.tolist(),
                }
            )
    return table_of(rows).to_pandas(), tasks


def test_summaries_are_means_over_seeds_then_tasks() -> None:
    """Each number equals that of plain loops; the interval contains the mean; chance is that of the sizes."""
    frame, tasks = synthetic()
    entries = summarise_results(frame)
    assert len(entries) == 2 * 3 * 2
    for entry in entries:
        taus = []
        for dataset, name in tasks:
            if dataset == entry["dataset"]:
                rows = frame[
                    (frame["model"] == entry["model"])
                    & (frame["method"] == entry["method"])
                    & (frame["dataset"] == dataset)
                    & (frame["task"] == name)
                ]
                taus.append(sum(rows["tau"]) / len(rows))
        sizes = [len(task.items) for (dataset, _), task in tasks.items() if dataset == entry["dataset"]]
        assert entry["tasks"] == entry["graded"] == len(taus)
        assert entry["tau"] == pytest.approx(sum(taus) / len(taus))
        assert entry["tau_low"] <= entry["tau"] <= entry["tau_high"]
        assert entry["chance_abs_tau"] == pytest.approx(np.mean([chance_abs_tau(size) for size in sizes]))


def test_accuracies_of_pairs_are_in_every_form() -> None:
    """Entries, CSV and LaTeX have the accuracy of single answers and its chance; other methods have empty cells, and a
    table without any has no such column."""
    frame, _ = synthetic()
    entries = summarise_results(frame)
    for entry, row in zip(entries, csv.DictReader(io.StringIO(to_csv(entries))), strict=True):
        paired = entry["method"] == "prompt-pair"
        assert row["free_pair_accuracy"] == ("0.75" if paired else "")
        assert row["chance_free_pair_accuracy"] == ("0.625" if paired else "")
        assert entry["pair_accuracy"] == 0.25 or not paired
    assert "pairs & coins" in to_latex(RESULTS, entries)
    others = to_latex(RESULTS, [entry for entry in entries if entry["method"] == "random"])
    assert "pairs" not in others
    assert r"$\pm$" in others


def test_a_table_without_a_column_is_refused(tmp_path: Path) -> None:
    """What is no table of a study is named with the columns that it lacks."""
    frame, _ = synthetic()
    frame.drop(columns="tau").to_parquet(tmp_path / "results.parquet")
    with pytest.raises(CcrankError, match="lacks the columns \\['tau'\\]"):
        load_results(tmp_path)


def test_single_runs_are_separate_runs_for_trec() -> None:
    """Each single run of a listwise prompt has its own tag."""
    frame, tasks = synthetic()
    chosen = frame[frame["method"] == "random"].assign(method="prompt-list", split="single", layer=-1)
    tags = {line.split()[-1] for line in trec_run(chosen[chosen["model"] == "m_2"], tasks)}
    assert tags == {f"m_2/prompt-list/single/seed-{seed}" for seed in range(3)}


def test_kinds_are_means_of_dataset_means() -> None:
    """By kind, a dataset of two tasks weighs as much as one of four."""
    frame, _ = synthetic()
    by_dataset = {
        (one["model"], one["method"], one["dataset"]): one["abs_tau"] for one in summarise_results(frame)
    }
    for entry in summarise_results(frame, "kind"):
        names = ["texts"] if entry["kind"] == "context" else ["lists_1", "few & odd"]
        wanted = np.mean([by_dataset[entry["model"], entry["method"], name] for name in names])
        assert entry["abs_tau"] == pytest.approx(wanted)
        assert entry["datasets"] == len(names)


def test_an_interval_does_not_hang_on_what_else_is_in_the_table() -> None:
    """Choosing rows first and summarising after gives the very same entries."""
    frame, _ = synthetic()
    chosen = choose(frame, model=["m_2"], method=["random"], dataset=["texts"])
    [alone] = summarise_results(chosen)
    [among] = [
        entry
        for entry in summarise_results(frame)
        if (entry["model"], entry["method"], entry["dataset"]) == ("m_2", "random", "texts")
    ]
    assert pd.Series(alone).equals(pd.Series(among))  # NaN equals NaN here
    with pytest.raises(CcrankError, match="gpt"):
        choose(frame, model=["gpt"])


def test_deviations_are_those_of_the_seeds_means() -> None:
    """± is over seeds of the mean over tasks, by kind of the mean over datasets; a single run has none."""
    frame, _ = synthetic()
    for by in ("dataset", "kind"):
        for entry in summarise_results(frame, by):
            own = frame[
                (frame["model"] == entry["model"])
                & (frame["method"] == entry["method"])
                & (frame[by] == entry[by])
            ]
            if entry["method"] == "prompt-pair":
                assert math.isnan(entry["abs_tau_sd"])
                continue
            means = [
                np.mean([part["abs_tau"].mean() for _, part in own[own["seed"] == seed].groupby("dataset")])
                for seed in range(3)
            ]
            assert entry["abs_tau_sd"] == pytest.approx(np.std(means, ddof=1))


def test_common_directions_are_those_of_held_out_tasks() -> None:
    """|mean τ| over a fold's tasks, mean over folds and seeds, for training across tasks only; a task without gold is
    left out."""
    frame, _ = synthetic()
    frame = frame[(frame["model"] == "m_2") & (frame["method"] == "random") & (frame["dataset"] == "texts")]
    assert math.isnan(summarise_results(frame)[0]["common_tau"])
    frame = frame.assign(split="across-tasks", fold=frame["task"].str[-1].astype(int) % 2)
    frame.loc[frame["task"] == "task 2", "tau"] = math.nan
    [entry] = summarise_results(frame)
    wanted = [
        abs(frame[(frame["seed"] == seed) & (frame["fold"] == fold)]["tau"].mean())
        for seed in range(3)
        for fold in range(2)
    ]
    assert entry["common_tau"] == pytest.approx(np.mean(wanted))
    assert entry["common_tau_sd"] == pytest.approx(np.std(np.reshape(wanted, (3, 2)).mean(1), ddof=1))
    assert 0 < entry["common_tau_chance"] < 1
    assert 0 < entry["common_tau_p"] <= 1
    assert "common_tau" not in summarise_results(frame, "kind")[0]


def test_tasks_without_gold_count_but_do_not_score() -> None:
    """NaN metrics are left out of means; a unit with none but such tasks has no τ."""
    frame, _ = synthetic()
    metrics = ["tau", "abs_tau", "accuracy", "free_accuracy"]
    frame.loc[(frame["dataset"] == "lists_1") & (frame["task"] == "task 0"), metrics] = math.nan
    frame.loc[frame["dataset"] == "texts", metrics] = math.nan
    for entry in summarise_results(frame):
        if entry["dataset"] == "lists_1":
            assert (entry["tasks"], entry["graded"]) == (4, 3)
            assert math.isfinite(entry["tau"])
        if entry["dataset"] == "texts":
            assert entry["graded"] == 0
            assert math.isnan(entry["tau"])
    to_latex(RESULTS, summarise_results(frame))
    assert to_csv(summarise_results(frame)).count("nan") == 0


def test_csv_is_read_back() -> None:
    """The CSV contains every entry, numbers unrounded."""
    frame, _ = synthetic()
    entries = summarise_results(frame)
    rows = list(csv.DictReader(io.StringIO(to_csv(entries))))
    assert [row["dataset"] for row in rows] == [entry["dataset"] for entry in entries]
    assert [float(row["tau"]) for row in rows] == [entry["tau"] for entry in entries]


@pytest.mark.parametrize("by", ["dataset", "kind"])
def test_latex_has_even_rows_and_nothing_unescaped(by: str) -> None:
    """As many cells in each row as columns; characters that LaTeX takes for its own are escaped."""
    frame, _ = synthetic()
    names = (Field("model", key="model"), Field(by, key=by))
    text = to_latex([*names, *RESULTS], summarise_results(frame, by))
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == 1 + len(summarise_results(frame, by))
    for line in body:
        bare = line.replace(r"\&", "")
        assert bare.count("&") == len(columns.group(1)) - 1
        assert not re.search(r"(?<!\\)[%#_]", line)
    assert text.count("{") == text.count("}")


def test_trec_files_give_the_same_order_and_gold() -> None:
    """Runs parse into six fields, ids are unique and without blanks, and τ from the two files is τ of the results."""
    frame, tasks = synthetic()
    grades: dict[str, dict[str, int]] = {}
    for line in trec_judgements(tasks):
        query, zero, document, grade = line.split()
        assert zero == "0"
        grades.setdefault(query, {})[document] = int(grade)
    assert [len(found) for found in grades.values()] == [len(task.items) for task in tasks.values()]
    runs: dict[tuple[str, str], list[tuple[str, int, float]]] = {}
    for line in trec_run(frame, tasks):
        query, q0, document, rank, score, tag = line.split()
        assert q0 == "Q0"
        runs.setdefault((tag, query), []).append((document, int(rank), float(score)))
    assert len(runs) == len(frame)
    for row, (key, lines) in zip(frame.itertuples(), runs.items(), strict=True):
        assert [rank for _, rank, _ in lines] == list(range(1, len(lines) + 1))
        assert [score for *_, score in lines] == sorted((score for *_, score in lines), reverse=True)
        found = evaluate([-rank for _, rank, _ in lines], [grades[key[1]][name] for name, *_ in lines])
        assert found.tau == pytest.approx(row.tau)


def test_rows_have_the_schema() -> None:
    """A table without rows and one with rows are of one schema."""
    assert table_of([]).schema == SCHEMA
    assert list(synthetic()[0].columns) == SCHEMA.names
