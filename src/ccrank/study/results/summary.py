"""Summaries of results: mean over seeds first, then over tasks, with bootstrap intervals over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.metrics.significance import common_direction
from ccrank.metrics.tasks import macro_mean_with_interval
from ccrank.results.schema import PAIR_MEASURES

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 2000
UNIT = ["model", "dataset", "kind", "family", "directed", "method", "split", "layer"]
MEASURES = [
    "tau",
    "abs_tau",
    "accuracy",
    "free_accuracy",
    "chance_abs_tau",
    "chance_free_accuracy",
    *PAIR_MEASURES,
]
COSTS = ["consistency", "seconds", "distinct_tokens"]
COMMON = ("common_tau", "common_tau_sd", "common_tau_chance", "common_tau_p")
FACETS = ("model", "dataset", "method", "split", "layer")


def summarise_results(frame: pd.DataFrame, by: str = "dataset") -> list[dict[str, Any]]:
    """One entry for each model, dataset, method, split and layer; with `by="kind"` one per kind instead of dataset.

    The mean of a kind is the unweighted mean of its datasets' means, as in the paper; its interval comes from
    resampling tasks within each dataset. Tasks without gold count in `tasks` but in no metric. If each dataset has its
    own layer, as chosen by `auto`, the mean of a kind is over those, and its layer is −1.

    `tau_sd` and `abs_tau_sd` are standard deviations over seeds of the mean over tasks; NaN for a single seed. Of
    probes trained across tasks, `common_tau` is |mean τ| over the held-out tasks of a fold, `common_tau_sd` its
    deviation over seeds, `common_tau_chance` its expectation and `common_tau_p` its p-value if every task's direction
    were random (see `common_direction`).
    """
    if by not in ("dataset", "kind"):
        raise CcrankError(f"by must be 'dataset' or 'kind', not {by!r}")
    keys = UNIT if by == "dataset" else [name for name in UNIT if name != "dataset"]
    if by == "kind":
        frame = frame.assign(layer=_kind_layers(frame))
    runs = dict(_groups(frame, keys))
    return [
        _entry(dict(zip(keys, key, strict=True)), [part for _, part in _groups(group, ["dataset"])])
        | over_seeds(runs[key])
        | (held_out_direction(runs[key]) if by == "dataset" else {})
        for key, group in _groups(task_means(frame), keys)
    ]


def _kind_layers(frame: pd.DataFrame) -> pd.Series:
    """The layer of each row, −1 for methods that have one layer on each dataset, but not the same."""
    method = [frame[name] for name in ("model", "method", "split")]
    layers = frame["layer"]
    most = layers.groupby([*method, frame["dataset"]]).transform("nunique").groupby(method).transform("max")
    differ = layers.groupby(method).transform("nunique") > 1
    return layers.mask((most == 1) & differ, -1)


def over_seeds(runs: pd.DataFrame) -> dict[str, float]:
    """The deviation over seeds of the mean over tasks (and datasets) of τ and |τ|, as `tau_sd` and `abs_tau_sd`.

    A dataset on which the method has a single run counts with that run in every seed.
    """
    graded = runs[runs["tau"].notna()]
    found = {}
    for name in ("tau", "abs_tau"):
        means = graded.groupby(["dataset", "seed"], observed=True)[name].mean().unstack("seed")
        filled = means.T.fillna(means.mean(axis=1)).mean(axis=1)  # one value for each seed
        found[f"{name}_sd"] = float(filled.std(ddof=1)) if len(filled) > 1 else float("nan")
    return found


def held_out_direction(runs: pd.DataFrame, resamples: int = RESAMPLES) -> dict[str, float]:
    """The common direction of a probe trained across the tasks of one dataset; NaN for other rows.

    Parameters
    ----------
    runs
        The rows of one model, dataset, method, split and layer.
    resamples
        The number of random directions.
    """
    held_out = runs[(runs["fold"] >= 0) & runs["tau"].notna()] if "fold" in runs else runs[:0]
    if held_out.empty:
        return dict.fromkeys(COMMON, float("nan"))
    table = held_out.pivot_table(index="seed", columns=["task", "fold"], values="tau", sort=False)
    found = common_direction(
        table.to_numpy(),
        table.columns.get_level_values("fold").to_numpy(),
        np.random.default_rng(0),
        resamples,
    )
    deviation = float(np.std(found.seeds, ddof=1)) if len(found.seeds) > 1 else float("nan")
    return dict(zip(COMMON, (found.value, deviation, found.expected, found.p_value), strict=True))


def task_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds: one row for each task of each unit, in the order of the table."""
    frame = frame.assign(**{name: float("nan") for name in PAIR_MEASURES if name not in frame})
    found: pd.DataFrame = (
        frame.groupby([*UNIT, "task", "n_items"], sort=False, observed=True)[[*MEASURES, *COSTS]]
        .mean()
        .reset_index()
    )
    return found


def choose(frame: pd.DataFrame, **wanted: Sequence[str]) -> pd.DataFrame:
    """The rows of the given models, datasets, methods, splits and layers; a facet without values keeps all."""
    for facet, names in wanted.items():
        if not names:
            continue
        column = frame[facet].astype(str)
        known = list(dict.fromkeys(column))
        for name in names:
            if name not in known:
                raise CcrankError(f"the results have no {facet} {name!r}; they have {', '.join(known)}")
        frame = frame[column.isin(list(names))]
    if frame.empty:
        raise CcrankError("no results match this selection")
    return frame


def _groups(frame: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    return [
        (key if isinstance(key, tuple) else (key,), group)
        for key, group in frame.groupby(keys, sort=False, observed=True)
    ]


def _entry(key: dict[str, Any], parts: list[pd.DataFrame]) -> dict[str, Any]:
    """The mean of the parts' means; each part is the tasks of one dataset."""
    entry = {name: value.item() if isinstance(value, np.generic) else value for name, value in key.items()}
    if "dataset" not in entry:
        entry["datasets"] = len(parts)
    entry["tasks"] = sum(map(len, parts))
    known = [part for part in parts if part["tau"].notna().any()]
    graded = [part[part["tau"].notna()] for part in known]
    entry["graded"] = sum(map(len, graded))

    def mean(name: str, of: list[pd.DataFrame]) -> float:
        values = [part[name].mean() for part in of]
        return float(np.mean(values)) if values else float("nan")

    # Each entry has its own generator, so that an interval does not depend on the rest of the table.
    low, high = _interval([part["tau"].to_numpy() for part in graded])
    return entry | {
        "tau": mean("tau", graded),
        "tau_low": low,
        "tau_high": high,
        **{name: mean(name, graded) for name in MEASURES[1:]},
        **{name: mean(name, parts) for name in COSTS},
    }


def _interval(samples: list[np.ndarray]) -> tuple[float, float]:
    """The bootstrap interval of the mean of the samples' means, tasks resampled within each sample."""
    if not samples:
        return float("nan"), float("nan")
    found = macro_mean_with_interval(samples, np.random.default_rng(0), resamples=RESAMPLES)
    return found.low, found.high
