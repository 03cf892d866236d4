"""What labels say about new items: the posterior of the fit, item by item."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made import fitted, made, observe
from tiny import tiny_reader

from ccrank import Task, fit
from ccrank.errors import CcrankError
from ccrank.methods.labelled.prior import Kernel, Setting
from ccrank.methods.labelled.saved_model import LabelModel
from ccrank.metrics.order import tau_b
from ccrank.task import Criterion

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "Cuba", "Japan", "France")
LABELS = {"Russia": 17.1, "Canada": 10.0, "Chad": 1.3, "Monaco": 0.0}


@pytest.mark.parametrize(("beta", "settings"), [(0.0, 1), (0.5, 1), (0.5, None)])
def test_items_without_a_label_have_their_posterior(beta, settings):
    """Mean and deviation of items of the list that have no label are those of the fit, for one setting and several."""
    truth, prior, kernel = made(0, items=40)
    seen = observe([(place, float(truth[place])) for place in range(10)])
    grid = None if settings is None else [Setting(beta, 0.6, "late")]
    whole = fitted(prior, kernel, seen, grid, draws=1)
    found = LabelModel.fit(whole, kernel, prior)(kernel.lists[0], prior)
    assert found.values[10:] == pytest.approx(whole.mean[10:], abs=2e-3)
    assert found.deviation[10:] == pytest.approx(whole.deviation[10:], abs=2e-3)


def test_new_items_are_ranked_without_the_old_list():
    """By states alone, half the items rank the other half better than chance, and one by one as all together."""
    taus = []
    for seed in range(5):
        truth, prior, kernel = made(seed, items=160, beta=0.1, share=0.8, depth=2, width=4)
        [(slot, item)] = kernel.lists
        old = Kernel([(slot[:80], item[:80])])
        seen = observe([(place, float(truth[place])) for place in range(60)])
        model = LabelModel.fit(fitted(prior[:80], old, seen, draws=1), old, None)
        new = model((slot[80:], item[80:]), np.zeros(80)).values
        taus.append(tau_b(new, truth[80:]))
        alone = [
            model((slot[place : place + 1], item[place : place + 1]), np.zeros(1)).values[0]
            for place in (80, 159)
        ]
        assert [new[0], new[-1]] == pytest.approx(alone)
    assert np.mean(taus) > 0.3


def test_deviations_are_left_out_where_they_would_fill_the_file(monkeypatch):
    """Beyond the limit for states of labelled items a new item has a score and no deviation."""
    monkeypatch.setattr("ccrank.methods.labelled.saved_model.MAX_TABLE_BYTES", 10)
    scale = fit(ITEMS, "size", model=tiny_reader(), labels=LABELS)
    assert scale.score(["Mali"]).deviation is None
    assert scale.score(ITEMS[:2]).deviation is not None


def test_labels_of_several_lists_make_one_scale(tmp_path):
    """Lists of one criterion whose labels were fitted together share a scale, by states alone."""
    criterion = Criterion("size", poles=("small", "large"))
    tasks = [
        Task(criterion, ITEMS[:5], values=tuple(map(float, range(5))), id="one"),
        Task(criterion, ITEMS[4:], values=tuple(map(float, range(5))), id="two"),
    ]
    scale = fit(tasks, model=tiny_reader(), options={"labels": "tasks"})
    together = scale(ITEMS)
    assert [float(scale([item])[0]) for item in ITEMS[:3]] == pytest.approx(together[:3], abs=1e-4)
    assert np.ptp(together) > 0.05


def test_states_of_another_shape_are_refused():
    """States of other layers or another width are named."""
    truth, prior, kernel = made(0, items=20)
    seen = observe([(place, float(truth[place])) for place in range(5)])
    model = LabelModel.fit(fitted(prior, kernel, seen, draws=1), kernel, prior)
    with pytest.raises(CcrankError, match="the labels were fitted on states"):
        model((np.zeros((2, 1, 1)), np.zeros((2, 1, 1))), np.zeros(2))
    with pytest.raises(ValueError, match="different shapes"):
        replace(model, weights=model.weights[:1])
