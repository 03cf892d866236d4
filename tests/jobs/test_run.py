"""Ranking files in pieces, against ranking them in memory."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from tiny import save_model, tiny_model, tiny_reader

from ccrank.api import fit, rank_tasks
from ccrank.errors import CcrankError
from ccrank.io import encode_rows, read_rows
from ccrank.io.reading import READ_ROWS, open_source
from ccrank.jobs import StreamOptions, run_job
from ccrank.jobs.job_folder import JobFolder
from ccrank.metrics.order import tau_b
from ccrank.models import capacity
from ccrank.request import RankRequest
from ccrank.task import Criterion

SIZE = Criterion("size", poles=("small", "large"))
WORDS = ("old", "new", "tall", "red", "stone", "glass", "quick", "lazy", "brown", "blue")
ITEMS = [f"{first} {second}" for first in WORDS for second in WORDS if first != second]


def rows(count: int = len(ITEMS), seed: int = 0) -> list[dict[str, object]]:
    """Rows with an item, a number, a text with commas and quotes, and some without an item or with a repeated one."""
    generator = np.random.default_rng(seed)
    found: list[dict[str, object]] = []
    for number in generator.permutation(count):
        found.append({"id": f"{number:03d}", "text": ITEMS[number % len(ITEMS)], "note": f'a, "b" {number}'})
        if number % 17 == 3:
            found.append({"id": f"x{number}", "text": "", "note": ""})
        if number % 13 == 5:
            found.append({"id": f"y{number}", "text": f" {ITEMS[number % len(ITEMS)]} ", "note": "again"})
    return found


def write(path: Path, lines: list[dict[str, object]]) -> Path:
    """The rows as a file of the suffix's format."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(lines), path, row_group_size=7)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(lines[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(lines)
    return path


def in_memory(
    path: Path, out: Path, method: str = "auto", reverse: bool = False, top: int | None = None
) -> Path:
    """What `ccrank rank --file` writes, but for the intervals of ranks."""
    table = read_rows(path, "text")
    [ranking] = rank_tasks([table.task(SIZE)], tiny_reader("llama"), method)
    out.write_bytes(
        encode_rows(replace(ranking, rows=table, uncertainty=None).ranked_rows(top, reverse), "parquet")
    )
    return out


SMALL_BLOCKS = {"block_rows": 10, "column": "text"}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_sample_of_everything_is_the_ranking_in_memory(suffix, reverse, tmp_path):
    """The output is equal to the last bit: the same rows in the same order, with all columns, ranks and scores."""
    path = write(tmp_path / f"items{suffix}", rows())
    options = StreamOptions(sample=1000, reverse=reverse, **SMALL_BLOCKS)
    result = run_job(
        path, tmp_path / "out.parquet", RankRequest(by=SIZE), tiny_reader("llama"), stream=options
    )
    assert result.complete
    assert (result.rows, result.written) == (len(rows()), len(rows()))
    expected = parquet.read_table(in_memory(path, tmp_path / "memory.parquet", reverse=reverse))
    assert parquet.read_table(tmp_path / "out.parquet").equals(expected)
    assert not JobFolder(tmp_path / "out.parquet").path.exists()


@pytest.mark.parametrize("method", ["prompt-pair", "length", "margin"])
def test_any_method_ranks_a_file_that_fits_its_sample(method, tmp_path):
    """A sample of everything needs no scale, so methods that compare items work too."""
    path = write(tmp_path / "items.csv", rows(12))
    run_job(
        path,
        tmp_path / "out.parquet",
        RankRequest(by=SIZE, method=method),
        tiny_reader("llama"),
        stream=StreamOptions(**SMALL_BLOCKS),
    )
    expected = parquet.read_table(in_memory(path, tmp_path / "memory.parquet", method))
    assert parquet.read_table(tmp_path / "out.parquet").equals(expected)


