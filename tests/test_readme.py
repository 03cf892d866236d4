"""The examples of the README, of the docs' first page and of `--help`, run as printed on the default model."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import ccrank
from ccrank import Reader
from ccrank.cli import main
from ccrank.cli.commands.rank import rank_command
from ccrank.util.files import cache_folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
REVIEWS = (
    "Wonderful phone, I love it.",
    "Terrible phone, it broke after one day and nobody answered my letters.",
)
TASK = '{"id": "lakes", "criterion": "depth", "items": ["Erie", "Baikal", "Tahoe"]}\n'
NUMBER = re.compile(r"-?\d+\.\d+")

Run = Callable[[str], str]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def console(text: str) -> list[tuple[str, list[str]]]:
    """The `ccrank rank` commands of console blocks, each with the output that is shown."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks(text, "console"):
        shown: list[str] = []
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                shown = []
                if line.startswith("$ ccrank rank "):
                    found.append((line.removeprefix("$ "), shown))
            else:
                shown.append(line)
    return found


def claims() -> list[tuple[str, list[str]]]:
    """The rows of the README's table of rankings: flags, and the items in the order that is claimed."""
    rows = re.findall(r"^\| `(--by [^`]*)` \| (.*?) \| (?:yes|no)", README, re.MULTILINE)
    return [(flags, order.split(" > ")) for flags, order in rows]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the examples, with the files that they name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text("\n".join(["text", *(f'"{one}"' for one in REVIEWS)]), "utf-8")
    (tmp_path / "animals.csv").write_text("animal\nelephant\nmouse\n", "utf-8")
    (tmp_path / "tasks.jsonl").write_text(TASK, "utf-8")
    (tmp_path / "pages.jsonl").write_text(
        '{"text": "Storms form over warm seas."}\n{"text": "Bread."}\n', "utf-8"
    )
    pd.DataFrame({"text": ["Could you please wait a moment?", "Wait."]}).to_parquet(
        tmp_path / "items.parquet"
    )
    (tmp_path / "docs" / "images").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def measured(default_reader: Reader) -> Reader:
    """The default model with the weights that the documented numbers are measured with: those of the package index."""
    if default_reader.loaded.folder != cache_folder("models", "default"):
        pytest.skip("the default model is from the hub, whose weights are not quantised: other numbers")
    return default_reader


@pytest.fixture
def run(
    folder: Path,
    measured: Reader,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Runs a command line on the default model, which is loaded once, and returns what it prints."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr("ccrank.cli.options.open_reader", lambda *_, **__: measured)

    def call(command: str) -> str:
        monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
        captured = capsys.readouterr()
        assert not code, captured.err
        return captured.out

    return call


def same_line(shown: str, printed: str) -> bool:
    """The same words, with numbers that differ by rounding at most; bars are left out."""
    shown, printed = (re.sub(r"[█-▏]+", "", line).rstrip() for line in (shown, printed))
    numbers = [[float(one) for one in NUMBER.findall(line)] for line in (shown, printed)]
    return NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split() and all(
        abs(first - second) <= 0.011 for first, second in zip(*numbers, strict=True)
    )


@pytest.mark.real
def test_commands_print_what_the_readme_shows(run: Run) -> None:
    """Every `ccrank rank` command of the README runs, and where output is shown it is what is printed."""
    examples = console(README)
    assert len(examples) >= 5
    assert any(shown for _, shown in examples)
    for command, shown in examples:
        printed = run(command).splitlines()
        if shown:
            assert len(printed) == len(shown)
            assert [pair for pair in zip(shown, printed, strict=True) if not same_line(*pair)] == []


@pytest.mark.real
@pytest.mark.parametrize("page", ["phrase-a-criterion", "rank-a-file"])
def test_pages_show_what_is_printed(page: str, run: Run, folder: Path) -> None:
    """The output that these pages show is that of their commands, with the file that they show."""
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text("utf-8")
    for name, lines in re.findall(r"^\$ cat (\S+)\n(.*?)(?=^\$)", text, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(lines, "utf-8")
    [(command, shown)] = [one for one in console(text) if one[1]]
    printed = run(command).splitlines()
    wanted = [line for line in shown if not line.startswith("ccrank: ")]  # on stderr
    assert len(printed) == len(wanted)
    assert [pair for pair in zip(wanted, printed, strict=True) if not same_line(*pair)] == []


@pytest.mark.real
def test_rankings_come_out_as_claimed(measured: Reader) -> None:
    """Each row of the README's table is the order that the default model gives, whatever the order of its input."""
    assert len(claims()) == 5
    for flags, order in claims():
        _, by, _, category = shlex.split(flags)
        found = ccrank.rank(sorted(order), by, category=category, model=measured)
        assert list(found.items) == order, flags


@pytest.mark.real
def test_python_examples_run(folder: Path, measured: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of the README and of the first page of the docs runs, and ranks what it says."""
    monkeypatch.setattr(Reader, "open", lambda *_, **__: measured)
    names: dict[str, object] = {}
    for block in [
        *blocks(README, "python"),
        *blocks((ROOT / "docs/start/index.md").read_text("utf-8"), "python"),
    ]:
        exec(block, names)
    ranking = names["ranking"]
    assert isinstance(ranking, ccrank.Ranking)
    assert ranking.items == ("broccoli", "apple", "rice", "pizza", "candy")
    assert names["hardest"] == "diamond"


@pytest.mark.real
def test_the_examples_of_help_run(run: Run) -> None:
    """The examples of `ccrank rank --help`: the README's first one, and reviews, of which the good one comes first."""
    examples = re.findall(r"\[bold\](ccrank rank .*?)\[/bold\]", rank_command.__doc__ or "")
    assert console(README)[0][0] in examples
    printed = [run(example) for example in examples]
    with_reviews = [text for text, example in zip(printed, examples, strict=True) if "reviews.csv" in example]
    assert with_reviews
    for text in with_reviews:
        assert text.index(REVIEWS[0]) < text.index(REVIEWS[1])


def test_the_demo_is_the_first_example() -> None:
    """`make demo` runs the command that the README begins with."""
    assert f"$(BIN)/{console(README)[0][0]}\n" in (ROOT / "Makefile").read_text("utf-8")
