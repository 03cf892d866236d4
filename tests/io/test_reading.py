"""What real files hold: repeated headers, other separators, long cells, empty cells, damage."""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile

import pytest

from ccrank.errors import CcrankError
from ccrank.io import RankedRows, encode_rows, encode_table, ranked_entries, read_rows
from ccrank.util.files import csv_rows, write_atomically


def test_semicolons_are_found_and_kept():
    """A CSV as European Excel writes it: decimal commas are no separators, and the output has semicolons too."""
    rows = read_rows(io.StringIO("name;price\nAnna;1,5\nBo;2,5\n"), "name", "csv")
    assert rows.columns == ("name", "price")
    assert rows.records[0] == ("Anna", "1,5")
    assert rows.notes() == ["the cells of the CSV are separated by ';'"]
    assert encode_rows(RankedRows.unscored(rows), "csv").decode().splitlines()[1] == "Anna;1,5;;"


def test_a_comma_wins_where_the_header_has_one():
    """Semicolons inside cells of a comma-separated file separate nothing, nor do those of single-column texts."""
    assert read_rows(io.StringIO("a,b\nx;y,1\n"), "a", "csv").texts == ("x;y",)
    assert read_rows(io.StringIO("review\ngood; cheap\nbad\n"), None, "csv").texts == ("good; cheap", "bad")


def test_repeated_header_names():
    """Two columns of one name both survive; a format that allows a name once gets a second name."""
    rows = read_rows(io.StringIO("x,name,x\n1,a,2\n3,b,4\n"), "name", "csv")
    assert encode_rows(RankedRows.unscored(rows), "csv").decode().startswith("x,name,x,rank,score\n1,a,2,,\n")
    first = json.loads(encode_rows(RankedRows.unscored(rows), "jsonl").decode().splitlines()[0])
    assert first == {"x": "1", "name": "a", "x_2": "2", "rank": None, "score": None}
    with pytest.raises(CcrankError, match="2 columns are called 'x'; rename one"):
        read_rows(io.StringIO("x,name,x\n1,a,2\n"), "x", "csv")


@pytest.mark.parametrize(
    ("header", "added"),
    [
        ("name", "rank,score"),
        ("name,rank", "ccrank_rank,score"),
        ("Score,name, RANK ", "ccrank_rank,ccrank_score"),
        ("name,rank,ccrank_rank,score", "ccrank_rank_2,ccrank_score"),
    ],
)
def test_names_that_are_taken(header, added):
    """Columns called rank or score stay what they are; the new ones say whose they are."""
    rows = read_rows(io.StringIO(header + "\na" + ",b" * header.count(",") + "\n"), "name", "csv")
    assert encode_rows(RankedRows.unscored(rows), "csv").decode().splitlines()[0] == f"{header},{added}"


def test_very_long_cells():
    """A cell of a million characters is read, and the limit of the csv module is left as it was."""
    import csv

    limit = csv.field_size_limit()
    long = "x" * 1_000_000
    rows = read_rows(io.StringIO(f"name,text\na,{long}\nb,\n"), "name", "csv")
    assert rows.records[0][1] == long
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("form", "text", "texts", "blank"),
    [
        ("lines", "\na\n\n  \nb\n\n\n", ("a", "b"), 3),
        ("csv", "name,n\na,1\n\n,2\n,\n", ("a", None), 1),
        ("csv", "name,n\na\n \u200b ,2\nb,3\n", ("a", None, "b"), 0),
        ("tsv", "name\tn\n\t\na\t1\n\t\n\n", ("a",), 1),
        ("jsonl", '{"name": "a"}\n\n{"n": 1}\n{"name": null}\n{"name": ""}\n', ("a", None, None, None), 1),
        ("jsonl", '"a"\n""\nnull\n"b"\n', ("a", "b"), 2),
    ],
)
def test_blank_lines_and_empty_cells_are_counted(form, text, texts, blank):
    """Blank lines before the last row are counted and left out; a row without an item is kept as a row."""
    rows = read_rows(io.StringIO(text), None if form in ("lines",) or text.startswith('"') else "name", form)
    assert rows.texts == texts
    assert rows.blank == blank
    assert rows.unranked == texts.count(None)


def test_rows_without_an_item_come_last():
    """They keep their cells and have neither rank nor score; --top leaves them out."""
    rows = read_rows(io.StringIO("name,n\n,1\na,2\nbb,3\n"), "name", "csv")
    entries = ranked_entries(rows, [1.0, 2.0])
    assert encode_rows(RankedRows.of(rows, entries), "csv").decode().splitlines()[1:] == [
        "bb,3,1,2.0",
        "a,2,2,1.0",
        ",1,,",
    ]
    assert len(RankedRows.of(rows, entries, top=5).order) == 2
    assert "1 of 3 rows skipped: empty cell in column 'name'" in rows.notes()[0]


def test_equal_items_are_tied():
    """Spellings that count as one item share score and rank, and the next rank counts them all."""
    rows = read_rows(io.StringIO("a\nb b\nc\nb  b\nｂ b\n"))
    assert rows.items == ("a", "b  b", "c")
    assert rows.repeated == 2
    entries = ranked_entries(rows, [3.0, 2.0, 1.0])
    assert [(entry.rank, entry.item) for entry in entries] == [
        (1, "a"),
        (2, "b b"),
        (2, "b  b"),
        (2, "ｂ b"),
        (5, "c"),
    ]
    tied = ranked_entries(rows, [2.0, 2.0, 1.0])
    assert [entry.rank for entry in tied] == [1, 1, 1, 1, 5]