def test_plain_lines_are_ranked_as_in_memory(tmp_path):
    """A file of lines, and one of JSON texts, have the columns rank, item and score."""
    (tmp_path / "items.txt").write_text("\n".join([*ITEMS[:20], "", ITEMS[0]]))
    (tmp_path / "items.jsonl").write_text(
        "".join(json.dumps(item) + "\n" for item in [*ITEMS[:20], ITEMS[0]])
    )
    [ranking] = rank_tasks([read_rows(tmp_path / "items.txt").task(SIZE)], tiny_reader("llama"))
    ranking = replace(ranking, rows=read_rows(tmp_path / "items.txt"), uncertainty=None)
    (tmp_path / "memory.parquet").write_bytes(encode_rows(ranking.ranked_rows(), "parquet"))
    for name in ("items.txt", "items.jsonl"):
        run_job(tmp_path / name, tmp_path / "out.parquet", RankRequest(by=SIZE), tiny_reader("llama"))
        found = parquet.read_table(tmp_path / "out.parquet")
        assert found.equals(parquet.read_table(tmp_path / "memory.parquet"))


@pytest.mark.parametrize("method", ["auto", "poles", "likelihood", "axis", "margin"])
def test_a_smaller_sample_gives_nearly_the_same_order(method, tmp_path):
    """With a sample of half of the items, the order is close to that in memory; ranks and ties agree with the scores,
    every row is there once, and the sample's own items have the scores of its ranking."""
    path = write(tmp_path / "items.parquet", rows())
    options = StreamOptions(sample=45, **SMALL_BLOCKS)
    result = run_job(
        path,
        tmp_path / "out.parquet",
        RankRequest(by=SIZE, method=method),
        tiny_reader("llama"),
        stream=options,
    )
    found = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert not result.complete
    assert sorted(line["id"] for line in found) == sorted(str(line["id"]) for line in rows())
    ranked = [line for line in found if line["rank"] is not None]
    scores = np.array([line["score"] for line in ranked])
    assert [line["rank"] for line in ranked] == [1 + int((scores > one).sum()) for one in scores]
    assert (np.diff(scores) <= 0).all()
    assert all(line["text"].strip() == "" for line in found[len(ranked) :])
    memory = parquet.read_table(in_memory(path, tmp_path / "memory.parquet", method)).to_pylist()
    expected = {line["id"]: line["score"] for line in memory if line["rank"] is not None}
    tau = tau_b(scores, np.array([expected[line["id"]] for line in ranked]))
    assert (abs(tau) if method == "margin" else tau) > (0.5 if method == "margin" else 0.75)
    known = {
        item: round(float(score), 6)
        for item, score in zip(result.sample.task.items, result.sample.scores, strict=True)
    }
    assert len(known) == 45
    for line in ranked:
        if line["text"] in known:
            assert line["score"] == known[line["text"]]


def test_a_signal_without_constants_needs_no_sample(tmp_path):
    """Poles are log-odds of an item alone, so a stream gives the scores of the ranking in memory."""
    path = write(tmp_path / "items.parquet", rows())
    run_job(
        path, tmp_path / "out.parquet", RankRequest(by=SIZE, method="poles"), tiny_reader("llama"),
        stream=StreamOptions(sample=2, **SMALL_BLOCKS),
    )  # fmt: skip
    memory = parquet.read_table(in_memory(path, tmp_path / "memory.parquet", "poles")).to_pylist()
    expected = {line["id"]: line["score"] for line in memory}
    for line in parquet.read_table(tmp_path / "out.parquet").to_pylist():
        assert line["score"] == (
            None if expected[line["id"]] is None else pytest.approx(expected[line["id"]], abs=2e-5)
        )


def test_methods_that_compare_items_say_what_to_do(tmp_path):
    """More items than the sample cannot be ranked by comparisons."""
    path = write(tmp_path / "items.parquet", rows())
    with pytest.raises(CcrankError, match="larger --sample"):
        run_job(
            path, tmp_path / "out.parquet", RankRequest(by=SIZE, method="prompt-pair"), tiny_reader("llama"),
            stream=StreamOptions(sample=10, **SMALL_BLOCKS),
        )  # fmt: skip


