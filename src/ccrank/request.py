"""A request to rank: what is ranked, by what and how. Flags, JSON and the arguments of Python all become one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ccrank.criteria import criterion_of, resolved
from ccrank.errors import CcrankError, check_kind
from ccrank.io import Rows
from ccrank.io.groups import Groups
from ccrank.io.trec import Run, with_first_stage
from ccrank.labels import Labels
from ccrank.prompts import Templates, load_templates
from ccrank.task import Criterion, Task, check_text
from ccrank.task.criterion import relevance_to

if TYPE_CHECKING:
    from ccrank.methods.registry import Method
    from ccrank.models.reading import Progress
    from ccrank.models.remote import OpenModel
    from ccrank.ranking import Answer, Ranking
    from ccrank.scale import Scale

DEFAULT_METHOD = "auto"
MAX_CRITERIA = 20
"""Criteria of one table."""
GivenLabels: TypeAlias = Labels | Mapping[str, Any] | Sequence[Any]
"""Labels as a user gives them: see `Labels.parse`."""
UNDIRECTED = (
    "the direction is unknown, so the order may be reversed: compare two items that you know, or use --method auto "
    "(method='auto')"
)


@dataclass(frozen=True, kw_only=True)
class RankRequest:
    """What is ranked, by what and how, as a user gave it. What it means is computed, and checked, when it is needed.

    >>> RankRequest(by="least expensive", items=Rows(("tea", "gold"))).task.criterion.understood.first
    'cheapest first'
    """

    items: Rows | tuple[Task, ...] | None = None
    """One list, or tasks that have their own criteria; None for a file that is read block by block."""
    by: str | Criterion | None = None
    comparative: str | None = None
    poles: tuple[str, str] | None = None
    category: str | None = None
    query: str | None = None
    context: str | None = None
    method: str = DEFAULT_METHOD
    options: Mapping[str, Any] = field(default_factory=dict)
    """As they were given; `parsed_options` has their values."""
    labels: GivenLabels | str | None = None
    first_stage: Run | None = None
    """Scores of an earlier search, by task and document."""
    templates: Templates = field(default_factory=load_templates)
    alone: bool = False
    """Rank each task by itself: nothing is pooled, and none is read with another."""

    def __post_init__(self) -> None:
        if isinstance(self.items, tuple):
            return
        words = ("by", "comparative", "poles", "category")
        if self.query is not None:
            if given := [name for name in words if getattr(self, name) is not None]:
                raise CcrankError(f"a query is the criterion; leave out {', '.join(given)}, or the query")
        elif self.by is None or (isinstance(self.by, str) and not self.by.strip()):
            raise CcrankError(
                "no criterion: give one (by='size', --by size), or a query that documents are ranked for"
            )

    @cached_property
    def criterion(self) -> Criterion:
        """The criterion, understood; relevance, for a query."""
        if self.query is not None:
            return relevance_to(self.query)
        if isinstance(self.by, Criterion):
            return self.by
        return criterion_of(
            self.by or "", comparative=self.comparative, poles=self.poles, category=self.category
        )

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks; a list is one."""
        tasks = self.items if isinstance(self.items, tuple) else (self._task_of(self.items or Rows(())),)
        if self.first_stage is not None:
            tasks = tuple(with_first_stage(tasks, self.first_stage))
        for task in tasks:
            check_kind("each of tasks", task, Task, "a Task")
            check_text(task)
        return tasks

    @property
    def rows(self) -> Rows | None:
        """The rows of one list."""
        return self.items if isinstance(self.items, Rows) else None

    @property
    def task(self) -> Task:
        """The task of one list."""
        [task] = self.tasks
        return task

    def _task_of(self, rows: Rows) -> Task:
        if self.query is not None:
            return rows.task_of_query(self.query, self.context, id="ranking by relevance")
        name = self.by.strip() if isinstance(self.by, str) else self.criterion.name
        return rows.task(self.criterion, self.context, id=f"ranking by {name}")

    @cached_property
    def chosen(self) -> Method:
        """The method."""
        from ccrank.methods.registry import get_method

        return get_method(self.method)

    @cached_property
    def parsed_options(self) -> dict[str, Any]:
        """The options of the method, with the labels among them."""
        parsed = self.chosen.parse_options(self.options)
        if self.labels is not None:
            self.check_takes_labels()
            parsed["labels"] = self.labels
        return parsed

    def check_takes_labels(self) -> None:
        """Raise an error unless the method takes labels."""
        if "labels" not in self.chosen.options:
            raise CcrankError(f"{self.method} uses no labels; leave them out, or use the method auto")

    def expected_tokens(self, reader: OpenModel) -> int | None:
        """About how many tokens will be read; None if the method will refuse the tasks, which says more."""
        from ccrank.methods.estimate import expected_tokens

        try:
            return expected_tokens(self.tasks, reader, self.chosen, self.templates, self.parsed_options)
        except CcrankError:
            return None

    def fit(self, reader: OpenModel, progress: Progress | None = None) -> list[Scale]:
        """The scales, one for each task; those of tasks that were pooled score alike."""
        from ccrank.methods.itemwise import ItemwiseScorer
        from ccrank.methods.senses import with_senses
        from ccrank.scale import Scale

        options = self.parsed_options
        if self.alone:
            single = (replace(self, items=(task,), alone=False) for task in self.tasks)
            return [scale for one in single for scale in one.fit(reader, progress)]
        if not self.tasks:
            return []
        prepared = [PreparedTask.of(task, reader) for task in with_senses(self.tasks, reader)]
        ordered = [one.canonical for one in prepared]
        answers = self.chosen.run(ordered, reader, self.templates, progress=progress, **options)
        scales = []
        for one, answer in zip(prepared, answers, strict=True):
            ranking = replace(one.ranking(answer, self.chosen, reader), rows=self.rows)
            make = answer.scorer
            if make is None and self.chosen.itemwise:
                make = partial(ItemwiseScorer, self.method, options)
            scales.append(Scale.of(ranking, make, reader, self.templates, options))
        return scales

    def run(self, reader: OpenModel, progress: Progress | None = None) -> list[Ranking]:
        """The rankings, one for each task: each scale applied to its own items."""
        return [scale.ranking for scale in self.fit(reader, progress) if scale.ranking is not None]


