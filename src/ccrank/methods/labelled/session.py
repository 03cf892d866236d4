"""Questions and answers: the model asks for the label that teaches most, and learns from each answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from ccrank.criteria.exemplars import WRITTEN
from ccrank.errors import CcrankError
from ccrank.labels import LabelRow, Labels
from ccrank.methods.labelled.fit import Fitted, fit
from ccrank.methods.labelled.observations import observations_of
from ccrank.methods.labelled.prior import LABEL_NOISE, Kernel, Setting, States, grid
from ccrank.methods.labelled.settled import Settled, implied, settle
from ccrank.ranking import Ranking
from ccrank.task import normal_form
from ccrank.util.text import quoted
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

FIRST_GRADES = 5
"""Items that are graded first, because they stand for the list: until then the model knows too little to choose."""
STATES_SHARE, PRIOR_SHARE, OWN_SHARE = 0.35, 0.1, 0.3
"""The parts of a score's variance in the choice of items that stand for others: explained by the states, explained by
the label-free score, and particular to an item."""

QuestionKind = Literal["grade", "pair"]
SessionKind = Literal["grade", "pair", "both"]


def check_kind(kind: str) -> SessionKind:
    """The kind of questions; raises if it is unknown."""
    if not isinstance(kind, str) or kind not in get_args(SessionKind):
        raise CcrankError(f"questions are grade, pair or both, not {quoted(kind)}")
    return cast(SessionKind, kind)


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
    Stop as soon as it is `good_enough` for you.

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
        self.items, self.rows = ranking.task.items, list(rows)
        self.earlier = len(self.rows)
        """How many of the first rows are answers of an earlier session."""
        self._place = {normal_form(item): index for index, item in enumerate(self.items)}
        for number, row in enumerate(self.rows, start=1):
            try:
                Labels.of_rows([row]).check_known(self._place.keys())
            except CcrankError as error:
                raise CcrankError(f"answer {number} of the earlier ones: {error}") from None
        self._states = states
        self._choose_candidates()
        self._prior = z_scores(np.asarray(ranking.scores, float))
        self._settings = grid(WRITTEN in ranking.details.get("signals", {}))

    def _choose_candidates(self) -> None:
        """An even sample of a long list, with all items that an answer names."""
        count = len(self.items)
        even = np.linspace(0, count - 1, min(count, MAX_CANDIDATES)).round().astype(int)
        known = np.array([self._place[name] for name in self.labels.items], int)
        self.candidates = np.unique(np.concatenate([even, known]))
        self._products = Kernel([self._states]).products(self.candidates, DRAWS)

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

    def _change(self, rows: list[LabelRow]) -> None:
        self.rows = rows
        for name in ("labels", "fitted", "settled", "draws"):
            vars(self).pop(name, None)

    @cached_property
    def labels(self) -> Labels:
        """All answers so far."""
        return Labels.of_rows(self.rows)

    @property
    def answered(self) -> Labels:
        """The answers whose questions are not asked again: of the annotator, if there is one, else of everyone."""
        if not self.annotator:
            return self.labels.everyone
        return dict(self.labels.parts).get(self.annotator, Labels())

    @cached_property
    def fitted(self) -> Fitted | None:
        """The model of all answers so far; None without any."""
        return self._fit(self._settings)

    def _fit(self, settings: Sequence[Setting], *limits: Any) -> Fitted | None:
        if not len(self.labels):
            return None
        seen = observations_of([self.labels], [self.items])
        return fit(self._prior, self._products, seen, settings, *limits)

    @cached_property
    def settled(self) -> Settled | None:
        """The scores by all answers so far; None without any."""
        if self.fitted is None:
            return None
        others = self.labels.without_moves()
        shown = self._prior
        if self.labels.everyone.moves and len(others):
            before = Session(self.start, self._states, self.kind, others.rows).settled
            shown = shown if before is None else before.scores
        return settle(shown, *self.fitted.moments, self.draws, self.labels, self.items)

    @property
    def ranking(self) -> Ranking:
        """The ranking by all answers so far; the label-free one without any."""
        if self.settled is None:
            return self.start
        return replace(
            self.start, scores=self.settled.scores, uncertainty=self.settled.uncertainty, confidence=None
        )

    @property
    def right_pairs(self) -> float:
        """The expected share of pairs of items that are in the right order; NaN without answers and for long lists."""
        return float("nan") if self.settled is None else self.settled.right_pairs

    @property
    def good_enough(self) -> bool:
        """Whether nearly all pairs are expected to be in the right order."""
        return self.right_pairs >= GOOD_ENOUGH

    @cached_property
    def draws(self) -> np.ndarray:
        """(N, T) joint draws of the scores, by the answers so far or by the prior."""
        rng = np.random.default_rng(len(self.rows))
        if self.fitted is not None:
            return self.fitted.draws(rng)
        weight, share, residual = FIRST
        states = np.sqrt(share / 4) * self._products.functions.sum(axis=0)
        particular = np.sqrt(residual) * rng.standard_normal(states.shape)
        return np.asarray(weight * self._prior[:, None] + states + particular)

    def __iter__(self) -> Iterator[Question]:
        while (question := self.question()) is not None:
            yield question

    def question(self) -> Question | None:
        """The question that teaches most now; None if there is none left."""
        ways = {"grade": self._grade, "pair": self._pair}
        if self.kind != "both":
            return ways[self.kind]()
        turn, other = ("pair", "grade") if len(self.rows) % 2 else ("grade", "pair")
        return ways[turn]() or ways[other]()

    def _asked(self, kind: QuestionKind, places: Iterable[int]) -> Question:
        return Question(kind, tuple(self.items[self.candidates[place]] for place in places), self)

    def _at(self, names: Iterable[str]) -> np.ndarray:
        """Where the candidates have some items."""
        return np.searchsorted(self.candidates, np.array([self._place[name] for name in names], int))

    def _grade(self) -> Question | None:
        """The candidate whose grade teaches most; first some that stand for the list, which needs no answers."""
        graded = np.unique(self._at(item for item, _ in self.labels.everyone.values))
        asked = [item for item, _ in self.answered.values]
        asked += [item for item, other in self.answered.unknown if not other]
        left = np.setdiff1d(np.arange(len(self.candidates)), self._at(asked))
        if not len(left):
            return None
        if len(graded) >= FIRST_GRADES:
            return self._asked("grade", best_grade(self._belief(), left)[0])
        kernel = self._products.kernels[:, self.candidates].mean(axis=0).astype(float)
        return self._asked("grade", [representative(kernel, self._prior[self.candidates], graded, left)])

    def _pair(self) -> Question | None:
        """The pair of candidates to ask about: of items that were not compared, while there are two, then any."""
        is_fresh = np.ones(len(self.candidates), bool)
        compared = (*self.answered.pairs, *self.answered.equal)
        is_fresh[self._at(item for pair in compared for item in pair)] = False
        is_open = ~self._known_pairs()
        fresh = is_open & np.outer(is_fresh, is_fresh)
        allowed = fresh if fresh.any() else is_open
        return self._asked("pair", best_pair(self._belief(), allowed)[0]) if allowed.any() else None

    def _belief(self) -> Belief:
        """The distribution of the candidates' scores, by the answers so far or by the prior."""
        kernels = self._products.kernels[:, self.candidates].astype(float)
        fitted = self._undecided() if self.kind == "pair" else self.fitted
        if fitted is not None:
            return Belief(*fitted.joint(kernels, self.candidates), fitted.expected("noise"))
        weight, share, residual = FIRST
        covariance = share * kernels.mean(axis=0) + residual * np.eye(len(self.candidates))
        return Belief(weight * self._prior[self.candidates], covariance, LABEL_NOISE * residual)

    def _undecided(self) -> Fitted | None:
        """The model by which a session of pairs alone chooses them: all weights of the label-free score are open, since
        a model that trusts this score does not ask where it may be wrong."""
        settings = grid(undecided=True)
        return self._fit(settings, len(settings), MIN_UNDECIDED)

    def _known_pairs(self) -> np.ndarray:
        """(C, C) the pairs of candidates that were asked about, or whose order follows from the answers. Items with a
        grade are compared with items of the same grade, and with items that nobody is going to grade."""
        every = self.answered
        orders = [(self._place[high], self._place[low]) for high, low in every.orders]
        above = implied(orders, self.candidates)
        known = above | above.T | np.eye(len(self.candidates), dtype=bool)
        grades = np.full(len(self.candidates), np.nan)
        for item, value in every.values:
            grades[self._at([item])] = value
        graded = ~np.isnan(grades)
        of_grades = np.logical_and if self.kind == "pair" else np.logical_or
        known |= of_grades.outer(graded, graded) & (grades[:, None] != grades)
        for first, second in (*every.pairs, *every.equal, *every.unknown):
            if second:
                pair = self._at((first, second))
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