def test_labelled_items_are_in_the_sample(tmp_path):
    """Labels reach items that a sample would leave out, in every form of file, and move the scores of others."""
    path = write(tmp_path / "items.parquet", rows())
    chosen = ITEMS[::9]
    (tmp_path / "labels.csv").write_text(
        "item,value\n" + "".join(f"{item},{n}\n" for n, item in enumerate(chosen))
    )
    (tmp_path / "labels.txt").write_text(" > ".join(reversed(chosen)))
    (tmp_path / "labels.json").write_text(json.dumps({item: n for n, item in enumerate(chosen)}))
    plain = StreamOptions(sample=20, **SMALL_BLOCKS)
    run_job(path, tmp_path / "plain.parquet", RankRequest(by=SIZE), tiny_reader("llama"), stream=plain)
    before = {
        line["text"]: line["score"] for line in parquet.read_table(tmp_path / "plain.parquet").to_pylist()
    }
    for name in ("labels.csv", "labels.txt", "labels.json"):
        options = replace(plain, labels=tmp_path / name)
        result = run_job(
            path, tmp_path / "out.parquet", RankRequest(by=SIZE), tiny_reader("llama"), stream=options
        )
        assert set(chosen) <= set(result.sample.task.items)
        after = {
            line["text"]: line["score"] for line in parquet.read_table(tmp_path / "out.parquet").to_pylist()
        }
        others = [item for item in ITEMS if item not in result.sample.task.items]
        assert len(others) > 50
        assert any(abs(after[item] - before[item]) > 0.05 for item in others)


class StopError(Exception):
    """An interruption."""


def stop_after(blocks: int):
    """Interrupts a job after some blocks."""
    calls = count()  # the first one is before any block

    def watch(step: str, done: int, total: int) -> None:
        if step == "scoring" and next(calls) == blocks:
            raise StopError

    return watch


def test_rows_are_watched_while_the_sample_is_read(tmp_path):
    """The sample is read as the rows are: what is done grows up to its items, whose number is known from the start."""
    seen: list[tuple[int, int]] = []

    def watch(step: str, done: int, total: int) -> None:
        if step.startswith("ranking a sample"):
            seen.append((done, total))

    path, reader = write(tmp_path / "items.csv", rows()), tiny_reader("llama")
    options = StreamOptions(sample=30, **SMALL_BLOCKS)
    run_job(path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options, watch=watch)
    assert {total for _, total in seen} == {30}
    done = [number for number, _ in seen]
    assert done == sorted(done)
    assert done[0] == 0
    assert any(0 < number < 30 for number in done)
    assert done[-1] > 25


