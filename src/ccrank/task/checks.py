"""The checks of a task's items, gold, scores and ids, and the form in which items are compared."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from ccrank.errors import CcrankError
from ccrank.util.text import quoted

MAX_QUERY = 4000
"""Characters of a query."""
LONG_RUN = 250
"""Combining marks in a row, from which on it takes too long to bring them into their order: the square of their number.
Some character of such a run is among every 250th of a text."""


def normal_form(text: str) -> str:
    """The form in which items are compared: NFKC with white space collapsed."""
    if len(text) > LONG_RUN and not text.isascii() and _mark().search(text[::LONG_RUN]):
        text = _run_of_marks().sub("\\1\u034f", text)
    return " ".join(unicodedata.normalize("NFKC", text).split())


@cache
def _mark() -> re.Pattern[str]:
    """A character that has combining marks alone in its decomposition."""
    characters = (chr(code) for code in range(0x300, 0x1F000) if not 0xD800 <= code < 0xE000)
    marks = (
        char for char in characters if all(map(unicodedata.combining, unicodedata.normalize("NFKD", char)))
    )
    return re.compile(f"[{''.join(marks)}]")


@cache
def _run_of_marks() -> re.Pattern[str]:
    """Where a long run of combining marks is broken, by the Stream-Safe Text Format of UAX #15."""
    mark = _mark().pattern
    return re.compile(f"({mark}{{30}})(?={mark})")


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


def check_length(text: str, what: str, most: int) -> None:
    """Raise an error if a text is too long; compatibility characters count as their letters."""
    count = len(text) if len(text) > most else len(unicodedata.normalize("NFKC", text))
    if count > most:
        raise CcrankError(f"{what} has {count:,} characters, {quoted(text)}; write up to {most:,}")


def check_items(items: Iterable[object], where: str) -> None:
    """Raise an error unless there are at least two different, non-empty texts."""
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
        parts = [part.strip() for part in next(iter(seen), "").split(",") if part.strip()]
        split = f"; if it holds {len(parts)} items, give each one by itself" if len(parts) > 2 else ""
        raise CcrankError(f"{where}: a ranking needs at least 2 items, got {len(seen)}{split}")


def check_query(query: object, where: str) -> str:
    """The query; raises an error unless it is a text that has something to read."""
    if not isinstance(query, str) or is_blank(query[: MAX_QUERY + 1]):
        raise CcrankError(f"{where}: query must be a question or keywords, got {quoted(query)}")
    check_length(query, f"{where}: query", MAX_QUERY)
    return query


def check_numbers(values: object, items: Sequence[str], where: str, name: str) -> tuple[float, ...]:
    """One finite number for each item; `name` is the name of the field for messages: "value" or "first_stage"."""
    plural = name if name == "first_stage" else f"{name}s"
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise CcrankError(f"{where}: {plural} must be a list of numbers, got {quoted(values)}")
    if len(values) != len(items):
        raise CcrankError(f"{where}: {len(values)} {plural} for {len(items)} items; give one {name} per item")
    for item, value in zip(items, values, strict=True):
        if not is_finite_number(value):
            raise CcrankError(f"{where}: the {name} of {quoted(item)} is not a finite number: {value!r}")
    return tuple(float(value) for value in values)


def check_gold(values: Sequence[float], items: Sequence[str], where: str, graded: bool) -> None:
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


def check_ids(ids: object, items: Sequence[str], where: str) -> tuple[str, ...]:
    """One id for each item: different texts without white space."""
    if isinstance(ids, str) or not isinstance(ids, Sequence) or len(ids) != len(items):
        raise CcrankError(
            f"{where}: item_ids must be a list of {len(items)} texts, one per item, got {quoted(ids)}"
        )
    seen: set[str] = set()
    for item_id in ids:
        if not isinstance(item_id, str) or not item_id or item_id.split() != [item_id]:
            raise CcrankError(f"{where}: an item id is a text without white space, got {quoted(item_id)}")
        if item_id in seen:
            raise CcrankError(f"{where}: two items have the id {quoted(item_id)}; give each its own")
        seen.add(item_id)
    return tuple(ids)


def values_of_order(order: object, items: Sequence[str], where: str) -> tuple[float, ...]:
    """Gold values of the items from their order, highest first: N - 1 down to 0."""
    if isinstance(order, str) or not isinstance(order, Sequence):
        raise CcrankError(f"{where}: order must be a list of items, highest first, got {quoted(order)}")
    positions: dict[str, int] = {}
    for position, item in enumerate(order):
        if not isinstance(item, str):
            raise CcrankError(f"{where}: order has an entry that is not text: {quoted(item)}")
        if normal_form(item) in positions:
            raise CcrankError(f"{where}: order names {quoted(item)} twice")
        positions[normal_form(item)] = position
    names = {normal_form(item): item for item in items}
    for key, item in names.items():
        if key not in positions:
            raise CcrankError(f"{where}: order lacks the item {quoted(item)}")
    for item in order:
        if normal_form(item) not in names:
            raise CcrankError(f"{where}: order names {quoted(item)}, which is not among the items")
    return tuple(float(len(positions) - 1 - positions[key]) for key in names)