@dataclass(frozen=True)
class Belief:
    """What is known of the scores of C items: a normal distribution."""

    mean: np.ndarray
    """(C,)"""
    covariance: np.ndarray
    """(C, C)"""
    noise: float
    """The variance of a label's noise."""

    def rank_covariance(self) -> np.ndarray:
        """(C, C) covariance of the items' ranks Σ_k [f_j > f_k] (rows) with their scores: of a normal distribution
        E[∇rank] cov(f), where the mean gradient of a step is the density of f_j − f_k at 0."""
        variances = np.diag(self.covariance)
        spread = np.maximum(variances[:, None] + variances - 2 * self.covariance, 1e-9)
        apart = self.mean[:, None] - self.mean
        density = np.exp(-(apart**2) / (2 * spread)) / np.sqrt(2 * np.pi * spread)
        np.fill_diagonal(density, 0)
        return np.asarray(density.sum(axis=1)[:, None] * self.covariance - density @ self.covariance)


def best_grade(belief: Belief, candidates: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The item whose value would teach most, and its gain: the expected reduction of the variance of all ranks."""
    explained = np.sum(belief.rank_covariance()[:, candidates] ** 2, axis=0)
    gains = explained / (np.diag(belief.covariance)[candidates] + belief.noise)
    best = int(gains.argmax())
    return (int(candidates[best]),), float(gains[best])


def best_pair(belief: Belief, allowed: np.ndarray) -> tuple[tuple[int, ...], float]:
    """The two items whose order would teach most, among the allowed (C, C), and its gain, as in `best_grade`.

    The sign of g = f_i − f_j + ε tells, to the first order, φ(z)²/(Φ(z)Φ(−z)) of what its value would, with z the mean
    of g over its deviation: most if the order is open."""
    first, second = np.nonzero(np.triu(allowed, 1))
    ranks = belief.rank_covariance()
    inner = ranks.T @ ranks
    mean = belief.mean[first] - belief.mean[second]
    spread = _of_differences(belief.covariance, first, second) + 2 * belief.noise
    z = mean / np.sqrt(spread)
    information = np.exp(-(z**2)) / (2 * np.pi) / np.maximum(ndtr(z) * ndtr(-z), 1e-12)
    worth = information * _of_differences(inner, first, second) / spread
    best = int(worth.argmax())
    return (int(first[best]), int(second[best])), float(worth[best])


def _of_differences(inner: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """‖x_i − x_j‖² from inner products."""
    squares = np.diag(inner)
    return np.asarray(squares[first] + squares[second] - 2 * inner[first, second])


def representative(kernel: np.ndarray, prior: np.ndarray, known: ArrayLike, candidates: ArrayLike) -> int:
    """The candidate that tells most about all items, given the known ones; no answer is needed. (N, N), (N,) -> item"""
    size = np.sqrt(np.maximum(np.diag(kernel), 1e-12))
    covariance = STATES_SHARE * kernel / np.outer(size, size) + PRIOR_SHARE * np.outer(prior, prior)
    for item in np.asarray(known, int):
        column = covariance[:, item]
        covariance = covariance - np.outer(column, column) / (column[item] + OWN_SHARE)
    items = np.asarray(candidates, int)
    gains = np.sum(covariance[:, items] ** 2, axis=0) / (covariance[items, items] + OWN_SHARE)
    return int(items[gains.argmax()])
