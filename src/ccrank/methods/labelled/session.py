"""Questions and answers: the model asks for the label that teaches most, and learns from each answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from ccrank.criteria.exemplars import WRITTEN
from ccrank.errors import CcrankError
from ccrank.labels import LabelRow, Labels
from ccrank.methods.labelled.fit import Fitted, fit_products
from ccrank.methods.labelled.lists import observations_of
from ccrank.methods.labelled.prior import LABEL_NOISE, Kernel, States, grid, undecided_grid
from ccrank.methods.labelled.questions import (
    FIRST_GRADES,
    Belief,
    QuestionKind,
    best_grade,
    best_pair,
    representative,
)
from ccrank.methods.labelled.settled import Said, Settled, settle
from ccrank.ranking import Ranking
from ccrank.task import normal_form
from ccrank.util.zscores import z_scores

MAX_CANDIDATES = 1000
"""Of a longer list an even sample is asked about, so that memory stays linear in the items."""
MIN_UNDECIDED = 0.003
"""The least weight of a setting, relative to the best, that counts in the choice of a pair."""
GOOD_ENOUGH = 0.95
"""The expected share of pairs in the right order from which an order is good enough for most uses."""
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
            A number for a grade; for a pair the higher item's text, or "first", "second" or "equal" (about equal).
            "unknown" where you do not know: the question is not asked again.
        """
        self.session.record(self, value)