@pytest.mark.parametrize("sample", [30, 1000])
def test_an_interrupted_job_resumes_where_it_stopped(sample, tmp_path, monkeypatch):
    """The sample is not ranked again, finished blocks are not scored again, and the output is the same as without an
    interruption."""
    path = write(tmp_path / "items.csv", rows())
    reader, options = tiny_reader("llama"), StreamOptions(sample=sample, **SMALL_BLOCKS)
    run_job(path, tmp_path / "whole.parquet", RankRequest(by=SIZE), reader, stream=options)
    with pytest.raises(StopError):
        run_job(
            path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options, watch=stop_after(4)
        )
    assert not (tmp_path / "out.parquet").exists()
    assert len(JobFolder(tmp_path / "out.parquet").finished()) == 4
    monkeypatch.setattr(RankRequest, "fit", None)
    result = run_job(path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options)
    assert (result.resumed, result.blocks) == (4, -(-len(rows()) // 10))
    expected = parquet.read_table(tmp_path / "whole.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").equals(expected)


def test_a_short_file_has_blocks_of_about_ten_seconds_of_work(tmp_path, monkeypatch):
    """With a large model a short file has several blocks, each of which moves the progress and is kept, and a job that
    resumes gives the output of one that was not interrupted."""
    monkeypatch.setattr(capacity, "NOMINAL_RATES", {"cpu": 1.0, "cuda": 1.0})
    path = write(tmp_path / "items.csv", rows())
    reader, options = tiny_reader("llama"), StreamOptions(sample=30, column="text")
    whole = run_job(path, tmp_path / "whole.parquet", RankRequest(by=SIZE), reader, stream=options)
    with pytest.raises(StopError):
        run_job(
            path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options, watch=stop_after(2)
        )
    result = run_job(path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options)
    assert (result.resumed, result.blocks) == (2, whole.blocks)
    assert whole.blocks > 3
    assert parquet.read_table(tmp_path / "out.parquet").equals(parquet.read_table(tmp_path / "whole.parquet"))


def test_another_job_in_the_same_place_is_refused(tmp_path):
    """An unfinished job is resumed only by the same command on the same input; the message names what differs."""
    path = write(tmp_path / "items.csv", rows())
    reader, options = tiny_reader("llama"), StreamOptions(sample=30, **SMALL_BLOCKS)
    with pytest.raises(StopError):
        run_job(
            path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options, watch=stop_after(1)
        )
    with pytest.raises(CcrankError, match="differs in sample; repeat"):
        run_job(
            path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=replace(options, sample=40)
        )
    with pytest.raises(CcrankError, match="differs in criterion"):
        run_job(path, tmp_path / "out.parquet", RankRequest(by=Criterion("age")), reader, stream=options)
    write(path, rows(50))
    with pytest.raises(CcrankError, match="size and time of the input"):
        run_job(path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=options)


@pytest.mark.parametrize(("refine", "columns"), [("auto", 3), ("prompt-pair", 3), ("none", 2)])
def test_top_compares_the_finalists(refine, columns, tmp_path):
    """--top writes the best rows; refined, their order is that of the stream's score and the method's on the finalists
    alone, each Z-scored."""
    path = write(tmp_path / "items.parquet", rows())
    reader, options = tiny_reader("llama"), StreamOptions(sample=45, **SMALL_BLOCKS)
    run_job(path, tmp_path / "all.parquet", RankRequest(by=SIZE), reader, stream=options)
    everything = [line for line in parquet.read_table(tmp_path / "all.parquet").to_pylist() if line["rank"]]
    run_job(
        path,
        tmp_path / "out.parquet",
        RankRequest(by=SIZE),
        reader,
        stream=replace(options, top=6, refine=refine),
    )
    table = parquet.read_table(tmp_path / "out.parquet")
    found = table.to_pylist()
    assert table.column_names == ["id", "text", "note", "rank", "score", "refined"][: 3 + columns]
    assert len(found) == 6
    if refine == "none":
        assert found == everything[:6]
        return
    names = list(dict.fromkeys(line["text"].strip() for line in everything[:16]))
    from ccrank.task import Task
    from ccrank.util.zscores import z_scores

    [ranking] = rank_tasks([Task(SIZE, tuple(names), id="ranking by size")], reader, refine)
    streamed = {line["text"].strip(): line["score"] for line in everything}
    expected = z_scores(ranking.scores) + z_scores(np.array([streamed[name] for name in names]))
    best = [names[place] for place in np.argsort(-expected)]
    assert (
        list(dict.fromkeys(line["text"].strip() for line in found))
        == best[: len({line["text"].strip() for line in found})]
    )
    assert found[0]["refined"] == pytest.approx(expected.max(), abs=1e-4)


def test_bad_files_are_refused(tmp_path):
    """A file that is missing, empty, without the column, not UTF-8 or of another format: an error with a remedy,
    and nothing is left behind."""
    reader = tiny_reader("llama")

    def refused(path: Path, match: str, **options: object) -> None:
        with pytest.raises(CcrankError, match=match):
            run_job(
                path, tmp_path / "out.parquet", RankRequest(by=SIZE), reader, stream=StreamOptions(**options)
            )
        assert not (tmp_path / "out.parquet.job").exists()

    refused(tmp_path / "missing.csv", "there is no file")
    write(tmp_path / "items.csv", rows(5))
    refused(tmp_path / "items.csv", "there is no column 'name'", column="name")
    refused(tmp_path / "items.csv", "several columns")
    (tmp_path / "latin.csv").write_bytes(b"text\n" * 30_000 + "naïve\n".encode("latin1"))
    refused(
        tmp_path / "latin.csv", "not UTF-8 text: byte 0xef at offset 150002, in line 30001; .*iconv -f cp1252"
    )
    (tmp_path / "wide.txt").write_bytes("naïve\n".encode("utf-16")[:-1])
    refused(tmp_path / "wide.txt", "iconv -f utf-16")
    (tmp_path / "open.csv").write_text('text\na\n"b\nc\n')
    refused(tmp_path / "open.csv", "line 3: not a well-formed table")
    (tmp_path / "empty.csv").write_text("text,id\n,1\n,2\n")
    refused(tmp_path / "empty.csv", "no text in column 'text'", column="text")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": \n')
    refused(tmp_path / "bad.jsonl", "line 2: not JSON")
    (tmp_path / "mixed.jsonl").write_text('{"text": "a", "x": [1]}\n{"text": "b", "x": "c"}\n')
    refused(tmp_path / "mixed.jsonl", "line 2: field 'x' .* 'c' does not fit", column="text")
    numbers = [*range(9000), 1.5, *range(9), "many", *range(9)]
    lines = [json.dumps({"text": "a", "x": number}) for number in numbers]
    (tmp_path / "mixed.jsonl").write_text("\n\n".join(lines))
    line = 2 * numbers.index("many") + 1
    refused(tmp_path / "mixed.jsonl", f"line {line}: field 'x' .* 'many' does not fit", column="text")
    (tmp_path / "nested.jsonl").write_text('{"text": ["a"]}\n{"text": ["b"]}\n')
    refused(tmp_path / "nested.jsonl", "row 1 of column 'text': an item is a text", column="text")
    (tmp_path / "labels.csv").write_text("a,1\nMars,2\n")
    (tmp_path / "two.txt").write_text("a\nb\n")
    refused(tmp_path / "two.txt", "line 2: labels contain 'Mars'", labels=tmp_path / "labels.csv")
    (tmp_path / "wide.csv").write_text("text,id\na,1\nb,2,3\n")
    refused(tmp_path / "wide.csv", "line 3: 3 cells under 2 columns", column="text")
    (tmp_path / "items.parquet").write_bytes(b"PAR1 not really")
    refused(tmp_path / "items.parquet", "cannot be read as Parquet")
    (tmp_path / "items.xlsx").write_bytes(b"")
    refused(tmp_path / "items.xlsx", "give it as --file")


def test_the_folder_of_another_process_is_left_alone(tmp_path):
    """Two commands with one output: the second is refused, and what the first one has stored stays."""
    path, out = write(tmp_path / "items.csv", rows(5)), tmp_path / "out.parquet"
    folder = JobFolder(out)
    with folder.locked():
        folder.write("job.json", "{}")
        with pytest.raises(CcrankError, match="another process writes into"):
            run_job(
                path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=StreamOptions(column="text")
            )
        assert (folder.path / "job.json").read_text() == "{}"


@pytest.mark.parametrize("content", ["not ours", "null", "[]"])
def test_a_damaged_folder_is_named_and_left(tmp_path, content):
    """A folder that is not ours, or a file in it that is no JSON object, is an error that names it; nothing is
    removed."""
    path, out = write(tmp_path / "items.csv", rows(5)), tmp_path / "out.parquet"
    folder = JobFolder(out).path
    folder.mkdir()
    (folder / "job.json").write_text(content)
    with pytest.raises(
        CcrankError, match=r"job\.json is damaged; delete the folder .*out\.parquet\.job to start over"
    ):
        run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=StreamOptions(column="text"))
    assert (folder / "job.json").read_text() == content


def test_an_integer_too_large_for_its_column_is_named(tmp_path):
    """A fraction thousands of rows later makes a column one of floats, which cannot hold every integer."""
    numbers = [2**53 + 1, *range(READ_ROWS), 1.5]
    path = write(tmp_path / "items.jsonl", [{"text": "a", "x": number} for number in numbers])
    with pytest.raises(CcrankError, match=r"field 'x' cannot be written as Parquet.* 9007199254740993 "):
        list(open_source(path, "text").tables())


@pytest.fixture
def model(tmp_path_factory):
    """A tiny model in a folder, for commands."""
    return save_model(tiny_model("llama", max_position_embeddings=512), tmp_path_factory.mktemp("model"))


MAIN = "from ccrank.cli import main; main()"
KILLED = f"""
import os, signal
from ccrank.jobs import job_folder as folder

write = folder.write_atomically

def killed(path, content, **options):
    def halfway(partial):
        content(partial)
        os.kill(os.getpid(), signal.SIGKILL)

    blocks = len(list(path.parent.glob("*.parquet")))
    write(path, halfway if path.suffix == ".parquet" and blocks == 3 else content, **options)

folder.write_atomically = killed
{MAIN}
"""
"""The command, killed when its fourth block is written and does not yet have its name."""


def test_a_killed_process_loses_nothing(model, tmp_path):
    """A command that is killed without warning in the middle of the pass is repeated: it resumes, and the output
    equals that of a command that was never killed."""
    path = write(tmp_path / "items.csv", rows(90))
    environment = {**os.environ, "CCRANK_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    def command(out: Path, code: str = MAIN) -> list[str]:
        arguments = [
            "rank",
            "--input",
            str(path),
            "--column",
            "text",
            "--by",
            "size",
            "--poles",
            "small",
            "large",
        ]
        arguments += ["--sample", "20", "--block-rows", "4", "--model", str(model), "--out", str(out)]
        return [sys.executable, "-c", code, *arguments]

    subprocess.run(command(tmp_path / "whole.parquet"), env=environment, check=True, capture_output=True)
    out = tmp_path / "out.parquet"
    ended = subprocess.run(command(out, KILLED), env=environment, check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not out.exists()
    assert len(JobFolder(out).finished()) == 3
    assert len(list((JobFolder(out).path / "parts").iterdir())) == 4
    done = subprocess.run(command(out), env=environment, check=True, capture_output=True, text=True)
    assert "3 of " in done.stderr
    assert parquet.read_table(out).equals(parquet.read_table(tmp_path / "whole.parquet"))


def interrupted(folder: Path, blocks: int = 2) -> tuple[Path, Path, StreamOptions]:
    """An input, its output and options, of a job that was interrupted after some blocks."""
    path, out = write(folder / "items.csv", rows()), folder / "out.parquet"
    options = StreamOptions(sample=30, **SMALL_BLOCKS)
    with pytest.raises(StopError):
        run_job(
            path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options, watch=stop_after(blocks)
        )
    return path, out, options


def test_files_of_a_user_are_never_deleted(tmp_path):
    """A folder with the name of a job's that is none is refused before anything in it is touched; what a user has put
    into that of a job stays there, and so does the next job's refusal."""
    path, out = write(tmp_path / "items.csv", rows(5)), tmp_path / "out.parquet"
    folder, options = JobFolder(out).path, StreamOptions(column="text")
    for name in ("notes.txt", "lock", "sample.json", "parts/00000000.parquet", "parts/gear.stl", "sort/mine"):
        mine = folder / name
        mine.parent.mkdir(parents=True)
        mine.write_text("mine")
        with pytest.raises(CcrankError, match="is not the folder of a job: it has"):
            run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options)
        assert mine.read_text() == "mine"
        shutil.rmtree(folder)
    folder.mkdir()
    (folder / "job.json").write_text('{"mine": 1}')
    with pytest.raises(CcrankError, match=r"job\.json is not of a job; move .* away"):
        run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options)
    assert (folder / "job.json").read_text() == '{"mine": 1}'
    shutil.rmtree(folder)
    path, out, options = interrupted(tmp_path)
    for name in ("notes.txt", "parts/notes.txt"):
        (folder / name).write_text("mine")
    run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options)
    left = [one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()]
    assert sorted(left) == ["notes.txt", "parts/notes.txt"]


