"""One cell as text, as a JSON value and as an item."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ccrank.errors import CcrankError
from ccrank.task import is_blank
from ccrank.util.text import encodable, quoted


class WrittenFloat(float):
    """A number of a JSON file that keeps its digits: 1.10 stays 1.10 in a CSV."""

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str

    def __str__(self) -> str:
        return self.text


def cell_text(value: Any) -> str:
    """A value as the text of a cell of a CSV or TSV: empty for None and NaN, JSON for lists and objects."""
    if isinstance(value, str):
        return encodable(value)
    if is_missing(value):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, (Mapping, Sequence)):
        return json.dumps(json_value(value), ensure_ascii=False)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return str(value)


def json_value(value: Any) -> Any:
    """A value as JSON: null for NaN, text for dates and all other types that JSON does not have."""
    if isinstance(value, str):
        return encodable(value)
    if is_missing(value):
        return None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, Mapping):
        return {cell_text(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [json_value(entry) for entry in value]
    return cell_text(value)


def item_text(value: Any, where: str) -> str | None:
    """The item that a cell holds; None for an empty cell. Numbers and dates are ranked by their text."""
    if isinstance(value, (bool, bytes, Mapping)) or (
        isinstance(value, Sequence) and not isinstance(value, str)
    ):
        raise CcrankError(f"{where}: an item is a text, got {quoted(value)}")
    text = value.strip() if isinstance(value, str) else cell_text(value)
    return None if is_blank(text) else text


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, or pandas' NaT and NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)
