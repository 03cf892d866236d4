"""`prompt-list`: the model chooses items one after the other from lettered options.

Decoding is stepwise and constrained, as in the paper: the most likely remaining option is chosen, appended, and so on.
The result equals step-by-step decoding but takes fewer passes, as in speculative decoding: the remaining order is
guessed from the available logits, all its steps are read at once (one path in a prefix tree), and the guesses are
accepted up to the first wrong one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import seeded
from ccrank.metrics.rankings import (
    borda_rankings,
    kemeny_rankings,
    kendall_w,
    mean_pairwise_tau,
    order_to_scores,
)
from ccrank.models import Cost, ReaderLike
from ccrank.models.reading import Progress, Request, checked_logits, share_of
from ccrank.prompts import Form, Prompt, Templates, option_labels
from ccrank.ranking import Answer
from ccrank.task import Task
from ccrank.util.cancellation import check

CONSENSUS = ("mean-rank", "kemeny")
DIRECTIONS = {"none": "list", "descending": "list-directed", "ascending": "list-ascending"}
"""What the prompt says about the direction → its template."""
MAX_OPTIONS = 20
"""Longer lists are ranked with sliding windows of this many options, from the end of the list to its start."""


@dataclass
class _Picking:
    """The state of decoding one task's items in one shuffled order."""

    task: int
    shown: tuple[int, ...]
    chosen: list[int] = field(default_factory=list)
    """Positions in `shown`, best first."""
    guess: list[int] = field(default_factory=list)
    """The positions not chosen yet, in the expected order."""

    def __post_init__(self) -> None:
        self.guess = self.guess or list(range(len(self.shown)))

    @property
    def order(self) -> list[int]:
        """Item indices, best first."""
        return [self.shown[position] for position in self.chosen]


def prompt_list(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    shuffles: int = 5,
    aggregate: str = "mean-rank",
    calibration: str = "none",
    direction: str = "none",
    window: int = MAX_OPTIONS,
    template: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Answer]:
    """Rank by choosing from lettered options, several times with the options shuffled.

    `aggregate` combines the rankings of the shuffles: "mean-rank" or "kemeny". `calibration="letters"` subtracts each
    letter's mean first-step logit over the shuffles, which removes a bias for letters and positions. `direction` is
    what the prompt says about the order: "none", as in the paper, "descending" ("from highest to lowest") or
    "ascending", where the first choice is the lowest item. `template` replaces the wording, not the direction.
    `window` is the maximal number of options in one prompt.
    """
    if direction not in DIRECTIONS:
        raise CcrankError(f"unknown direction {direction!r}; choose one of {', '.join(DIRECTIONS)}")
    template = template or DIRECTIONS[direction]
    if aggregate not in CONSENSUS:
        raise CcrankError(f"unknown aggregation {aggregate!r}; choose one of {', '.join(CONSENSUS)}")
    if calibration not in ("none", "letters"):
        raise CcrankError(f"the calibration of prompt-list must be none or letters, not {calibration!r}")
    if shuffles < 1 or window < 2:
        raise CcrankError(
            f"prompt-list needs at least 1 shuffle and windows of 2, got {shuffles} and {window}"
        )
    if calibration == "letters" and shuffles < 2:
        raise CcrankError("calibration='letters' averages over shuffles and needs at least 2, got 1")
    templates[template].check_fields(reader.form, "options")
    picker = _Picker(tasks, reader, templates, template, calibration == "letters", progress)
    generators = [seeded(seed) for _ in tasks]
    orders: list[list[list[int]]] = [
        [generator.permutation(len(task.items)).tolist() for _ in range(shuffles)]
        for task, generator in zip(tasks, generators, strict=True)
    ]
    shown = [[list(order) for order in group] for group in orders]
    orders = _slide(orders, picker, [picker.fitting(task, window) for task in tasks])
    follow = [_label_order(*group) for group in zip(orders, shown, strict=True)]
    if direction == "ascending":
        orders = [[order[::-1] for order in group] for group in orders]
    answers = []
    for index, task in enumerate(tasks):
        rankings = orders[index]
        if aggregate == "kemeny":
            scores = order_to_scores(kemeny_rankings(rankings).order)
        else:
            scores = borda_rankings(rankings)
        consistency = {"label_order": follow[index]}
        if shuffles > 1:
            consistency |= {"shuffles_agree": mean_pairwise_tau(rankings), "kendall_w": kendall_w(rankings)}
        cost = share_of(picker.cost, picker.asked[index], picker.asked.total())
        sign = task.criterion.sign
        runs = np.array([sign * order_to_scores(order) for order in rankings], float)
        directed = sign * np.asarray(scores, float)
        answers.append(Answer(directed, consistency, cost, {"shuffles": shuffles}, runs=runs))
    return answers


def _label_order(chosen: Sequence[Sequence[int]], shown: Sequence[Sequence[int]]) -> float:
    """Mean τ between the choices and the options as shown: 0 by chance, 1 if labels are taken in their order."""
    return float(np.mean([mean_pairwise_tau(both) for both in zip(chosen, shown, strict=True)]))


def _slide(orders: list[list[list[int]]], picker: _Picker, windows: Sequence[int]) -> list[list[list[int]]]:
    """Rank every order, window by window from its end; a list no longer than its window is ranked at once.

    A window moves by half its length, so the best items of one move into the next (Sun et al. 2023). The windows of
    all lists move together: each move is one reading.
    """
    moves = [window_starts(len(group[0]), window) for group, window in zip(orders, windows, strict=True)]
    for move in range(max(map(len, moves))):
        pickings, where = [], []
        for index, group in enumerate(orders):
            if move < len(moves[index]):
                part = slice(moves[index][move], moves[index][move] + windows[index])
                for order in group:
                    pickings.append(_Picking(index, tuple(order[part])))
                    where.append((order, part))
        picker.pick(pickings)
        for picking, (order, part) in zip(pickings, where, strict=True):
            order[part] = picking.order
    return orders


