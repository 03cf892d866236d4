"""Criterion and Task: what to rank and by which criterion, with validation."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccrank.errors import CcrankError
from ccrank.text import quoted
from ccrank.understood import Understood


@dataclass(frozen=True, slots=True)
class Criterion:
    """The criterion to rank by. Only `name` is required; templates use it in place of missing fields.

    Parameters
    ----------
    name
        The quantity, such as "size", or a phrase such as "how positive it is".
    comparative
        How the higher item compares with the lower one: "larger".
    poles
        Words for the low and the high pole: ("small", "large").
    category
        What the items are, in the singular: "country".
    reversed
        Whether more of `name` comes later, as in "least expensive": price, with the poles ("expensive", "cheap").
    understood
        What the phrase that the criterion was made from was taken to mean; see `ccrank.criterion_phrase`.

    Examples
    --------
    >>> Criterion("size", comparative="larger", poles=("small", "large"), category="country").comparative_phrase
    'larger'
    >>> Criterion("size").comparative_phrase
    'more in terms of size'
    """

    name: str
    comparative: str | None = None
    """How the higher item compares with the lower one: "larger"."""
    poles: tuple[str, str] | None = None
    """Words for the low and the high pole: ("small", "large")."""
    category: str | None = None
    """What the items are, in the singular: "country"."""
    reversed: bool = False
    """Whether more of `name` comes later: "price" with the poles ("expensive", "cheap"). Methods that ask for the name
    alone, such as ratings, reverse their scores."""
    understood: Understood | None = field(default=None, compare=False, repr=False)
    """What the phrase that it was made from was taken to mean."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise CcrankError(
                f"a criterion needs a name such as 'size' or 'how positive it is', got {self.name!r}"
            )
        for label, value in (("comparative", self.comparative), ("category", self.category)):
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise CcrankError(f"criterion {self.name!r}: {label} must be a word, got {value!r}")
        if self.poles is not None:
            if isinstance(self.poles, str) or len(tuple(self.poles)) != 2:
                raise CcrankError(
                    f"criterion {self.name!r}: poles must be two words, low then high, got {self.poles!r}"
                )
            low, high = self.poles
            if not all(isinstance(pole, str) and pole.strip() for pole in (low, high)) or low == high:
                raise CcrankError(
                    f"criterion {self.name!r}: poles must be two different words (low, high), got {self.poles!r}"
                )
            object.__setattr__(self, "poles", (low, high))

    @property
    def comparative_phrase(self) -> str:
        """The comparative, or the paper's phrase for a criterion without one."""
        return self.comparative or f"{'less' if self.reversed else 'more'} in terms of {self.name}"

    @property
    def sign(self) -> int:
        """1 where more of `name` comes first, -1 where it comes last."""
        return -1 if self.reversed else 1

    @property
    def kind(self) -> str:
        """The category, or "item" if none was given."""
        return self.category or "item"

    @classmethod
    def parse(cls, value: object) -> Criterion:
        """A criterion from its JSON form.

        Parameters
        ----------
        value
            An object with the fields of a criterion, or the name alone.
        """
        if isinstance(value, Criterion):
            return value
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping):
            raise CcrankError(f"a criterion must be a name or an object with a name, got {value!r}")
        known = {"name", "comparative", "poles", "category", "reversed"}
        if unknown := sorted(set(map(str, value)) - known):
            raise CcrankError(f"criterion has unknown fields {unknown}; known are {sorted(known)}")
        if "name" not in value:
            raise CcrankError(f"criterion {dict(value)!r} has no name")
        poles = value.get("poles")
        if poles is not None and not isinstance(poles, Sequence):
            raise CcrankError(
                f"criterion {value['name']!r}: poles must be two words (low, high), got {poles!r}"
            )
        return cls(
            name=value["name"],
            comparative=value.get("comparative"),
            poles=poles if poles is None or isinstance(poles, str) else tuple(poles),  # type: ignore[arg-type]
            category=value.get("category"),
            reversed=bool(value.get("reversed", False)),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form, without the fields that are None."""
        fields = {
            "name": self.name,
            "comparative": self.comparative,
            "poles": None if self.poles is None else list(self.poles),
            "category": self.category,
            "reversed": self.reversed or None,
        }
        return {key: value for key, value in fields.items() if value is not None}


def relevance_to(query: str) -> Criterion:
    """The criterion of a task that has a query: how relevant a document is to it.

    Parameters
    ----------
    query
        A question or keywords.

    >>> relevance_to("smart cities").name
    'relevance to the query "smart cities"'
    """
    return Criterion(
        f'relevance to the query "{" ".join(query.split())}"',
        "more relevant",
        ("irrelevant", "relevant"),
        "document",
    )


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
        no ties; but grades of relevance to a query may, which are whole numbers, and 0 is not relevant.
    id
        The name of the task in error messages and results.
    about
        Metadata such as unit, year and source; never shown to a model.
    query
        What the items, documents then, are to be relevant to; the criterion is `relevance_to(query)`. See
        `Task.of_query`.
    first_stage
        Scores of the items by an earlier search, such as BM25: more = higher.
    item_ids
        Names of the items in files of runs, without white space; their places, from 1, if None.

    Examples
    --------
    >>> Task(Criterion("size"), ("Chad", "Russia"), values=(1.28, 17.1)).order
    ('Russia', 'Chad')
    """

    criterion: Criterion
    items: tuple[str, ...]
    context: str | None = None
    values: tuple[float, ...] | None = None
    """Gold, aligned with the items: more = higher. Used only for evaluation and supervised methods."""
    id: str = "task"
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Metadata on the origin of the task (unit, year, source); never shown to a model."""
    query: str | None = None
    """What the items are to be relevant to, where that is the criterion."""
    first_stage: tuple[float, ...] | None = None
    """Scores of the items by an earlier search: more = higher."""
    item_ids: tuple[str, ...] | None = None
    """Names of the items in files of runs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        where = f"task {self.id!r}"
        _check_items(self.items, where)
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
            checked = _check_numbers(self.values, self.items, where, "value")
            _check_gold(checked, self.items, where, graded=self.query is not None)
            object.__setattr__(self, "values", checked)
        if self.first_stage is not None:
            scores = _check_numbers(self.first_stage, self.items, where, "first_stage")
            object.__setattr__(self, "first_stage", scores)
        if self.item_ids is not None:
            object.__setattr__(self, "item_ids", _check_ids(self.item_ids, self.items, where))

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

    @property
    def order(self) -> tuple[str, ...] | None:
        """The items by gold value, highest first; None without gold."""
        if self.values is None:
            return None
        pairs = sorted(zip(self.values, self.items, strict=True), key=lambda pair: -pair[0])
        return tuple(item for _, item in pairs)

    @classmethod
    def from_order(cls, criterion: Criterion, order: Sequence[str], **fields: Any) -> Task:
        """A task whose gold is an order.

        Parameters
        ----------
        criterion
            The criterion.
        order
            The items, highest first.
        **fields
            Further fields of the task. `items` gives the items in another order than gold; no method may depend on it.
        """
        items = tuple(fields.pop("items", order))
        where = f"task {fields.get('id', 'task')!r}"
        _check_items(items, where)
        return cls(criterion, items, values=_values_of_order(order, items, where), **fields)

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
        query = value.get("query")
        if query is not None and value.get("criterion") is not None:
            raise CcrankError(f"{where}: has a criterion and a query; a query is the criterion, so keep one")
        for required in ("items",) if query is not None else ("criterion", "items"):
            if required not in value:
                raise CcrankError(f"{where}: has no {required!r}")
        if value.get("first_stage") is not None and value.get("bm25") is not None:
            raise CcrankError(f"{where}: scores of a first stage are given twice, as first_stage and as bm25")
        if "values" in value and "order" in value:
            raise CcrankError(f"{where}: gold is given twice, as values and as order; keep one")
        items = value["items"]
        if isinstance(items, str) or not isinstance(items, Sequence):
            raise CcrankError(f"{where}: items must be a list of texts, got {quoted(items)}")
        if query is None:
            try:
                criterion = Criterion.parse(value["criterion"])
            except CcrankError as error:
                raise CcrankError(f"{where}: {error}") from None
        else:
            criterion = relevance_to(check_query(query, where))
        _check_items(items, where)
        gold = value.get("values")
        if value.get("order") is not None:
            gold = _values_of_order(value["order"], items, where)
        return cls(
            criterion,
            tuple(items),
            value.get("context"),
            gold,
            task_id,
            value.get("about") or {},
            query,
            value.get("first_stage", value.get("bm25")),
            value.get("item_ids"),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as written to one line of a task file."""
        line: dict[str, Any] = {"id": self.id}
        line |= {"criterion": self.criterion.to_json()} if self.query is None else {"query": self.query}
        line["items"] = list(self.items)
        if self.item_ids is not None:
            line["item_ids"] = list(self.item_ids)
        if self.context is not None:
            line["context"] = self.context
        if self.values is not None:
            line["values"] = list(self.values)
        if self.first_stage is not None:
            line["first_stage"] = list(self.first_stage)
        if self.about:
            line["about"] = dict(self.about)
        return line


def normal_form(text: str) -> str:
    """The form in which items are compared: NFKC with white space collapsed."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def is_blank(text: str) -> bool:
    """Whether a text has nothing to read: white space and unprintable characters alone."""
    return not any(char.isprintable() and not char.isspace() for char in normal_form(text))


def is_finite_number(value: object) -> bool:
    """Whether a value is a number that a float can hold: no truth value, NaN, infinity or huge integer."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def check_text(task: Task) -> None:
    """Raise an error for text that no tokenizer accepts: lone surrogates, as left by decoding bytes that are not
    UTF-8."""
    criterion = task.criterion
    words = (
        criterion.name,
        criterion.comparative_phrase,
        criterion.kind,
        *(criterion.poles or ()),
        task.context or "",
        task.query or "",
    )
    for text in (*task.items, *words):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            start = max(0, error.start - 20)
            raise CcrankError(
                f"task {task.id!a}: a text is not valid Unicode: {text[start : start + 40]!a}; "
                "check that its source is UTF-8"
            ) from None


def _check_items(items: Iterable[object], where: str) -> None:
    seen: dict[str, int] = {}
    for position, item in enumerate(items, start=1):
        if not isinstance(item, str):
            raise CcrankError(f"{where}: item {position} is not text: {quoted(item)}")
        key = normal_form(item)
        if is_blank(item):
            raise CcrankError(f"{where}: item {position} is empty: {item!r}")
        if key in seen:
            raise CcrankError(f"{where}: item {position} repeats item {seen[key]}: {quoted(item)}")
        seen[key] = position
    if len(seen) < 2:
        raise CcrankError(f"{where}: a ranking needs at least 2 items, got {len(seen)}")


def check_query(query: object, where: str) -> str:
    """The query; raises an error unless it is a text that has something to read.

    Parameters
    ----------
    query
        What was given.
    where
        The task, for the error message.
    """
    if not isinstance(query, str) or is_blank(query):
        raise CcrankError(f"{where}: query must be a question or keywords, got {quoted(query)}")
    return query


def _check_numbers(values: object, items: Sequence[str], where: str, name: str) -> tuple[float, ...]:
    """One finite number for each item; `name` is that of the field, in the singular or as it is written."""
    plural = name if name == "first_stage" else f"{name}s"
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise CcrankError(f"{where}: {plural} must be a list of numbers, got {quoted(values)}")
    if len(values) != len(items):
        raise CcrankError(f"{where}: {len(values)} {plural} for {len(items)} items; give one {name} per item")
    for item, value in zip(items, values, strict=True):
        if not is_finite_number(value):
            raise CcrankError(f"{where}: the {name} of {quoted(item)} is not a finite number: {value!r}")
    return tuple(float(value) for value in values)


def _check_gold(values: Sequence[float], items: Sequence[str], where: str, graded: bool) -> None:
    """Raise an error for ties, or for grades of relevance below 0."""
    seen: dict[float, str] = {}
    for item, value in zip(items, values, strict=True):
        if graded and (value < 0 or value != int(value)):
            raise CcrankError(
                f"{where}: the value of {quoted(item)} is {value:g}; grades of relevance to a query are whole numbers, "
                "and 0 is not relevant"
            )
        if value in seen and not graded:
            raise CcrankError(
                f"{where}: gold has a tie: {quoted(seen[value])} and {quoted(item)} are both {value:g}; "
                "drop one of the two items"
            )
        seen[value] = item


def _check_ids(ids: object, items: Sequence[str], where: str) -> tuple[str, ...]:
    if isinstance(ids, str) or not isinstance(ids, Sequence) or len(ids) != len(items):
        raise CcrankError(
            f"{where}: item_ids must be a list of {len(items)} texts, one per item, got {quoted(ids)}"
        )
    seen: set[str] = set()
    for one in ids:
        if not isinstance(one, str) or not one or one.split() != [one]:
            raise CcrankError(f"{where}: an item id is a text without white space, got {quoted(one)}")
        if one in seen:
            raise CcrankError(f"{where}: two items have the id {quoted(one)}; give each its own")
        seen.add(one)
    return tuple(ids)


def _values_of_order(order: object, items: Sequence[str], where: str) -> tuple[float, ...]:
    if isinstance(order, str) or not isinstance(order, Sequence):
        raise CcrankError(f"{where}: order must be a list of items, highest first, got {quoted(order)}")
    place: dict[str, int] = {}
    for position, item in enumerate(order):
        if not isinstance(item, str):
            raise CcrankError(f"{where}: order has an entry that is not text: {quoted(item)}")
        if normal_form(item) in place:
            raise CcrankError(f"{where}: order names {quoted(item)} twice")
        place[normal_form(item)] = position
    for item in items:
        if normal_form(item) not in place:
            raise CcrankError(f"{where}: order lacks the item {quoted(item)}")
    known = {normal_form(item) for item in items}
    for item in order:
        if normal_form(item) not in known:
            raise CcrankError(f"{where}: order names {quoted(item)}, which is not among the items")
    return tuple(float(len(place) - 1 - place[normal_form(item)]) for item in items)
