"""Task: a criterion and the items to rank by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from ccrank.errors import CcrankError, check_kind
from ccrank.task.checks import (
    check_gold,
    check_ids,
    check_items,
    check_numbers,
    check_query,
    values_of_order,
)
from ccrank.task.criterion import Criterion, relevance_to
from ccrank.util.text import quoted


@dataclass(frozen=True, slots=True)
class Task:
    """A criterion and the items to rank by it, with optional context and optional gold.

    Parameters
    ----------
    criterion
        The criterion.
    items
        At least two different, non-empty texts.
    context
        A text that precedes every prompt of the task.
    values
        Gold values aligned with the items: more = higher. Used only for evaluation and supervised methods. They have
        no ties, except grades of relevance to a query: whole numbers, of which 0 is not relevant.
    id
        The name of the task in error messages and results.
    about
        Metadata such as unit, year and source; never shown to a model.
    query
        A query to which the items, then documents, are to be relevant; it is the criterion. See `Task.of_query`.
    first_stage
        Scores of the items by an earlier search, such as BM25: more = higher.
    item_ids
        Names of the items in files of runs, without white space; their positions, from 1, if None.

    Examples
    --------
    >>> Task(Criterion("size"), ("Chad", "Russia"), values=(1.28, 17.1)).order
    ('Russia', 'Chad')
    """

    criterion: Criterion
    items: tuple[str, ...]
    context: str | None = None
    values: tuple[float, ...] | None = None
    id: str = "task"
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)
    query: str | None = None
    first_stage: tuple[float, ...] | None = None
    item_ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        where = f"task {self.id!r:.60}"
        check_kind(f"{where}: criterion", self.criterion, Criterion, "a Criterion")
        check_kind(f"{where}: items", self.items, Iterable, "a list of texts")
        object.__setattr__(self, "items", tuple(self.items))
        check_items(self.items, where)
        if self.context is not None and not isinstance(self.context, str):
            raise CcrankError(f"{where}: context must be text, got {self.context!r}")
        if self.query is not None:
            check_query(self.query, where)
            if self.criterion != relevance_to(self.query):
                raise CcrankError(
                    f"{where}: it has a query and the criterion {quoted(self.criterion.name)}; a query is the "
                    "criterion, so keep one of the two (Task.of_query makes a task of a query)"
                )
        if self.values is not None:
            checked = check_numbers(self.values, self.items, where, "value")
            check_gold(checked, self.items, where, graded=self.query is not None)
            object.__setattr__(self, "values", checked)
        if self.first_stage is not None:
            scores = check_numbers(self.first_stage, self.items, where, "first_stage")
            object.__setattr__(self, "first_stage", scores)
        if self.item_ids is not None:
            object.__setattr__(self, "item_ids", check_ids(self.item_ids, self.items, where))

    @classmethod
    def of_query(cls, query: str, items: Sequence[str], **fields: Any) -> Task:
        """A task whose criterion is relevance to a query.

        Parameters
        ----------
        query
            A question or keywords.
        items
            The documents.
        **fields
            Further fields of the task.

        Examples
        --------
        >>> Task.of_query("storms", ("A gale warning.", "A recipe."), values=(1, 0)).criterion.name
        'relevance to the query "storms"'
        """
        check_query(query, f"task {fields.get('id', 'task')!r}")
        return cls(relevance_to(query), tuple(items), query=query, **fields)

    def unchecked(self, items: Sequence[str], context: str | None) -> Task:
        """The same question about other texts, which were checked before. There may be one item alone, which can be
        scored, though not ranked.

        Parameters
        ----------
        items
            Different texts.
        context
            The context.
        """
        other = copy(self)
        fields = {"items": tuple(items), "context": context}
        for name, value in (fields | dict.fromkeys(("values", "first_stage", "item_ids"))).items():
            object.__setattr__(other, name, value)
        return other

    @property
    def order(self) -> tuple[str, ...] | None:
        """The items by gold value, highest first; None without gold."""
        if self.values is None:
            return None
        pairs = sorted(zip(self.values, self.items, strict=True), key=lambda pair: -pair[0])
        return tuple(item for _, item in pairs)

    @classmethod
    def parse(cls, value: object, default_id: str = "task") -> Task:
        """A task from its JSON form.

        Parameters
        ----------
        value
            An object with the fields of a task, `query` in place of `criterion` where the items are documents;
            `values` or `order` is the optional gold, `first_stage` (or `bm25`) the scores of an earlier search.
        default_id
            The id of a task without one.
        """
        if not isinstance(value, Mapping):
            raise CcrankError(f"{default_id}: a task must be a JSON object, got {quoted(value)}")
        task_id = str(value.get("id", default_id))
        where = f"task {task_id!r}"
        known = {"id", "criterion", "query", "items", "item_ids", "context", "values", "order", "first_stage"}
        known |= {"about", "bm25"}
        if unknown := sorted(set(map(str, value)) - known):
            raise CcrankError(f"{where}: unknown fields {unknown}; known are {sorted(known)}")
        for one, other in (("query", "criterion"), ("first_stage", "bm25"), ("values", "order")):
            if value.get(one) is not None and value.get(other) is not None:
                raise CcrankError(f"{where}: {one} and {other} are two ways to give the same; keep one")
        query = value.get("query")
        for required in ("items",) if query is not None else ("criterion", "items"):
            if required not in value:
                raise CcrankError(f"{where}: has no {required!r}")
        items, gold = value["items"], value.get("values")
        if isinstance(items, str) or not isinstance(items, Sequence):
            raise CcrankError(f"{where}: items must be a list of texts, got {quoted(items)}")
        if query is None:
            try:
                criterion = Criterion.parse(value["criterion"])
            except CcrankError as error:
                raise CcrankError(f"{where}: {error}") from None
        else:
            criterion = relevance_to(check_query(query, where))
        if value.get("order") is not None:
            check_items(items, where)
            gold = values_of_order(value["order"], items, where)
        first_stage = value.get("first_stage", value.get("bm25"))
        about, ids = value.get("about") or {}, value.get("item_ids")
        return cls(
            criterion, tuple(items), value.get("context"), gold, task_id, about, query, first_stage, ids
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as written to one line of a task file."""
        line: dict[str, Any] = {"id": self.id}
        line |= {"criterion": self.criterion.to_json()} if self.query is None else {"query": self.query}
        line["items"] = list(self.items)
        for name in ("item_ids", "context", "values", "first_stage"):
            if (value := getattr(self, name)) is not None:
                line[name] = list(value) if isinstance(value, tuple) else value
        if self.about:
            line["about"] = dict(self.about)
        return line


def by_criterion(tasks: Sequence[Task]) -> dict[Criterion, list[int]]:
    """The indices of the tasks of each criterion."""
    groups: dict[Criterion, list[int]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault(task.criterion, []).append(index)
    return groups


def check_text(task: Task) -> None:
    """Raise an error for text that no tokenizer accepts: lone surrogates, as left by decoding bytes that are not
    UTF-8."""
    criterion = task.criterion
    words = (criterion.name, criterion.comparative_phrase, criterion.kind, *(criterion.poles or ()))
    for text in (*task.items, *words, task.context or "", task.query or ""):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            start = max(0, error.start - 20)
            raise CcrankError(
                f"task {task.id!a}: a text is not valid Unicode: {text[start : start + 40]!a}; "
                "check that its source is UTF-8"
            ) from None