def by_each(request: RankRequest, criteria: Sequence[str | Criterion]) -> tuple[RankRequest, tuple[str, ...]]:
    """The request to rank one list by each of several criteria, whose prompts are read together, and their names."""
    of_one = ("comparative", "poles", "query", "labels", "first_stage")
    if given := [name for name in of_one if getattr(request, name) is not None]:
        raise CcrankError(
            f"{', '.join(given)} cannot be combined with several criteria; rank by one at a time"
        )
    if not 0 < len(criteria) <= MAX_CRITERIA:
        raise CcrankError(
            f"a table has 1 to {MAX_CRITERIA} criteria, got {len(criteria)}; rank several times"
        )
    tasks: dict[str, Task] = {}
    for one in criteria:
        check_kind("each of by", one, (str, Criterion), "a phrase or a Criterion")
        name = " ".join((one if isinstance(one, str) else one.name).split())
        task = replace(request, by=one).task
        for other, earlier in tasks.items():
            if (
                resolved(task.criterion, None) == resolved(earlier.criterion, None)
                or name.casefold() == other.casefold()
            ):
                raise CcrankError(f"{name!r} and {other!r} are the same criterion; leave one out")
        tasks[name] = task
    return replace(request, by=None, items=tuple(tasks.values())), tuple(tasks)


def by_group(request: RankRequest, column: Hashable) -> tuple[RankRequest, Groups]:
    """The request to rank the rows of each group by themselves, and the groups."""
    if given := [name for name in ("query", "labels", "first_stage") if getattr(request, name) is not None]:
        raise CcrankError(f"{', '.join(given)} cannot be combined with groups; rank one group at a time")
    groups = Groups.of(request.rows or Rows(()), column)
    by = replace(request, by=request.criterion, comparative=None, poles=None, category=None)
    tasks = [
        replace(replace(by, items=part).task, id=groups.name_of(value))
        for value, part in groups.parts.items()
    ]
    return replace(by, items=tuple(tasks), alone=True), groups


@dataclass(frozen=True)
class PreparedTask:
    """A task as methods take it: its criterion resolved, and its items in canonical order."""

    task: Task
    """With its items as they were given."""
    canonical: Task
    order: Sequence[int]
    """For each item of `canonical`, its index in `task`."""

    @classmethod
    def of(cls, task: Task, reader: OpenModel) -> PreparedTask:
        """Prepare a task; the model may be asked for the opposite of an adjective, and for the sense that fits."""
        from ccrank.methods.opposites import opposite_proposer
        from ccrank.methods.senses import with_senses
        from ccrank.ranking import canonical

        check_text(task)
        # A server would be asked for hundreds of words one by one.
        propose = None if reader.behind_server else opposite_proposer(reader)
        [task] = with_senses([replace(task, criterion=resolved(task.criterion, propose))], reader)
        return cls(task, *canonical(task))

    def ranking(self, answer: Answer, method: Method, reader: OpenModel) -> Ranking:
        """The ranking that a method's answer about the canonical task makes, with the items as they were given."""
        import numpy as np

        from ccrank.ranking import (
            Ranking,
            from_canonical,
            margins_from_canonical,
            uncertainty_from_canonical,
        )

        order = self.order
        directed = method.directed if answer.directed is None else answer.directed
        return Ranking(
            self.task,
            from_canonical(answer.scores, order),
            method.name,
            reader.name,
            directed,
            answer.consistency,
            answer.cost,
            {**answer.details, "weights": dict(reader.loaded.weights)},
            uncertainty=uncertainty_from_canonical(answer.uncertainty, order),
            warnings=_warnings(self.task, answer, directed),
            confidence=answer.confidence,
            pair_margins=margins_from_canonical(answer.pair_margins, order),
            runs=None
            if answer.runs is None
            else np.stack([from_canonical(run, order) for run in answer.runs]),
        )


def _warnings(task: Task, answer: Answer, directed: bool) -> tuple[str, ...]:
    """Doubts about what the criterion means, the method's own warnings, a low confidence and an unknown direction."""
    understood, confidence = task.criterion.understood, answer.confidence
    doubts = (
        None if understood is None else understood.warning,
        *answer.warnings,
        None if confidence is None else confidence.warning(),
        None if directed else UNDIRECTED,
    )
    return tuple(doubt for doubt in doubts if doubt)
