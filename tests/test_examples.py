"""The examples of the README, of the docs and of `--help`, done as a reader does them, on the default model."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import PATIENCE

from ccrank import Reader
from ccrank.cli.commands.rank import rank_command
from ccrank.methods.registry import METHODS
from ccrank.util.files import cache_folder, parse_toml
from examples import ROOT, Step, blocks, output_to_show, pages, run_step, same_line, steps

README = (ROOT / "README.md").read_text("utf-8")
REVIEWS = (
    "Wonderful phone, I love it.",
    "Terrible phone, it broke after one day and nobody answered my letters.",
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def measured(default_reader: Reader) -> Reader:
    """The default model with the weights that the documented numbers are measured with: those of the package index."""
    if default_reader.loaded.folder != cache_folder("models", "default"):
        pytest.skip("the default model is from the hub, whose weights are not quantised: other numbers")
    return default_reader


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the folder that the plot of the examples is written to."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def registry() -> Iterator[None]:
    """The methods as they were: some pages register one."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.real
@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_can_be_followed(page: Path, folder: Path, measured: Reader) -> None:
    """From top to bottom: files are saved, commands print what is shown, and Python runs."""
    names: dict[str, object] = {}
    for step in steps(page.read_text("utf-8")):
        out, err = run_step(step, measured, names)
        if step.kind != "command" or not step.shown:
            continue
        printed = output_to_show(out, err)
        wrong = [pair for pair in zip(step.shown, printed, strict=False) if not same_line(*pair)]
        assert (wrong, len(step.shown)) == ([], len(printed)), (
            f"{step.text}: run `make examples` and look at it"
        )


@pytest.mark.real
def test_the_examples_of_help_run(folder: Path, measured: Reader) -> None:
    """Those of `ccrank rank --help`: the README's first one, and reviews, of which the good one comes first."""
    (folder / "reviews.csv").write_text("\n".join(["text", *(f'"{one}"' for one in REVIEWS)]), "utf-8")
    (folder / "pages.jsonl").write_text(
        '{"text": "Storms form over warm seas."}\n{"text": "Bread."}\n', "utf-8"
    )
    (folder / "items.parquet").write_bytes(b"")
    examples = re.findall(r"\[bold\](ccrank rank .*?)\[/bold\]", rank_command.__doc__ or "")
    assert next(steps(README)).text in examples
    printed = {
        example: "\n".join(run_step(Step("command", example, []), measured, {})[0])
        for example in examples
        if "--input" not in example
    }
    about_reviews = [text for example, text in printed.items() if "reviews.csv" in example]
    assert about_reviews
    for text in about_reviews:
        assert text.index(REVIEWS[0]) < text.index(REVIEWS[1])


@pytest.mark.real
@pytest.mark.usefixtures("measured")
def test_nothing_of_the_tutorial_is_left_out() -> None:
    """Besides what `test_a_page_can_be_followed` does, the tutorial installs extras that exist, and serves the page, on
    which its first list comes out in the order that it shows."""
    text = (ROOT / "docs" / "start.md").read_text("utf-8")
    install, serve = blocks(text, "bash")
    extras = re.findall(r"pip install '\.\[([\w,]+)\]'", install)[0].split(",")
    assert {*extras} <= {*parse_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]}
    assert len(blocks(text, r"\w+")) == len(blocks(text, "bash", "console", "python")) + len(
        [step for step in steps(text) if step.kind == "file"]
    )
    first = next(steps(text))
    order = [line.split()[1] for line in first.shown if re.match(r" +\d", line)]
    command = [sys.executable, "-m", *serve.split(), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = (re.search(r"listening on (\S+)", line) for line in process.stderr)
            url = next(one[1] for one in found if one)
            assert "<title>" in httpx.get(url, timeout=PATIENCE).text
            body = {"items": order[::-1], "by": "healthiness", "category": "food"}
            answer = httpx.post(f"{url}/v1/rank", json=body, timeout=PATIENCE).json()
            assert [one["item"] for one in answer["items"]] == order
        finally:
            process.kill()


def test_the_demo_is_the_first_example() -> None:
    """`make demo` runs the command that the README begins with."""
    assert f"$(BIN)/{next(steps(README)).text}\n" in (ROOT / "Makefile").read_text("utf-8")


def test_enough_pages_show_output() -> None:
    """The check of examples has something to check: the pages that a newcomer reads."""
    shown = {name_of(page) for page in pages() if any(step.shown for step in steps(page.read_text("utf-8")))}
    assert {"README.md", "docs/index.md", "docs/start.md", "docs/how-to/rank-a-file.md"} <= shown


def test_a_wrong_line_is_noticed() -> None:
    """Other words, other numbers and missing lines differ; rounding and bars do not."""
    assert same_line("   1  apple  0.57  ████▉", "   1  apple  0.58  ███")
    assert not same_line("   1  apple  0.57", "   1  apple  0.67")
    assert not same_line("   1  apple  0.57", "   1  pear   0.57")