def test_a_folder_behind_a_link(tmp_path):
    """A folder of a job that is a link, as to a larger disk, is used; the link and the folder behind it are left, with
    all that is not of the job."""
    path, out = write(tmp_path / "items.csv", rows(20)), tmp_path / "out.parquet"
    large = tmp_path / "large"
    large.mkdir()
    JobFolder(out).path.symlink_to(large)
    for _ in range(2):
        run_job(
            path,
            out,
            RankRequest(by=SIZE),
            tiny_reader("llama"),
            stream=StreamOptions(sample=5, **SMALL_BLOCKS),
        )
        assert not list(large.iterdir())
    JobFolder(out).path.unlink()
    JobFolder(out).path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CcrankError, match="cannot write into"):
        run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=StreamOptions(**SMALL_BLOCKS))


def changing(change):
    """Changes the input when the first pass is over."""
    passes = count()
    return lambda step, done, total: change() if step == "scoring" and next(passes) == 0 else None


@pytest.mark.parametrize("sample", [30, 1000])
def test_an_input_that_changes_meanwhile(tmp_path, sample):
    """Rows that are added are named in a warning, and the output is that of the rows before. Other rows than those of
    the first pass are an error: nothing is written, and an output that was there stays."""
    path, out, options = (
        tmp_path / "items.csv",
        tmp_path / "out.parquet",
        StreamOptions(sample=sample, **SMALL_BLOCKS),
    )
    reader, before = tiny_reader("llama"), rows(40)
    write(path, before)
    warnings = run_job(
        path, tmp_path / "wanted.parquet", RankRequest(by=SIZE), reader, stream=options
    ).warnings
    assert not any("changed" in warning for warning in warnings)

    def add() -> None:
        with path.open("a") as stream:
            stream.write("z,added meanwhile,\n")

    result = run_job(path, out, RankRequest(by=SIZE), reader, stream=options, watch=changing(add))
    assert f"has the {len(before)} rows that it had at first" in result.warnings[-1]
    wanted = parquet.read_table(tmp_path / "wanted.parquet")
    assert parquet.read_table(out).equals(wanted)
    for other in ([{**before[0], "text": "another"}, *before[1:]], before[::-1], before[:-5]):
        write(path, before)
        with pytest.raises(CcrankError, match="changed"):
            run_job(
                path,
                out,
                RankRequest(by=SIZE),
                reader,
                stream=options,
                watch=changing(lambda rows=other: write(path, rows)),
            )
        assert parquet.read_table(out).equals(wanted)
        shutil.rmtree(JobFolder(out).path)


