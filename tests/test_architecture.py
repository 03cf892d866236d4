"""Which part of the package may import which: the contract that docs/explanation/architecture.md describes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ccrank

SOURCE = Path(ccrank.__file__).parent
LAYERS = (
    ("errors", "reader_options", "version"),
    ("util",),
    ("confidence", "metrics", "ranking_plot", "task"),
    ("criteria", "labels"),
    ("io", "prompts"),
    ("models",),
    ("ranking",),
    ("methods", "rankings"),
    ("scale",),
    ("request",),
    ("jury",),
    ("api",),
    ("frames", "jobs", "server", "sklearn", "study"),
    ("cli",),
    ("__main__",),
)
"""From the bottom to the top: a part imports from lower layers and from itself, never from above or beside."""
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer}
MAX_FILES = 15
"""Modules of a package at one level: more are several packages."""


def imports_of(path: Path) -> Iterator[str]:
    """The modules of ccrank that a file imports at any depth, except those for type checkers only."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "ccrank":
                yield from (f"ccrank.{name.name}" for name in node.names)
            else:
                yield node.module
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (name for name in visit(tree) if name.startswith("ccrank."))


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_part_has_its_layer():
    """A new module or package must be given a place, and no place is left empty."""
    parts = {part_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert parts == set(HEIGHT)


def test_the_documented_layers_are_these():
    """The table of the architecture page has every part once, a row for each layer, from the bottom to the top."""
    page = (Path(__file__).parents[1] / "docs" / "explanation" / "architecture.md").read_text(
        encoding="utf-8"
    )
    rows = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in rows] == [
        [*layer] for layer in LAYERS if layer != ("__main__",)
    ]


def test_imports_point_downwards():
    """No import leads to a higher layer, nor sideways, so there are no cycles between parts."""
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in SOURCE.rglob("*.py")
        if part_of(path) != "__init__"
        for name in imports_of(path)
        for own, other in [(part_of(path), name.split(".")[1])]
        if own != other and HEIGHT[other] >= HEIGHT[own]
    ]
    assert wrong == []


def cycles(edges: set[tuple[str, str]]) -> set[str]:
    """The nodes that are left when all that lead nowhere, or to such nodes only, are removed."""
    nodes = {node for edge in edges for node in edge}
    while True:
        inner = {start for start, end in edges if end in nodes} & nodes
        if inner == nodes:
            return nodes
        nodes = inner


@pytest.mark.parametrize(
    "package", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
)
def test_no_cycles_within_a_package(package):
    """Its modules and sub-packages can be read in an order in which nothing imports what comes later."""
    edges = set()
    for path in (SOURCE / package).rglob("*.py"):
        start = path.relative_to(SOURCE / package).parts[0].removesuffix(".py")
        for name in imports_of(path):
            parts = name.split(".")
            if parts[1] == package and len(parts) > 2 and parts[2] != start and start != "__init__":
                edges.add((start, parts[2]))
    assert cycles(edges) == set()


def test_packages_are_small():
    """No package has more than fifteen files at one level."""
    packages = {path.parent for path in SOURCE.rglob("*.py")}
    sizes = {str(one.relative_to(SOURCE)): len(list(one.glob("*.py"))) for one in packages}
    assert {name: size for name, size in sizes.items() if size > MAX_FILES} == {}


def test_text_and_results_need_no_torch():
    """What is left of reading a model, and looking at results, starts without the seconds that torch takes."""
    modules = (
        "task, io, io.taskfiles, prompts, request, study.datasets, metrics, metrics.aggregation, "
        "study.results, study.results.tables, study.results.summary"
    )
    code = "; ".join(f"import ccrank.{name.strip()}" for name in modules.split(","))
    code += "; import sys; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
