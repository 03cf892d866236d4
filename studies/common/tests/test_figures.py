"""Every study's page has its parts, and its figure is drawn from its table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studies.common import figures

PAGES = sorted(figures.STUDIES.glob("*/README.md"))


def test_a_table_is_read_as_it_stands() -> None:
    """Names of rows repeat over empty cells, minus signs and bold are understood, words and empty cells are NaN."""
    text = "| model | mistake | τ | verdict |\n|---|---|---|---|\n| a | no | **−0.5** | good |\n| | yes | – | bad |\n"
    table = figures.read_table(text)
    assert (table.rows, table.columns) == (("a, no", "a, yes"), ("τ",))
    np.testing.assert_array_equal(table.values, [[-0.5], [np.nan]])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_pages_have_their_parts(page: Path) -> None:
    """A question with its answer, a figure that exists, a table, and a command."""
    text = page.read_text(encoding="utf-8")
    question = text.split("\n\n")[1]
    assert question.startswith("**")
    assert "?**" in question
    assert "```bash" in text
    assert "\n|---" in text.replace("| ---", "|---")
    pictures = [part.split(")")[0] for part in text.split("](")[1:] if part.split(")")[0].endswith(".png")]
    assert pictures
    assert all(page.with_name(name).is_file() for name in pictures)
    for name, kind, table in figures.MARKED.findall(text):
        assert name in pictures
        assert len(figures.draw(figures.read_table(table), kind).axes) == 1