def test_a_scale_of_another_job_is_not_used(tmp_path):
    """A job that was interrupted before its sample was stored leaves nothing that another method would take up."""
    path, out = write(tmp_path / "items.csv", rows(40)), tmp_path / "out.parquet"
    options = StreamOptions(sample=10, **SMALL_BLOCKS)
    run_job(
        path,
        out,
        RankRequest(by=SIZE, method="random", options={"layer": "1"}),
        tiny_reader("llama"),
        stream=options,
    )
    wanted = parquet.read_table(out)
    reader = tiny_reader("llama")
    JobFolder(out).path.mkdir()
    fit(ITEMS[:10], SIZE, model=reader, method="poles").save(JobFolder(out).path / "scale.safetensors")
    (JobFolder(out).path / "job.json").write_text(json.dumps({"ccrank": "another"}))
    (JobFolder(out).path / "scale.safetensors").rename(JobFolder(out).path / ".scale.safetensors.x.part")
    run_job(path, out, RankRequest(by=SIZE, method="random", options={"layer": "1"}), reader, stream=options)
    assert parquet.read_table(out).equals(wanted)


@pytest.mark.parametrize("labels", [None, {ITEMS[0]: 2.0, ITEMS[7]: 1.0, ITEMS[20]: 3.0}])
def test_a_scale_scores_a_file_in_its_order(labels, tmp_path):
    """All rows keep their order and columns; score is what the scale gives each item, and deviation;
    ranked on the scale, the file has the same scores."""
    path, out = write(tmp_path / "items.csv", rows(60)), tmp_path / "out.parquet"
    reader = tiny_reader("llama")
    scale = fit(ITEMS[:30], SIZE, model=reader, labels=labels)
    with pytest.raises(StopError):
        run_job(path, out, scale, reader, StreamOptions(in_order=True, **SMALL_BLOCKS), watch=stop_after(3))
    other = fit(ITEMS[:9], SIZE, model=reader)
    with pytest.raises(CcrankError, match="differs in scale"):
        run_job(path, out, other, reader, StreamOptions(in_order=True, **SMALL_BLOCKS))
    result = run_job(path, out, scale, reader, StreamOptions(in_order=True, **SMALL_BLOCKS))
    assert result.resumed == 3
    table = parquet.read_table(out)
    assert table.column_names == ["id", "text", "note", "score", "deviation"]
    found = table.to_pylist()
    assert [line["id"] for line in found] == [line["id"] for line in rows(60)]
    texts = [line["text"] for line in found if line["text"].strip()]
    expected = scale.score(texts)
    scores = [line["score"] for line in found if line["text"].strip()]
    np.testing.assert_allclose(scores, expected.values, atol=2e-5)
    deviations = [line["deviation"] for line in found if line["text"].strip()]
    np.testing.assert_allclose(deviations, expected.deviation, rtol=1e-3)
    run_job(path, tmp_path / "ranked.parquet", scale, reader, StreamOptions(**SMALL_BLOCKS))
    ranked = parquet.read_table(tmp_path / "ranked.parquet").to_pylist()
    assert sorted(line["score"] for line in ranked if line["rank"]) == sorted(scores)


