"""Reading and writing of task files, and reading of items."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_items, read_tasks, write_tasks
from ccrank.task import Criterion, Task
from ccrank.util.files import write_atomically

words = st.text(min_size=1, max_size=12).map(lambda text: "x" + text)


def one_line(**fields):
    return json.dumps({"criterion": "size", "items": ["a", "b"], **fields})


@given(st.lists(st.tuples(words, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=4))
def test_tasks_come_back_as_written(tmp_path_factory, rows):
    """Writing and reading gives equal tasks for any text: line breaks, quotes, lone surrogates."""
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    tasks = [
        Task(
            Criterion("size", poles=("small", "large")),
            ("a", text, "c d"),
            text,
            (value, -1.5, 1e9),
            f"{k} {text}",
        )
        for k, (text, value) in enumerate(rows)
        if value not in (-1.5, 1e9) and "".join(text.split()) not in ("a", "cd")
    ]
    if tasks:
        write_tasks(tasks, path)
        assert read_tasks(path) == tasks
        assert [child.name for child in path.parent.iterdir()] == ["tasks.jsonl"]


def test_blank_lines_marks_and_missing_ids(tmp_path):
    """Blank lines are skipped but counted; a byte order mark and CRLF do no harm; a missing id is the line's."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"{one_line()}\r\n\r\n{one_line(id=None)}\n{one_line(id=7)}".encode())
    assert [task.id for task in read_tasks(path)] == ["line-1", "line-3", "7"]


def test_order_is_read_as_gold(tmp_path):
    """An order, highest first, becomes values."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(one_line(order=["b", "a"]))
    (task,) = read_tasks(path)
    assert task.values == (0.0, 1.0)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("{nope", "not JSON"),
        ("[1]", "a task must be a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"items": ["a", "b"]}', "no 'criterion'"),
        (one_line(items=["a", "a"]), "item 2 repeats item 1: 'a'"),
        (one_line(values=[1, float("nan")]), "value of 'b' is not a finite number"),
        (one_line(id="first"), "the id 'first' is already used in line 1"),
    ],
)
def test_task_errors_name_file_and_line(tmp_path, line, cause):
    """Whatever is wrong in a line, the error names the file, the line and the cause."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{one_line(id='first')}\n\n{line}\n")
    with pytest.raises(CcrankError, match=rf"tasks\.jsonl, line 3: .*{cause}"):
        read_tasks(path)


def test_no_tasks_is_an_error(tmp_path):
    """An empty file is not an empty answer."""
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n \n")
    with pytest.raises(CcrankError, match="contains no tasks"):
        read_tasks(path)


def test_threads_that_write_at_once_keep_the_file_mode(tmp_path, monkeypatch):
    """Files that several threads write at once have the mode that the process's mask gives, and the mask stays."""
    set_mask = os.umask

    def slow(mask):
        before = set_mask(mask)
        time.sleep(0.01)
        return before

    monkeypatch.setattr(os, "umask", slow)
    before = set_mask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: write_atomically(tmp_path / str(number), "text"), range(8)))
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
        assert set_mask(0o027) == 0o027
    finally:
        set_mask(before)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    """Two tasks with one id, or a folder in the way: an error, and what was there stays."""
    path = tmp_path / "tasks.jsonl"
    task = Task(Criterion("size"), ("a", "b"))
    write_tasks([task], path)
    before = path.read_bytes()
    with pytest.raises(CcrankError, match="two tasks have the id 'task'"):
        write_tasks([task, task], path)
    assert path.read_bytes() == before
    (tmp_path / "folder").mkdir()
    with pytest.raises(CcrankError, match=r"cannot write .*folder"):
        write_tasks([task], tmp_path / "folder")
    with pytest.raises(CcrankError, match=r"cannot write .*absent"):
        write_tasks([task], tmp_path / "absent" / "tasks.jsonl")
    assert sorted(child.name for child in tmp_path.iterdir()) == ["folder", "tasks.jsonl"]


ITEMS = ["Chad", 'Côte d\'Ivoire, the "Ivory"', "São Tomé\u2028x"]


