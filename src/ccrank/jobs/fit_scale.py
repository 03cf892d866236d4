"""Fitting a scale on a sample: the constants of each signal, of their mean, of smoothing and of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccrank.criteria.exemplars import WRITTEN
from ccrank.jobs.linear import Linear, Units
from ccrank.jobs.raw_signals import Plan, RawSignals, plan_of, read_raw
from ccrank.jobs.scale import SignalScale
from ccrank.methods.labelfree.anchored import LEAST_SMOOTHED, SMOOTHING, fitted_and_left_out, smoothed
from ccrank.methods.labelfree.combine import Signals
from ccrank.methods.labelfree.signals import SLOT_SHARE, axis_direction, pole_prompts, text_weights, texts_for
from ccrank.methods.labelled.fit import Fitted
from ccrank.methods.labelled.prior import Kernel
from ccrank.methods.labelled.saved_model import UnsavedProbe
from ccrank.models import ReaderLike
from ccrank.models.reading import Progress
from ccrank.prompts import Templates
from ccrank.task import Task
from ccrank.util.zscores import FLOAT32_ROUNDING, mean_and_deviation, z_scores


def fit_signal_scale(
    task: Task,
    reader: ReaderLike,
    templates: Templates,
    method: str,
    options: Mapping[str, Any],
    probe: object = None,
    progress: Progress | None = None,
) -> SignalScale:
    """The scale of a sample, on which its own items have the scores that the method gives them."""
    plan = plan_of(method, options, task, reader)
    raw = read_raw(task, reader, templates, plan, progress)
    is_axis = method == "axis" or (method == "auto" and bool(plan.layers) and not _by_context(task, reader))
    with_texts = is_axis and method == "auto" and bool(options.get("exemplars", True))
    exemplars = _Exemplars.read(task, reader, templates, plan, with_texts, progress) if is_axis else None
    axis = None if exemplars is None else _axis(exemplars.made, raw)
    if axis is not None and method == "auto":  # among other signals it is standardised as they are
        axis = axis.in_units(Units.of(axis(*raw.states)))
    plain = {name: Units() if method == "poles" else Units.of(values) for name, values in raw.signals.items()}
    scale = SignalScale(plan, plain, axis)
    if method != "auto":
        return scale
    if exemplars is not None and exemplars.texts is not None:
        scale = replace(scale, written=_written(scale, exemplars.texts, raw))
    scores = scale.of(raw)
    if is_axis and options.get("anchor", True) and len(scores) >= LEAST_SMOOTHED:
        scale = replace(scale, smoothing=_smoothing(raw.states[0], scores))
        scores = smoothed(raw.states[0], scores)
    if isinstance(probe, UnsavedProbe):
        # A new item's posterior mean: β · (its label-free score) + what the states of the labelled items predict.
        weight, states = probe.fitted.prior_weight, label_weights(probe.fitted, probe.kernel)
        scale = replace(scale, labelled=(Units.of(scores), weight, states))
    return scale


def _by_context(task: Task, reader: ReaderLike) -> bool:
    """Whether the answer is in a context, so that the signals are likelihoods alone."""
    return bool(task.context) and not reader.loaded.missing_head


@dataclass(frozen=True)
class _Exemplars:
    """States of exemplars at the item and at the slot, of the high pole first."""

    made: tuple[np.ndarray, np.ndarray]
    """(2E, L, d) of those made of pole words."""
    texts: tuple[np.ndarray, np.ndarray] | None
    """(T, L, d) of those that were written for the criterion; None if there are none."""

    @classmethod
    def read(
        cls,
        task: Task,
        reader: ReaderLike,
        templates: Templates,
        plan: Plan,
        with_texts: bool,
        progress: Progress | None,
    ) -> _Exemplars:
        texts = texts_for(task) if with_texts else []
        prompts, _ = pole_prompts(task, reader.form, templates, plan.template, True, texts)
        found = reader.read(prompts[len(task.items) :], None, plan.layers, items=True, progress=progress)
        assert found.states is not None
        assert found.item_states is not None
        made = len(prompts) - len(task.items) - len(texts)
        both = (found.item_states, found.states)
        return cls((both[0][:made], both[1][:made]), (both[0][made:], both[1][made:]) if texts else None)


def _layer_mean(weights: np.ndarray, position: int, states: np.ndarray) -> Linear:
    """z of the mean over layers of z(wᵀx), at one position."""
    projections = np.einsum("nld,ld->ln", states.astype(float), weights)
    scaled, offset = np.zeros((2, *weights.shape)), 0.0
    for layer, values in enumerate(projections):
        units = Units.of(values)
        scaled[position, layer] = weights[layer] * units.factor / len(projections)
        offset -= units.mean * units.factor / len(projections)
    return Linear(scaled, offset).in_units(Units.of(z_scores(projections).mean(axis=0)))


def _axis(exemplars: tuple[np.ndarray, np.ndarray], raw: RawSignals) -> Linear:
    """The axis in the units of the sample: the sum over both positions."""
    item, slot = (
        _layer_mean(axis_direction(exemplars[position]), position, raw.states[position])
        for position in range(2)
    )
    return item + slot


def _written(
    scale: SignalScale, texts: tuple[np.ndarray, np.ndarray], raw: RawSignals
) -> tuple[Linear, float, Units]:
    """The probe of written exemplars in the units of the sample, its weight, and the constants of the other signals'
    mean."""
    item, slot = (
        _layer_mean(text_weights(texts[position]), position, raw.states[position]) for position in range(2)
    )
    probe = Linear((1 - SLOT_SHARE) * item.weights, (1 - SLOT_SHARE) * item.offset)
    probe += Linear(SLOT_SHARE * slot.weights, SLOT_SHARE * slot.offset)
    probe = probe.in_units(Units.of(probe(*raw.states)))
    signals = {name: scale.units[name](values) for name, values in raw.signals.items()}
    if scale.axis is not None:
        signals["axis"] = scale.axis(*raw.states)
    share = Signals({**signals, WRITTEN: probe(*raw.states)}).written_share()
    return probe, share, Units.of(np.mean([*signals.values()], axis=0))


def _feature_units(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, d) states -> (d,) mean and (d,) 1 / deviation of each feature; 0 where it does not vary."""
    mean, deviation = (one[0] for one in mean_and_deviation(states, 0, FLOAT32_ROUNDING))
    return mean, np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)


