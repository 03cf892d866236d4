"""The core dependencies are enough to rank; what needs an extra says so before any slow work."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import save_model, tiny_model

from ccrank.errors import CcrankError, needs_extra
from ccrank.util.files import parse_toml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ccrank"
MODULES = {"ir-measures": "ir_measures", "prometheus-client": "prometheus_client", "scikit-learn": "sklearn"}
"""Distributions whose import has another name."""
ENTERED = {
    "server/mcp": "mcp",
    "study/report": "report",
    "server": "server",
    "jobs": "files",
    "io/blocks": "files",
    "io/records": "files",
}
"""Packages that are imported or entered under a guard of an extra, and use its packages freely."""
BLOCK = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
"""
"""A module that is None in this table can be neither imported nor found."""


def extras() -> dict[str, set[str]]:
    """Extra → the modules that it installs, including those of the extras that it names."""
    table = parse_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]

    def modules(extra: str) -> Iterator[str]:
        for one in table[extra]:
            if one.startswith("ccrank["):
                for other in re.findall(r"[\w-]+", one)[1:]:
                    yield from modules(other)
            else:
                name = re.split(r"[^\w-]", one, maxsplit=1)[0]
                yield MODULES.get(name, name)

    return {extra: set(modules(extra)) for extra in table}


def optional() -> set[str]:
    """The modules that users get from an extra alone."""
    return extras()["all"]


def run(arguments: list[str], folder: Path, code: str = "from ccrank.cli import main; main()", missing=None):
    """A process in which the optional modules, or `missing`, cannot be imported."""
    brought = {"pydantic", "h11"}  # by newer versions of typer, and by huggingface-hub
    blocked = ",".join(sorted(missing or optional() - brought))
    return subprocess.run(
        [sys.executable, "-c", BLOCK + code, blocked, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent), "CCRANK_CACHE": str(folder.parent / "cache")},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return str(save_model(tiny_model("llama", max_position_embeddings=512), folder))


def test_all_has_every_extra_for_users():
    """`ccrank[all]` has every package of the other extras, and `dev` all of it except Ray."""
    found = extras()
    users = set().union(*(found[name] for name in found if name not in ("all", "dev", "docs")))
    assert found["all"] == users
    assert found["all"] - {"ray"} <= found["dev"]


def test_no_core_dependency_is_an_extra_too():
    """A package is either always installed or optional."""
    core = parse_toml(ROOT / "pyproject.toml")["project"]["dependencies"]
    assert optional().isdisjoint({re.split(r"[^\w-]", one, maxsplit=1)[0] for one in core})


def guarded_imports(tree: ast.AST) -> Iterator[tuple[str, str | None]]:
    """(module, extra of the guard around it) of each import, except those for type checkers."""

    def visit(node: ast.AST, extra: str | None) -> Iterator[tuple[str, str | None]]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "needs_extra":
                    extra = ast.literal_eval(call.args[0])
        if isinstance(node, ast.Import):
            yield from ((name.name, extra) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, extra
        for child in ast.iter_child_nodes(node):
            yield from visit(child, extra)

    return visit(tree, None)


def test_every_import_of_an_optional_package_is_guarded():
    """Each import of an optional package, and of a part that is made of them, is under a guard of an extra with it."""
    known, wrong = extras(), []
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        part = next((part for part in ENTERED if place.startswith((f"{part}/", f"{part}."))), None)
        for name, guard in guarded_imports(ast.parse(path.read_text("utf-8"))):
            extra = guard or ENTERED.get(part)
            first, *rest = name.split(".")
            if first in optional():
                right = extra is not None and first in known[extra]
            elif name.startswith(("ccrank.study.report", "ccrank.server")):
                needed = "server" if rest[0] == "server" else "report"
                right = extra is not None and known[needed] <= known[extra]
            else:
                continue
            if first == "matplotlib" and path.name == "ranking_plot.py":
                right = True  # after check_matplotlib()
            if not right:
                wrong.append(f"{path.relative_to(SOURCE)}: {name}")
    assert wrong == []


def test_a_fault_of_our_own_is_not_blamed_on_the_user():
    """Only packages of others are named as missing: a module of ccrank that does not exist is a bug."""
    with pytest.raises(ModuleNotFoundError), needs_extra("plot", "a plot"):
        import ccrank.no_such_module  # noqa: F401
    message = r"a plot needs the package nosuch: pip install '\.\[plot\]' in a clone of ccrank"
    with pytest.raises(CcrankError, match=message), needs_extra("plot", "a plot"):
        import nosuch.part  # noqa: F401


def test_a_list_is_ranked_by_the_core(model, tmp_path):
    """`ccrank rank a b c` needs none of the optional packages."""
    done = run(["rank", "ant", "cat", "horse", "--by", "weight", "-m", model], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "horse" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        ("x.csv", "name,note\nant,a\nhorse,b\ncat,c\n", "--csv"),
        ("x.jsonl", '{"name": "ant"}\n{"name": "horse"}\n{"name": "cat"}\n', "--json"),
        ("x.txt", "ant\nhorse\ncat\n", "--csv"),
    ],
)
def test_text_files_are_ranked_by_the_core(name, content, how, model, tmp_path):
    """CSV, JSON lines and plain lines are read, ranked and written without the optional packages."""
    (tmp_path / name).write_text(content)
    column = [] if name.endswith("txt") else ["--column", "name"]
    arguments = ["rank", "--file", name, *column, how, "--by", "weight", "-m", model]
    blocked = run(arguments, tmp_path)
    assert blocked.returncode == 0, blocked.stderr
    whole = run(arguments, tmp_path, missing={"nothing"})
    assert blocked.stdout == whole.stdout
    assert all(item in blocked.stdout for item in ("ant", "horse", "cat"))


