from __future__ import annotations

import itertools
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from ccrank.study.report.figures_bars import figure_across, figure_datasets, figure_main, single_values
from ccrank.study.report.figures_points import (
    example_rows,
    figure_consistency,
    figure_cost,
    figure_layers,
    figure_scales,
)
from ccrank.study.report.figures_style import FAMILY_LOOKS, image_bytes, panels_by_model, spread
from ccrank.study.report.write_report import DRAWINGS
from ccrank.study.results.summary import main_setting, summarise
from ccrank.task import Task

Tasks = dict[tuple[str, str], Task]


@pytest.fixture(scope="module")
def small(results: pd.DataFrame) -> pd.DataFrame:
    """One model and two datasets: enough for every figure."""
    return results[
        (results["model"] == results["model"].iloc[0]) & results["dataset"].isin(["reviews", "wiki-lists"])
    ]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def test_every_figure_is_drawn_and_leaves_the_settings_alone(
    small: pd.DataFrame, tasks_by_key: Tasks
) -> None:
    """A study with all data has all figures, laid out without a warning; matplotlib's settings are what they were."""
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, draw in DRAWINGS.items():
            assert isinstance(draw(small, tasks_by_key), Figure), name
    assert dict(matplotlib.rcParams) == before


def test_few_methods_and_long_names_have_room(small: pd.DataFrame) -> None:
    """One method, a model named by a long path and results below 0 are laid out without a warning."""
    odd = small[small["method"].isin(["triplet", "prompt-pair"])].assign(
        model="/somewhere/far/away/in/a/folder/of/models/" + "m" * 60, tau=lambda rows: -rows["abs_tau"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for draw in (figure_main, figure_datasets, figure_across, figure_cost):
            assert isinstance(draw(odd), Figure)


def test_figures_without_their_data_are_left_out(small: pd.DataFrame, tasks_by_key: Tasks) -> None:
    """None instead of an empty figure, and never an error."""
    assert figure_across(small[small["split"] != "across-tasks"]) is None
    assert figure_layers(small[small["layer"] == -1]) is None
    assert figure_layers(small[small["layer"] == 20]) is None
    first = small["dataset"] == small["dataset"].iloc[0]
    chosen = small[small["layer"] == 20]  # of each dataset one layer, as `--layers auto` leaves it
    assert figure_layers(chosen.assign(layer=chosen["layer"].mask(first, 4))) is None
    assert figure_scales(small, {}) is None
    assert figure_cost(small.assign(distinct_tokens=0)) is None
    assert figure_consistency(small.assign(consistency=float("nan"))) is None
    without_gold = small.assign(tau=np.nan, abs_tau=np.nan, accuracy=np.nan, free_accuracy=np.nan)
    assert [name for name, draw in DRAWINGS.items() if draw(without_gold, tasks_by_key) is not None] == []


def test_bars_of_the_main_figure_are_the_numbers_of_the_table(small: pd.DataFrame) -> None:
    """Each panel's bars end at the table's means, and its bands span the table's chance."""
    figure = figure_main(small)
    assert figure is not None
    table = summarise(main_setting(small), "kind")
    panels = figure.axes
    for axes, (kind, metric) in zip(
        panels, itertools.product(("facts", "context"), ("free_accuracy", "abs_tau")), strict=True
    ):
        own = table[(table["kind"] == kind) & (table["family"] != "supervised")]
        bars = [bar for one in axes.containers if isinstance(one, BarContainer) for bar in one]
        ends = sorted(bar.get_x() + bar.get_width() for bar in bars if bar.get_height() < 0.9)
        np.testing.assert_allclose(ends, sorted(own[metric]))
        assert axes.get_xlim() == (0.5 if metric == "free_accuracy" else 0.0, 1.02)
        all_rows = table[table["kind"] == kind]
        halve = (lambda x: (1 + x) / 2) if metric == "free_accuracy" else (lambda x: x)
        spans = sorted(
            {
                (round(bar.get_x(), 9), round(bar.get_x() + bar.get_width(), 9))
                for bar in bars
                if bar.get_height() > 0.9
            }
        )
        low, high = halve(all_rows["chance_low"]), halve(all_rows["chance_high"])
        assert spans == sorted({(round(a, 9), round(b, 9)) for a, b in zip(low, high, strict=True)})


def test_single_answers_and_single_runs_are_in_the_main_figure(small: pd.DataFrame) -> None:
    """Their means are marked in the panels of their measure: answers of pairs once, listwise runs one by one."""
    pairs = small["method"] == "prompt-pair"
    answered = small.assign(
        free_pair_accuracy=(small["free_accuracy"] * 0.8).where(pairs),
        chance_free_pair_accuracy=pd.Series(0.6, index=small.index).where(pairs),
    )
    runs = small[small["method"] == "prompt-list"].assign(split="single")
    results = pd.concat([answered, runs], ignore_index=True)
    values = single_values(results, ["model", "kind", "method"])
    own = results[(results["method"] == "prompt-pair") & (results["kind"] == "facts")]
    wanted = own.groupby("dataset")["free_pair_accuracy"].mean().mean()
    [answers] = values.loc[(values["method"] == "prompt-pair") & (values["kind"] == "facts"), "value"]
    assert answers == pytest.approx(wanted)
    figure = figure_main(results)
    assert figure is not None
    marked = {
        marker: [
            line.get_xdata() for axes in figure.axes[:2] for line in axes.lines if line.get_marker() == marker
        ]
        for marker in ("s", "o")
    }
    assert answers in np.concatenate(marked["s"])
    by_run = values[values["run"].astype(bool) & (values["kind"] == "facts")]
    assert len(by_run) == 2 * small["seed"].nunique()
    assert set(by_run["value"]) <= set(np.concatenate(marked["o"]))
    assert {"single answers; line: coin flips", "single listwise runs"} <= set(texts(figure))


def test_seven_datasets_are_two_even_lines(small: pd.DataFrame) -> None:
    """Four and three, where six and one would leave the second line almost empty."""
    names = [f"dataset-{number}" for number in range(7)]
    figure, panels = panels_by_model(["m"], names, 6, (0.5, 1.5), ("", "y"))
    assert [panel.axes.get_ylabel() == "y" for panel in panels] == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
    ]
    assert len(figure.axes) == 8


def test_dataset_panels_name_every_dataset_and_method(small: pd.DataFrame) -> None:
    """Only supervised probes, which are marks, are missing from the appendix figure."""
    figure = figure_datasets(small, "abs_tau")
    assert figure is not None
    wanted = set(small["dataset"]) | set(small.loc[small["family"] != "supervised", "method"])
    assert wanted <= set(texts(figure))


def test_examples_are_typical_not_best(small: pd.DataFrame, tasks_by_key: Tasks) -> None:
    """Of the best directed method without labels, the task shown is the lower median by τ of its first run."""
    rows = example_rows(small, tasks_by_key)
    assert len(rows) == 2
    for row in rows.to_dict("records"):
        same = small[
            (small["dataset"] == row["dataset"])
            & (small["method"] == row["method"])
            & (small["layer"] == row["layer"])
            & (small["split"] == row["split"])
            & (small["seed"] == 0)
        ]
        ordered = sorted(same["tau"])
        assert row["tau"] == ordered[(len(ordered) - 1) // 2]
        others = small[
            (small["dataset"] == row["dataset"]) & small["directed"] & (small["family"] != "supervised")
        ]
        assert row["method"] == others.groupby("method")["tau"].mean().idxmax()


def test_names_are_text_not_maths(small: pd.DataFrame, tasks_by_key: Tasks) -> None:
    """Dollars, braces and backslashes in names are drawn as they are, in every figure and format."""
    odd = small.assign(
        method=small["method"].replace("triplet", r"$\frac{$ $"),
        dataset=small["dataset"].replace("reviews", r"$a_{$"),
        model=r"$\undefined{$",
    )
    for draw in (figure_across, figure_cost):
        figure = draw(odd)
        assert figure is not None
        image_bytes(figure, "png", dpi=40)
    assert r"$\frac{$ $" in texts(figure)


def test_the_same_figure_gives_the_same_bytes(small: pd.DataFrame) -> None:
    """A report drawn again is the same to the byte, in every format."""
    few = small[small["method"].isin(["prompt-pair", "triplet"])]
    first, second = (figure_consistency(few) for _ in range(2))
    assert first is not None
    assert second is not None
    for form in ("png", "pdf", "svg"):
        assert image_bytes(first, form, dpi=60) == image_bytes(second, form, dpi=60)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of an sRGB colour."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# Machado, Oliveira and Fernandes 2009, severity 1, on linear light.
DEFICIENT = {
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}


def test_families_are_told_apart_in_grey_and_by_the_colour_blind() -> None:
    """Any two main families differ in lightness by at least 9, and remain distinct for red-green blindness."""
    colours = {
        name: np.array(to_rgb(FAMILY_LOOKS[name].colour))
        for name in ("prompting", "probing", "supervised", "baseline")
    }
    for one, other in itertools.combinations(colours.values(), 2):
        assert abs(lab(one)[0] - lab(other)[0]) >= 9
        for matrix in DEFICIENT.values():
            seen = []
            for rgb in (one, other):
                linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
                turned = np.clip(np.array(matrix) @ linear, 0, 1)
                seen.append(
                    lab(np.where(turned <= 0.0031308, 12.92 * turned, 1.055 * turned ** (1 / 2.4) - 0.055))
                )
            assert np.linalg.norm(seen[0] - seen[1]) >= 15
    assert len({look.marker for look in FAMILY_LOOKS.values()}) == len(FAMILY_LOOKS)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0.01, 0.3))
def test_spread_labels_keep_their_order_and_distance(places: list[float], gap: float) -> None:
    """Neighbours are a gap apart, the order and the mean are unchanged, and positions with enough room do not move."""
    moved = spread(places, gap)
    order = np.argsort(places, kind="stable")
    assert (np.diff(np.asarray(moved)[order]) >= gap - 1e-9).all()
    assert np.mean(moved) == pytest.approx(np.mean(places))
    if len(places) == 1 or np.diff(np.sort(places)).min() >= gap:
        assert moved == pytest.approx(places)
