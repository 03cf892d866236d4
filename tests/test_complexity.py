"""The table of complexity in the docs, against what the code reads and what its losses are computed from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tiny import tiny_reader

from ccrank.methods.estimate import expected_cost
from ccrank.methods.probe_pipeline.states import read_pair_states, read_single_states
from ccrank.methods.probing.batch import pack_each
from ccrank.methods.probing.losses import column_logits, neighbours, sum_pair_hinges, sum_pair_minima
from ccrank.methods.probing.objectives import ProbeSpec, Settings, task_losses
from ccrank.methods.registry import METHODS
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task
from methods.probing.test_trainer import states_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "methods.md"
PROBES = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")
SIZES = (5, 10, 20)


def table() -> dict[str, dict[str, list[int]]]:
    """Column → calls and data points at the sizes of the table."""
    text = PAGE.read_text(encoding="utf-8")
    lines = re.search(r"^\| \| `ccs-pair`.*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert lines
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].strip().splitlines()]
    numbers = [row[1:] for row in rows if row[0].endswith("items")]
    assert [row[0] for row in rows if row[0].endswith("items")] == [f"{size} items" for size in SIZES] * 2
    return {
        name.partition("`,")[0].strip("`"): {
            "calls": [int(numbers[row][column]) for row in range(3)],
            "points": [int(numbers[row][column].replace(",", "")) for row in range(3, 6)],
        }
        for column, name in enumerate(rows[0][1:])
    }


def task_of(count: int) -> Task:
    return Task(Criterion("size"), tuple(f"item {chr(97 + place)}" for place in range(count)), id="task")


@pytest.mark.parametrize("name", [*PROBES, "prompt-pair", "prompt-point", "prompt-list"])
def test_calls_are_the_prompts_that_are_asked(name: str) -> None:
    """The page's calls are the prompts of the method for so many items."""
    reader = tiny_reader()
    for size, calls in zip(SIZES, table()[name]["calls"], strict=True):
        once = {"shuffles": 1} if name == "prompt-list" else {}
        assert expected_cost(task_of(size), reader, METHODS[name], load_templates(), once).prompts == calls


def test_probes_read_as_many_prompts_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is given as many prompts for a task's states as the page has calls."""
    reader, asked = tiny_reader(), []
    original = type(reader).read
    monkeypatch.setattr(
        type(reader),
        "read",
        lambda self, prompts, *rest, **more: (
            asked.append(len(prompts)) or original(self, prompts, *rest, **more)
        ),
    )
    read_single_states([task_of(5)], Prompter(reader), [1])
    read_pair_states([task_of(5)], Prompter(reader), [1])
    found = table()
    assert asked == [found["ordreg"]["calls"][0], found["ccs-pair"]["calls"][0]]


@pytest.mark.parametrize("size", SIZES)
def test_data_points_are_the_terms_of_the_losses(size: int) -> None:
    """The page's numbers are those of the sums, where every pair or triple adds the same, and the rows trained on."""
    equal, mask = torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.bool)
    counts = neighbours(equal, mask, 0.5)
    terms = {
        "ccs": float(sum_pair_minima(torch.ones_like(equal), counts)),
        "margin": float(sum_pair_hinges(equal, counts, 0.5)) / 0.5,
    }
    others = ~torch.eye(size, dtype=torch.bool)
    distances = torch.zeros(size, size, dtype=torch.float64)
    anchored = sum_pair_hinges(distances, neighbours(distances, others, 0.5), 0.5)
    terms["triplet"] = float(anchored.sum()) / 0.5
    terms["ordreg"] = column_logits(equal, torch.tensor(1.0), torch.tensor(1.0), mask).shape[0]
    [(_, batch)] = pack_each(states_of("ccs-pair", (size,), width=2), ProbeSpec("ccs-pair"), None)
    terms["ccs-pair"] = batch.states.shape[1] / 2  # answered Yes and No
    place = SIZES.index(size)
    for name, wanted in terms.items():
        assert wanted == table()[name]["points"][place], name


@pytest.mark.parametrize("name", ["ccs", "margin", "triplet"])
def test_a_loss_is_the_mean_over_its_data_points(name: str) -> None:
    """With equal scores each term is the same number, and so is the loss: its divisor is the number of terms."""
    for size in SIZES:
        logits, mask = torch.zeros(1, size, dtype=torch.float64), torch.ones(1, size, dtype=torch.bool)
        loss = task_losses(name, logits, mask, None, torch.ones(2), Settings(margin=0.3))
        assert float(loss) == pytest.approx({"ccs": 0.25, "margin": 0.3, "triplet": 0.6}[name])


def test_prompts_are_combined_from_as_many_numbers_as_the_page_says() -> None:
    """A number for each item, or one ranking."""
    for name, wanted in (("prompt-pair", SIZES), ("prompt-point", SIZES), ("prompt-list", (1, 1, 1))):
        assert tuple(table()[name]["points"]) == wanted
