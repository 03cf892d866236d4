"""Labels in files: tables, JSON, or lines such as `Russia > Chad` and `Chad < Russia`."""

from __future__ import annotations

import csv
import io
import json
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
"""An optional last column of any table: who gave a label; empty where that is unknown."""
VALUES = ("item", "value")
KIND_OF_HEADER: dict[tuple[str, ...], str] = {
    VALUES: "value",
    ("item", "grade"): "value",
    ("item", "rank"): "rank",
    ("higher", "lower"): "pair",
}
HEADERS = [*KIND_OF_HEADER, COLUMNS]
HEADERS += [(*header, ANNOTATOR) for header in HEADERS]

Entries = Iterator[tuple[str, Callable[[], Labels]]]
"""The place of each entry of a file, and what makes labels of it."""


def read_labels(path: str | Path, items: Sequence[str]) -> Labels:
    """A few labels for some of the items of a list."""
    return _labels_in(path, frozenset(map(normal_form, items)))


def possible_items(path: str | Path) -> frozenset[str]:
    """The items that a file of labels is about, in normal form, before it is known whether there are such items."""
    return frozenset(_labels_in(path, None).items)


def _labels_in(path: str | Path, known: Set[str] | None) -> Labels:
    text, suffix = read_text(path), Path(path).suffix.lower()
    tabular = suffix in (".csv", ".tsv", ".tab")
    if suffix == ".json" or (not tabular and text.lstrip().startswith(("{", "["))):
        entries = _json_entries(text, str(path))
    elif not tabular and _are_lines(text):
        entries = _line_entries(text, str(path))
    else:
        tabs = suffix in (".tsv", ".tab") or (suffix != ".csv" and "\t" in text)
        entries = _table_entries(text, "\t" if tabs else ",", known or frozenset(), str(path))
    return Labels.joined(_checked(labels_of, known, where) for where, labels_of in entries)


def read_answers(path: str | Path, items: Sequence[str]) -> list[LabelRow]:
    """The answers of an earlier session: the rows of a table of mixed labels, in their order."""
    lines = _table_rows(read_text(path), ",", str(path))
    where, first = next(lines, ("", COLUMNS))
    header = tuple(cell.strip().lower() for cell in first)
    if header not in (COLUMNS, (*COLUMNS, ANNOTATOR)):
        raise CcrankError(
            f"{where}: the header of a file of answers is {','.join(COLUMNS)} or {','.join(COLUMNS)},{ANNOTATOR}, got "
            f"{quoted(','.join(first))}; name another file with --labels"
        )
    known = frozenset(map(normal_form, items))
    answers = []
    for where, cells in lines:
        _checked(partial(_row_labels, cells, header), known, where)
        answers.append(_label_row(cells, header))
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


def _checked(labels_of: Callable[[], Labels], known: Set[str] | None, where: str) -> Labels:
    """The labels of one entry of a file, of items in `known`; an error names the entry."""
    try:
        labels = labels_of()
        if known is not None:
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
    header: tuple[str, ...] = ()
    for location, cells in _table_rows(text, delimiter, where):
        if not header:
            header = tuple(cell.strip().lower() for cell in cells)
            if header in HEADERS:
                continue
            labelled = normal_form(cells[0]) in known and header[-1] != ANNOTATOR
            if not labelled and len(cells) == 3:
                raise CcrankError(
                    f"{location}: a table of three columns has the header {','.join(COLUMNS)}, or annotator as its "
                    f"last, got {quoted(','.join(cells))}"
                )
            header = VALUES
            if not labelled and not _is_number(cells[-1]):
                continue
        yield location, partial(_row_labels, cells, header)


def _table_rows(text: str, delimiter: str, where: str) -> Iterator[tuple[str, list[str]]]:
    """(file and line, cells) of each row that is not blank; the line is the first one of the row."""
    for number, row in csv_rows(io.StringIO(text, newline=""), delimiter, where):
        if any(cell.strip() for cell in row):
            yield f"{where}, line {number}", row


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _row_labels(cells: Sequence[str], header: tuple[str, ...]) -> Labels:
    return Labels.of_rows([_label_row(cells, header)])


def _label_row(cells: Sequence[str], header: tuple[str, ...]) -> LabelRow:
    """A row of a table of mixed labels, from one under any header."""
    if len(cells) != len(header):
        raise CcrankError(
            f"labels have {len(header)} columns here, got {len(cells)} cells; put a cell that holds the separator in "
            "double quotes"
        )
    person = cells[-1].strip() if header[-1] == ANNOTATOR else ""
    given = KIND_OF_HEADER.get(header[:2])
    kind, item, value = (cells if given is None else (given, *cells))[:3]
    kind = kind.strip().lower()
    row = ("value" if kind == "grade" else kind, item, value)
    return (*row, person) if person else row