def window_starts(length: int, window: int) -> list[int]:
    """The start positions of the windows, from the end of the list to its start."""
    starts = list(range(max(0, length - window), 0, -max(1, window // 2)))
    return [*starts, 0]


@dataclass
class _Picker:
    """Decodes many lists at once."""

    tasks: Sequence[Task]
    reader: ReaderLike
    templates: Templates
    template: str
    calibrate: bool
    progress: Progress | None
    cost: Cost = field(default_factory=Cost)
    asked: Counter[int] = field(default_factory=Counter)
    """Task → the prompts read for it."""

    def prompt(self, task: int, shown: Sequence[int], chosen: Sequence[int]) -> Prompt:
        """The prompt that shows some items, of which some are chosen."""
        return self.templates.list(self.tasks[task], shown, chosen, self.reader.form, self.template)

    def fitting(self, task: Task, window: int) -> int:
        """The largest number of options up to `window` whose prompt fits the model: halved until the longest prompt
        fits."""
        by_length = sorted(range(len(task.items)), key=lambda index: -len(task.items[index]))
        while True:
            longest = by_length[:window]
            taken = range(len(longest) - 1)
            try:
                prompt = self.templates.list(task, longest, taken, self.reader.form, self.template)
                self.reader.prompt_tokenizer.encode([prompt], [option_labels(len(longest), task.items)])
            except CcrankError:
                if len(longest) <= 2:
                    raise
                window = max(2, len(longest) // 2)
            else:
                return window

    def pick(self, pickings: Sequence[_Picking]) -> None:
        """Fill each picking's `chosen`. Every round fixes at least one more choice of every list."""
        bias = self._letter_bias(pickings) if self.calibrate else {}
        waiting = [picking for picking in pickings if len(picking.guess) > 0]
        while waiting:
            check()
            logits = self._read_guesses(waiting)
            for picking, table in zip(waiting, logits, strict=True):
                _settle(picking, table - bias.get((picking.task, len(picking.shown)), 0.0))
            waiting = [picking for picking in waiting if picking.guess]

    def _read_guesses(self, pickings: Sequence[_Picking]) -> list[np.ndarray]:
        """For each picking (steps, options) logits along its guess; the last step, with one option left, needs no
        reading."""
        prompts, labels, sizes = [], [], []
        for picking in pickings:
            steps = max(1, len(picking.guess) - 1)
            names = option_labels(len(picking.shown), self.tasks[picking.task].items)
            for step in range(steps):
                taken = [*picking.chosen, *picking.guess[:step]]
                prompts.append(self.prompt(picking.task, picking.shown, taken))
                labels.append(names)
            sizes.append(steps)
            self.asked[picking.task] += steps
        readings = self.reader.read(prompts, labels, progress=self.progress)
        self.cost += readings.cost
        assert readings.logits is not None
        tables, start = [], 0
        for picking, size in zip(pickings, sizes, strict=True):
            table = readings.logits[start : start + size, : len(picking.shown)].astype(float)
            tables.append(checked_logits(table, self.tasks[picking.task].id))
            start += size
        return tables

    def _letter_bias(self, pickings: Sequence[_Picking]) -> dict[tuple[int, int], np.ndarray]:
        """(task, options) → the mean first-step logit of each letter over the shuffles."""
        firsts = [self.prompt(picking.task, picking.shown, ()) for picking in pickings]
        labels = [option_labels(len(picking.shown), self.tasks[picking.task].items) for picking in pickings]
        readings = self.reader.read(firsts, labels)
        self.cost += readings.cost
        assert readings.logits is not None
        groups: dict[tuple[int, int], list[np.ndarray]] = {}
        for picking, row in zip(pickings, readings.logits, strict=True):
            self.asked[picking.task] += 1
            count = len(picking.shown)
            groups.setdefault((picking.task, count), []).append(row[:count].astype(float))
        return {key: np.mean(rows, axis=0) for key, rows in groups.items()}


def _settle(picking: _Picking, table: np.ndarray) -> None:
    """Accept choices up to the first wrong guess: the first row is always valid, later rows only after right
    guesses."""
    left = list(picking.guess)
    for row in table:
        best = max(left, key=lambda position: (row[position], -position))
        expected = left[0]
        picking.chosen.append(best)
        left.remove(best)
        if best != expected:
            # After a wrong guess the later rows are invalid. The row's own logits give the next guess.
            left.sort(key=lambda position: (-row[position], position))
            break
    if len(left) == 1:
        picking.chosen.append(left.pop())
    picking.guess = left


def list_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of one shuffle of `prompt-list`: every step of every window.

    Which items share a window is not known in advance, but their number is.
    """
    places = range(len(task.items))
    windows = [places[start : start + MAX_OPTIONS] for start in window_starts(len(places), MAX_OPTIONS)]
    steps = [
        templates.list(task, window, range(taken), form)
        for window in windows
        for taken in range(len(window) - 1)
    ]
    return [(steps, option_labels(min(len(places), MAX_OPTIONS), task.items))]


def describe_shuffles(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """The agreement between shuffles, and with the order of the labels, as phrases."""
    names = {"shuffles_agree": "between shuffles", "label_order": "with the labels' order"}
    return [
        f"τ {name} {consistency[key]:+.2f} (0 by chance)" for key, name in names.items() if key in consistency
    ]
