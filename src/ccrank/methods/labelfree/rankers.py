"""The label-free methods, each signal alone and all of them together, and what scores other items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ccrank.confidence import Features, confidence_of
from ccrank.criteria.exemplars import WRITTEN
from ccrank.criteria.lexicon import poles_of
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.anchored import LEAST_SMOOTHED, anchored_scores, smoothed, smoothing_of
from ccrank.methods.labelfree.combine import RawSignals, SignalModel
from ccrank.methods.labelfree.intervals import ScoreError, uncertainty_of
from ccrank.methods.labelfree.signals import Plan, Wording, are_texts, read_raw, read_signals, wordings_of
from ccrank.methods.labelled.lists import MakeModel, task_labels, with_labels
from ccrank.methods.labelled.prior import States
from ccrank.methods.labelled.saved_model import LabelModel
from ccrank.methods.probing.scorer import ProbeScorer
from ccrank.methods.query_likelihood import query_likelihood
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import middle_and_late
from ccrank.models.reading import by_item, shares_by_items
from ccrank.ranking import Answer, ItemScores, MakeScorer
from ccrank.task import Task, by_criterion

MIN_TASKS = 4
"""Fewer tasks of one criterion are too few to fit a probe on."""


@dataclass(frozen=True)
class SignalScorer:
    """Scores items by signals, with the constants of a list, and by what labels say."""

    plan: Plan
    model: SignalModel = field(default_factory=SignalModel)
    labels: LabelModel | None = None

    @classmethod
    def fit(
        cls, plan: Plan, raw: RawSignals, error: ScoreError | None = None, smooth: bool = False
    ) -> SignalScorer:
        """The constants of a list; if it is smoothed, what states add too."""
        model = replace(SignalModel.fit(raw), error=error)
        if smooth and raw.states is not None and len(raw.states[0]) >= LEAST_SMOOTHED:
            model = replace(model, smoothing=smoothing_of(raw.states[0], raw.signals.total()))
        return cls(plan, model)

    def score(self, task: Task, prompter: Prompter) -> ItemScores:
        """Scores of any items: each depends on the item alone."""
        [raw], cost = read_raw([task], [self.plan], prompter)
        signals = raw.values or self.model.axis is not None
        plain = self.model(raw) if signals else ItemScores(np.zeros(len(task.items)))
        if self.labels is not None and raw.states is not None:
            item, slot = raw.states
            plain = self.labels((slot, item), plain.values)
        return replace(plain, cost=cost)


def labelled_scorer(
    plan: Plan, label_free: Callable[[], SignalScorer] | None, labels: Callable[[], LabelModel]
) -> SignalScorer:
    """The scorer of lists with labels: of one list with its signals, of several by states alone."""
    if label_free is None:
        return SignalScorer(replace(plan, poles=False, wordings=()), labels=labels())
    return replace(label_free(), plan=plan, labels=labels())


def answer_of(
    task: Task,
    raw: RawSignals,
    scores: np.ndarray,
    cost: Cost,
    plan: Plan,
    smooth: bool,
    pool: MakeScorer | None = None,
) -> Answer:
    """Scores with the signals that they were made of and the confidence in them; `pool` scores other items, where one
    was fitted on several lists."""
    signals = raw.signals
    words = poles_of(task.criterion)
    details = {
        "poles": [words.low[0], words.high[0]],
        "signals": {name: by_item(task.items, row) for name, row in signals.scores.items()},
    }
    agreement, p_value = signals.agreement()
    understood = task.criterion.understood
    features = Features(
        n_items=len(task.items),
        agreement=agreement,
        p_value=p_value,
        kind="context" if task.context else "text" if are_texts(task.items) else "name",
        poles=words.source if understood is None else understood.source,
        category=task.criterion.category is not None,
        exemplars=WRITTEN in signals.scores,
        bits=raw.bits,
    )
    error = ScoreError.fit(scores, features)
    deviation = None if error is None else error([*signals.scores.values()])
    return Answer(
        scores,
        {"signals_agree": agreement, "signals_p_value": p_value},
        cost,
        details,
        pool or partial(SignalScorer.fit, plan, raw, error, smooth),
        uncertainty=None if deviation is None else uncertainty_of(np.asarray(scores, float), deviation),
        confidence=confidence_of(features),
    )


def auto(
    tasks: Sequence[Task],
    prompter: Prompter,
    *,
    anchor: bool = True,
    exemplars: bool = True,
    labels: Any = None,
    first_stage: str = "auto",
) -> list[Answer]:
    """The mean of several label-free signals, each of which is directed.

    Without context: the pole words that the model prefers for the item (poles), the items that it finds likely at
    either pole (likelihood, in two wordings), and the item's state between exemplars of both poles (axis). For common
    criteria (politeness, weight) the item's state is also scored by a probe fitted to exemplars that were written for
    them; `exemplars=no` leaves it out. With a context: the items that the context makes likely. Scores are then
    smoothed over items with similar states: within a list, or by a probe across four or more tasks of one criterion
    (see `anchored`). `anchor=no` leaves the plain mean. The words for both poles come from --poles, --comparative or
    the criterion's name.

    A few labels (`labels`: item → value, pairs (higher, lower), best and worst picks, mixed; --labels FILE) turn this
    score into the prior mean of a Gaussian process with a kernel over the states; see docs/how-to/give-labels.md.
    `labels="tasks"` takes the tasks' own values, so that lists with values serve the other lists of the criterion.
    `details["labels"]` says what the labels changed and which of them disagree.

    Tasks with a query are ranked by `query-likelihood`, plus scores of a first stage where they have them, or
    `first_stage=bm25`.
    """
    with_query = [task for task in tasks if task.query is not None]
    others = [task for task in tasks if task.query is None]
    if with_query and labels is not None:
        raise CcrankError(
            f"task {with_query[0].id!r} has a query, and labels do not change a ranking by query; leave them out"
        )
    by_query = iter(query_likelihood(with_query, prompter, first_stage=first_stage) if with_query else ())
    known = [] if labels is None else task_labels(others, labels)
    labelled = any(map(len, known))
    answers, states = _label_free(others, prompter, anchor, labelled, exemplars)
    if labelled:

        def scorer(task: Task, plain: MakeScorer | None, model: MakeModel) -> MakeScorer:
            return partial(labelled_scorer, Plan.of_auto(task, prompter.reader, states=True), plain, model)

        answers = with_labels(others, known, answers, states, scorer)
    by_signals = iter(answers)
    return [next(by_signals if task.query is None else by_query) for task in tasks]


def _label_free(
    tasks: Sequence[Task], prompter: Prompter, anchor: bool, with_states: bool, written: bool = True
) -> tuple[list[Answer], dict[int, States]]:
    """The label-free answers, and the states that were read on the way: of all tasks if `with_states`. `written`: take
    the exemplars that were written for a criterion, if there are any."""
    groups = by_criterion(tasks).values()
    pools = [members for members in groups if anchor and len(members) >= MIN_TASKS]
    alone = [index for members in groups if members not in pools for index in members]
    answers: dict[int, Answer] = {}
    states: dict[int, States] = {}
    for members in filter(None, [alone, *pools]):
        some = [tasks[index] for index in members]
        some_answers, read = _answers(some, prompter, members is not alone, anchor, with_states, written)
        answers.update(zip(members, some_answers, strict=True))
        states.update({members[row]: task_states for row, task_states in read.items()})
    return [answers[index] for index in range(len(tasks))], states


def _answers(
    tasks: Sequence[Task],
    prompter: Prompter,
    pool: bool,
    smooth: bool = True,
    with_states: bool = True,
    written: bool = True,
    ridge: float = 1.0,
) -> tuple[list[Answer], dict[int, States]]:
    """Answers of tasks that are read together, and their states. `pool`: by a probe, where there are enough lists of a
    criterion; `smooth`: smoothed over similar items, unless the signals are those of a context."""
    reader = prompter.reader
    raws, whole = read_signals(tasks, prompter, pool or with_states, written)
    costs = shares_by_items(whole, tasks)
    both = {index: raw.states[::-1] for index, raw in enumerate(raws) if raw.states is not None}
    answers: dict[int, Answer] = {}
    for members in by_criterion(tasks).values():
        scores = [raws[index].signals.total() for index in members]
        scorer: MakeScorer | None = None
        if pool and len(members) >= MIN_TASKS:
            places = [*product(("slot", "item"), middle_and_late(reader.depth))]
            states = [np.concatenate(both[index], axis=1) for index in members]
            fitted = anchored_scores(states, scores, places, ridge)
            scores = fitted.scores
            scorer = partial(ProbeScorer.of_pool, fitted.probe(template="poles"), states, fitted.best)
        for index, score in zip(members, scores, strict=True):
            task, plan = tasks[index], Plan.of_auto(tasks[index], reader, states=pool)
            is_smoothed = pool or (smooth and bool(reader.loaded.missing_head or not task.context))
            if scorer is None and is_smoothed and index in both:
                score = smoothed(both[index][1], score)
            answers[index] = answer_of(task, raws[index], score, costs[index], plan, is_smoothed, scorer)
    return [answers[index] for index in range(len(tasks))], both


def auto_reads_states(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    """Whether `auto` reads hidden states: for lists without a context, for four or more lists of one criterion, and
    for labels; never for documents with a query."""
    plain = [task for task in tasks if task.query is None]
    if plain and (options.get("labels") is not None or not all(task.context for task in plain)):
        return True
    pooled = any(len(members) >= MIN_TASKS for members in by_criterion(plain).values())
    return pooled and bool(options.get("anchor", True))


def label_free_states(task: Task, prompter: Prompter) -> tuple[Answer, States]:
    """What `auto` gives for one task, and the task's states at the slot and at the item."""
    [answer], states = _label_free([task], prompter, anchor=True, with_states=True)
    return answer, states[0]


