"""The scale of a sample, applied to items one by one, against the ranking of the whole list."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.criteria import criterion_of, resolved
from ccrank.jobs.fit_scale import fit_signal_scale
from ccrank.jobs.linear import Linear, Units
from ccrank.jobs.raw_signals import read_raw
from ccrank.jobs.scale import SignalScale
from ccrank.methods.labelfree.anchored import smoothed
from ccrank.methods.labelfree.combine import read_signals
from ccrank.methods.registry import get_method
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task

TEMPLATES = load_templates()
NAMES = tuple(
    sorted(f"{first} {second}" for first in ("old", "new", "tall", "red") for second in ("fox", "dog", "sea"))
)
TEXTS = tuple(sorted(f"{name} and then the quick brown fox jumps over the lazy dog again" for name in NAMES))
SIZE = Criterion("size", poles=("small", "large"))
LABELS = {NAMES[0]: 3.0, NAMES[3]: 1.0, NAMES[7]: 2.0, NAMES[9]: 5.0}


def scores_of(method, task, reader, **options):
    [answer] = get_method(method).run([task], reader, TEMPLATES, **options)
    return answer


@pytest.mark.parametrize("items", [NAMES, TEXTS])
@pytest.mark.parametrize("method", ["poles", "likelihood", "axis"])
def test_a_signal_alone_has_the_same_scores_item_by_item(method, items):
    """On the sample's own items the scale gives the scores of the method."""
    reader, task = tiny_reader("llama"), Task(SIZE, items)
    scale = fit_signal_scale(task, reader, TEMPLATES, method, {})
    expected = scores_of(method, task, reader).scores
    np.testing.assert_allclose(scale.score(task, reader, TEMPLATES), expected, atol=1e-4)
    few = replace(task, items=items[4:6])
    np.testing.assert_allclose(scale.score(few, reader, TEMPLATES), expected[4:6], atol=1e-4)


@pytest.mark.parametrize("context", [None, "The old fox is large. The red sea is small."])
@pytest.mark.parametrize("headless", [False, True])
def test_auto_without_smoothing_has_the_same_scores_item_by_item(context, headless):
    """The mean of the signals is the same, whichever signals the kind of task has."""
    reader, task = tiny_reader("llama", headless=headless), Task(SIZE, NAMES, context)
    scale = fit_signal_scale(task, reader, TEMPLATES, "auto", {"anchor": False})
    expected = scores_of("auto", task, reader, anchor=False).scores
    np.testing.assert_allclose(scale.score(task, reader, TEMPLATES), expected, atol=1e-4)


@pytest.mark.parametrize(("by", "items"), [("politeness", TEXTS), ("weight", NAMES)])
def test_exemplars_written_for_a_criterion_score_items_one_by_one(by, items):
    """Where texts were written for the criterion, their probe and its weight are part of the scale; without them
    (exemplars=no) they are not."""
    reader, task = tiny_reader("llama"), Task(resolved(criterion_of(by)), items)
    for exemplars in (True, False):
        options = {"anchor": False, "exemplars": exemplars}
        scale = fit_signal_scale(task, reader, TEMPLATES, "auto", options)
        assert (scale.written is not None) == exemplars
        expected = scores_of("auto", task, reader, **options).scores
        np.testing.assert_allclose(scale.score(task, reader, TEMPLATES), expected, atol=1e-4)


