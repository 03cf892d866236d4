from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from ccrank.metrics.chance import Interval, chance_floor, p_value_abs_tau, p_value_tau
from ccrank.metrics.order import kendall_tau
from ccrank.metrics.tasks import mean_with_interval
from ccrank.study.report.page_data import headlines, signed_floor
from ccrank.study.results.summary import (
    FAMILIES,
    macro_floor,
    main_setting,
    method_order,
    one_layer,
    summarise,
)


def test_summary_is_the_mean_over_tasks_and_its_spread_over_seeds(results: pd.DataFrame) -> None:
    """Every row of the summary equals a plain loop over its own results, chance and p-value included."""
    table = summarise(results, intervals=False)
    assert len(table) == len(results.drop_duplicates(["model", "dataset", "method", "layer", "split"]))
    for row in table.sample(12, random_state=0).itertuples():
        own = results[
            (results["model"] == row.model)
            & (results["dataset"] == row.dataset)
            & (results["method"] == row.method)
            & (results["layer"] == row.layer)
            & (results["split"] == row.split)
        ]
        by_seed = [np.mean(own.loc[own["seed"] == seed, "abs_tau"]) for seed in sorted(set(own["seed"]))]
        assert row.abs_tau == pytest.approx(np.mean(by_seed))
        spread = np.std(by_seed, ddof=1) if len(by_seed) > 1 else math.nan
        assert row.abs_tau_sd == pytest.approx(spread, nan_ok=True)
        sizes = [int(own.loc[own["task"] == task, "n_items"].iloc[0]) for task in set(own["task"])]
        assert (row.tasks, row.seeds) == (len(sizes), len(by_seed))
        floor = chance_floor(sizes)
        assert (row.chance_abs_tau, row.chance_low, row.chance_high) == pytest.approx(
            (floor.mean, floor.low, floor.high)
        )
        expected = p_value_tau(row.tau, sizes) if row.directed else p_value_abs_tau(row.abs_tau, sizes)
        assert row.p_value == pytest.approx(expected)


def test_summary_does_not_depend_on_the_order_of_rows(results: pd.DataFrame) -> None:
    """Shuffled results give the same numbers."""
    keys = ["model", "dataset", "method", "layer", "split"]
    one = summarise(results, intervals=False).set_index(keys).sort_index()
    other = summarise(results.sample(frac=1, random_state=1), intervals=False).set_index(keys).sort_index()
    pd.testing.assert_frame_equal(one, other[one.columns])


def test_every_dataset_weighs_the_same_in_a_kind(results: pd.DataFrame) -> None:
    """A dataset whose rows are doubled under new task names does not move the mean over its kind."""
    twice = results[results["dataset"] == "reviews"].assign(task=lambda rows: rows["task"] + " again")
    keys = ["model", "kind", "method"]
    one = summarise(main_setting(results), "kind", intervals=False).set_index(keys).sort_index()
    other = (
        summarise(main_setting(pd.concat([results, twice])), "kind", intervals=False)
        .set_index(keys)
        .sort_index()
    )
    np.testing.assert_allclose(one["abs_tau"], other["abs_tau"])
    assert (other["chance_high"] - other["chance_low"]).sum() < (one["chance_high"] - one["chance_low"]).sum()


def test_a_method_run_once_on_one_dataset_stands_for_every_seed(results: pd.DataFrame) -> None:
    """Where one dataset has only its first seed, that run is its share in every seed's mean."""
    cut = results[(results["dataset"] != "reviews") | (results["seed"] == 0)]
    table = summarise(main_setting(cut), "kind", intervals=False).set_index(["model", "kind", "method"])
    rows = main_setting(cut)
    rows = rows[
        (rows["model"] == rows["model"].iloc[0]) & (rows["method"] == "triplet") & (rows["kind"] == "context")
    ]
    datasets = list(dict.fromkeys(rows["dataset"]))
    means = rows.groupby(["dataset", "seed"])["abs_tau"].mean()
    by_seed = [
        np.mean([means.get((dataset, seed), means.get((dataset, 0))) for dataset in datasets])
        for seed in range(3)
    ]
    row = table.loc[(rows["model"].iloc[0], "context", "triplet")]
    assert row["abs_tau"] == pytest.approx(np.mean(by_seed))
    assert row["abs_tau_sd"] == pytest.approx(np.std(by_seed, ddof=1))


def test_floor_of_a_mean_over_datasets_covers_random_orders() -> None:
    """About 95 % of simulated means over two datasets of random orders are in the interval, around the same mean."""
    rng = np.random.default_rng(0)
    sizes = {"a": [4, 4, 5], "b": [6] * 8}
    floor = macro_floor([chance_floor(own) for own in sizes.values()])
    draws = [
        np.mean(
            [np.mean([abs(kendall_tau(rng.permutation(n), range(n))) for n in own]) for own in sizes.values()]
        )
        for _ in range(1500)
    ]
    assert np.mean(draws) == pytest.approx(floor.mean, abs=4 * np.std(draws) / math.sqrt(len(draws)))
    inside = np.mean([floor.low <= one <= floor.high for one in draws])
    assert 0.92 <= inside <= 0.985
    assert macro_floor([floor]) == Interval(floor.mean, pytest.approx(floor.low), pytest.approx(floor.high))


