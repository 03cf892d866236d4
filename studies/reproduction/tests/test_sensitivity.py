"""The sensitivity benchmark: its points equal the results of the probes with those settings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.methods.probing.objectives import Settings
from ccrank.metrics.order import kendall_tau
from ccrank.task import Criterion, Task
from studies.reproduction import sensitivity as script

ITEMS = [("Russia", "Canada", "Brazil", "Chad", "Peru"), ("red", "fox", "dog", "tower", "bridge", "Peru")]
TASKS = [
    Task(Criterion("size"), items, values=tuple(map(float, range(len(items)))), id=f"task {number}")
    for number, items in enumerate(ITEMS)
]


def test_points_are_what_the_probes_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """|τ| of each value is that of the probe called with it; the paper's value is the same point in every row; what is
    stored is drawn."""
    monkeypatch.setattr(script, "EPOCHS", (0, 200))
    monkeypatch.setattr(script, "RATES", (1e-3, 1e-1))
    monkeypatch.setattr(script, "MARGINS", (0.2, 0.8))
    monkeypatch.setattr(script, "LAYER_STEPS", 3)
    probes = ("ccs-pair", "margin", "pca")
    points = script.measure_dataset("mine", TASKS, tiny_reader(num_hidden_layers=6), probes, 1)
    found = {(one.probe, one.setting, one.value): one.abs_tau for one in points}
    assert set(found) == {
        *((probe, "layer", layer) for probe in probes for layer in (2.0, 4.0, 6.0)),
        *((probe, "epochs", epochs) for probe in ("ccs-pair", "margin") for epochs in (0.0, 200.0)),
        *((probe, "learning_rate", rate) for probe in ("ccs-pair", "margin") for rate in (1e-3, 1e-1)),
        *(("margin", "margin", margin) for margin in (0.2, 0.8)),
        *((probe, "initial", initial) for probe in ("ccs-pair", "margin") for initial in (0.0, 1.0)),
    }
    for (probe, setting, value), reached in found.items():
        changed = {"layer": str(int(value))} if setting == "layer" else {setting: value}
        if setting == "initial":
            changed = {"initial": script.INITIAL[int(value)]}  # type: ignore[dict-item]
        if setting == "epochs":
            changed = {"epochs": int(value)}  # type: ignore[dict-item]
        rankings = rank_tasks(
            TASKS, tiny_reader(num_hidden_layers=6), probe, options={"layer": "6", "seeds": 1, **changed}
        )
        taus = [kendall_tau(one.scores, task.values) for one, task in zip(rankings, TASKS, strict=True)]  # type: ignore[arg-type]
        assert reached == pytest.approx(np.mean(np.abs(taus))), (probe, setting, value)
    low, high, default = script.ranges(
        [one for one in points if (one.probe, one.setting) == ("margin", "margin")], "margin"
    )
    assert default == [found["margin", "layer", 6.0]] == [found["margin", "margin", Settings().margin]]
    assert low[0] <= default[0] <= high[0]

    stored = json.loads(script.json_text({"chance": {"mine": 0.3}}, points))
    again = [script.Point(**one) for one in stored["points"]]
    assert [one.value for one in again] == [one.value for one in points]
    figure = script.figure_of(again, stored["chance"])
    assert len(figure.axes) == 5

    some = script.measure_dataset(
        "mine", TASKS, tiny_reader(num_hidden_layers=6), probes, 1, wanted=["initial"]
    )
    assert {one.setting for one in some} == {"initial"}
    about = {
        "model": "m",
        "seeds": 1,
        "limit": None,
        "device": "cuda",
        "seconds": 1.0,
        "chance": {"mine": 0.3},
    }
    others = [vars_of(one) for one in points if one.setting != "initial"]
    new = {**about, "device": "cpu", "seconds": 2.0}
    facts, together = script.extended({**about, "points": others}, new, some)
    assert (facts["device"], facts["seconds"]) == ("cuda and cpu", 3.0)
    assert set(together) == set(points)
    with pytest.raises(SystemExit, match="seeds 1, the new ones 3"):
        script.extended({**about, "points": others}, {**new, "seeds": 3}, some)


def vars_of(point: script.Point) -> dict[str, object]:
    """A point as it is stored."""
    return {name: getattr(point, name) for name in script.Point.__dataclass_fields__}


def test_layers_are_spread_to_the_last() -> None:
    """The grid ends with the last layer and has no layer twice, for shallow models too."""
    assert script.layers_of(30) == [5, 10, 15, 20, 25, 30]
    assert script.layers_of(2) == [1, 2]
