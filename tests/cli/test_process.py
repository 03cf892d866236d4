"""The command as a process of its own: exit codes, pipes, interrupts, encodings. Each start costs seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MAIN = "from ccrank.cli import main; main()"
PATIENCE = 600
"""Seconds for a command: no bound on speed, only an end to one that hangs."""


def start(*arguments, code=MAIN, **options):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **options}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_results_on_stdout_and_nothing_else(model_folder):
    """A pipe in another encoding still gets valid JSON; warnings on stderr are in its characters too."""
    process = start(
        "rank",
        "é",
        "🗼",
        "--by",
        "größe",
        "--json",
        "-m",
        model_folder,
        PYTHONIOENCODING="ascii",
        PYTHONUTF8="1",
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert all(line.startswith("ccrank: warning: ") for line in err.decode("ascii").splitlines())
    found = json.loads(out.decode("ascii"))
    assert sorted(row["item"] for row in found["items"]) == ["é", "🗼"]
    assert found["criterion"]["name"] == "größe"


def leave_after_one_line(process):
    """What `| head -1` does; → the exit code and stderr."""
    assert process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    return process.wait(timeout=PATIENCE), err


@pytest.mark.parametrize("show", ["--json", "--top=2"])
def test_a_closed_pipe(model_folder, tmp_path, show):
    """When the reader leaves, the command stops without a word: exit code 141, for JSON and for tables."""
    tasks = tmp_path / "tasks.jsonl"
    lines = [{"id": str(n), "criterion": "size", "items": ["a", "b"]} for n in range(900)]
    tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
    process = start("rank", "--tasks", tasks, "--method", "prompt-point", show, "-m", model_folder)
    assert leave_after_one_line(process) == (141, b"")


def test_a_closed_pipe_costs_no_file(model_folder, tmp_path):
    """The scale and the plot of a ranking whose table nobody reads to its end are written."""
    (tmp_path / "items.txt").write_text("".join(f"{n} {'long ' * 40}\n" for n in range(900)))
    scale, plot = tmp_path / "p.scale", tmp_path / "plot.svg"
    given = ("--file", tmp_path / "items.txt", "--by", "size", "--method", "pca", "-m", model_folder)
    process = start("rank", *given, "--json", "--save-scale", scale, "--plot", plot)
    assert leave_after_one_line(process)[0] == 141
    assert scale.exists()
    assert plot.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("show", [[], ["--json"]])
def test_a_full_disk(show):
    """Output that cannot be written is one line and an error code, for JSON and for tables."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "methods", *show],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
        )
    assert done.returncode == 2
    assert done.stderr == b"ccrank: cannot write to the standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("OSError(errno.ENOSPC, 'No space left', '/models/x')", b"cannot read or write /models/x"),
        ("OSError(errno.EIO, 'No space left')", b"cannot read or write a file"),
    ],
)
def test_a_full_disk_elsewhere(error, message):
    """Where a download or a temporary file fails, the standard output is not blamed."""
    patch = f"def full(*_):\n    raise {error}\nregistry.get_method = full\n"
    code = f"import errno\nfrom ccrank.methods import registry\n{patch}{MAIN}"
    process = start("rank", "a", "b", "--by", "size", code=code)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (2, b"", b"ccrank: " + message + b": No space left\n")


def test_an_interrupt(model_folder):
    """Ctrl-C while the model works: one line, no traceback, exit code 130."""
    # The signal is a real one, sent at the moment when the model is first run. A shell that started the tests in the
    # background has it ignored, which children inherit.
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from ccrank.models.engine.engine import Engine\n"
        "run = Engine.run\n"
        "def interrupted(*arguments, **options):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return run(*arguments, **options)\n"
        "Engine.run = interrupted\n" + MAIN
    )
    process = start("rank", "a", "b", "--by", "size", "-m", model_folder, code=code)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"ccrank: interrupted\n")


def test_an_interrupt_while_reading_says_what_is_kept(model_folder, tmp_path):
    """Ctrl-C after some passes: the readings so far are in the cache, and the message says so; with --no-cache not."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from ccrank.models.engine.engine import Engine\n"
        "from ccrank.cli import screen\n"
        "from ccrank.cli.commands import rank\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def interrupting(*given):\n"
        "    with screen.reading_progress(*given):\n"
        "        yield lambda tokens: os.kill(os.getpid(), signal.SIGINT)\n"
        "rank.reading_progress = interrupting\n" + MAIN
    )
    arguments = ("rank", "a", "b", "c", "--by", "size", "-m", model_folder, "--batch-tokens", "64")
    for flags, kept in ([], True), (["--no-cache"], False):
        process = start(*arguments, *flags, code=code, CCRANK_CACHE=str(tmp_path))
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (130, b"")
        assert (b"; the same command goes on from there" in err) == kept
        assert err.endswith(b"ccrank: interrupted\n")


def test_bad_input_is_told_on_stderr():
    """Exit code 2 and one line, without a model being looked for."""
    process = start("rank", "a", "a", "--by", "size")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert err.decode() == (
        "ccrank: all 2 items are the same, 'a'; a ranking needs at least 2 different items\n"
    )
