"""Random calls of the command line and of Python: each is done or refused with a message, and ends.

CCRANK_RANDOM_CALLS sets how many calls each test has.
"""

from __future__ import annotations

import io
import os
import random
import signal
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import typer
from tiny import save_model, tiny_model, tiny_reader

import ccrank
from ccrank.cli import main
from ccrank.cli.commands import app
from ccrank.methods.registry import METHODS, get_method
from ccrank.reader_options import ReaderOptions

CALLS = int(os.environ.get("CCRANK_RANDOM_CALLS", "40"))
PARTS = range(3)
SECONDS = 60
"""A call that takes longer hangs."""
ODD = [

    "", " ", "\n", "\t\x0b", "\x00", "\x1b[31mred\x1b[0m", "\ud800", "\u202e\u200b", "é" * 5,
    "日本語 😀", "🏳️‍🌈", "e\u0301", "-", "--", "--by", "=", "a=b=c", "{item}", "{", "}{",
    "{slot}", "%s", "$(x)", "'", '"', "\\", "../..", "/", ".", "~", "0", "-1", "-0", "1", "2", "3.5",
    "1e3", "1e308", "1e-320", "9" * 30, "9" * 5000, "nan", "NaN", "inf", "-inf", "٣", "½", "0x10",
    "1_000", "+5", "true", "false", "none", "null", "None", "[]", "{}", "a,b", ",", ",,", "last", "all",
    "first", "0..3", "0:3", "-1,0", "auto", "size", "cheap to expensive", "least expensive",
    "price (low to high)", "not", "not not", "least", "more more", "a " * 500, "x" * 3000, "<|im_end|>",
    "</s>", "<mask>", "default", "openai:", "openai:x", "openai:http://", "openai:http://127.0.0.1:9",
    "x.csv", "x.json", "x.png", "x.pdf", "cpu", "cuda:99", "float16", "int4",
]  # fmt: skip
"""Texts that somebody may type by mistake, and texts that nobody types."""
VALUES: list[Any] = [

    *ODD, None, True, False, 0, 1, -1, 2, 10**30, -(10**400), 1.5, float("nan"), float("inf"), 1e308,
    b"bytes", (), [], {}, set(), ["a"], ["a", "b"], [1, 2], [None, "a"], ("low", "high"), ("x", "x"),
    ("a", "b", "c"), {"a": 1, "b": 2}, {"a": float("nan"), "b": 1}, [("a", "b")], [["a"]], {"a": None},
    {1: 2}, object, len, np.array([1.0, np.nan]), np.array(["a", "b"]), np.float32("nan"), range(3),
    range(10**12), iter(["a", "b"]), Path("x"), 1j,
]  # fmt: skip
"""Values of Python that some function takes, in every place."""


@contextmanager
def ending_soon() -> Iterator[None]:
    """Ends a call that hangs with an error that shows where."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it hangs\n" + "".join(traceback.format_stack(frame)[-8:]))

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, an empty cache, no network, and a server that ends at once."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip tries an index that is not there for half a minute
    monkeypatch.setenv("CCRANK_DATA", str(folder))
    for name in ("http_proxy", "https_proxy"):  # where nothing listens
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr("ccrank.server.app.serve", lambda *_: None)
    monkeypatch.setattr("ccrank.models.remote.client.FIRST_WAIT_SECONDS", 0.001)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Llama."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    return str(save_model(loaded, tmp_path_factory.mktemp("models") / "tiny"))


def commands(
    group: typer.Typer, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    """The path and the function of each command."""
    for one in group.registered_commands:
        assert one.name is not None
        assert one.callback is not None
        yield (*path, one.name), one.callback
    for one in group.registered_groups:
        assert one.typer_instance is not None
        yield from commands(one.typer_instance, (*path, str(one.name)))


def flags(command: Callable[..., Any]) -> list[tuple[str, int]]:
    """The options of a command, and how many values each takes."""
    found = []
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        if name == "return":
            continue
        kind, info = typing.get_args(hint)[:2]
        if isinstance(info, typer.models.OptionInfo):
            declared = [one for one in (info.default, *(info.param_decls or ())) if str(one).startswith("--")]
            flag = str(declared[0] if declared else "--" + name.replace("_", "-")).partition("/")[0]
            found.append((flag, 0 if kind in (bool, bool | None) else 2 if "tuple" in str(kind) else 1))
    return found


COMMANDS = {path: flags(command) for path, command in commands(app)}
ITEMS = ["ant", "horse", "cat", "elephant"]


def method_option(generator: random.Random, method: str) -> str:
    known = [*get_method(method).options] or ["seed"]
    return f"{generator.choice(known)}={generator.choice(ODD)}"


def command_line(generator: random.Random, model: str) -> tuple[list[str], str]:
    """The arguments of a call, most of which would do without one or two odd ones; and what is typed."""
    path = generator.choice([("rank",)] * 8 + [("label",)] * 3 + [*COMMANDS])
    method = generator.choice([*METHODS])
    base = {
        ("rank",): [*ITEMS, "--by", "size", "--method", method, "-m", model],
        ("label",): [*ITEMS, "--by", "size", "--labels", "labels.csv", "-m", model],
        ("methods",): generator.choice([[], [method]]),
        ("cost",): [],
        ("bench",): [
            "--out",
            "study",
            "--models",
            model,
            "--datasets",
            "everyday",
            "--methods",
            method,
            "--limit",
            "1",
        ],
        ("results",): ["study"],
        ("serve",): ["-m", model, "--port", "0"],
        ("data", "show"): ["everyday"],
        ("models", "check"): [model],
        ("models", "info"): [model],
        ("models", "pull"): [model],
    }.get(path, [])
    if path == ("rank",) and generator.random() < 0.3:
        base[: len(ITEMS)] = generator.choices([*ODD, *ITEMS], k=generator.randint(0, 6))
    found = [*base]
    for _ in range(generator.choice([0, 1, 1, 1, 2, 3])):
        flag, count = generator.choice(COMMANDS[path] or [("--json", 0)])
        values = generator.choices(ODD, k=count)
        if flag == "--option":
            values = [method_option(generator, method)]
        if flag in ("--model", "--models", "--source") or (flag == "--out" and path == ("bench",)):
            values = [generator.choice([one for one in ODD if one not in ("default", "all")])]
        found += [flag, *values]
    if generator.random() < 0.15:
        found.insert(generator.randint(0, len(found)), generator.choice(ODD))
    typed = "\n".join(generator.choices([*ODD, "1", "y", "n", "q", "s", "?"], k=generator.randint(0, 6)))
    # No shell passes a null character, nor do the names of models leave this machine.
    found = [one.replace("\x00", "") for one in found]
    return [*path, *("nothing" if one == "default" else one for one in found)], typed


@pytest.mark.parametrize("part", PARTS)
def test_command_lines(part: int, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call exits with 0, 1 (a suspect model), 2, 3 (a study with failures) or 130 (the typing ends), without a
    traceback."""
    wrong = []
    for seed in range(part * CALLS, (part + 1) * CALLS):
        arguments, typed = command_line(random.Random(seed), model)
        monkeypatch.setattr(sys, "argv", ["ccrank", *arguments])
        given = io.TextIOWrapper(io.BytesIO(typed.encode("utf-8", "surrogatepass")), errors="surrogateescape")
        monkeypatch.setattr(sys, "stdin", given)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace") for _ in range(2))
        code: Any = 0
        try:
            with ending_soon(), redirect_stdout(out), redirect_stderr(err), ExitStack() as stack:
                stack.enter_context(warnings.catch_warnings())
                main()
        except SystemExit as leaving:
            code = leaving.code
        except BaseException as error:
            wrong.append(f"{seed}: {arguments}\n{''.join(traceback.format_exception(error)[-4:])}")
            continue
        err.flush()
        said = err.buffer.getvalue().decode()  # type: ignore[attr-defined]
        suspect = code == 1 and arguments[:2] == ["models", "check"]
        if (
            (code not in (0, 2, 3, 130) and not suspect)
            or "Traceback" in said
            or (code == 2 and not said.strip())
        ):
            wrong.append(f"{seed}: {arguments}\n{code} {said[-500:]}")
    assert not wrong, "\n\n".join(wrong)