def anchored(tasks: Sequence[Task], prompter: Prompter, *, ridge: float = 1.0) -> list[Answer]:
    """A probe from hidden states to the signals' mean (the anchor), fitted on the other tasks of the same criterion.

    The probe sees many tasks, so it keeps what their anchors have in common and averages out the noise of each. A task
    is scored by probes that have not seen it, averaged over the layers and positions whose probes predict the anchors
    of other tasks best, plus half its own anchor. Criteria with fewer than 4 tasks fall back on smoothing within each
    list, each item predicted from the others.
    """
    return _answers(tasks, prompter, pool=True, ridge=ridge)[0]


def poles(tasks: Sequence[Task], prompter: Prompter, *, template: str = "poles") -> list[Answer]:
    """The words that the model prefers for the item: log-odds of the high pole's words against the low pole's."""
    if prompter.reader.loaded.missing_head:
        raise CcrankError(
            f"poles needs logits, and {prompter.reader.name} has no language-model head; use axis or auto, which read "
            "states"
        )
    answers = _alone(tasks, [Plan(template, poles=True)] * len(tasks), prompter, lambda raw: SignalModel())
    return [replace(answer, scorer=None) for answer in answers]


def likelihood(
    tasks: Sequence[Task], prompter: Prompter, *, template: str = "", against: str = "low"
) -> list[Answer]:
    """The item as the answer: its log-probability in prompts for the high pole minus that in prompts for the low pole.

    The mean of the wordings that `auto` uses for such a list, each Z-scored. `template` takes one wording instead;
    `against` is what its log-probabilities are compared with: the low pole (low), the same prompt without the context
    (context), or nothing (nothing).
    """
    given = (Wording(template, against),) if template else None  # type: ignore[arg-type]
    plans = [Plan(wordings=given or wordings_of(task)) for task in tasks]
    return _alone(tasks, plans, prompter, SignalModel.fit)


def axis(tasks: Sequence[Task], prompter: Prompter, *, template: str = "poles") -> list[Answer]:
    """The item's state between those of exemplars: from "a very small country" to "a very large country"."""
    plan = Plan(template, layers=tuple(middle_and_late(prompter.reader.depth)))
    return _alone(tasks, [plan] * len(tasks), prompter, lambda raw: SignalModel(axis=raw.axis))


def _alone(
    tasks: Sequence[Task],
    plans: Sequence[Plan],
    prompter: Prompter,
    fit: Callable[[RawSignals], SignalModel],
) -> list[Answer]:
    """Answers by what each plan reads."""
    raws, cost = read_raw(tasks, plans, prompter, fitting=True)
    answers = []
    for raw, plan, share in zip(raws, plans, shares_by_items(cost, tasks), strict=True):
        model = fit(raw)
        answers.append(Answer(model(raw).values, {}, share, scorer=partial(SignalScorer, plan, model)))
    return answers