def _smoothing(item_states: np.ndarray, anchors: np.ndarray) -> Linear:
    """½ σ(a) · mean over layers of z(wᵀx), with the weights of all items of the sample.

    An item of the sample is predicted from the others, so its units are those of such predictions.
    """
    depth, width = item_states.shape[1:]
    target = z_scores(anchors)
    weights, offset = np.zeros((2, depth, width)), 0.0
    share = SMOOTHING * float(anchors.std()) / depth
    for layer in range(depth):
        states = item_states[:, layer].astype(float)
        mean, factor = _feature_units(states)
        fitted, left_out = fitted_and_left_out((states - mean) * factor, target)
        units = Units.of(left_out)
        weights[0, layer] = share * units.factor * fitted * factor
        offset -= share * units.factor * (float(fitted * factor @ mean) + units.mean)
    return Linear(weights, offset)


def label_weights(fitted: Fitted, kernel: Kernel) -> Linear:
    """k(x, labelled items) α as a linear function of the states x."""
    seen = fitted.observations
    duals = np.zeros((len(fitted.products.kernels), len(seen.items)))
    for weight, setting, own in zip(fitted.weights, fitted.settings, fitted.posteriors, strict=True):
        duals += weight * setting.kernel_share * np.outer(setting.groups, seen.contrast.T @ own.dual)
    slot, item = kernel.lists[0]
    depth, width = slot.shape[1:]
    half = max(1, depth // 2)
    weights, offset = np.zeros((2, depth, width)), 0.0
    tables = kernel.layers()
    for position, states in ((1, slot), (0, item)):  # the kernel has the slot first
        for layer in range(depth):
            group, table = next(tables)
            share = half if layer < half else depth - half
            mean, factor = _feature_units(states[:, layer].astype(float))
            own = (table[seen.items].T @ duals[group]) * factor / np.sqrt(width * share)
            weights[position, layer] = own
            offset -= float(own @ mean)
    return Linear(weights, offset)
