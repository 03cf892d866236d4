"""A tiny model as a folder, and the command called as a user would, in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny import save_model, tiny_model

from ccrank.cli import main


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Llama with its tokenizer, saved as any model is."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    loaded = tiny_model("llama", max_position_embeddings=512)
    save_model(loaded, folder)
    return str(folder)


@pytest.fixture
def ccrank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Result]:
    """`ccrank("rank", "a", "b", stdin=b"…")` → exit code, stdout, stderr; run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["ccrank", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def rank(ccrank: Callable[..., Result], model_folder: str) -> Callable[..., Result]:
    """`ccrank rank … --model <the tiny one>`, with prompt-pair and without a cache by default."""

    def run(*arguments: str, cache: bool = False, stdin: bytes = b"") -> Result:
        more = [] if cache else ["--no-cache"]
        # What these tests are about does not hang on the method; pairs have the richest consistency line.
        if not {"--method", "--scale", "--labels"} & set(arguments):
            more += ["--method", "prompt-pair"]
        return ccrank("rank", *arguments, "--model", model_folder, *more, stdin=stdin)

    return run
