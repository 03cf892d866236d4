"""Questions and answers: the model asks for the label that teaches most, and learns from each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ccrank.criteria.exemplars import WRITTEN
from ccrank.errors import CcrankError
from ccrank.labels import LabelRow, Labels
from ccrank.methods.labelled.fit import Fitted, fit_products, rank_intervals
from ccrank.methods.labelled.lists import PROBABILITY, observations_of
from ccrank.methods.labelled.prior import LABEL_NOISE, Kernel, States, grid, undecided_grid
from ccrank.methods.labelled.questions import (
    FIRST_GRADES,
    Belief,
    QuestionKind,
    best_grade,
    best_pair,
    representative,
)
from ccrank.ranking import Ranking, Uncertainty
from ccrank.task import normal_form
from ccrank.util.zscores import z_scores

MAX_CANDIDATES = 1000
"""Of a longer list an even sample is asked about, so that memory stays linear in the items."""
MAX_COMPARISONS = 2
"""Of one item with others; each item is compared once before any is compared again."""
MIN_UNDECIDED = 0.003
"""The least weight of a setting, relative to the best, that counts in the choice of a pair."""
DRAWS = 512
GRADES = (1, 5)
FIRST = (0.5, 0.35, 0.4)
"""Before the first answer: the weight of the label-free score, the share of the states, and the residual variance."""

SessionKind = Literal["grade", "pair", "both"]


def check_kind(kind: str) -> SessionKind:
    """The kind of questions; raises if it is unknown."""
    for known in get_args(SessionKind):
        if kind == known:
            return known  # type: ignore[no-any-return]
    raise CcrankError(f"questions are grade, pair or both, not {kind!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is asked: the grade of one item from 1 (lowest) to 5, or which of two items is higher."""

    kind: QuestionKind
    items: tuple[str, ...]
    session: Session

    def answer(self, value: float | str) -> None:
        """Record the answer.

        Parameters
        ----------
        value
            A number for a grade; for a pair the higher item's text, or "first" or "second".
        """
        self.session.record(self, value)