@pytest.mark.parametrize("count", [12, 60])
def test_smoothing_predicts_a_new_item_from_the_sample(count):
    """A new item is smoothed as the list smooths an item that it leaves out: by a ridge regression on the others, in
    the units of the predictions within the sample. Checked against a list to which the item is added, in which all
    constants may change only as much as one item of many changes them."""
    reader = tiny_reader("llama")
    items = tuple(sorted(f"{name} {number}" for name in NAMES for number in range(count // 12)))
    task, new = Task(SIZE, items), Task(SIZE, ("the quick brown fox", "a lazy dog"))
    scale = fit_signal_scale(task, reader, TEMPLATES, "auto", {})
    read = read_signals([task], reader, TEMPLATES, with_states=True)
    states, anchors = read.states[0][1].astype(float), read.signals[0].total()
    raw = read_raw(new, reader, TEMPLATES, scale.plan)
    mean, deviation = states.mean(axis=0), states.std(axis=0)
    target = (anchors - anchors.mean()) / anchors.std()
    added = 0.0
    for layer in range(states.shape[1]):
        rows = (states[:, layer] - mean[layer]) / deviation[layer]
        own = (raw.states[0][:, layer] - mean[layer]) / deviation[layer]
        penalty = 3.0 * rows.shape[1] * np.eye(rows.shape[1])
        weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ target)
        left_out = []
        for index in range(count):
            others = np.delete(rows, index, axis=0)
            found = np.linalg.solve(others.T @ others + penalty, others.T @ np.delete(target, index))
            left_out.append(rows[index] @ found)
        added = added + (own @ weights - np.mean(left_out)) / np.std(left_out)
    expected = 0.5 * anchors.std() * added / states.shape[1]
    np.testing.assert_allclose(scale.smoothing(*raw.states), expected, rtol=1e-4, atol=1e-5)
    plain = replace(scale, smoothing=None).score(new, reader, TEMPLATES)
    np.testing.assert_allclose(scale.score(new, reader, TEMPLATES), plain + expected, atol=1e-5)
    np.testing.assert_allclose(
        scores_of("auto", task, reader).scores, smoothed(read.states[0][1], anchors), atol=1e-6
    )


@pytest.mark.parametrize("context", [None, "The old fox is large. The red sea is small."])
def test_labels_move_new_items_as_the_posterior_does(context):
    """For items of the sample without labels, whose label-free score is not smoothed, the scale gives the posterior
    mean of the fit with labels."""
    reader, task = tiny_reader("llama"), Task(SIZE, NAMES, context)
    options = {"labels": LABELS, "anchor": False}
    answer = scores_of("auto", task, reader, **options)
    scale = fit_signal_scale(task, reader, TEMPLATES, "auto", options, answer.probe)
    unlabelled = [index for index, item in enumerate(NAMES) if item not in LABELS]
    found = scale.score(task, reader, TEMPLATES)
    np.testing.assert_allclose(found[unlabelled], answer.scores[unlabelled], atol=2e-3)
    assert np.abs(found - scores_of("auto", task, reader, anchor=False).scores).max() > 0.05


def test_a_scale_survives_its_file(tmp_path):
    """What is loaded gives the same scores, with all parts of the scale."""
    reader, task = tiny_reader("llama"), Task(resolved(criterion_of("weight")), NAMES)
    answer = scores_of("auto", task, reader, labels=LABELS)
    scale = fit_signal_scale(task, reader, TEMPLATES, "auto", {"labels": LABELS}, answer.probe)
    assert None not in (scale.axis, scale.smoothing, scale.written, scale.labelled)
    scale.save(tmp_path / "scale.safetensors")
    again = SignalScale.load(tmp_path / "scale.safetensors")
    new = Task(task.criterion, ("a lazy dog", "the sea"))
    np.testing.assert_array_equal(again.score(new, reader, TEMPLATES), scale.score(new, reader, TEMPLATES))


def test_units_of_a_constant_are_zero():
    """A signal that does not vary in the sample counts for nothing, instead of dividing by zero."""
    np.testing.assert_array_equal(Units.of(np.array([2.0, 2.0]))(np.array([1.0, 3.0])), [0.0, 0.0])
    linear = Linear(np.ones((2, 1, 2)), 1.0).in_units(Units(3.0, 0.5))
    found = linear(np.array([[[1.0, 2.0]]]), np.array([[[0.0, 5.0]]]))
    np.testing.assert_allclose(found, [(8 + 1 - 3) / 2])
