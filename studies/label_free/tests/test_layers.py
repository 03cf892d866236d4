"""The layer benchmark: its rows equal the results of the methods themselves."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.metrics.chance import chance_abs_tau
from ccrank.metrics.order import kendall_tau
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task
from studies.label_free import layers as script

ITEMS = [("Russia", "Canada", "Brazil", "Chad", "Peru"), ("red", "fox", "dog", "tower", "bridge", "Peru")]
TASKS = [
    Task(Criterion("size"), items, values=tuple(map(float, range(len(items)))), id=f"task {number}")
    for number, items in enumerate(ITEMS)
]


def test_lines_say_what_auto_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Chosen is what layer=auto and template=auto take, and each candidate reaches what it does by name."""
    lines = script.measure_dataset(
        "mine", TASKS, tiny_reader(num_hidden_layers=6), load_templates(), ["pca", "sup-margin"], 1
    )
    assert [(one.probe, one.measure, one.template) for one in lines] == [
        (probe, measure, template)
        for probe, measure in (("pca", "|τ|"), ("sup-margin", "|τ|"), ("sup-margin", "τ"))
        for template in ("single", "poles", "auto")
    ]
    for line in lines:
        protocol = "same-task" if line.probe == "pca" else "leave-one-out"
        options = {"seeds": 1, "protocol": protocol}
        [own] = {
            (one.details["template"], one.details["layer"])
            for one in rank_tasks(
                TASKS,
                tiny_reader(num_hidden_layers=6),
                line.probe,
                options={"layer": "auto", "template": line.template, **options},
            )
        }
        assert line.candidates[line.chosen] == f"{own[0]}:{own[1]}"
        assert line.candidates[line.last] == f"{'poles' if line.template == 'poles' else 'single'}:6"
        assert len(line.candidates) == (6 if line.template == "auto" else 3)
        taus = [
            kendall_tau(one.scores, task.values)  # type: ignore[arg-type]
            for one, task in zip(
                rank_tasks(
                    TASKS,
                    tiny_reader(num_hidden_layers=6),
                    line.probe,
                    options={"layer": str(own[1]), "template": own[0], **options},
                ),
                TASKS,
                strict=True,
            )
        ]
        wanted = np.mean(np.abs(taus) if line.measure == "|τ|" else taus)
        assert line.reached[line.chosen] == pytest.approx(wanted)
        assert line.reached[line.best] == max(line.reached)
        assert line.shortfall == pytest.approx(max(line.reached) - wanted)
        assert line.gain == pytest.approx(wanted - line.reached[line.last])
        chance = np.mean([chance_abs_tau(len(task.items)) for task in TASKS])
        assert line.chance == pytest.approx(chance if line.measure == "|τ|" else 0.0)
    script.print_lines(lines)
    assert "gain over the last layer" in capsys.readouterr().out