class Session:
    """An iterator over the questions that teach most; it ends when every item has been asked about.

    >>> for question in session:                      # doctest: +SKIP
    ...     question.answer(input(question.items))
    """

    def __init__(
        self, ranking: Ranking, states: States, kind: SessionKind = "both", rows: Sequence[LabelRow] = ()
    ) -> None:
        """Start from a label-free ranking and the states (N, L, d) of its items."""
        check_kind(kind)
        self.start, self.kind = ranking, kind
        self.items = ranking.task.items
        self.rows: list[LabelRow] = list(rows)
        self.earlier = len(self.rows)
        """How many of the first rows are answers of an earlier session."""
        self.skipped: set[str] = set()
        self._place = {normal_form(item): index for index, item in enumerate(self.items)}
        for number, row in enumerate(self.rows, start=1):
            try:
                Labels.of_rows([row]).check_known(self._place.keys())
            except CcrankError as error:
                raise CcrankError(f"answer {number} of the earlier ones: {error}") from None
        self._kernel = Kernel([states])
        self._choose_candidates()
        self._prior = z_scores(np.asarray(ranking.scores, float))
        self._settings = grid(WRITTEN in ranking.details.get("signals", {}))
        self._draws: np.ndarray | None = None
        self._fitted: Fitted | None = None

    def _choose_candidates(self) -> None:
        """An even sample of a long list, with all items that an answer names."""
        count = len(self.items)
        wanted = min(count, MAX_CANDIDATES)
        even = np.unique(np.linspace(0, count - 1, wanted).round().astype(int))
        known = [self._place[name] for name in self.labels.items]
        self.candidates = np.unique(np.concatenate([even, np.array(known, int)]))
        self._products = self._kernel.products(self.candidates, DRAWS, np.random.default_rng(0))

    def resume(self, rows: Sequence[LabelRow], skipped: Iterable[str] = ()) -> None:
        """Take these answers in place of all earlier ones: the session of a client that keeps its answers itself.

        Parameters
        ----------
        rows
            All answers, of any kind that `Labels.of_rows` takes.
        skipped
            Items that should not be asked about.
        """
        labels = Labels.of_rows(rows)
        labels.check(self.items)
        self.skipped = {normal_form(item) for item in skipped}
        if [*rows] != self.rows:
            self._change([*rows])
        self.earlier = len(self.rows)
        if not {self._place[name] for name in labels.items} <= set(self.candidates.tolist()):
            self._choose_candidates()

    @property
    def labels(self) -> Labels:
        """All answers so far."""
        return Labels.of_rows(self.rows)

    @property
    def fitted(self) -> Fitted | None:
        """The model of all answers so far; None without any."""
        if self._fitted is None and self.rows:
            seen = observations_of(self.labels, self.items)
            self._fitted = fit_products(self._prior, self._products.at(seen.items), seen, self._settings)
        return self._fitted

    @property
    def ranking(self) -> Ranking:
        """The ranking by all answers so far; the label-free one without any."""
        fitted = self.fitted
        if fitted is None:
            return self.start
        low, high = rank_intervals(self.draws, PROBABILITY)
        return replace(
            self.start, scores=fitted.mean, uncertainty=Uncertainty(fitted.deviation, low, high, PROBABILITY)
        )

    @property
    def draws(self) -> np.ndarray:
        """(N, T) joint draws of the scores, by the answers so far or by the prior."""
        if self._draws is None:
            rng = np.random.default_rng(len(self.rows))
            if self.fitted is not None:
                self._draws = self.fitted.draws(rng)
            else:
                weight, share, residual = FIRST
                states = np.sqrt(share / 4) * self._products.functions.sum(axis=0)
                particular = np.sqrt(residual) * rng.standard_normal(states.shape)
                self._draws = weight * self._prior[:, None] + states + particular
        return self._draws

    def __iter__(self) -> Iterator[Question]:
        while (question := self.question()) is not None:
            yield question

    def question(self) -> Question | None:
        """The question that teaches most now; None if there is none left."""
        if self.kind != "both":
            return self._question(self.kind)
        turns: tuple[QuestionKind, QuestionKind] = (
            ("pair", "grade") if len(self.rows) % 2 else ("grade", "pair")
        )
        return self._question(turns[0]) or self._question(turns[1])

    def _question(self, kind: QuestionKind) -> Question | None:
        graded = {normal_form(self.items[index]) for index in self._graded()} | self.skipped
        left = np.array(
            [index for index in self.candidates if normal_form(self.items[index]) not in graded], int
        )
        if kind == "pair":
            times = self._comparisons(left)
            left = left[times < (1 if np.sum(times == 0) > 1 else MAX_COMPARISONS)]
        if len(left) < (1 if kind == "grade" else 2) or (kind == "pair" and self._compared(left)):
            return None
        if kind == "grade" and len(known := self._graded()) < FIRST_GRADES:
            return Question(kind, (self.items[self._representative(known, left)],), self)
        best = best_grade if kind == "grade" else best_pair
        chosen, _ = best(self._belief(), np.searchsorted(self.candidates, left))
        return Question(kind, tuple(self.items[self.candidates[index]] for index in chosen), self)

    def _belief(self) -> Belief:
        """The distribution of the candidates' scores, by the answers so far or by the prior."""
        kernels = self._products.kernels[:, self.candidates].astype(float)
        fitted = self._undecided() if self.kind == "pair" else self.fitted
        if fitted is not None:
            return Belief(*fitted.joint(kernels, self.candidates), fitted.noise)
        weight, share, residual = FIRST
        covariance = share * kernels.mean(axis=0) + residual * np.eye(len(self.candidates))
        return Belief(weight * self._prior[self.candidates], covariance, LABEL_NOISE * residual)

    def _undecided(self) -> Fitted | None:
        """The model by which a session of pairs alone chooses them: all weights of the label-free score are open.

        A model that trusts it asks about the pairs that it leaves open, whose answers do not show where it is wrong.
        """
        if not self.rows:
            return None
        seen, settings = observations_of(self.labels, self.items), undecided_grid()
        products = self._products.at(seen.items)
        return fit_products(self._prior, products, seen, settings, len(settings), MIN_UNDECIDED)

    def _graded(self) -> list[int]:
        """The items that have been graded."""
        return sorted({self._place[normal_form(item)] for what, item, _ in self.rows if what == "value"})

    def _representative(self, known: list[int], left: np.ndarray) -> int:
        """The item among `left` that tells most about the list, given the known ones."""
        kernel = self._products.kernels[:, self.candidates].mean(axis=0).astype(float)
        rows = [np.searchsorted(self.candidates, items) for items in (np.array(known, int), left)]
        return int(self.candidates[representative(kernel, self._prior[self.candidates], *rows)])

    def _comparisons(self, places: np.ndarray) -> np.ndarray:
        """How many times each of these items has been compared."""
        seen = Counter(
            self._place[normal_form(text)] for what, *both in self.rows if what == "pair" for text in both
        )
        return np.array([seen[int(index)] for index in places], int)

    def _compared(self, places: np.ndarray) -> bool:
        """Whether these items are two that have been compared with each other."""
        names = {normal_form(self.items[index]) for index in places}
        return len(names) == 2 and any(
            what == "pair" and {normal_form(text) for text in both} == names for what, *both in self.rows
        )

    def record(self, question: Question, value: float | str) -> None:
        """Take an answer to a question; see `Question.answer`."""
        if question.kind == "grade":
            try:
                number = float(value)
            except ValueError:
                raise CcrankError(
                    f"a grade is a number from {GRADES[0]} to {GRADES[1]}, got {value!r}"
                ) from None
            row = ("value", question.items[0], f"{number:g}")
        else:
            first, second = question.items
            if value not in (first, second, "first", "second"):
                raise CcrankError(f"the higher item is {first!r} or {second!r}, got {value!r}")
            high, low = (first, second) if value in (first, "first") else (second, first)
            row = ("pair", high, low)
        self._change([*self.rows, row])

    def skip(self, question: Question) -> None:
        """Do not ask about these items again."""
        self.skipped |= {normal_form(item) for item in question.items}

    def undo(self, *, earlier: bool = False) -> LabelRow | None:
        """Take the last answer of this session back; None if there is none left.

        Parameters
        ----------
        earlier
            Where this session has no answer left, take back the last one of an earlier session.
        """
        if len(self.rows) <= (0 if earlier else self.earlier):
            return None
        last = self.rows[-1]
        self._change(self.rows[:-1])
        self.earlier = min(self.earlier, len(self.rows))
        return last

    def _change(self, rows: list[LabelRow]) -> None:
        self.rows, self._fitted, self._draws = rows, None, None