def python_call(generator: random.Random) -> tuple[str, Callable[[], Any]]:
    """What is called, and the call."""
    reader = tiny_reader("llama")
    odd = lambda: generator.choice(VALUES)  # noqa: E731
    method = generator.choice([*METHODS])
    name = generator.choice(["rank", "rank", "rank", "rank_tasks", "ask", "Task", "Criterion", "load", "ReaderOptions",
                             "load_dataset", "load_results"])  # fmt: skip
    usual: dict[str, Any] = {
        "rank": {"items": ITEMS, "by": "size", "model": reader, "method": method},
        "rank_tasks": {
            "tasks": [ccrank.Task(ccrank.Criterion("size"), tuple(ITEMS))],
            "model": reader,
            "method": method,
        },
        "ask": {"items": ITEMS, "by": "size", "model": reader},
        "Task": {"criterion": ccrank.Criterion("size"), "items": tuple(ITEMS)},
        "Criterion": {"name": "size"},
        "load": {"model": "nothing"},
        "load_dataset": {"name": "everyday"},
        "load_results": {"folder": "study"},
    }.get(name, {})
    places = {
        "rank": ["items", "by", "comparative", "poles", "category", "query", "context", "column", "labels", "model",
                 "method", "templates", "reader_options", "options", "options"],
        "rank_tasks": ["tasks", "model", "method", "templates", "reader_options", "options", "options"],
        "ask": ["items", "by", "comparative", "poles", "category", "kind", "answers", "model", "reader_options",
                "templates"],
        "Task": ["criterion", "items", "context", "values", "first_stage", "item_ids", "id", "query"],
        "Criterion": ["name", "comparative", "poles", "category"],
        "load": ["model", "reader_options", "cache"],
        "ReaderOptions": [*ReaderOptions.__dataclass_fields__],
        "load_dataset": ["name", "data_dir"],
        "load_results": ["folder"],
    }[name]  # fmt: skip
    given = dict(usual)
    for place in generator.choices(places, k=generator.choice([1, 1, 2, 3])):
        given[place] = odd()
        if place == "options" and generator.random() < 0.8:
            given[place] = {generator.choice([*get_method(method).options, "x"]): odd()}
        if place in ("model", "name") and isinstance(given[place], str) and given[place] == "default":
            given[place] = "nothing"
    return f"{name}({given})", lambda: use(name, getattr(ccrank, name)(**given))


def use(name: str, found: Any) -> None:
    """Do with a result what everybody does."""
    if name == "rank":
        str(found)
    elif name == "ask":
        for question, _ in zip(found, range(3), strict=False):
            str(question)


@pytest.mark.parametrize("part", PARTS)
def test_python_calls(part: int) -> None:
    """Every call returns, or raises an error for users."""
    wrong = []
    for seed in range(part * CALLS, (part + 1) * CALLS):
        text, call = python_call(random.Random(seed))
        try:
            with ending_soon(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except ccrank.CcrankError:
            pass
        except BaseException as error:
            wrong.append(f"{seed}: {text[:600]}\n{''.join(traceback.format_exception(error)[-3:])[-900:]}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n\n".join(wrong)
