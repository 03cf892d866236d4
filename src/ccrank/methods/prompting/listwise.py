"""`prompt-list`: the model chooses items one after the other from lettered options.

Decoding is stepwise and constrained, as in the paper: the most likely remaining option is chosen, appended, and so on.
As in speculative decoding, the remaining order is guessed from the logits so far, all its steps are read at once (one
path in a prefix tree), and the guesses are accepted up to the first wrong one: the same result in fewer passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import check_choice, seeded
from ccrank.metrics.aggregation import (
    borda_rankings,
    kemeny_rankings,
    kendall_w,
    mean_pairwise_tau,
    order_to_scores,
)
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.models.reading import checked_logits, share_of
from ccrank.prompts import option_labels
from ccrank.ranking import Answer
from ccrank.task import Task
from ccrank.util.cancellation import check

CONSENSUS = ("mean-rank", "kemeny")
DIRECTIONS = {"none": "list", "descending": "list-directed", "ascending": "list-ascending"}
"""What the prompt says about the direction → its template."""
MAX_OPTIONS = 20
"""Longer lists are ranked with sliding windows of this many options, from the end of the list to its start."""


def prompt_list(
    tasks: Sequence[Task],
    prompter: Prompter,
    *,
    shuffles: int = 5,
    aggregate: str = "mean-rank",
    calibration: str = "none",
    direction: str = "none",
    window: int = MAX_OPTIONS,
    template: str | None = None,
    seed: int = 0,
) -> list[Answer]:
    """Rank by choosing from lettered options, several times with the options shuffled.

    `aggregate` combines the rankings of the shuffles: "mean-rank" or "kemeny". `calibration="letters"` subtracts each
    letter's mean first-step logit over the shuffles, which removes a bias for letters and positions. `direction` is
    what the prompt says about the order: "none", as in the paper, "descending" ("from highest to lowest") or
    "ascending", where the first choice is the lowest item. `template` replaces the wording, not the direction.
    `window` is the maximal number of options in one prompt.
    """
    check_choice("direction", direction, DIRECTIONS)
    check_choice("aggregation", aggregate, CONSENSUS)
    if calibration not in ("none", "letters"):
        raise CcrankError(f"the calibration of prompt-list must be none or letters, not {calibration!r}")
    if shuffles < 1 or window < 2:
        raise CcrankError(
            f"prompt-list needs at least 1 shuffle and windows of 2, got {shuffles} and {window}"
        )
    if calibration == "letters" and shuffles < 2:
        raise CcrankError("calibration='letters' averages over shuffles and needs at least 2, got 1")
    template = template or DIRECTIONS[direction]
    prompter.check_fields(template, "options")
    picker = _Picker(tasks, prompter, template, calibration == "letters")
    generators = [seeded(seed) for _ in tasks]
    shown = [
        [generator.permutation(len(task.items)).tolist() for _ in range(shuffles)]
        for task, generator in zip(tasks, generators, strict=True)
    ]
    orders = _slide(shown, picker, [picker.fitting(task, window) for task in tasks])
    answers = []
    for index, (task, rankings) in enumerate(zip(tasks, orders, strict=True)):
        # 0 by chance, 1 if labels are taken in their order.
        by_labels = [mean_pairwise_tau(both) for both in zip(rankings, shown[index], strict=True)]
        consistency = {"label_order": float(np.mean(by_labels))}
        if direction == "ascending":
            rankings = [order[::-1] for order in rankings]
        scores = borda_rankings(rankings)
        if aggregate == "kemeny":
            scores = order_to_scores(kemeny_rankings(rankings))
        if shuffles > 1:
            consistency |= {"shuffles_agree": mean_pairwise_tau(rankings), "kendall_w": kendall_w(rankings)}
        cost = share_of(picker.cost, picker.asked[index], picker.asked.total())
        sign = task.criterion.sign
        runs = np.array([sign * order_to_scores(order) for order in rankings])
        answers.append(Answer(sign * scores, consistency, cost, {"shuffles": shuffles}, runs=runs))
    return answers


def _slide(
    shown: Sequence[Sequence[Sequence[int]]], picker: _Picker, windows: Sequence[int]
) -> list[list[list[int]]]:
    """Rank every order, window by window from its end (Sun et al. 2023); a list no longer than its window is ranked at
    once. A window moves by half its length, the windows of all lists together: each move is one reading."""
    orders = [[[*order] for order in group] for group in shown]
    moves = [window_starts(len(group[0]), window) for group, window in zip(orders, windows, strict=True)]
    for move in range(max(map(len, moves))):
        places = [
            (index, order, slice(moves[index][move], moves[index][move] + windows[index]))
            for index, group in enumerate(orders)
            if move < len(moves[index])
            for order in group
        ]
        pickings = [_Picking(index, order[part]) for index, order, part in places]
        picker.pick(pickings)
        for picking, (_, order, part) in zip(pickings, places, strict=True):
            order[part] = [picking.shown[position] for position in picking.chosen]
    return orders


def window_starts(length: int, window: int) -> list[int]:
    """The start positions of the windows, from the end of the list to its start."""
    return [*range(max(0, length - window), 0, -max(1, window // 2)), 0]


@dataclass
class _Picking:
    """The state of decoding one task's items in one shuffled order."""

    task: int
    shown: list[int]
    chosen: list[int] = field(default_factory=list)
    """Positions in `shown`, best first."""
    guess: list[int] = field(init=False)
    """The positions not chosen yet, in the expected order."""

    def __post_init__(self) -> None:
        self.guess = list(range(len(self.shown)))

    def settle(self, logits: np.ndarray) -> None:
        """Accept choices up to the first wrong guess, from (steps, options): the first row is always valid, later rows
        only after right guesses."""
        left = self.guess
        for row in logits:
            best = max(left, key=lambda position: (row[position], -position))
            right = best == left[0]
            self.chosen.append(best)
            left.remove(best)
            if not right:
                # The later rows are invalid. The row's own logits give the next guess.
                left.sort(key=lambda position: (-row[position], position))
                break
        if len(left) == 1:
            self.chosen.append(left.pop())