def as_csv(rows, separator=","):
    return "".join(
        separator.join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in rows
    )


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("items.txt", "\ufeff Chad \n\n" + "\r\n".join(ITEMS[1:]) + "\r", None),
        ("items", "\n".join(ITEMS), None),
        ("items.csv", as_csv([["country"], *([item] for item in ITEMS)]), None),
        ("items.CSV", "\ufeff" + as_csv([["id", "country"], *(["1", item] for item in ITEMS)]), "country"),
        ("items.tsv", as_csv([["country", "n"], [], *([item, ""] for item in ITEMS)], "\t"), "country"),
        ("items.jsonl", "\n\n".join(json.dumps(item) for item in ITEMS), None),
        ("items.ndjson", "\n".join(json.dumps({"n": 1, "c": i}, ensure_ascii=False) for i in ITEMS), "c"),
        ("items.jsonl", "\n".join(json.dumps({"c": item}) for item in ITEMS), None),
    ],
)
def test_items_from_every_format(tmp_path, name, text, column):
    """The same items from lines, CSV, TSV and JSONL, the suffix telling which; no break inside an item."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert read_items(path, column) == ITEMS
    assert read_items(str(path), column) == ITEMS


def test_items_from_streams(monkeypatch):
    """A stream is read as lines by default; text and byte streams and `-` are equivalent."""
    assert read_items(io.StringIO("a,b\nc\n")) == ["a,b", "c"]
    assert read_items(io.BytesIO("\ufeffé\n".encode())) == ["é"]
    assert read_items(io.StringIO("\ufeffx,y\na,b\n"), "x", "csv") == ["a"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb\n")))
    assert read_items("-") == ["a", "b"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff\n")))
    with pytest.raises(CcrankError, match="standard input is not UTF-8"):
        read_items("-")


@pytest.mark.parametrize(
    ("format", "text", "column", "cause"),
    [
        ("csv", "a,b\n1,2\n", None, "several columns.* 'a', 'b'"),
        ("csv", "a,b\n1,2\n", "c", "no column 'c'; there are 'a', 'b'"),
        ("csv", "a,a\n1,2\n", "a", "2 columns are called 'a'"),
        ("csv", "a,b\n1,\n3\n", "b", "contains no items: there is no text in column 'b'"),
        ("csv", "name,b\n1,2\n", "nam", "no column 'nam'.*did you mean 'name'"),
        ("csv", "a\nx, y\n", None, "line 2: 2 cells under 1 columns"),
        ("csv", 'a\n"open\n', None, "not a well-formed table"),
        ("csv", "a\n\n", None, "contains no items"),
        ("lines", " \n\n", None, "contains no items"),
        ("lines", "a\n", "b", "no column 'b'; give the format"),
        ("jsonl", '"a"\nb\n', None, "line 2: not JSON"),
        ("jsonl", '"a"\n[5]\n', None, r"line 2: a line is a text or an object, got \[5\]"),
        ("jsonl", '{"a": 1, "b": 2}\n', None, "several columns"),
        ("jsonl", '{"a": "x"}\n{"a": ["x"]}\n', "a", "row 2 of column 'a': an item is a text"),
        ("jsonl", '{"a": "x"}\n{"b": "x"}\n', "c", "there is no column 'c'"),
        ("jsonl", '"x"\n', "c", "plain texts, which have no field 'c'"),
        ("jsonl", '" "\n', None, "contains no items"),
        ("xml", "a", None, "unknown format 'xml'; known are lines, csv, tsv, jsonl"),
    ],
)
def test_item_errors_name_the_place(format, text, column, cause):
    """Each way in which a file of items can be wrong has a message with the place and the offending value."""
    with pytest.raises(CcrankError, match=cause):
        read_items(io.StringIO(text), column, format)


@pytest.mark.parametrize("reader", [read_items, read_tasks])
def test_files_that_cannot_be_read(tmp_path, reader):
    """No file, a folder, not UTF-8: an error with the file and, for bytes, the offset, the line and the remedy."""
    with pytest.raises(CcrankError, match=r"there is no file .*absent\.txt"):
        reader(tmp_path / "absent.txt")
    with pytest.raises(CcrankError, match="is a folder"):
        reader(tmp_path)
    latin = tmp_path / "latin.txt"
    for mark in (b"", b"\xef\xbb\xbf"):
        content = mark + "b\naé".encode("latin1") + b"\n"
        latin.write_bytes(content)
        offset = content.index(b"\xe9")
        with pytest.raises(
            CcrankError,
            match=rf"latin\.txt is not UTF-8 text: byte 0xe9 at offset {offset}, in line 2; .*iconv -f cp1252",
        ):
            reader(latin)
    latin.write_bytes("aé\n".encode("utf-16")[:-1])
    with pytest.raises(CcrankError, match="iconv -f utf-16"):
        reader(latin)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_byte_order_marks(tmp_path, codec):
    """Files that Windows programs write, in either byte order, hold what the same file in UTF-8 holds."""
    for name, text in (("a.csv", "nom;prix\nthé;3\ncafé;2\n"), ("a.txt", "thé\ncafé\n")):
        path = tmp_path / name
        path.write_bytes((("\ufeff" if codec == "utf-16-be" else "") + text).encode(codec))
        assert read_items(path, "nom" if name == "a.csv" else None) == ["thé", "café"]


def test_forbidden_file(tmp_path, monkeypatch):
    """A file without permission gives a specific error (the check also works for the superuser)."""

    def forbidden(self, *_):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(CcrankError, match=r"cannot read .*x\.txt: Permission denied"):
        read_items(tmp_path / "x.txt")


def test_one_json_document_is_not_lines(tmp_path):
    """A .json file is not silently read as plain lines."""
    path = tmp_path / "items.json"
    path.write_text('["a", "b"]')
    with pytest.raises(CcrankError, match="JSON lines"):
        read_items(path)
