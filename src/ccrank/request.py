"""A request to rank: what is ranked, by what and how. Flags, JSON and the arguments of Python all become one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ccrank.criteria import criterion_of, resolved
from ccrank.errors import RECOVERABLE_ERRORS, CcrankError, check_kind
from ccrank.io import Rows
from ccrank.io.groups import Groups
from ccrank.io.trec import Run, with_first_stage
from ccrank.labels import Labels
from ccrank.prompts import Templates, load_templates
from ccrank.task import Criterion, Task, check_text
from ccrank.task.criterion import relevance_to

if TYPE_CHECKING:
    from ccrank.methods.registry import Method
    from ccrank.models.reading import Cost, Progress
    from ccrank.models.remote import OpenModel
    from ccrank.ranking import Answer, Ranking
    from ccrank.rankings import GroupedRankings, Rankings
    from ccrank.scale import Scale

    Ranked: TypeAlias = Ranking | Rankings | GroupedRankings | list[Ranking]

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
    """What is ranked, by what and how, as a user gave it; parsed and checked when it is needed.

    >>> RankRequest(by="least expensive", items=Rows(("tea", "gold"))).task.criterion.understood.first
    'cheapest first'
    """

    items: Rows | tuple[Task, ...] | None = None
    """One list, or tasks that have their own criteria; None for a file that is read block by block."""
    by: str | Criterion | Sequence[str | Criterion] | None = None
    """The criterion, or a list of several, by each of which one list is ranked."""
    comparative: str | None = None
    poles: tuple[str, str] | None = None
    category: str | None = None
    query: str | None = None
    context: str | None = None
    group_by: Hashable | None = None
    """A column of the rows, each of whose values is a list of its own, ranked by itself in prompts of its own."""
    method: str = DEFAULT_METHOD
    options: Mapping[str, Any] = field(default_factory=dict)
    """As they were given; `parsed_options` has their values."""
    labels: GivenLabels | str | None = None
    first_stage: Run | None = None
    """Scores of an earlier search, by task and document."""
    templates: Templates = field(default_factory=load_templates)

    def __post_init__(self) -> None:
        if isinstance(self.items, tuple):
            return
        if self.query is not None:
            if given := self._given("by", "comparative", "poles", "category"):
                raise CcrankError(f"a query is the criterion; leave out {given}, or the query")
        elif not self.by or (isinstance(self.by, str) and not self.by.strip()):
            raise CcrankError(
                "no criterion: give one (by='size', --by size), or a query that documents are ranked for"
            )

    def _given(self, *names: str) -> str:
        """Those of these fields that were given."""
        return ", ".join(name for name in names if getattr(self, name) is not None)

    @property
    def rows(self) -> Rows | None:
        """The rows of one list."""
        return self.items if isinstance(self.items, Rows) else None

    @cached_property
    def criterion(self) -> Criterion:
        """The criterion, understood; relevance, for a query."""
        if self.query is not None:
            return relevance_to(self.query)
        if isinstance(self.by, Criterion):
            return self.by
        return criterion_of(
            str(self.by), comparative=self.comparative, poles=self.poles, category=self.category
        )

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks; a list is one for each criterion, or for each group."""
        rows = self.rows or Rows(())
        if isinstance(self.items, tuple):
            tasks = self.items
        elif self.groups is not None:
            named = ((part, self.groups.name_of(value)) for value, part in self.groups.parts.items())
            tasks = tuple(part.task(self.criterion, self.context, name) for part, name in named)
        elif isinstance(self.by, (list, tuple)):
            tasks = tuple(self._by_each.values())
        elif self.query is not None:
            tasks = (rows.task(self.query, self.context, "ranking by relevance"),)
        else:
            name = self.by.strip() if isinstance(self.by, str) else self.criterion.name
            tasks = (rows.task(self.criterion, self.context, id=f"ranking by {name}"),)
        if self.first_stage is not None:
            tasks = tuple(with_first_stage(tasks, self.first_stage))
        for task in tasks:
            check_text(task)
        return tasks

    @property
    def task(self) -> Task:
        """The task of one list by one criterion."""
        [task] = self.tasks
        return task

    @cached_property
    def groups(self) -> Groups | None:
        """The groups of the rows, if they are ranked group by group."""
        if self.group_by is None or isinstance(self.items, tuple):
            return None
        if isinstance(self.by, (list, tuple)):
            raise CcrankError(
                "groups are ranked by one criterion; give by without a list, or leave out group_by"
            )
        if given := self._given("query", "labels", "first_stage"):
            raise CcrankError(f"{given} cannot be combined with groups; rank one group at a time")
        return Groups.of(self.rows or Rows(()), self.group_by)

    @cached_property
    def _by_each(self) -> dict[str, Task]:
        """Name of a criterion → its task, of several, whose prompts are read together."""
        criteria = [*self.by] if isinstance(self.by, (list, tuple)) else []
        if given := self._given("comparative", "poles", "query", "labels", "first_stage"):
            raise CcrankError(f"{given} cannot be combined with several criteria; rank by one at a time")
        if len(criteria) > MAX_CRITERIA:
            raise CcrankError(
                f"a table has 1 to {MAX_CRITERIA} criteria, got {len(criteria)}; rank several times"
            )
        tasks: dict[str, Task] = {}
        for by in criteria:
            check_kind("each of by", by, (str, Criterion), "a phrase or a Criterion")
            name = " ".join((by if isinstance(by, str) else by.name).split())
            task = replace(self, by=by).task
            same = resolved(task.criterion, None)
            for other, earlier in tasks.items():
                if same == resolved(earlier.criterion, None) or name.casefold() == other.casefold():
                    raise CcrankError(f"{name!r} and {other!r} are the same criterion; leave one out")
            tasks[name] = task
        return tasks

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

    def expected_reading(self, reader: OpenModel) -> Cost:
        """The expected cost of reading; zero if the method will refuse the tasks, whose error says why."""
        from ccrank.methods.estimate import expected_reading
        from ccrank.models.reading import Cost

        try:
            tasks = [task.canonical for task in self._prepared(reader)]
            return expected_reading(tasks, reader, self.chosen, self.templates, self.parsed_options)
        except RECOVERABLE_ERRORS:
            return Cost()

    def _prepared(self, reader: OpenModel) -> list[PreparedTask]:
        from ccrank.methods.adjectives import with_senses

        return [PreparedTask.of(task, reader) for task in with_senses(self.tasks, reader)]

    def fit(self, reader: OpenModel, progress: Progress | None = None) -> list[Scale]:
        """The scales, one for each task; tasks that were pooled have equal ones."""
        from ccrank.methods.registry import ItemwiseScorer
        from ccrank.models.prompter import Prompter
        from ccrank.scale import Scale

        options = self.parsed_options
        if self.groups is not None:
            requests = (replace(self, items=(task,)) for task in self.tasks)
            return [scale for request in requests for scale in request.fit(reader, progress)]
        if not self.tasks:
            return []
        prepared = self._prepared(reader)
        ordered = [task.canonical for task in prepared]
        answers = self.chosen.run(ordered, Prompter(reader, self.templates, progress), **options)
        scales = []
        for task, answer in zip(prepared, answers, strict=True):
            ranking = replace(task.ranking(answer, self.chosen, reader), rows=self.rows)
            make = answer.scorer
            if make is None and self.chosen.itemwise:
                make = partial(ItemwiseScorer, self.method, options)
            scales.append(Scale.of(ranking, make, reader, self.templates, options))
        return scales

    def run(self, reader: OpenModel, progress: Progress | None = None) -> list[Ranking]:
        """The rankings, one for each task: each scale applied to its own items."""
        return [scale.ranking for scale in self.fit(reader, progress) if scale.ranking is not None]

    def result(self, rankings: Sequence[Ranking]) -> Ranked:
        """The rankings of the tasks as what was asked for: one ranking of a list, a table, or a list for tasks."""
        from ccrank.rankings import GroupedRankings, Rankings

        if self.groups is not None:
            named = zip(self.groups.parts.items(), rankings, strict=True)
            return GroupedRankings(
                self.groups, {value: replace(one, rows=part) for (value, part), one in named}
            )
        if self.rows is None:
            return [*rankings]
        if isinstance(self.by, (list, tuple)):
            return Rankings(self.rows, dict(zip(self._by_each, rankings, strict=True)))
        [ranking] = rankings
        return ranking


