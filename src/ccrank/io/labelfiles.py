"""Labels in files: tables, JSON, or lines such as `Russia > Chad` and `Chad < Russia`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path

from ccrank.errors import CcrankError
from ccrank.labels import LabelRow, Labels
from ccrank.task import normal_form
from ccrank.util.files import csv_rows, read_text, write_atomically
from ccrank.util.text import quoted, shortened

COLUMNS = ("kind", "item", "value")
"""The header of a table of mixed labels. `kind` is value, rank, pair (`value` is the lower item), equal, unknown,
above, below (`value` is the other item), best or worst."""
ANNOTATOR = "annotator"
"""A last column of any table: who a label is from."""

Entries = Iterator[tuple[str, Callable[[], Labels]]]
"""The place of each entry of a file, and what makes labels of it."""


def read_labels(path: str | Path, items: Sequence[str]) -> Labels:
    """A few labels for some of the items of a list."""
    text, suffix = read_text(path), Path(path).suffix.lower()
    tabular = suffix in (".csv", ".tsv", ".tab")
    known = frozenset(map(normal_form, items))
    if suffix == ".json" or (not tabular and text.lstrip().startswith(("{", "["))):
        entries = _json_entries(text, str(path))
    elif not tabular and _are_lines(text):
        entries = _line_entries(text, str(path))
    else:
        tabs = suffix in (".tsv", ".tab") or (suffix != ".csv" and "\t" in text)
        entries = _table_entries(text, "\t" if tabs else ",", known, str(path))
    return Labels.joined(_checked(labels_of, known, where) for where, labels_of in entries)


def read_answers(path: str | Path, items: Sequence[str]) -> list[LabelRow]:
    """The answers of an earlier session: the rows of a table of mixed labels, in their order."""
    lines = _table_rows(read_text(path), ",", str(path))
    where, header = next(lines, ("", COLUMNS))
    names = tuple(cell.strip().lower() for cell in header)
    if names not in (COLUMNS, (*COLUMNS, ANNOTATOR)):
        raise CcrankError(
            f"{where}: the header of a file of answers is {','.join(COLUMNS)} or {','.join(COLUMNS)},{ANNOTATOR}, got "
            f"{quoted(','.join(header))}; name another file with --labels"
        )
    known = frozenset(map(normal_form, items))
    answers: list[LabelRow] = []
    for where, row in lines:
        _checked(partial(_by_annotator if len(names) > 3 else _mixed, row), known, where)
        kind, item, value, *person = row
        kind = kind.strip().lower()
        answer = ("value" if kind == "grade" else kind, item, value)
        answers.append((*answer, person[0].strip()) if person and person[0].strip() else answer)
    return answers


def write_labels(labels: Iterable[LabelRow], path: str | Path) -> None:
    """Write a table of mixed labels that `read_labels` reads: whole, or not at all."""
    rows = [*labels]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    named = any(len(row) > len(COLUMNS) for row in rows)
    writer.writerow((*COLUMNS, ANNOTATOR) if named else COLUMNS)
    writer.writerows((*row, "")[: len(COLUMNS) + 1] if named else row for row in rows)
    write_atomically(path, buffer.getvalue())


def possible_items(path: str | Path) -> frozenset[str]:
    """Everything in a file of labels that may be an item, in normal form: cells, sides of `>`, strings of JSON."""
    text = read_text(path)
    names = set(re.split(r"[<>\n]|^(?:best|worst):", text, flags=re.MULTILINE))
    for separator in (",", "\t"):
        rows = csv_rows(io.StringIO(text, newline=""), separator, str(path), strict=False)
        names.update(cell for _, cells in rows for cell in cells)
    names.update(json.loads(word) for word in re.findall(r'"(?:[^"\\]|\\.)*"', text) if _is_json(word))
    return frozenset(normal_form(name) for name in names if name.strip())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _checked(labels_of: Callable[[], Labels], known: Set[str], where: str) -> Labels:
    """The labels of one entry of a file; an error names the entry."""
    try:
        labels = labels_of()
        labels.check_known(known)
    except CcrankError as error:
        raise CcrankError(f"{where}: {error}") from None
    return labels


def _json_entries(text: str, where: str) -> Entries:
    def each(pairs: list[tuple[str, object]]) -> object:
        # An item that is labelled twice has two labels, which a dict would lose.
        names = [name for name, _ in pairs]
        return dict(pairs) if len(set(names)) == len(names) else [{name: value} for name, value in pairs]

    try:
        value = json.loads(text, object_pairs_hook=each)
    except (ValueError, RecursionError) as error:
        raise CcrankError(f"{where}: not JSON ({error})") from None
    if isinstance(value, dict):
        yield where, partial(Labels.parse, value)
    elif isinstance(value, list):
        for number, entry in enumerate(value, start=1):
            yield f"{where}, entry {number}", partial(Labels.parse, [entry])
    else:
        raise CcrankError(
            f"{where}: labels are a JSON object of items and values, or a list of orders, got {quoted(value)}"
        )


def _are_lines(text: str) -> bool:
    first = next((line for line in text.splitlines() if line.strip()), "")
    return "<" in first or ">" in first or _pick(first) is not None


def _pick(line: str) -> tuple[str, str] | None:
    word, colon, item = line.partition(":")
    word = word.strip().lower()
    return (word, item.strip()) if colon and word in ("best", "worst") else None


def _line_entries(text: str, where: str) -> Entries:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield f"{where}, line {number}", partial(_line_labels, line)


def _line_labels(line: str) -> Labels:
    if pick := _pick(line):
        return Labels.parse({pick[0]: pick[1]})
    rising = "<" in line
    names = [part.strip() for part in line.split("<" if rising else ">")]
    if len(names) < 2 or not all(names) or (rising and ">" in line):
        raise CcrankError(
            f"a line reads A > B, A > B > C, A < B, best: A or worst: A, got {shortened(line.strip())!r}"
        )
    return Labels.of_order(names[::-1] if rising else names)


def _table_entries(text: str, delimiter: str, known: Set[str], where: str) -> Entries:
    row_labels: Callable[[Sequence[str]], Labels] | None = None
    for location, row in _table_rows(text, delimiter, where):
        if row_labels is None:
            header = tuple(cell.strip().lower() for cell in row)
            if normal_form(row[0]) in known and header not in _READERS and header[-1] != ANNOTATOR:
                row_labels = _two("value")
            else:
                row_labels = _READERS.get(header)
                if row_labels is None and header[-1] == ANNOTATOR and header[:-1] in _READERS:
                    row_labels = partial(_by_annotator, columns=header[:-1])
                row_labels = row_labels or _of_length(row, location)
                if not _is_value(row):
                    continue
        yield location, partial(row_labels, row)


def _table_rows(text: str, delimiter: str, where: str) -> Iterator[tuple[str, list[str]]]:
    """(file and line, cells) of each row that is not blank; the line is the first one of the row."""
    for number, row in csv_rows(io.StringIO(text, newline=""), delimiter, where):
        if any(cell.strip() for cell in row):
            yield f"{where}, line {number}", row


def _of_length(row: Sequence[str], where: str) -> Callable[[Sequence[str]], Labels]:
    if len(row) == 3:
        raise CcrankError(
            f"{where}: a table of three columns has the header {','.join(COLUMNS)}, or annotator as its last, got "
            f"{quoted(','.join(row))}"
        )
    return _two("value")


def _is_value(row: Sequence[str]) -> bool:
    try:
        float(row[-1])
    except ValueError:
        return False
    return True


def _cells(row: Sequence[str], count: int) -> Sequence[str]:
    if len(row) != count:
        raise CcrankError(
            f"labels have {count} columns here, got {len(row)} cells; put a cell that holds the separator in double "
            "quotes"
        )
    return row


def _two(kind: str) -> Callable[[Sequence[str]], Labels]:
    def labels(row: Sequence[str]) -> Labels:
        item, value = _cells(row, 2)
        return Labels.of_rows([(kind, item, value)])

    return labels


def _by_annotator(row: Sequence[str], columns: tuple[str, ...] = COLUMNS) -> Labels:
    """A row whose last cell says who it is from; an empty one is from nobody in particular."""
    *cells, person = _cells(row, len(columns) + 1)
    labels = _READERS[columns](cells)
    return Labels.parse({"annotators": {person: labels}}) if person.strip() else labels


def _mixed(row: Sequence[str]) -> Labels:
    kind, item, value = _cells(row, 3)
    return Labels.of_rows([(kind.strip().lower(), item, value)])


_READERS: dict[tuple[str, ...], Callable[[Sequence[str]], Labels]] = {
    ("item", "value"): _two("value"),
    ("item", "grade"): _two("value"),
    ("item", "rank"): _two("rank"),
    ("higher", "lower"): _two("pair"),
    COLUMNS: _mixed,
}
