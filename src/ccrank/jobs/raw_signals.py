"""The signals of items as they are read: which of them a method reads, before any standardisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.methods.labelfree.signals import Wording, log_odds, pole_prompts, read_likelihood, wordings_of
from ccrank.models import ReaderLike
from ccrank.models.reader_like import middle_and_late
from ccrank.models.reading import Progress
from ccrank.prompts import Templates
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


def plan_of(method: str, options: Mapping[str, Any], task: Task, reader: ReaderLike) -> Plan:
    """The signals that a method reads for such items."""
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
    """Read the signals of a plan."""
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
            signals["poles"] = log_odds(readings.logits, task)
        if readings.item_states is not None and readings.states is not None:
            states = (readings.item_states, readings.states)
    if plan.wordings:
        [likelihood], _ = read_likelihood([task], reader, templates, plan.wordings, progress)
        signals.update(likelihood)
    return RawSignals(signals, states)