class Session:
    """An iterator over the questions that teach most; it ends when the answers settle the order of every two items.

    Stop before as soon as it is `good_enough` for you.

    >>> for question in session:                      # doctest: +SKIP
    ...     question.answer(input(question.items))
    ...     if session.good_enough:
    ...         break
    """

    def __init__(
        self,
        ranking: Ranking,
        states: States,
        kind: SessionKind = "both",
        rows: Sequence[LabelRow] = (),
        annotator: str = "",
    ) -> None:
        """Start from a label-free ranking and the states (N, L, d) of its items."""
        check_kind(kind)
        self.start, self.kind, self.annotator = ranking, kind, annotator
        self.items = ranking.task.items
        self.rows: list[LabelRow] = list(rows)
        self.earlier = len(self.rows)
        """How many of the first rows are answers of an earlier session."""
        self._place = {normal_form(item): index for index, item in enumerate(self.items)}
        for number, row in enumerate(self.rows, start=1):
            try:
                Labels.of_rows([row]).check_known(self._place.keys())
            except CcrankError as error:
                raise CcrankError(f"answer {number} of the earlier ones: {error}") from None
        self._states, self._kernel = states, Kernel([states])
        self._choose_candidates()
        self._prior = z_scores(np.asarray(ranking.scores, float))
        self._settings = grid(WRITTEN in ranking.details.get("signals", {}))
        self._draws: np.ndarray | None = None
        self._fitted: Fitted | None = None
        self._settled: Settled | None = None

    def _choose_candidates(self) -> None:
        """An even sample of a long list, with all items that an answer names."""
        count = len(self.items)
        wanted = min(count, MAX_CANDIDATES)
        even = np.unique(np.linspace(0, count - 1, wanted).round().astype(int))
        known = [self._place[name] for name in self.labels.items]
        self.candidates = np.unique(np.concatenate([even, np.array(known, int)]))
        self._products = self._kernel.products(self.candidates, DRAWS, np.random.default_rng(0))

    def resume(self, rows: Sequence[LabelRow]) -> None:
        """Take these answers in place of all earlier ones: the session of a client that keeps its answers itself.

        Parameters
        ----------
        rows
            All answers, of any kind that `Labels.of_rows` takes.
        """
        labels = Labels.of_rows(rows)
        labels.check(self.items)
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
        if self._fitted is None and len(labels := self.labels):
            seen = observations_of(labels, self.items)
            self._fitted = fit_products(self._prior, self._products.at(seen.items), seen, self._settings)
        return self._fitted

    @property
    def settled(self) -> Settled | None:
        """The scores by all answers so far; None without any."""
        if self._settled is None and (fitted := self.fitted) is not None:
            shown = self._prior
            others = self.labels.without_moves()
            if any(own.moves for _, own in self.labels.parts) and len(others):
                before = Session(self.start, self._states, self.kind, others.rows).settled
                shown = shown if before is None else before.scores
            said = Said.of(self.labels, self.items)
            self._settled = settle(shown, fitted.mean, fitted.deviation, self.draws, said)
        return self._settled

    @property
    def ranking(self) -> Ranking:
        """The ranking by all answers so far; the label-free one without any."""
        if (settled := self.settled) is None:
            return self.start
        return replace(self.start, scores=settled.scores, uncertainty=settled.uncertainty, confidence=None)

    @property
    def right_pairs(self) -> float:
        """The expected share of pairs of items that are in the right order; NaN without answers and for long lists."""
        return float("nan") if self.settled is None else self.settled.right_pairs

    @property
    def good_enough(self) -> bool:
        """Whether nearly all pairs are expected to be in the right order."""
        return self.right_pairs >= GOOD_ENOUGH

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
        if kind == "grade":
            left = np.setdiff1d(self.candidates, self._asked_alone())
            if not len(left):
                return None
            if len(known := self._graded()) < FIRST_GRADES:
                return Question(kind, (self.items[self._representative(known, left)],), self)
            chosen, _ = best_grade(self._belief(), np.searchsorted(self.candidates, left))
        elif (pair := self._pair()) is not None:
            chosen = pair
        else:
            return None
        return Question(kind, tuple(self.items[self.candidates[index]] for index in chosen), self)

    def _pair(self) -> tuple[int, ...] | None:
        """The pair of candidates to ask about: of items that were not compared, while there are two, then any."""
        is_open = ~self._known_pairs()
        fresh = is_open & np.outer(self._is_fresh, self._is_fresh)
        allowed = fresh if fresh.any() else is_open
        return best_pair(self._belief(), allowed)[0] if allowed.any() else None

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
        if not len(labels := self.labels):
            return None
        seen, settings = observations_of(labels, self.items), undecided_grid()
        products = self._products.at(seen.items)
        return fit_products(self._prior, products, seen, settings, len(settings), MIN_UNDECIDED)

    def _graded(self) -> list[int]:
        """The items that have been graded."""
        return sorted({self._place[item] for item, _ in self.labels.everyone.values})

    def _asked_alone(self) -> list[int]:
        """The items whose grade was asked for."""
        unknown = self.labels.everyone.unknown
        return [*self._graded(), *(self._place[item] for item, other in unknown if not other)]

    def _representative(self, known: list[int], left: np.ndarray) -> int:
        """The item among `left` that tells most about the list, given the known ones."""
        kernel = self._products.kernels[:, self.candidates].mean(axis=0).astype(float)
        rows = [np.searchsorted(self.candidates, items) for items in (np.array(known, int), left)]
        return int(self.candidates[representative(kernel, self._prior[self.candidates], *rows)])

    @property
    def _is_fresh(self) -> np.ndarray:
        """(C,) whether a candidate was compared with no other."""
        every = self.labels.everyone
        compared = {self._place[item] for pair in (*every.pairs, *every.equal) for item in pair}
        return np.array([index not in compared for index in self.candidates.tolist()])

    def _known_pairs(self) -> np.ndarray:
        """(C, C) the pairs of candidates that were asked about, or whose order follows from the answers. Items with a
        grade are compared with those of the same grade alone."""
        every = self.labels.everyone
        above = Said.of(self.labels, self.items).above(self.candidates)
        known = above | above.T | np.eye(len(self.candidates), dtype=bool)
        grades = np.full(len(self.candidates), np.nan)
        for item, value in every.values:
            grades[np.searchsorted(self.candidates, self._place[item])] = value
        graded = ~np.isnan(grades)
        known |= (graded[:, None] | graded) & (grades[:, None] != grades)
        for first, second in (*every.pairs, *every.equal, *every.unknown):
            if second:
                pair = np.searchsorted(self.candidates, [self._place[first], self._place[second]])
                known[pair, pair[::-1]] = True
        return np.asarray(known)

    def record(self, question: Question, value: float | str) -> None:
        """Take an answer to a question; see `Question.answer`."""
        first, second = (*question.items, "")[:2]
        row: LabelRow
        if value == "unknown":
            row = ("unknown", first, second)
        elif question.kind == "grade":
            try:
                number = float(value)
            except ValueError:
                raise CcrankError(
                    f"a grade is a number from {GRADES[0]} to {GRADES[1]}, or unknown, got {value!r}"
                ) from None
            row = ("value", first, f"{number:g}")
        elif value == "equal":
            row = ("equal", first, second)
        elif value in (first, second, "first", "second"):
            row = ("pair", first, second) if value in (first, "first") else ("pair", second, first)
        else:
            raise CcrankError(
                f"the higher item is {first!r} or {second!r}, or equal or unknown, got {value!r}"
            )
        self._change([*self.rows, (*row[:3], self.annotator) if self.annotator else row])

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
        self.rows, self._fitted, self._draws, self._settled = rows, None, None, None
