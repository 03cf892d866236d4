"""The study of new items: what is held out is new, and the pages show what the stored lists hold."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from ccrank import Criterion, Task
from studies.new_items import new_items as script

HERE = Path(__file__).parents[1]
HOW_TO = HERE.parents[1] / "docs/how-to/score-new-rows.md"


def stored() -> list[script.Row]:
    with (HERE / "lists.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_scales_are_fitted_on_other_items() -> None:
    """No item of a held-out list is among those that a scale is fitted on, and no list is held out twice."""
    size = Criterion("size")
    tasks = [Task(size, (f"item {n}", f"item {n + 1}", f"thing {n}"), id=str(n)) for n in range(12)]
    seen = []
    for held_out, others in script.splits(tasks, 2, 5):
        own = {item for task in held_out for item in task.items}
        assert own.isdisjoint(others)
        assert own.union(others) == {item for task in tasks for item in task.items}
        seen += [task.id for task in held_out]
    assert len(seen) == len(set(seen)) == 10
    held_out, others = next(iter(script.names()))
    assert set(held_out[0].items).isdisjoint(others)
    assert len(others) >= max(script.SIZES)


@pytest.mark.parametrize("measure", ["tau", "held"])
def test_the_page_shows_the_stored_lists(measure: str) -> None:
    """The tables of the study are those of lists.csv."""
    assert script.table_of(stored(), measure) in (HERE / "README.md").read_text(encoding="utf-8")


def test_the_how_to_shows_the_stored_means() -> None:
    """Its short table has the means of the study."""
    page = HOW_TO.read_text(encoding="utf-8")
    for name, sources in script.ROWS.items():
        groups = [[row for row in stored() if row["source"] == source] for source in sources]
        means = [
            np.mean([np.mean([float(row[f"tau {kind}"]) for row in group]) for group in groups])
            for kind in script.KINDS
        ]
        assert f"| {name} | {' | '.join(f'{mean:+.2f}' for mean in means)} |" in page
