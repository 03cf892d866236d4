"""Paired comparisons of methods or models over the tasks of a study, corrected for their number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ccrank.errors import CcrankError, needs_extra
from ccrank.metrics.tasks import detectable_difference, holm, macro_mean_with_interval, sign_flip_p
from ccrank.study.results.directions import SPLITS
from ccrank.study.results.summary import one_layer
from ccrank.util.text import did_you_mean

with needs_extra("report", "a table of results"):
    import pandas as pd

SIGNED = ("tau", "accuracy", "pair_accuracy")
"""Measures that only methods with a direction have."""
MEASURES = ("abs_tau", "free_accuracy", "free_pair_accuracy", *SIGNED)
MIN_TASKS = 6
"""With fewer tasks no difference can reach p = 0.05: the smallest p of a sign-flip test is 2/2ⁿ."""
LEVEL = 0.05


def compare(
    results: pd.DataFrame, methods: Sequence[str], models: Sequence[str] = (), measure: str = "abs_tau"
) -> list[dict[str, Any]]:
    """Paired differences between all pairs of methods within each model, and if several `models` are given between
    these too, by each method; per dataset, and over all datasets with equal weights.

    A method is NAME[@VARIANT][:SPLIT]; without a split the main one: same-task for probes. `measure` is one of
    `MEASURES`. A value is a task's mean over seeds. The interval is a bootstrap over tasks, p is from a two-sided
    sign-flip test over tasks, `holm` is p after Holm's correction for all tests of this call, and `detectable` the
    difference that a test of this call finds in 80 % of cases even if it has to survive the whole correction. Datasets
    with fewer than `MIN_TASKS` tasks are shown without a test.
    """
    if measure not in MEASURES:
        raise CcrankError(f"unknown measure {measure!r}; choose one of {', '.join(MEASURES)}")
    for kind, names in (("methods", methods), ("models", models)):
        if repeated := {name for name in names if names.count(name) > 1}:
            raise CcrankError(f"{kind} contains {min(repeated)!r} twice")
    known = list(dict.fromkeys(results["model"]))
    for name in models:
        if name not in known:
            raise CcrankError(
                f"the results have no model {name!r}; {did_you_mean(name, known)}they have {known}"
            )
    kept = one_layer(results[results[measure].notna()])
    runs = {
        (model, method): _values(kept, model, method, measure)
        for model in models or known
        for method in methods
    }
    rows: list[dict[str, Any]] = []
    for model in models or known:
        for first, second in combinations(methods, 2):
            rows += _rows_of(model, (first, second), (runs[model, first], runs[model, second]))
    for method in methods:
        for first, second in combinations(models, 2):
            rows += _rows_of(method, (first, second), (runs[first, method], runs[second, method]))
    if not rows:
        raise CcrankError(
            "nothing to compare: give two or more methods, or one method and two or more models"
        )
    tested = [row for row in rows if not math.isnan(row["p"])]
    for row, value in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["holm"] = float(value)
        row["detectable"] = detectable_difference(row["detectable"], row["tasks"], LEVEL / len(tested))
    return rows


def _values(results: pd.DataFrame, model: str, method: str, measure: str) -> pd.Series:
    """(dataset, task) → the mean over seeds."""
    label, colon, split = method.partition(":")
    rows = results[(results["model"] == model) & (results["method"] == label)]
    known = set(rows["split"])
    splits = [name for name in SPLITS if name in known]
    if not splits or (colon and split not in splits):
        units = results[results["model"] == model][["method", "split"]].drop_duplicates()
        names = [*units["method"].where(units["split"] == "none", units["method"] + ":" + units["split"])]
        hint = did_you_mean(method, [*units["method"], *names])
        raise CcrankError(f"{model} has no graded results of {method!r}; {hint}it has {', '.join(names)}")
    rows = rows[rows["split"] == (split or splits[0])]
    if measure in SIGNED and not rows["directed"].all():
        raise CcrankError(
            f"{method} does not give the direction, so its {measure} is arbitrary; use --measure abs_tau, or methods "
            "with a direction"
        )
    return rows.groupby(["dataset", "task"], sort=False)[measure].mean()


def _rows_of(
    model: str, names: tuple[str, str], values: tuple[pd.Series, pd.Series]
) -> Iterator[dict[str, Any]]:
    """Two methods on one model, or two models by one method: a row for each dataset, and one for the mean over all
    datasets that have enough tasks for a test."""
    first, second = names
    both = pd.concat(values, axis=1, join="inner")
    if both.empty:
        raise CcrankError(f"{model}: {first} and {second} have no task in common")
    parts = {str(dataset): [part.to_numpy()] for dataset, part in both.groupby(level="dataset", sort=False)}
    tested = [part for [part] in parts.values() if len(part) >= MIN_TASKS]
    if len(tested) > 1:
        parts[f"mean of {len(tested)}"] = tested
    for dataset, tables in parts.items():
        yield {"model": model, "first": first, "second": second, "dataset": dataset, **_difference(tables)}


def _difference(parts: Sequence[np.ndarray]) -> dict[str, float]:
    """The entries of a row, from the values (T, 2) on the tasks of each dataset."""
    differences = [part[:, 0] - part[:, 1] for part in parts]
    tasks = sum(map(len, parts))
    # Each test has its own generator, so that its result does not depend on what else is compared.
    interval = macro_mean_with_interval(differences, np.random.default_rng(0))
    p_value, error = math.nan, math.nan
    if min(map(len, parts)) >= MIN_TASKS:
        # Datasets weigh the same whatever their number of tasks.
        weighted = np.concatenate([part / len(part) for part in differences])
        p_value = sign_flip_p(weighted, np.random.default_rng(0))
        error = math.sqrt(sum(part.var(ddof=1) / len(part) for part in differences)) / len(parts)
    first, second = np.mean([part.mean(axis=0) for part in parts], axis=0)
    return {
        "tasks": tasks,
        "first_mean": float(first),
        "second_mean": float(second),
        "difference": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "p": p_value,
        "holm": math.nan,
        "detectable": error * math.sqrt(tasks),
    }


def tests_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """The number of tests that Holm's correction is for."""
    return sum(not math.isnan(row["p"]) for row in rows)