def test_the_order_of_rows_does_not_choose_the_spelling():
    """Of two spellings the model always sees the same one."""
    first = read_rows(io.StringIO("ﬁsh\nfish\nx\n")).items
    second = read_rows(io.StringIO("x\nfish\nﬁsh\n")).items
    assert set(first) == set(second) == {"fish", "x"}


def test_numbers_are_items_by_their_text(tmp_path):
    """A book called 1984 is a number to Excel and JSON, and an item all the same."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for line in (["title", "n"], [1984, 1], [], ["Emma", 2.5], [None, 3]):
        book.active.append(line)
    book.save(tmp_path / "books.xlsx")
    rows = read_rows(tmp_path / "books.xlsx", "title", id="n")
    assert rows.texts == ("1984", "Emma", None)
    assert (rows.records[0], rows.blank, rows.id_column) == ((1984, 1), 1, 1)
    assert read_rows(io.StringIO('{"t": 1984}\n{"t": 1.50}'), "t", "jsonl").texts == ("1984", "1.50")


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("cut.parquet", b"PAR1 and nothing more", "cannot be read as Parquet"),
        ("cut.xlsx", b"PK\x03\x04", "cannot be read as an Excel file"),
        ("old.xls", b"", r"\.xls files are not read; save it as \.xlsx"),
        ("wide.csv", b"a,b\n1,2,3\n", "line 2: 3 cells under 2 columns"),
        ("open.csv", b'a,b\n1,"2\n3,4\n5,6\n', "line 2: not a well-formed table"),
        ("lines.csv", b'a,b\n"1\n1",2,3\n', "line 2: 3 cells under 2 columns"),
        ("head.csv", b"a,b\n", "a header and no rows"),
        ("empty.csv", b"", "contains no items"),
        ("empty.jsonl", b"\n", "contains no items"),
    ],
)
def test_damaged_files(tmp_path, name, content, cause):
    """Each says what is wrong and names the file."""
    pytest.importorskip("openpyxl")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CcrankError, match=cause) as caught:
        read_rows(tmp_path / name, "a" if name.endswith("csv") else None)
    assert name in str(caught.value)


def test_excel_without_openpyxl(tmp_path, monkeypatch):
    """The error has the line that installs what is missing."""
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "x.xlsx").write_bytes(b"PK")
    with pytest.raises(CcrankError, match=r"pip install '\.\[excel\]'"):
        read_rows(tmp_path / "x.xlsx")


def test_files_with_long_cells_are_read_by_turns():
    """Python's limit for a cell is one of the whole process: it is raised for every file, and as it was afterwards."""
    before, long = csv.field_size_limit(), "a" * 200_000
    first, second = (csv_rows(io.StringIO(f"x\n{long}\n{long}\n"), ",", "file") for _ in range(2))
    assert next(first) == next(second) == (1, ["x"])
    assert csv.field_size_limit() == before
    assert list(first) == list(second) == [(2, [long]), (3, [long])]


def test_ids():
    """The id column is found as the item column is; plain lists have none."""
    rows = read_rows(io.StringIO("key,name\nk1,a\nk2,b\n"), "name", "csv", id="key")
    assert rows.id_column == 0
    with pytest.raises(CcrankError, match=r"no column 'kee'.*did you mean 'key'"):
        read_rows(io.StringIO("key,name\nk1,a\n"), "name", "csv", id="kee")
    with pytest.raises(CcrankError, match="plain lines, which have no column 'key'"):
        read_rows(io.StringIO("a\nb\n"), id="key")
    with pytest.raises(CcrankError, match="plain texts, which have no field 'key'"):
        read_rows(io.StringIO('"a"\n'), None, "jsonl", id="key")


def test_a_small_workbook_that_is_large_unpacked(tmp_path):
    """A cell far away, which makes millions of empty ones, and an archive of zeros: refused in bounded memory."""
    openpyxl = pytest.importorskip("openpyxl")
    resource = pytest.importorskip("resource")
    book = openpyxl.Workbook()
    for line in range(1, 2000):
        book.active.cell(line, 16_384, "x")
    book.save(tmp_path / "wide.xlsx")
    with zipfile.ZipFile(tmp_path / "wide.xlsx") as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(tmp_path / "zeros.xlsx", "w", zipfile.ZIP_DEFLATED) as new:
        for name, part in parts.items():
            new.writestr(name, part)
        for number in range(5):
            new.writestr(f"xl/zeros{number}.xml", bytes(60 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CcrankError, match="more than 5,000,000 cells"):
        read_rows(tmp_path / "wide.xlsx")
    with pytest.raises(CcrankError, match="unpacks to 300 MiB"):
        read_rows(tmp_path / "zeros.xlsx")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_formulas_are_made_texts(form):
    """Asked for, no cell of text begins as a formula does; nothing else changes."""
    cells = ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "\n=1", "\uff1d1", "a=b", "", "'=1"]
    records = [(cell, -1.5, -2) for cell in cells]
    for safe in (False, True):
        content = encode_table(("=head", "n", "m"), records, form, safe=safe).decode()
        found = list(csv.reader(io.StringIO(content, newline=""), delimiter="\t" if form == "tsv" else ","))
        changed = [
            f"'{cell}" if safe and cell[:1] in tuple("=+-@\t\r\n\uff1d") else cell
            for cell in ["=head", *cells]
        ]
        assert [line[0] for line in found] == changed
        assert all(line[1:] == ["-1.5", "-2"] for line in found[1:])


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    """A private file stays private; a new one has those of any new file."""
    path = tmp_path / "out.csv"
    write_atomically(path, "a")
    usual = path.stat().st_mode
    (tmp_path / "other").write_text("")
    assert usual == (tmp_path / "other").stat().st_mode
    path.chmod(0o600)
    write_atomically(path, "b")
    assert path.stat().st_mode & 0o777 == 0o600
