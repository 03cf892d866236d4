"""Rows that went in come out: the same cells, in ranked order, rank and score added, in every format."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ccrank.errors import CcrankError
from ccrank.io import RankedRows, encode_rows, ranked_entries, read_rows

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ITEMS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=8)
NUMBERS = st.one_of(st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False), st.none())


def ranked(rows, top=None, reverse=False):
    """The rows by length of item, the longest first."""
    entries = ranked_entries(rows, [float(len(item)) for item in rows.items])
    return RankedRows.of(rows, entries[::-1] if reverse else entries, top)


def written(header, rows, separator=","):
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator, lineterminator="\r\n").writerows([header, *rows])
    return buffer.getvalue().encode()


@given(
    rows=st.lists(st.tuples(CELLS, ITEMS, CELLS), min_size=1, max_size=6),
    form=st.sampled_from(["csv", "tsv"]),
    bom=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
@settings(deadline=None)
def test_csv_and_tsv(rows, form, bom):
    """Quotes, breaks, separators, white space and numbers in cells are kept character by character."""
    rows = [("x" + first, item, last) for first, item, last in rows]
    content = bom + written(["note", "name", " odd "], rows, "\t" if form == "tsv" else ",")
    found = read_rows(io.BytesIO(content), "name", form)
    assert [tuple(record) for record in found.records] == rows
    out = list(
        csv.reader(
            io.StringIO(encode_rows(ranked(found), form).decode(), newline=""),
            delimiter="\t" if form == "tsv" else ",",
        )
    )
    assert out[0] == ["note", "name", " odd ", "rank", "score"]
    assert sorted(tuple(line[:3]) for line in out[1:]) == sorted(rows)
    lengths = [float(line[4]) for line in out[1:] if line[4]]
    assert lengths == sorted(lengths, reverse=True)


@given(rows=st.lists(st.tuples(ITEMS, NUMBERS, st.lists(CELLS, max_size=2)), min_size=1, max_size=6))
@settings(deadline=None)
def test_json_lines(rows):
    """Every value of every object is kept, numbers, lists and nulls included."""
    objects = [{"name": item, "value": number, "more": {"list": texts}} for item, number, texts in rows]
    content = "\n".join(json.dumps(one) for one in objects).encode()
    lines = encode_rows(ranked(read_rows(io.BytesIO(content), "name", "jsonl")), "jsonl").decode().split("\n")
    out = [json.loads(line) for line in lines[:-1]]
    assert all(one.keys() == {"name", "value", "more", "rank", "score"} for one in out)
    bare = [{key: one[key] for key in ("name", "value", "more")} for one in out]
    assert sorted(map(json.dumps, bare)) == sorted(map(json.dumps, objects))


def test_json_keeps_the_spelling_of_every_value():
    """Digits, escapes, key order and repeated keys are left as they were written: lines are not written anew."""
    lines = [
        '{"n": 1.10, "name":"a\\u00e9", "n2": 1e5}',
        '{ "name" : "bbb", "n": 12345678901234567890.5 }',
        '"cc"',
    ]
    rows = read_rows(io.StringIO("\n".join(lines)), "name", "jsonl")
    assert encode_rows(ranked(rows), "jsonl").decode().splitlines() == [
        '{ "name" : "bbb", "n": 12345678901234567890.5, "rank": 1, "score": 3.0}',
        '{"n": 1.10, "name":"a\\u00e9", "n2": 1e5, "rank": 2, "score": 2.0}',
        '{"name": "cc", "rank": 2, "score": 2.0}',
    ]
    assert encode_rows(ranked(rows), "csv").decode().splitlines()[1:] == [
        "12345678901234567890.5,bbb,,1,3.0",
        "1.10,aé,1e5,2,2.0",
        ",cc,,2,2.0",
    ]


@given(
    rows=st.lists(
        st.tuples(ITEMS, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.datetimes(), CELLS),
        min_size=1,
        max_size=6,
    )
)
@settings(deadline=None)
def test_parquet_keeps_types(rows):
    """Narrow numbers, times, categories, lists and the schema's metadata survive, and pandas reads the file."""
    columns = list(zip(*rows, strict=True))
    table = pyarrow.table(
        {
            "name": pyarrow.array(columns[0]).dictionary_encode(),
            "count": pyarrow.array(columns[1], pyarrow.int64()),
            "weight": pyarrow.array(columns[2], pyarrow.float64()),
            "when": pyarrow.array(columns[3], pyarrow.timestamp("us")),
            "tags": pyarrow.array([[text] for text in columns[4]], pyarrow.list_(pyarrow.string())),
        }
    ).replace_schema_metadata({"origin": "here"})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    found = read_rows(io.BytesIO(buffer.getvalue()), "name", "parquet")
    out = parquet.read_table(io.BytesIO(encode_rows(ranked(found), "parquet")))
    assert out.schema.names == [*table.schema.names, "rank", "score"]
    for name in table.schema.names:
        assert out.schema.field(name).type == table.schema.field(name).type
    assert out.schema.metadata[b"origin"] == b"here"
    assert sorted(map(repr, out.drop_columns(["rank", "score"]).to_pylist())) == sorted(
        map(repr, table.to_pylist())
    )
    assert len(out.to_pandas()) == len(rows)