def test_columns_called_like_ours(tmp_path):
    """No name of a column of the input is in the way."""
    names = (
        "text",
        "rank",
        "score",
        "refined",
        "ccrank_score",
        "input rank",
        "input row",
        "ccrank input row",
    )
    path, out = tmp_path / "items.parquet", tmp_path / "out.parquet"
    table = pyarrow.table({name: ITEMS[:20] if name == "text" else [name] * 20 for name in names})
    parquet.write_table(table, path)
    for top in (None, 5):
        options = StreamOptions(sample=8, top=top, **SMALL_BLOCKS)
        run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options)
        found = parquet.read_table(out)
        for name in names[1:]:
            assert set(found.column(name).to_pylist()) == {name}
    twice = pyarrow.Table.from_arrays([pyarrow.array(ITEMS[:20])] * 3, names=["text", "x", "x"])
    parquet.write_table(twice, path)
    run_job(
        path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=StreamOptions(sample=8, **SMALL_BLOCKS)
    )
    assert parquet.read_table(out).column_names == ["text", "x", "x_2", "rank", "score"]


def test_a_damaged_part_is_named(tmp_path):
    """A block that can no longer be read is an error that says what to delete; then the job resumes."""
    path, out, options = interrupted(tmp_path)
    part = JobFolder(out).part(1)
    part.write_bytes(part.read_bytes()[:-30])
    with pytest.raises(CcrankError, match=r"00000001\.parquet is damaged.*delete it and repeat"):
        run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options)
    part.unlink()
    run_job(path, out, RankRequest(by=SIZE), tiny_reader("llama"), stream=options)
