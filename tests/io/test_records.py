"""A list and a file of any length are read by the same rules."""

from __future__ import annotations

import io
import json
import os

import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ccrank.errors import CcrankError
from ccrank.io import read_rows
from ccrank.io.cells import item_text
from ccrank.io.reading import open_source

TEXT = st.text(st.sampled_from("ab|;,\t\"\n\r \u200b'ä=1"), max_size=8)
CELL = st.one_of(
    st.none(), st.integers(-9, 2**60), st.floats(width=32), TEXT, st.lists(TEXT, max_size=1), st.booleans()
)
PIECES = (
    "item",
    "n",
    "a",
    "",
    "x y",
    '"a"',
    '"',
    '"x;y"',
    "1.50",
    ",",
    ";",
    "|",
    "\t",
    "\n",
    "\n",
    "\r\n",
    " ",
    "ä",
)
SEPARATED = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
OBJECT = st.dictionaries(st.sampled_from(["item", "n", "more"]), CELL, max_size=3)
NUMBERS = st.sampled_from(
    ['{"item": 1984, "n": 1}', '{"item": 1.50, "n": 1}', '{"item": "b", "n": 2}', '{"item": null}']
)
LINES = st.lists(
    st.one_of(OBJECT.map(json.dumps), NUMBERS, CELL.map(json.dumps), st.just(""), TEXT), max_size=8
)


def one_by_one(path, column):
    """The items of a stream, and those of its tables."""
    source = open_source(path, column)
    texts = [text for some in source.texts() for text in some]
    tables = [text for table in source.tables() for text in table.column(source.column).to_pylist()]
    return source, texts, tables


def read_equally(path, column):
    """Both give the same items, or both refuse the file; what Parquet cannot hold is refused by a stream alone."""
    outcomes = []
    for read in (read_rows, one_by_one):
        try:
            outcomes.append(read(path, column))
        except CcrankError as error:
            outcomes.append(str(error))
    found, streamed = outcomes
    if isinstance(streamed, str):
        assert isinstance(found, str) or "which has one type for each column" in streamed, streamed
        return
    source, texts, tables = streamed
    if isinstance(found, str):
        assert not any(texts), found
        assert "contains no items" in found
        return
    assert tuple(texts) == found.texts
    assert [item_text(cell, "") for cell in tables] == texts
    if path.suffix == ".csv":
        assert source.separator == found.separator
        rows = [tuple(row.values()) for table in source.tables() for row in table.to_pylist()]
        assert rows == list(found.records)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


QUICKLY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@QUICKLY
@given(
    text=SEPARATED, suffix=st.sampled_from([".csv", ".tsv", ".txt"]), column=st.sampled_from(["item", None])
)
@example(text="a|b\nx\ny\n", suffix=".csv", column=None)
@example(text="item;n\n1,5;2\n", suffix=".csv", column="item")
@example(text='"item";n\n"a;b";2\n', suffix=".csv", column="item")
def test_text_files(folder, text, suffix, column):
    """Whatever separators, quotes and blank lines a file has."""
    path = folder / f"items{suffix}"
    path.write_bytes(text.encode())
    read_equally(path, None if suffix == ".txt" else column)


@QUICKLY
@given(lines=LINES, column=st.sampled_from(["item", None]))
@example(lines=['{"item": 1984}', '{"item": 1.50}'], column="item")
@example(lines=['"a"', '{"name": "b"}'], column=None)
def test_json_lines(folder, lines, column):
    """Objects, texts, numbers and nulls in any mixture; numbers keep their digits."""
    path = folder / "items.jsonl"
    path.write_text("\n".join(lines), newline="")
    read_equally(path, column)


@QUICKLY
@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), TEXT), st.integers(0, 9)), max_size=6),
    names=st.sampled_from([("item", "n"), ("item", "item "), ("item", "item"), ("item.n", "item")]),
    cut=st.integers(0, 60),
    change=st.integers(0, 255),
)
@example(
    rows=[("b", 4), ("b", 3), ("x y", 3)], names=("item", "n"), cut=652, change=111
)  # a column ends early
def test_parquet(folder, rows, names, cut, change):
    """Sound and damaged files."""
    columns = list(zip(*rows, strict=True)) or [[], []]
    table = pyarrow.Table.from_arrays([pyarrow.array(list(one)) for one in columns], names=list(names))
    buffer = io.BytesIO()
    parquet.write_table(
        table.cast(pyarrow.schema(zip(names, (pyarrow.string(), pyarrow.int64()), strict=True))), buffer
    )
    content = bytearray(buffer.getvalue())
    if cut:
        content[(cut * 7919) % len(content)] = change
    path = folder / "items.parquet"
    path.write_bytes(content)
    read_equally(path, "item")


def test_a_damaged_text_beside_the_items_is_refused(tmp_path):
    """A list and a stream both refuse a file in which another column is not UTF-8, instead of writing it on."""
    path, buffer = tmp_path / "items.parquet", io.BytesIO()
    table = pyarrow.table({"item": ["a", "b"], "note": ["damage", "none"]})
    parquet.write_table(table, buffer, compression="NONE", use_dictionary=False, write_statistics=False)
    path.write_bytes(buffer.getvalue().replace(b"damage", b"\xa4" * 6))
    for read in (read_rows, one_by_one):
        with pytest.raises(CcrankError, match="cannot be read as Parquet"):
            read(path, "item")


def test_a_pipe_is_read_once(tmp_path):
    """A list may come from a pipe, which ends when it is read."""
    read, write = os.pipe()
    os.write(write, b"a|b\nx|y\n")
    os.close(write)
    assert read_rows(f"/dev/fd/{read}", "a", "csv").texts == ("x",)
    os.close(read)