def test_signed_floor_covers_random_orders() -> None:
    """About 95 % of simulated means of signed τ are in the interval."""
    rng = np.random.default_rng(0)
    sizes = [4, 5, 6, 8, 10]
    floor = signed_floor(sizes)
    draws = [np.mean([kendall_tau(rng.permutation(n), range(n)) for n in sizes]) for _ in range(1500)]
    assert 0.93 <= np.mean([floor.low <= one <= floor.high for one in draws]) <= 0.97


def test_one_layer_takes_the_most_runs_then_the_last() -> None:
    """The layer with the most rows is kept, of equals the last; gold plays no part."""
    base = {"model": "m", "split": "none", "dataset": "d"}
    rows = [
        *(
            {**base, "method": "a", "layer": layer, "tau": tau}
            for layer, tau in ((3, 0.9), (7, 0.1), (7, 0.1))
        ),
        *({**base, "method": "b", "layer": layer, "tau": 0.9 - layer} for layer in (2, 5, 4)),
    ]
    kept = one_layer(pd.DataFrame(rows))
    assert set(zip(kept["method"], kept["layer"], strict=True)) == {("a", 7), ("b", 5)}
    chosen = [
        {**base, "dataset": name, "method": "c", "layer": layer} for name, layer in (("d", 3), ("e", 8))
    ]
    assert (
        len(one_layer(pd.DataFrame(chosen))) == 2
    )  # each dataset has its own layer, as `--layers auto` leaves it


def test_main_setting_has_each_label_free_method_once_and_ceilings_on_the_same_task(
    results: pd.DataFrame,
) -> None:
    """One split and one layer for each method; supervised ones only as same-task ceilings."""
    rows = main_setting(results)
    assert (rows.groupby(["model", "method"])[["split", "layer"]].nunique() == 1).all().all()
    assert set(rows.loc[rows["family"] == "supervised", "split"]) == {"same-task"}
    assert set(rows["method"]) == set(results["method"])
    only_across = results[(results["method"] != "triplet") | (results["split"] == "across-tasks")]
    assert "triplet" in set(main_setting(only_across)["method"])


def test_methods_stand_by_family(results: pd.DataFrame) -> None:
    """The order of methods follows the order of families."""
    family = dict(zip(results["method"], results["family"], strict=True))
    places = [FAMILIES.index(family[method]) for method in method_order(results)]
    assert places == sorted(places)


def test_headlines_name_the_best_without_labels(results: pd.DataFrame) -> None:
    """Directed by signed τ, any by |τ|, none of them supervised; the ceiling is one tested on other tasks."""
    table = summarise(one_layer(results), intervals=False)
    found = headlines(table)
    assert len(found) == 2 * 6
    for one in found:
        rows = table[(table["model"] == one.model) & (table["dataset"] == one.dataset)]
        free = rows[rows["family"] != "supervised"]
        assert one.free is not None
        assert one.directed is not None
        assert one.ceiling is not None
        assert one.free.value == free["abs_tau"].max()
        assert one.directed.value == free.loc[free["directed"], "tau"].max()
        assert one.directed.family == "prompting"
        assert one.ceiling.split == "across-tasks"
        assert one.free.above_chance == (one.free.value > one.free.chance.high)


def test_the_best_of_many_random_methods_is_rarely_above_chance() -> None:
    """The headline's interval is corrected for choosing the best: of ten methods that order at random, the best is
    above it in at most 5 % of studies, though it would often be above the interval of a single one."""
    rng = np.random.default_rng(0)
    sizes, methods = (5, 6, 8, 10), 10
    corrected = alone = 0
    for _ in range(300):
        taus = np.array([[kendall_tau(rng.permutation(n), range(n)) for n in sizes] for _ in range(methods)])
        rows = pd.DataFrame(
            {
                "method": [f"method-{number}" for number in range(methods)],
                **{"model": "m", "dataset": "d", "split": "none", "family": "baseline"},
                **{"graded": len(sizes), "directed": False, "n_items": [sizes] * methods},
                **{"tau": taus.mean(axis=1), "abs_tau": np.abs(taus).mean(axis=1)},
            }
        )
        [headline] = headlines(rows)
        assert headline.free is not None
        assert headline.free.methods == methods
        corrected += headline.free.above_chance
        alone += headline.free.value > chance_floor(sizes).high
    assert corrected / 300 <= 0.05
    assert alone / 300 > 0.1


def test_intervals_are_over_tasks(results: pd.DataFrame) -> None:
    """Each contains its mean |τ|, and is that of the means over seeds of the tasks."""
    main = one_layer(results)
    table = summarise(main)
    assert (table["abs_tau_low"] <= table["abs_tau"]).all()
    assert (table["abs_tau"] <= table["abs_tau_high"]).all()
    row, keys = table.iloc[0], ["model", "dataset", "method", "layer", "split"]
    own = main[(main[keys] == row[keys]).all(axis=1)].groupby("task")["abs_tau"].mean()
    wanted = mean_with_interval(own, np.random.default_rng(0), resamples=20_000)
    assert row["abs_tau_low"] == pytest.approx(wanted.low, abs=0.02)
    assert row["abs_tau_high"] == pytest.approx(wanted.high, abs=0.02)
