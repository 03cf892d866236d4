"""The notebooks of examples/ run from a fresh kernel and give the results that are committed."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
NUMBER = re.compile(r"[+-]?\d+\.\d+")
SOURCE = Path(__file__).parents[1] / "src"


def printed(notebook: Any) -> list[str]:
    """The lines that the cells of a notebook print or return, as text; messages on stderr are left out."""
    lines: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stdout":
                lines += output.text.splitlines()
            elif output.output_type in ("execute_result", "display_data"):
                lines += output.data["text/plain"].splitlines()
    return lines


def test_there_are_notebooks() -> None:
    """There are three."""
    assert [path.stem for path in NOTEBOOKS] == ["five-lists", "probe-a-model", "rank-a-csv"]


def test_links_open_the_lists_that_are_ranked() -> None:
    """Each link to the page holds the items and the criterion of the cell after it."""
    cells = nbformat.read(NOTEBOOKS[0], as_version=4).cells
    links = [(place, re.search(r"#in=([\w-]+)", cell.source)) for place, cell in enumerate(cells)]
    found = [(place, link[1]) for place, link in links if link]
    assert len(found) == 5
    for place, packed in found:
        raw = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        given = json.loads(zlib.decompress(raw, -15))
        code = cells[place + 1].source
        assert re.findall(r"^(.+) \| \d+$", code, re.MULTILINE) == given["items"].splitlines()
        asked = given["query"] if given["mode"] == "query" else given["by"]
        assert f'="{asked}"' in code
        assert all(f'"{given[name]}"' in code for name in ("category", "low", "high") if name in given)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_committed_and_small(path: Path) -> None:
    """Every code cell was executed in order, without errors or warnings, and the file stays below 50 kB."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert all(output.get("name") != "stderr" for output in outputs)
    assert path.stat().st_size < 50_000


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_again(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executed in an empty folder, it prints the committed lines; numbers may differ by rounding."""
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=3000,
        startup_timeout=600,
        iopub_timeout=600,  # of what a cell prints, nothing may be left out where the machine is busy
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    before, after = printed(committed), printed(notebook)
    assert [NUMBER.sub("#", line).split() for line in after] == [
        NUMBER.sub("#", line).split() for line in before
    ]
    numbers = [[float(one) for line in lines for one in NUMBER.findall(line)] for lines in (before, after)]
    assert numbers[1] == pytest.approx(numbers[0], abs=0.02)
