"""The picture of one ranking."""

from __future__ import annotations

import warnings
from xml.dom import minidom

import numpy as np
import pytest

from ccrank.errors import CcrankError
from ccrank.ranking import Ranking
from ccrank.ranking_plot import MAX_ITEMS, plot_scale
from ccrank.task import Criterion, Task

ODD = (
    "costs $5 or $6",
    "$^{x$",
    "מגדל גבוה",
    "日本の塔",
    "👩‍👩‍👧 family",
    "a_b^{c} \\frac",
    "long " * 40,
    "line\nbreak",
    "nul\x00 escape\x1b[31m",
    "<b>&amp;",
)


def ranking(items, by="size", gold=False, directed=True, model="fake"):
    values = tuple(float(place) for place in range(len(items))) if gold else None
    task = Task(Criterion(by), tuple(items), values=values)
    scores = np.random.default_rng(0).normal(size=len(items))
    return Ranking(task, scores, "prompt-pair", model, directed)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.parametrize("gold", [False, True])
def test_any_text_is_drawn_without_a_warning(tmp_path, suffix, gold):
    """Dollars are no maths, missing glyphs no warning, control characters no broken file."""
    path = tmp_path / f"scale.{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_scale(ranking(ODD, "price in $^{x$", gold, False, "/a/long/folder" * 10), path)
    assert path.stat().st_size > 5000
    if suffix == "svg":
        minidom.parse(str(path))


def drawn(monkeypatch, *arguments, **options):
    """The figure that would be saved, its texts laid out."""
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (self.draw_without_rendering(), figures.append(self))
    )
    plot_scale(ranking(*arguments, **options), "unused.png")
    return figures[0]


def test_best_on_top_at_their_scores(monkeypatch):
    """The dots are at the scores with their names, the highest last on the axis, which is the top."""
    figure = drawn(monkeypatch, ("a", "b", "c", "d"))
    axes = figure.axes[0]
    points = axes.collections[-1].get_offsets()
    shown = ranking(("a", "b", "c", "d"))
    assert [label.get_text() for label in axes.get_yticklabels()] == list(shown.items[::-1])
    np.testing.assert_allclose(points[:, 0], np.sort(shown.scores))
    assert np.diff(points[:, 1]).tolist() == [1, 1, 1]


def test_gold_is_the_shade(monkeypatch):
    """With gold a dot's shade is the item's gold rank."""
    figure = drawn(monkeypatch, ("a", "b", "c", "d"), gold=True)
    points = figure.axes[0].collections[-1]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert points.get_array().tolist() == ["abcd".index(name) for name in names]


def test_everything_stays_on_the_page(monkeypatch):
    """Long items, criteria and model names are cut, not pushed off the figure."""
    figure = drawn(monkeypatch, ODD, "how much " * 30, gold=True, directed=False, model="/folder" * 40)
    page = figure.bbox
    texts = [*figure.axes[0].get_yticklabels(), *figure.texts]
    assert len(texts) == len(ODD) + 2
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= page.x0 - 1
        assert box.x1 <= page.x1 + 1
    words = " ".join(text.get_text() for text in figure.texts)
    assert "direction unknown" in words
    assert "how much" in words


def test_equal_scores_are_drawn(tmp_path):
    """A flat ranking is a flat picture."""
    task = Task(Criterion("size"), ("a", "b"))
    plot_scale(Ranking(task, np.zeros(2), "prompt-pair", "fake", True), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_too_many_items_are_refused(tmp_path):
    """Before an image that no writer takes."""
    items = [f"thing {number}" for number in range(MAX_ITEMS + 1)]
    with pytest.raises(CcrankError, match="up to 1000 items, got 1001"):
        plot_scale(ranking(items), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    """The folder is missing: a message with the path."""
    with pytest.raises(CcrankError, match=r"cannot draw .*nowhere"):
        plot_scale(ranking(("a", "b")), tmp_path / "nowhere" / "x.png")


def test_a_ranking_plots_itself(tmp_path):
    """`Ranking.plot` gives a figure with every item and its score, and writes it where it is asked to."""
    one = ranking(("tower", "bridge", "fox"))
    figure = one.plot(tmp_path / "scale.png")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == list(one.items)[::-1]
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
