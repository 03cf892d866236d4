"""What the documentation says can be typed exists: commands, flags, imports, links. Needs no model."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer
from tiny import tiny_reader

import ccrank
from ccrank.cli.commands import app
from ccrank.methods.registry import METHODS
from examples import ROOT, blocks

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "studies").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
RECIPES = [
    *(ROOT / name for name in ("Makefile", "Dockerfile", "compose.yaml", "mkdocs.yml", "jsconfig.json")),
    *sorted((ROOT / ".github").rglob("*.yml")),
]
FOLDERS = ("src", "tests", "benchmarks", "studies", "docs", "examples", "requirements")

WORDS = {"docs/how-to": 720, "docs/explanation": 1_500}
"""The most words of a page of a kind, with code and tables."""
ALL_WORDS = 25_000
GENERATED_PAGES = {"reference/cli.md", "reference/changelog.md"}
"""By docs/make_site.py, so that the repository does not have them."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def command_lines(text: str) -> Iterator[str]:
    """The `ccrank` commands in blocks of the shell and in code spans."""
    for block in blocks(text, "console", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.removeprefix("$ ").startswith("ccrank "):
                yield line.removeprefix("$ ")
    yield from re.findall(r"`(ccrank [^`]+)`", text.replace("\n", " "))


def unknown_flags(line: str) -> list[str]:
    """The flags of a command line that its command does not have."""
    words = shlex.split(line.replace("'", '"') if line.count("'") % 2 else line, comments=True)[1:]
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    known = {
        flag
        for one in command.params
        if not getattr(one, "hidden", False)
        for flag in [*one.opts, *one.secondary_opts]
    } | {"--help", "-h"}
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    """Every flag of every `ccrank` command in the documentation is one that the command has now."""
    assert {
        line: wrong for line in command_lines(page.read_text("utf-8")) if (wrong := unknown_flags(line))
    } == {}


def test_the_check_of_flags_notices() -> None:
    """A flag that does not exist is found; what is right is not."""
    assert unknown_flags("ccrank rank a b --by size --bigger larger") == ["--bigger"]
    assert unknown_flags("ccrank models pull default --fast") == ["--fast"]
    assert unknown_flags("ccrank bench --preset quick --out quick  # minutes") == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_imports_exist(page: Path) -> None:
    """Every name that an example of the documentation imports can be imported."""
    for block in blocks(page.read_text("utf-8"), "python"):
        found = [node for node in ast.parse(block).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        exec(compile(ast.Module(found, []), str(page), "exec"), {})


def test_the_method_of_the_architecture_page_works() -> None:
    """The example of a new method registers and ranks as it is printed, options included."""
    [example] = blocks((ROOT / "docs/explanation/architecture.md").read_text("utf-8"), "python")
    asked = {"by": "size", "model": tiny_reader(), "method": "alphabetical"}
    try:
        exec(example, {})
        folded = ccrank.rank(["b", "A", "C"], **asked)
        plain = ccrank.rank(["b", "A", "C"], **asked, options={"fold": "no"})
    finally:
        METHODS.pop("alphabetical", None)
    assert (folded.items, plain.items) == (("C", "b", "A"), ("b", "C", "A"))


def missing_files(text: str, files: Iterable[Path]) -> set[str]:
    """The files, folders and tests that a text names and the repository does not have; names may be shortened from the
    left, as in `probing/test_losses.py::test_name`."""
    text = re.sub(r"https?://\S+", "", text)
    missing = {
        name
        for name in re.findall(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w(?![\w*<{{$])", text)
        if not (ROOT / name).exists() and not [*ROOT.glob(f"{name}.*")]
    }
    for name, test in re.findall(r"(?<![\w./-])([\w-]+(?:/[\w-]+)*\.py)\b(?:::(\w+))?", text):
        found = [path for path in files if path.as_posix().endswith(f"/{name}")]
        if not found:
            missing.add(name)
        elif test and not any(f"def {test}(" in path.read_text("utf-8") for path in found):
            missing.add(f"{name}::{test}")
    return missing


@pytest.fixture(scope="module")
def python_files() -> list[Path]:
    """All files of Python in the repository."""
    return [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("page", [*PAGES, *RECIPES], ids=name_of)
def test_named_files_exist(page: Path, python_files: list[Path]) -> None:
    """Pages, workflows and the Makefile name no file, folder or test that has moved."""
    assert missing_files(page.read_text("utf-8"), python_files) == set()


def test_the_check_of_files_notices(python_files: list[Path]) -> None:
    """A path, a module or a test that does not exist is found; what is right is not."""
    wrong = "pytest tests/rows `none.py` `test_docs.py::test_none` in `src/ccrank/util/extras.py`"
    expected = {"tests/rows", "none.py", "test_docs.py::test_none", "src/ccrank/util/extras.py"}
    assert missing_files(wrong, python_files) == expected
    assert missing_files("`tests/test_docs.py::test_imports_exist`, tests/io", python_files) == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links and pictures exist in the repository, or are pages that the site generates; `make docs` checks the
    anchors."""
    links = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    missing = {link for link in links if "://" not in link and not (page.parent / link).exists()}
    assert {Path(link).name for link in missing} <= {Path(name).name for name in GENERATED_PAGES}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_are_short(page: Path) -> None:
    """A how-to has at most about 700 words, an explanation 1,500, the README 150 lines."""
    assert len(page.read_text("utf-8").split()) <= WORDS.get(name_of(page.parent), ALL_WORDS)
    if name_of(page) == "README.md":
        assert len(page.read_text("utf-8").splitlines()) <= 150


def test_the_pages_together_are_short() -> None:
    """All words of docs/, with code and tables."""
    docs = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert sum(len(page.read_text("utf-8").split()) for page in docs) <= ALL_WORDS


def test_the_map_from_the_paper_names_what_exists() -> None:
    """Its functions and methods exist, and it has all tables, figures and equations of the paper."""
    text = (ROOT / "docs/explanation/paper.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    defined = {*re.findall(r"^(?:def|class) (\w+)", source, re.MULTILINE)} | {
        f"ccrank.{name}" for name in ccrank.__all__
    }
    assert {name for row in rows for name in re.findall(r"`([\w.]+)`", row[1])} <= defined
    parts = " ".join(row[0] for row in rows)
    wanted = {f"Table {at}" for at in range(1, 6)} | {f"Figure {at}" for at in range(1, 7)}
    assert {one for one in wanted | {f"Eq. {at}" for at in range(1, 8)} if one not in parts} == set()
    assert all(re.search(r"`", row[1]) and re.search(r"`", row[2]) and "](" in row[3] for row in rows)
    methods = {name for row in rows for name in re.findall(r"--method (\w[\w-]*)", row[2])}
    assert methods <= {*METHODS}


def test_every_page_is_in_the_navigation() -> None:
    """A page that mkdocs.yml does not list could not be found."""
    listed = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    studies = [
        page.relative_to(ROOT)
        for folder in ("studies", "benchmarks")
        for page in (ROOT / folder).rglob("*.md")
    ]
    assert {*listed} == {page.as_posix() for page in (*pages, *studies)} | GENERATED_PAGES


def test_the_public_names_are_documented() -> None:
    """The API page has every name of `ccrank.__all__`."""
    page = (ROOT / "docs/reference/api.md").read_text("utf-8")
    assert set(re.findall(r"^::: ccrank\.(\w+)$", page, re.MULTILINE)) == {*ccrank.__all__} - {"__version__"}


def test_the_site_shows_functions_not_modules() -> None:
    """A public name is imported from the module that defines it: `from package import name` where the package has a
    module of that name would show the module on the API page."""
    tree = ast.parse((ROOT / "src/ccrank/__init__.py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    modules = [
        ROOT / "src" / (node.module or "").replace(".", "/") / f"{one.name}.py"
        for node in imports
        for one in node.names
    ]
    assert len(modules) > 20
    assert [path for path in modules if path.exists()] == []
