"""Every reader of files, on any bytes: a result or a `CcrankError`, never another exception."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from damaged_text import SPLICES, TEXTS
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ccrank.errors import CcrankError
from ccrank.io import encode_table, read_rows
from ccrank.io.labelfiles import possible_items, read_answers, read_labels
from ccrank.io.reading import open_source
from ccrank.io.taskfiles import read_items, read_tasks
from ccrank.prompts import load_templates
from ccrank.study.experiment.study import Study
from ccrank.study.results.load import load_environment, load_failures, load_results, load_tasks

ITEMS = ("Russia", "Chad", "Peru")


@st.composite
def damaged(draw: st.DrawFn, texts: list[bytes]) -> bytes:
    """A good file with pieces cut out, moved and spliced in."""
    content = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 12)))
        content = content[:start] + draw(st.sampled_from([b"", *SPLICES])) + content[stop:]
    return content


@cache
def tables() -> dict[str, bytes]:
    """The same table in each binary format."""
    records = [("Russia", 1.5), ("Chad", None), ("Peru", 2.5)]
    return {form: encode_table(("text", "n"), records, form) for form in ("parquet", "xlsx")}


def names_of(suffixes: str) -> list[str]:
    return [f"file{suffix}" for suffix in suffixes.split()]


READERS: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "rows": (
        lambda path: read_rows(path, "text"),
        names_of(".txt .csv .tsv .jsonl .json .parquet .xlsx .md"),
    ),
    "items": (read_items, names_of(".txt .csv .jsonl")),
    "tasks": (read_tasks, names_of(".jsonl .json")),
    "labels": (lambda path: read_labels(path, ITEMS), names_of(".csv .tsv .json .txt")),
    "answers": (lambda path: read_answers(path, ITEMS), names_of(".csv")),
    "possible labels": (possible_items, names_of(".csv .txt")),
    "stream": (
        lambda path: list(open_source(path, "text").tables()),
        names_of(".csv .tsv .jsonl .txt .parquet"),
    ),
    "templates": (load_templates, names_of(".toml")),
    "study": (Study.load, names_of(".toml")),
    "results": (lambda path: load_results(path.parent), ["results.parquet"]),
    "failures": (lambda path: load_failures(path.parent), ["failures.jsonl"]),
    "tasks of results": (lambda path: load_tasks(path.parent), ["tasks.jsonl"]),
    "environment": (lambda path: load_environment(path.parent), ["environment.json"]),
}


def reads_or_explains(reader: Callable[[Path], Any], path: Path, content: bytes) -> None:
    """Read a file; an error must be a CcrankError."""
    path.write_bytes(content)
    with suppress(CcrankError):
        reader(path)


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    content=st.one_of(damaged(TEXTS), st.binary(max_size=300), st.text(max_size=100).map(str.encode)),
    place=st.data(),
)
def test_any_text_is_read_or_refused(kind: str, tmp_path_factory: Any, content: bytes, place: Any):
    """Damaged text files and random bytes, under every suffix that a reader knows."""
    reader, names = READERS[kind]
    folder = tmp_path_factory.mktemp("files", numbered=True)
    reads_or_explains(reader, folder / place.draw(st.sampled_from(names)), content)


@pytest.mark.parametrize("form", ["parquet", "xlsx"])
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_damage_to_a_binary_table_is_read_or_refused(
    form: str, tmp_path_factory: Any, data: st.DataObject
):
    """Bytes changed, cut off or added anywhere in a Parquet or Excel file; also inside of the parts of a workbook."""
    content = tables()[form]
    if form == "xlsx" and data.draw(st.booleans()):
        content = with_changed_member(content, data)
    else:
        for _ in range(data.draw(st.integers(1, 5))):
            start = data.draw(st.integers(0, len(content)))
            content = (
                content[:start]
                + data.draw(st.binary(max_size=4))
                + content[start + data.draw(st.integers(0, 4)) :]
            )
        content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    folder = tmp_path_factory.mktemp("files", numbered=True)
    reads_or_explains(lambda path: read_rows(path, "text"), folder / f"file.{form}", content)


def with_changed_member(content: bytes, data: st.DataObject) -> bytes:
    """A workbook, still a sound archive, one of whose parts has changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = data.draw(st.sampled_from(old.namelist()))
        for name in old.namelist():
            part = old.read(name)
            if name == chosen:
                start = data.draw(st.integers(0, len(part)))
                stop = start + data.draw(st.integers(0, 30))
                part = part[:start] + data.draw(st.sampled_from([b"", *SPLICES[:30]])) + part[stop:]
            new.writestr(name, part)
    return out.getvalue()


FIELDS = (
    *("items", "criterion", "query", "values", "order", "poles", "name", "id", "about"),
    *("best", "ranks", "orders", "Russia", "Chad"),
)
any_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60)
@given(any_json)
@example({"criterion": "size", "items": ["a", "b"], "values": [10**400, 1]})
@example({"criterion": {"name": "size", "poles": {"a": 1}}, "items": ["a", "b"]})
def test_any_json_is_a_task_or_labels_or_refused(tmp_path_factory: Any, value: Any):
    """JSON of any shape as a task, as rows and as labels."""
    folder = tmp_path_factory.mktemp("files", numbered=True)
    content = (json.dumps(value) + "\n").encode()
    reads_or_explains(read_tasks, folder / "tasks.jsonl", content)
    reads_or_explains(read_rows, folder / "rows.jsonl", content)
    reads_or_explains(lambda path: read_labels(path, ITEMS), folder / "labels.json", content)


def test_good_files_are_read(tmp_path: Path):
    """The files that the damage starts from are good, so that damage is what the other tests are about."""
    for form, content in tables().items():
        path = tmp_path / f"file.{form}"
        path.write_bytes(content)
        assert read_rows(path, "text").items == ITEMS
    (tmp_path / "tasks.jsonl").write_bytes(TEXTS[0] + TEXTS[1])
    assert len(read_tasks(tmp_path / "tasks.jsonl")) == 2
    for name, text in (("a.csv", "item,value\nRussia,17.1\nChad,1.3\n"), ("b.txt", "Russia > Chad\n")):
        (tmp_path / name).write_text(text)
        assert len(read_labels(tmp_path / name, ITEMS)) > 0
    assert isinstance(pd.read_parquet(io.BytesIO(tables()["parquet"])), pd.DataFrame)
