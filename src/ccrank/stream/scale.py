"""A scale that was fixed on a sample: raw signals of any item to its score, item by item.

On the sample, a ranking standardises each signal, averages them and smooths the mean over items with similar states.
Each of these steps has constants, means, deviations and regression weights, which are computed on the sample once and
then applied to items that were not in it. All of them are linear in the hidden states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.special import logsumexp

from ccrank.exemplars import WRITTEN
from ccrank.files import write_atomically
from ccrank.labelfree.anchored import LEAST_SMOOTHED, SMOOTHING, fitted_and_left_out, smoothed
from ccrank.labelfree.combine import Signals
from ccrank.labelfree.signals import (
    SLOT_SHARE,
    Wording,
    axis_direction,
    pole_prompts,
    read_likelihood,
    text_weights,
    texts_for,
    wordings_of,
)
from ccrank.labelled.fit import Fitted
from ccrank.labelled.kernel import Kernel
from ccrank.labelled.probe import UnsavedProbe
from ccrank.lexicon import poles_of
from ccrank.lm import ReaderLike
from ccrank.lm.layers import middle_and_late
from ccrank.lm.reader import Progress
from ccrank.lm.reading import checked_logits
from ccrank.prompts import Templates
from ccrank.standardise import FLOAT32_ROUNDING, mean_and_deviation, z_scores
from ccrank.stream.linear import Linear, Units
from ccrank.task import Task

SIGNAL_METHODS = ("auto", "poles", "likelihood", "axis")
"""Methods that score by signals of single items."""


@dataclass(frozen=True)
class Plan:
    """Which signals a method reads of an item."""

    template: str = "poles"
    poles: bool = False
    layers: tuple[int, ...] = ()
    """The layers whose states are read; empty if none are."""
    wordings: tuple[Wording, ...] = ()


@dataclass(frozen=True)
class SignalScale:
    """Scores items by label-free signals, with the constants of a sample.

    Parameters
    ----------
    plan
        Which signals are read.
    units
        Signal → its constants.
    axis
        The projection on the direction between exemplars, in the units of the sample; None if it is no signal.
    smoothing
        What similar items add to the mean of the signals; None if nothing.
    written
        The probe of texts that were written for the criterion, its weight, and the constants of the mean of all other
        signals; None where there are no such texts.
    labelled
        What labels add, with the constants and the weight of the label-free score; None without labels.
    """

    plan: Plan
    units: Mapping[str, Units]
    axis: Linear | None = None
    smoothing: Linear | None = None
    written: tuple[Linear, float, Units] | None = None
    labelled: tuple[Units, float, Linear] | None = None

    def score(
        self, task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
    ) -> np.ndarray:
        """Scores of any items, (N,): each depends on the item alone.

        Parameters
        ----------
        task, reader, templates, progress
            As of any method; the task has the criterion and the context of the sample.
        """
        return self.of(read_raw(task, reader, templates, self.plan, progress))

    def of(self, raw: RawSignals) -> np.ndarray:
        """Scores of what was read of some items: (N,).

        Parameters
        ----------
        raw
            Their signals and states.
        """
        rows = [self.units[name](values) for name, values in raw.signals.items()]
        if self.axis is not None:
            rows.append(self.axis(*raw.states))
        scores = np.mean(rows, axis=0)
        if self.written is not None:
            probe, share, others = self.written
            scores = share * probe(*raw.states) + (1 - share) * others(scores)
        if self.smoothing is not None:
            scores = scores + self.smoothing(*raw.states)
        if self.labelled is not None:
            units, weight, states = self.labelled
            scores = weight * units(scores) + states(*raw.states)
        return np.asarray(scores)

    def save(self, path: Path) -> None:
        """Write the scale to one safetensors file.

        Parameters
        ----------
        path
            The file.
        """
        about: dict[str, Any] = {
            "template": self.plan.template,
            "poles": self.plan.poles,
            "layers": self.plan.layers,
            "wordings": [(one.template, one.against) for one in self.plan.wordings],
            "units": {name: (one.mean, one.factor) for name, one in self.units.items()},
        }
        tensors = {"empty": np.zeros(1)}
        labelled = None if self.labelled is None else self.labelled[2]
        written = None if self.written is None else self.written[0]
        linear = {"axis": self.axis, "smoothing": self.smoothing, "written": written, "labelled": labelled}
        for name, one in linear.items():
            if one is not None:
                tensors[name] = np.ascontiguousarray(one.weights)
                about[name] = one.offset
        if self.labelled is not None:
            about["prior"] = (self.labelled[0].mean, self.labelled[0].factor, self.labelled[1])
        if self.written is not None:
            about["share"] = (self.written[1], self.written[2].mean, self.written[2].factor)
        header = {"about": json.dumps(about)}
        write_atomically(path, lambda partial: save_file(tensors, str(partial), header), sync=True)

    @classmethod
    def load(cls, path: Path) -> SignalScale:
        """A scale from its file.

        Parameters
        ----------
        path
            The file.
        """
        with safe_open(str(path), framework="numpy") as file:
            about = json.loads(file.metadata()["about"])
            found = {
                name: Linear(file.get_tensor(name), about[name])
                for name in ("axis", "smoothing", "written", "labelled")
                if name in about
            }
        plan = Plan(
            about["template"],
            about["poles"],
            tuple(about["layers"]),
            tuple(Wording(*one) for one in about["wordings"]),
        )
        labelled = None
        if "labelled" in found:
            mean, factor, weight = about["prior"]
            labelled = (Units(mean, factor), weight, found["labelled"])
        written = None
        if "written" in found:
            share, mean, factor = about["share"]
            written = (found["written"], share, Units(mean, factor))
        units = {name: Units(*one) for name, one in about["units"].items()}
        return cls(plan, units, found.get("axis"), found.get("smoothing"), written, labelled)


@dataclass(frozen=True)
class RawSignals:
    """What was read of some items, before any standardisation."""

    signals: Mapping[str, np.ndarray]
    """Signal → (N,): poles, then each wording of the likelihood."""
    states: tuple[np.ndarray, np.ndarray]
    """(N, L, d) at the item and at the slot; empty arrays if the plan has no layers."""


def read_raw(
    task: Task, reader: ReaderLike, templates: Templates, plan: Plan, progress: Progress | None = None
) -> RawSignals:
    """Read the signals of a plan.

    Parameters
    ----------
    task, reader, templates, progress
        As of any method.
    plan
        Which signals to read.
    """
    signals: dict[str, np.ndarray] = {}
    states = (np.zeros((len(task.items), 0, 0)),) * 2
    if plan.poles or plan.layers:
        prompts, words = pole_prompts(task, reader.form, templates, plan.template)
        readings = reader.read(
            prompts,
            [words] * len(prompts) if plan.poles else None,
            plan.layers,
            items=bool(plan.layers),
            log_probabilities=True,
            progress=progress,
        )
        if readings.logits is not None:
            split = len(poles_of(task.criterion).low)
            table = checked_logits(readings.logits.astype(float), task.id)
            signals["poles"] = logsumexp(table[:, split:], axis=1) - logsumexp(table[:, :split], axis=1)
        if readings.item_states is not None and readings.states is not None:
            states = (readings.item_states, readings.states)
    if plan.wordings:
        [likelihood], _ = read_likelihood([task], reader, templates, plan.wordings, progress)
        signals.update(likelihood)
    return RawSignals(signals, states)


def plan_of(method: str, options: Mapping[str, Any], task: Task, reader: ReaderLike) -> Plan:
    """The signals that a method reads for such items.

    Parameters
    ----------
    method, options
        One of `SIGNAL_METHODS`, and its options.
    task
        The sample: whether its items are names or texts chooses the wordings.
    reader
        The model.
    """
    template = str(options.get("template") or "poles")
    layers = tuple(middle_and_late(reader.depth))
    if method == "poles":
        return Plan(template, poles=True)
    if method == "axis":
        return Plan(template, layers=layers)
    if method == "likelihood":
        own = options.get("template")
        return Plan(wordings=(Wording(own, options.get("against", "low")),) if own else wordings_of(task))
    headless, labelled = bool(reader.loaded.missing_head), options.get("labels") is not None
    if task.context and not headless:
        return Plan(layers=layers if labelled else (), wordings=wordings_of(task))
    return Plan(poles=not headless, layers=layers, wordings=() if headless else wordings_of(task))


def fit_signal_scale(
    task: Task,
    reader: ReaderLike,
    templates: Templates,
    method: str,
    options: Mapping[str, Any],
    probe: object = None,
    progress: Progress | None = None,
) -> SignalScale:
    """The scale of a sample, on which its own items have the scores that the method gives them.

    Parameters
    ----------
    task
        The sample, its items sorted by text.
    reader, templates, progress
        As of any method.
    method, options
        One of `SIGNAL_METHODS`, and its options.
    probe
        The probe of a ranking with labels.
    """
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
        mean, deviation = (one[0] for one in mean_and_deviation(states, 0, FLOAT32_ROUNDING))
        factor = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
        fitted, left_out = fitted_and_left_out((states - mean) * factor, target)
        units = Units.of(left_out)
        weights[0, layer] = share * units.factor * fitted * factor
        offset -= share * units.factor * (float(fitted * factor @ mean) + units.mean)
    return Linear(weights, offset)


def label_weights(fitted: Fitted, kernel: Kernel) -> Linear:
    """k(x, labelled items) α as a linear function of the states x.

    Parameters
    ----------
    fitted
        The posterior given labels.
    kernel
        The states of the sample.
    """
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
            mean, deviation = (
                one[0] for one in mean_and_deviation(states[:, layer].astype(float), 0, FLOAT32_ROUNDING)
            )
            factor = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)
            own = (table[seen.items].T @ duals[group]) * factor / np.sqrt(width * share)
            weights[position, layer] = own
            offset -= float(own @ mean)
    return Linear(weights, offset)
