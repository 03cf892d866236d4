"""Reading the states that probes score, and scoring items that a probe was not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.methods.probing.fits import points_of_pairs
from ccrank.methods.probing.probe import Probe
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.models.reading import share_of
from ccrank.ranking import ItemScores
from ccrank.task import Task

POSITIONS = ("slot", "item")


def read_single_states(
    tasks: Sequence[Task],
    prompter: Prompter,
    layers: Sequence[int],
    template: str = "single",
    position: str = "slot",
) -> tuple[list[np.ndarray], list[Cost]]:
    """ItemSingle states of each task, (N, L, d), at the answer slot or at the item's last token."""
    if position not in POSITIONS:
        raise CcrankError(f"position must be slot or item, not {position!r}")
    prompter.check_fields(template, "item")
    prompts = [prompt for task in tasks for prompt in prompter.singles(task, template)]
    readings = prompter.read(prompts, layers=layers, items=position == "item")
    states = readings.item_states if position == "item" else readings.states
    return _by_task(states, tasks, [len(task.items) for task in tasks], readings.cost)


def read_pair_states(
    tasks: Sequence[Task], prompter: Prompter, layers: Sequence[int], template: str = "pair"
) -> tuple[list[np.ndarray], list[Cost]]:
    """ItemPair states of each task, (N(N − 1), L, 2, d): all ordered pairs, at "Yes" and at "No" in the slot."""
    answers = prompter.templates[template].yes_and_no()
    prompts = [
        prompter.pair(task, int(first), int(second), template).filled(answer)
        for task in tasks
        for first, second in ordered_pairs(len(task.items))
        for answer in answers
    ]
    readings = prompter.read(prompts, layers=layers)
    parts, costs = _by_task(
        readings.states, tasks, [rows_of(task, paired=True) for task in tasks], readings.cost
    )
    return [part.reshape(-1, 2, *part.shape[1:]).swapaxes(1, 2) for part in parts], costs


def rows_of(task: Task, paired: bool) -> int:
    """Prompts of a task: N, or 2N(N − 1) for all ordered pairs with both answers."""
    count = len(task.items)
    return 2 * count * (count - 1) if paired else count


def _by_task(
    states: np.ndarray | None, tasks: Sequence[Task], sizes: Sequence[int], cost: Cost
) -> tuple[list[np.ndarray], list[Cost]]:
    assert states is not None
    parts = np.split(states, np.cumsum(sizes)[:-1])
    for task, part in zip(tasks, parts, strict=True):
        check_finite(part, task, "model's states")
    return parts, [share_of(cost, size, len(states)) for size in sizes]


def check_finite(values: np.ndarray, task: Task, what: str) -> None:
    """Raise an error for numbers that overflow in half precision."""
    if not np.isfinite(values).all():
        raise CcrankError(f"task {task.id!r}: the {what} are not all finite numbers; try --dtype float32")


@dataclass(frozen=True)
class ProbeScorer:
    """Probes of one or more layers, and how their scores are joined."""

    template: str
    position: str
    layers: tuple[int, ...]
    probes: tuple[Probe, ...]
    weights: np.ndarray
    """(L,)"""
    offset: float

    def __post_init__(self) -> None:
        if not len(self.layers) == len(self.probes) == len(self.weights):
            raise ValueError("a probe and a weight are needed for each layer")

    @classmethod
    def fit(
        cls, probes: Sequence[Probe], states: Sequence[np.ndarray], scores: np.ndarray | None = None
    ) -> ProbeScorer:
        """With the normalisation of a list's states, for each layer (N, d) or (P, 2, d), and the consensus of its
        scores (L, N)."""
        about = probes[0].about
        if not probes[0].paired:
            probes = [probe.with_fixed(table) for probe, table in zip(probes, states, strict=True)]
        weights, offset = consensus_weights(np.zeros((1, 2)) if scores is None else scores)
        return cls(
            str(about.get("template", "single")),
            str(about.get("position", "slot")),
            tuple(int(probe.about["layer"]) for probe in probes),
            tuple(probes),
            weights,
            offset,
        )

    @classmethod
    def of_pool(cls, probe: Probe, states: Sequence[np.ndarray], place: int) -> ProbeScorer:
        """A probe of several lists, (N, P, d) each: with the normalisation of all their items."""
        return cls.fit([probe], [np.concatenate([table[:, place] for table in states])])

    @property
    def whole_lists(self) -> bool:
        """Whether it compares the items of a list with each other."""
        return self.probes[0].paired

    def score(self, task: Task, prompter: Prompter) -> ItemScores:
        """Scores of any items; of pairs, those within the list."""
        if self.whole_lists:
            [states], [cost] = read_pair_states([task], prompter, self.layers, self.template)
        else:
            [states], [cost] = read_single_states([task], prompter, self.layers, self.template, self.position)
        rows = [probe(states[:, column]) for column, probe in enumerate(self.probes)]
        if self.whole_lists:
            rows = [points_of_pairs(row, len(task.items)) for row in rows]
        return ItemScores(self.weights @ np.stack(rows) + self.offset, cost=cost)


def consensus(scores: np.ndarray) -> np.ndarray:
    """One score per item from several layers' scores: (L, N) -> (N,); see `consensus_weights`."""
    weights, offset = consensus_weights(scores)
    return np.asarray(weights @ scores + offset)


def consensus_weights(scores: np.ndarray) -> tuple[np.ndarray, float]:
    """w and b such that w · scores + b is the first principal component of several layers' scores, whose signs are
    unknown: (L, N) -> (L,), scalar. A single layer's scores are unchanged."""
    if len(scores) == 1:
        return np.ones(1), 0.0
    mean = scores.mean(axis=1, keepdims=True)
    spread = np.linalg.norm(scores - mean, axis=1, keepdims=True)
    scale = np.where(spread > 0, spread, 1.0)
    rows = (scores - mean) / scale
    left, values, components = np.linalg.svd(rows, full_matrices=False)
    # The sign of the layers' majority, so that adding a layer that agrees changes nothing.
    sign = np.sign((rows @ components[0]).sum() or 1.0)
    weights = sign * left[:, 0] / (values[0] or 1.0) / scale[:, 0]
    return weights, -float(weights @ mean[:, 0])
