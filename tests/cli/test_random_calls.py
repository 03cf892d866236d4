"""Commands on files of any content: exit code 0 or 2, never a traceback.

`CCRANK_CALLS=2000 pytest tests/cli/test_random_calls.py` makes more of them.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from damaged_text import SPLICES, TEXTS
from tiny import tiny_reader

from ccrank.cli import options
from ccrank.io import TABLE_FORMATS, encode_table
from ccrank.models import capacity

CALLS = int(os.environ.get("CCRANK_CALLS", "100"))
RECORDS = [("Russia", 1.5, "=1+1"), ("Chad", None, ""), ("Peru", 2.5, "x")]
DEEP = (b"[" * 100_000, b'{"a":' * 100_000, b"a = " + b"[" * 100_000, b"a = " + b"{a = " * 50_000)


def content(chance: random.Random, suffix: str) -> bytes:
    """A table, mostly in the format of the suffix, a text or random bytes; sound or damaged."""
    kind = chance.randrange(14)
    if kind < 11:
        own = suffix[1:]
        form = own if own in TABLE_FORMATS and chance.random() < 0.95 else chance.choice(TABLE_FORMATS)
        names = (
            "text",
            *chance.choice([("n", "note"), ("rank", "score"), ("input row", "text"), ("item", "refined")]),
        )
        found = encode_table(names, RECORDS * chance.choice([0, 1, 1, 1, 1, 3]), form)
    elif kind < 12:
        found = chance.choice(TEXTS)
    elif kind == 12:
        return chance.choice(DEEP)
    else:
        return chance.randbytes(chance.randrange(200))
    for _ in range(chance.choice([0, 0, 0, 0, 1, 3])):
        start = chance.randrange(len(found) + 1)
        splice = chance.choice([b"", chance.randbytes(2), *SPLICES])
        found = found[:start] + splice + found[start + chance.randrange(12) :]
    return found


def test_random_calls(ccrank, monkeypatch, tmp_path):
    """Tables, lists, tasks, labels, templates and streams, damaged or of another format than their names say."""
    reader = tiny_reader("llama")
    monkeypatch.setattr(options, "open_any_model", lambda *_, **__: reader)
    monkeypatch.setattr(options, "open_reader", lambda *_, **__: reader)
    monkeypatch.setattr(capacity, "tokens_per_second", lambda model: 1e6)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    chance, codes = random.Random(11), []
    suffixes = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx", ".txt", ".json", ".toml")
    for number in range(CALLS):
        paths = []
        for name in ("one", "two"):
            suffix = chance.choice(suffixes[:4] if chance.random() < 0.7 else suffixes)
            paths.append(tmp_path / f"{name}{suffix}")
            paths[-1].write_bytes(content(chance, suffix))
        first, second = map(str, paths)
        given = chance.choice(["--file"] * 4 + ["--input"] * 4 + ["--tasks"])
        out = f"out{number}{'.parquet' if given == '--input' else chance.choice(suffixes[:5])}"
        call = [
            "rank",
            given,
            first,
            "--out",
            out,
            "--method",
            chance.choice(["length", "poles", "frequency"]),
        ]
        call += [] if given == "--tasks" else ["--by", "size", "--poles", "small", "large"]
        call += [] if given == "--tasks" else ["--column", chance.choice(["text"] * 7 + ["item"])]
        call += chance.choice(
            [[], [], [], [], ["--format", chance.choice(["csv", "jsonl", "parquet", "xlsx", "lines"])]]
        )
        call += chance.choice(
            [[], [], [], [], ["--labels", second, "--method", "auto"], ["--templates", second]]
        )
        call += chance.choice([[], ["--top", "2"], ["--reverse"]])
        try:
            done = ccrank(*call)
        except Exception as error:
            pytest.fail(
                f"{call} on {paths[0].read_bytes()[:300]!r}, {paths[1].read_bytes()[:300]!r}: {error!r}"
            )
        assert done.code in (0, 2), (call, done.err)
        assert "Traceback" not in done.err
        codes.append(done.code)
        for path in (*paths, Path(out)):
            path.unlink(missing_ok=True)
    assert min(map(codes.count, (0, 2))) > CALLS // 8, json.dumps(codes)
