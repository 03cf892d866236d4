"""Every program of the studies starts, and the pages name programs that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from studies.common.figures import STUDIES

ROOT = STUDIES.parent
PROGRAMS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(STUDIES.rglob("*.py"))
    if "def main(" in path.read_text(encoding="utf-8") and path.parent.name != "tests"
]
PAGES = sorted(path for folder in ("docs", "studies") for path in (ROOT / folder).rglob("*.md"))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.endswith("common.figures")])
def test_a_program_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` imports all that the program needs, and shows the command that the pages name."""
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as leaving:
        importlib.import_module(name).main()
    assert leaving.value.code == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_programs_of_pages_exist(page: Path) -> None:
    """Each `python -m studies…` of a page is a program."""
    named = set(re.findall(r"python -m (studies[\w.]+\w)", page.read_text(encoding="utf-8")))
    assert named <= {*PROGRAMS}