def test_the_public_names_can_be_imported_by_the_core(tmp_path):
    """`from ccrank import *` needs no optional package; load_results says what it needs when it is called."""
    code = (
        "from ccrank import *\n"
        "try:\n    load_results('study')\nexcept CcrankError as error:\n    print(error)"
    )
    done = run([], tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "load_results needs the package pandas: pip install '.[report]' in a clone" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rank", "a", "b", "--by", "size", "--plot", "x.png"], "a plot needs the package matplotlib|plot"),
        (["rank", "--file", "x.csv", "--by", "size", "--out", "y.parquet"], "needs the package pyarrow|files"),
        (["rank", "--file", "x.parquet", "--by", "size"], "Parquet file needs the package pyarrow|files"),
        (["rank", "--file", "x.xlsx", "--by", "size"], "an Excel file needs the package openpyxl|excel"),
        (["rank", "--input", "x.csv", "--by", "size", "--out", "y.parquet"], "--input needs the package pyarrow|files"),
        (["bench", "--preset", "quick", "--out", "study"], "a study needs the package|report"),
        (["bench", "--preset", "quick", "--out", "study", "--no-report"], "needs the package pyarrow|report"),
        (["results", "study"], "a table of results needs the package pandas|report"),
        (["serve", "--port", "0"], "ccrank serve needs the package|server"),
        (["mcp"], "ccrank mcp needs the package|mcp"),
    ],
)  # fmt: skip
def test_a_missing_package_is_named_with_the_install_line(arguments, message, tmp_path):
    """The error comes before a model is opened (there is none of that name) and before anything is written."""
    (tmp_path / "x.csv").write_text("name\nant\nhorse\n")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    (tmp_path / "x.xlsx").write_bytes(b"PK")
    before = sorted(tmp_path.iterdir())
    if arguments[0] == "rank":
        arguments = [*arguments, "-m", "no-such-model"]
    done = run(arguments, tmp_path)
    what, extra = message.split("|")
    assert done.returncode == 2, done.stderr
    words = " ".join(done.stderr.split())
    assert what in words
    assert f"pip install '.[{extra}]'" in words
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("module", "extra"), [("sklearn", "sklearn"), ("frames", "frames")])
def test_a_module_for_other_packages_names_them(module, extra, tmp_path):
    """`import ccrank.sklearn` and `import ccrank.frames` without what they are for have the install line."""
    code = f"import ccrank\ntry:\n    import ccrank.{module}\nexcept ccrank.CcrankError as error:\n    print(error)"
    done = run([], tmp_path, code, missing={"sklearn", "pandas", "polars"})
    assert done.returncode == 0, done.stderr
    assert f"ccrank.{module} needs the package " in done.stdout
    assert f"pip install '.[{extra}]'" in done.stdout


def test_a_frame_of_a_list_names_pandas(model, tmp_path):
    """`to_frame` of a list makes a pandas frame; without pandas the error has the install line, and scores remain."""
    code = (
        "import ccrank, json\n"
        f"ranking = ccrank.rank(['ant', 'horse'], by='weight', model={model!r})\n"
        "try:\n    ranking.to_frame()\nexcept ccrank.CcrankError as error:\n"
        "    print(json.dumps([str(error), len(ranking.scores)]))"
    )
    done = run([], tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "to_frame() needs the package pandas: pip install '.[frames]' in a clone of ccrank",
        2,
    ]
