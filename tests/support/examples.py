"""The examples of the README and of the docs: commands with the output that is shown, files, and Python."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from ccrank.cli import main
from ccrank.models import Reader

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d+\.\d+")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"as `([\w.-]+)`:?\s*$")
WIDTH = "110"


@dataclass
class Step:
    """One thing that a reader of a page does: saves a file, runs a command or some Python."""

    kind: str
    """file, command or python."""
    text: str
    """The file's name, the command line, or the code."""
    shown: list[str]
    """The file's lines, or the output that the page shows."""


def pages() -> list[Path]:
    """Every page with examples."""
    found = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "studies").rglob("*.md")),
    ]
    return [page for page in found if any(steps(page.read_text("utf-8")))]


def steps(text: str) -> Iterator[Step]:
    """What a page tells its reader to do, in order: `text` blocks that are saved, `console` and `python` blocks."""
    for block in BLOCK.finditer(text):
        language, body = block[1], block[2]
        if language == "python":
            yield Step("python", body, [])
        elif language == "text" and (saved := SAVED.search(text[: block.start()])):
            yield Step("file", saved[1], body.splitlines())
        elif language == "console":
            yield from console_steps(body)


def blocks(text: str, *languages: str) -> list[str]:
    """The fenced blocks of some languages."""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def console_steps(body: str) -> Iterator[Step]:
    """The commands of a console block, each with the lines below it; `cat FILE` is a file to save."""
    step: Step | None = None
    for line in body.replace("\\\n", " ").splitlines():
        if not line.startswith("$ "):
            assert step is not None, f"output without a command: {line}"
            step.shown.append(line)
            continue
        if step is not None:
            yield step
        command = line.removeprefix("$ ")
        assert command.startswith(("ccrank ", "cat ")), (
            f"not run by the tests, so not for a console block: {command}"
        )
        kind, _, rest = command.partition(" ")
        step = Step("file", rest, []) if kind == "cat" else Step("command", command, [])
    if step is not None:
        yield step


def run_step(step: Step, reader: Reader, names: dict[str, object]) -> tuple[list[str], list[str]]:
    """Do a step in the working folder, on a model that is loaded already; the lines on stdout and on stderr."""
    if step.kind == "file":
        Path(step.text).write_text("\n".join(step.shown) + "\n", encoding="utf-8")
        return [], []
    if step.kind == "python":
        with mock.patch.object(Reader, "open", return_value=reader):
            exec(step.text, names)
        return [], []
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.object(sys, "argv", shlex.split(step.text, comments=True)),
        mock.patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"}),
        mock.patch("ccrank.cli.options.open_reader", return_value=reader),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
    assert not code, f"{step.text}: {err.getvalue()}"
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def output_to_show(out: list[str], err: list[str]) -> list[str]:
    """The lines of a terminal: messages first, but those that tell a time of this machine; then the output."""
    said = (one for one in err if one.startswith("ccrank: ") and "on this machine" not in one)
    return [line.rstrip() for line in (*said, *out)]


def same_line(shown: str, printed: str) -> bool:
    """The same words, with numbers that differ by rounding at most; bars are left out."""
    shown, printed = (re.sub(r"[█-▏▐]+", "", line).rstrip() for line in (shown, printed))
    numbers = [[float(one) for one in NUMBER.findall(line)] for line in (shown, printed)]
    return (
        NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split()
        and len(numbers[0]) == len(numbers[1])
        and all(abs(first - second) <= 0.011 for first, second in zip(*numbers, strict=True))
    )