@dataclass
class _Picker:
    """Decodes many lists at once."""

    tasks: Sequence[Task]
    prompter: Prompter
    template: str
    calibrate: bool
    cost: Cost = field(default_factory=Cost)
    asked: Counter[int] = field(default_factory=Counter)
    """Task → the prompts read for it."""

    def fitting(self, task: Task, window: int) -> int:
        """The largest number of options up to `window` whose prompt fits the model: halved until the longest prompt
        fits."""
        by_length = sorted(range(len(task.items)), key=lambda index: -len(task.items[index]))
        while True:
            longest = by_length[:window]
            try:
                prompt = self.prompter.list(task, longest, range(len(longest) - 1), self.template)
                labels = option_labels(len(longest), task.items)
                self.prompter.reader.prompt_tokenizer.encode([prompt], [labels])
            except CcrankError:
                if len(longest) <= 2:
                    raise
                window = max(2, len(longest) // 2)
            else:
                return window

    def pick(self, pickings: Sequence[_Picking]) -> None:
        """Fill each picking's `chosen`. Every round fixes at least one more choice of every list."""
        bias = self._letter_bias(pickings) if self.calibrate else {}
        while pickings:
            check()
            # The last step, with one option left, needs no reading.
            tables = self._read(pickings, [max(1, len(picking.guess) - 1) for picking in pickings])
            for picking, table in zip(pickings, tables, strict=True):
                picking.settle(table - bias.get((picking.task, len(picking.shown)), 0.0))
            pickings = [picking for picking in pickings if picking.guess]

    def _letter_bias(self, pickings: Sequence[_Picking]) -> dict[tuple[int, int], np.ndarray]:
        """(task, options) → the mean first-step logit of each letter over the shuffles."""
        groups: dict[tuple[int, int], list[np.ndarray]] = {}
        for picking, table in zip(pickings, self._read(pickings, [1] * len(pickings)), strict=True):
            groups.setdefault((picking.task, len(picking.shown)), []).append(table[0])
        return {key: np.mean(rows, axis=0) for key, rows in groups.items()}

    def _read(self, pickings: Sequence[_Picking], steps: Sequence[int]) -> list[np.ndarray]:
        """For each picking the (steps, options) logits along its guess."""
        prompts, labels = [], []
        for picking, count in zip(pickings, steps, strict=True):
            task = self.tasks[picking.task]
            for step in range(count):
                chosen = [*picking.chosen, *picking.guess[:step]]
                prompts.append(self.prompter.list(task, picking.shown, chosen, self.template))
            labels += [option_labels(len(picking.shown), task.items)] * count
            self.asked[picking.task] += count
        logits, cost = self.prompter.logits(prompts, labels)
        self.cost += cost
        return [
            checked_logits(table[:, : len(picking.shown)].astype(float), self.tasks[picking.task].id)
            for picking, table in zip(pickings, np.split(logits, np.cumsum(steps)[:-1]), strict=True)
        ]