EXCEL_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="\ufffe\uffff"), max_size=12
)


@given(
    rows=st.lists(
        st.tuples(
            ITEMS,
            st.one_of(
                st.none(), EXCEL_TEXT.map(lambda text: f"={text}"), st.sampled_from(["007", "#N/A", " x "])
            ),
            st.one_of(st.integers(-(10**15) + 1, 10**15 - 1), st.booleans()),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(deadline=None, max_examples=40)
def test_excel(rows):
    """Numbers, texts that look like formulas, errors or numbers, and empty cells are what they were."""
    openpyxl = pytest.importorskip("openpyxl")
    table = "\n".join(json.dumps(dict(zip(("name", "text", "n"), row, strict=True))) for row in rows)
    found = read_rows(io.StringIO(table), "name", "jsonl")
    content = encode_rows(ranked(found), "xlsx")
    sheet = openpyxl.load_workbook(io.BytesIO(content)).active
    assert [cell.value for cell in sheet[1]] == ["name", "text", "n", "rank", "score"]
    assert all(cell.data_type == "s" for line in sheet.iter_rows(min_row=2, max_col=1) for cell in line)
    again = read_rows(io.BytesIO(content), "name", "xlsx")
    assert sorted(map(repr, (record[:3] for record in again.records))) == sorted(map(repr, rows))
    assert [record[3:] for record in again.records] == list(zip(*ranked(found).values.values(), strict=True))


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_text_of_a_csv_is_text_everywhere(form):
    """A zip code and an empty cell are neither numbers nor nulls made of numbers in any format."""
    content = b"zip,name\n007,Bond\n,Moneypenny\n1.0,Q\n"
    out = encode_rows(ranked(read_rows(io.BytesIO(content), "name", "csv")), form)
    again = read_rows(io.BytesIO(out), "name", form)
    assert {name: code or "" for code, name, *_ in again.records} == {
        "Bond": "007",
        "Moneypenny": "",
        "Q": "1.0",
    }
    assert [name for _, name, *_ in again.records] == ["Moneypenny", "Bond", "Q"]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_a_plain_list_becomes_a_table(form):
    """Lines have no columns: rank, item and score are written."""
    out = encode_rows(ranked(read_rows(io.StringIO("a\nccc\nbb\n"))), form)
    again = read_rows(io.BytesIO(out), "item", form)
    assert list(again.columns) == ["rank", "item", "score"]
    assert [(str(rank), item) for rank, item, _ in again.records] == [("1", "ccc"), ("2", "bb"), ("3", "a")]


@pytest.mark.parametrize(
    ("values", "form", "cause"),
    [
        (["1", "[2]"], "parquet", "column 'v' cannot be written as Parquet.*jsonl or .csv"),
        (["1", str(10**30)], "parquet", "column 'v' cannot be written as Parquet"),
        (["1", json.dumps("x" * 40_000)], "xlsx", "40,000 characters, and Excel holds 32,767"),
        (["1", '"a\\u0001"'], "xlsx", "control characters"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(values, form, cause):
    """Nothing is cut or turned into something else in silence; the message names a format that holds it."""
    lines = "\n".join(f'{{"name": "{name}", "v": {value}}}' for name, value in zip("ab", values, strict=True))
    rows = read_rows(io.StringIO(lines), "name", "jsonl")
    with pytest.raises(CcrankError, match=cause):
        encode_rows(RankedRows.unscored(rows), form)


def test_a_deep_list_is_refused_or_can_be_read():
    """Parquet files of recent versions of pyarrow hold deeper lists than they read."""
    values = [f'{{"name": "{name}", "v": {"[" * 60}1{"]" * 60}}}' for name in "ab"]
    rows = RankedRows.unscored(read_rows(io.StringIO("\n".join(values)), "name", "jsonl"))
    try:
        outcome = pyarrow.parquet.read_table(io.BytesIO(encode_rows(rows, "parquet"))).num_rows
    except CcrankError as error:
        outcome = str(error)
    assert outcome == 2 or re.search("too deeply nested.*write .jsonl instead", outcome)


def test_values_without_a_json_form():
    """Dates, bytes, NaN and decimals of a Parquet file become texts and nulls in CSV and JSONL."""
    import datetime
    import decimal

    table = pyarrow.table(
        {
            "name": ["a", "bb"],
            "day": [datetime.date(2020, 1, 2), None],
            "price": [decimal.Decimal("1.10"), None],
            "raw": [b"\xff", b"ok"],
            "x": [math.nan, math.inf],
        }
    )
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    rows = read_rows(io.BytesIO(buffer.getvalue()), "name", "parquet")
    assert encode_rows(ranked(rows), "csv").decode().splitlines()[1:] == [
        "bb,,,ok,inf,1,2.0",
        "a,2020-01-02,1.10,ff,,2,1.0",
    ]
    first, second = map(json.loads, encode_rows(ranked(rows), "jsonl").decode().splitlines())
    assert first == {
        "name": "bb",
        "day": None,
        "price": None,
        "raw": "ok",
        "x": "inf",
        "rank": 1,
        "score": 2.0,
    }
    assert (second["day"], second["price"], second["raw"], second["x"]) == ("2020-01-02", "1.10", "ff", None)