@dataclass(frozen=True)
class PreparedTask:
    """A task as methods take it, with a resolved criterion and with items in canonical order."""

    task: Task
    """Its items are in the order of the request."""
    canonical: Task
    order: Sequence[int]
    """For each item of `canonical`, its index in `task`."""

    @classmethod
    def of(cls, task: Task, reader: OpenModel) -> PreparedTask:
        """Prepare a task; the model may be asked for the opposite of an adjective, and for the sense that fits."""
        from ccrank.methods.adjectives import opposite_proposer, with_senses
        from ccrank.ranking import canonical

        check_text(task)
        # A server would be asked for hundreds of words one by one.
        propose = None if reader.behind_server else opposite_proposer(reader)
        [task] = with_senses([replace(task, criterion=resolved(task.criterion, propose))], reader)
        return cls(task, *canonical(task))

    def ranking(self, answer: Answer, method: Method, reader: OpenModel) -> Ranking:
        """The ranking from a method's answer about the canonical task, with the items in the order of the request."""
        from ccrank.ranking import Ranking, Uncertainty, from_canonical, margins_from_canonical

        order, doubt = self.order, answer.uncertainty
        if doubt is not None:
            low, high = (
                from_canonical(ranks, order).astype(int) for ranks in (doubt.rank_low, doubt.rank_high)
            )
            doubt = Uncertainty(from_canonical(doubt.deviation, order), low, high, doubt.probability)
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
            uncertainty=doubt,
            warnings=_warnings(self.task, answer, directed),
            confidence=answer.confidence,
            pair_margins=margins_from_canonical(answer.pair_margins, order),
            runs=None if answer.runs is None else from_canonical(answer.runs, order),
        )


def _warnings(task: Task, answer: Answer, directed: bool) -> tuple[str, ...]:
    """Warnings of a doubtful criterion, of the method, of a low confidence and of an unknown direction."""
    understood, confidence = task.criterion.understood, answer.confidence
    doubts = (
        None if understood is None else understood.warning,
        *answer.warnings,
        None if confidence is None else confidence.warning(),
        None if directed else UNDIRECTED,
    )
    return tuple(doubt for doubt in doubts if doubt)
