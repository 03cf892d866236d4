"""Scoring items by the signals of a label-free ranking, and by the labels that were given with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ccrank.methods.labelfree.anchored import smoothing_of
from ccrank.methods.labelfree.combine import POLES, RawSignals, SignalModel
from ccrank.methods.labelfree.projections import Positions
from ccrank.methods.labelfree.signals import (
    Wording,
    likelihood_prompts,
    pole_prompts,
    read_likelihood,
    read_poles,
    wordings_of,
)
from ccrank.methods.labelled.saved_model import LabelModel
from ccrank.models import Cost, ReaderLike
from ccrank.models.reader_like import middle_and_late
from ccrank.models.reading import Progress, Request
from ccrank.prompts import Form, Templates
from ccrank.ranking import ItemScores
from ccrank.task import Task


@dataclass(frozen=True)
class Plan:
    """Which signals are read of an item."""

    template: str = "poles"
    poles: bool = False
    layers: tuple[int, ...] = ()
    """The layers whose states are read; empty if none are."""
    wordings: tuple[Wording, ...] = ()

    @classmethod
    def of_auto(cls, task: Task, reader: ReaderLike, states: bool = False) -> Plan:
        """What `auto` reads of such items; `states` of those with a context too."""
        headless = bool(reader.loaded.missing_head)
        if task.context and not headless and not states:
            return cls(wordings=wordings_of(task))  # a server has neither layers nor states
        layers = tuple(middle_and_late(reader.depth))
        if task.context and not headless:
            return cls(layers=layers, wordings=wordings_of(task))
        return cls(poles=not headless, layers=layers, wordings=() if headless else wordings_of(task))

    def read(
        self, task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
    ) -> tuple[RawSignals, Cost]:
        """Read the signals of items."""
        values: dict[str, np.ndarray] = {}
        cost = Cost()
        states: Positions | None = None
        if self.poles or self.layers:
            readings = read_poles(
                [task], reader, templates, self.template, self.poles, self.layers, progress, made=False
            )
            values |= dict(zip([POLES], readings.poles, strict=False))
            states = readings.states[0] if readings.states else None
            cost = readings.cost
        if self.wordings:
            [likelihood], spent = read_likelihood([task], reader, templates, self.wordings, progress)
            values |= likelihood
            cost += spent
        return RawSignals(values, states), cost

    def requests(self, task: Task, form: Form, templates: Templates) -> list[Request]:
        """The prompts that are read, to count their tokens."""
        requests: list[Request] = []
        if self.poles or self.layers:
            prompts, words = pole_prompts(task, form, templates, self.template)
            requests.append((prompts, words if self.poles else None))
        if self.wordings:
            answers = [item.strip() for item in task.items]
            requests.append((likelihood_prompts(task, form, templates, self.wordings), answers))
        return requests


@dataclass(frozen=True)
class SignalScorer:
    """Scores items by signals, with the constants of a list, and by what labels say."""

    plan: Plan
    model: SignalModel = field(default_factory=SignalModel)
    labels: LabelModel | None = None

    @classmethod
    def fit(
        cls, plan: Plan, raw: RawSignals, scores: np.ndarray | None = None, labels: LabelModel | None = None
    ) -> SignalScorer:
        """The constants of a list; with the mean of its signals, its smoothing too."""
        model = SignalModel.fit(raw)
        if scores is not None and raw.states is not None:
            model = replace(model, smoothing=smoothing_of(raw.states[0], scores))
        return cls(plan, model, labels)

    def score(
        self, task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
    ) -> ItemScores:
        """Scores of any items: each depends on the item alone."""
        raw, cost = self.plan.read(task, reader, templates, progress)
        plain = self.model(raw) if raw.values or self.model.axis is not None else np.zeros(len(task.items))
        if self.labels is None or raw.states is None:
            return ItemScores(plain, cost=cost)
        item, slot = raw.states
        return replace(self.labels((slot, item), plain), cost=cost)

    def requests(self, task: Task, form: Form, templates: Templates) -> list[Request]:
        """The prompts that are read, to count their tokens."""
        return self.plan.requests(task, form, templates)


def labelled_scorer(
    plan: Plan, label_free: Callable[[], SignalScorer] | None, labels: Callable[[], LabelModel]
) -> SignalScorer:
    """The scorer of lists with labels: of one list with its signals, of several by states alone."""
    if label_free is None:
        return SignalScorer(replace(plan, poles=False, wordings=()), labels=labels())
    return replace(label_free(), plan=plan, labels=labels())
