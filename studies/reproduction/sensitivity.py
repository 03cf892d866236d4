"""How far probes depend on their settings: |τ| by epochs, learning rate, margin, initialisation and layer.

    python -m studies.reproduction.sensitivity [--model default] [--datasets scalaradj,wikilists,reviews,entsalience]
        [--seeds 3] [--limit N] [--device auto] [--settings initial,learning_rate] [--extend data/sensitivity.json]
        [--out data/sensitivity.json] [--figure sensitivity]

One setting is varied at a time; the others are the paper's (200 epochs, 1e-3, margin 0.2, last layer). States of all
layers in the grid are read once for each dataset; a probe is then trained for every value. |τ| with gold is the mean
over tasks, then over seeds, with its deviation over seeds. The margin concerns losses that have one. Rates go up to
10, where the mean is below the best one, so that the best is not at the edge of the grid. --settings measures some of
the settings, --extend keeps the points of an earlier run beside them, and --plugin measures an objective of your own
(--probes NAME).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ccrank import Reader, ReaderOptions, Task, load_dataset
from ccrank.methods.plugins import load_plugin
from ccrank.methods.probe_pipeline.rankers import training_device
from ccrank.methods.probe_pipeline.states import read_pair_states, read_single_states
from ccrank.methods.probing.fits import fit_each, points_of_pairs
from ccrank.methods.probing.objectives import OBJECTIVES, Settings
from ccrank.metrics.chance import chance_abs_tau
from ccrank.metrics.order import kendall_tau
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates
from ccrank.ranking import canonical
from ccrank.study.experiment.units import spread
from ccrank.study.report.figures_style import (
    CHANCE_LINE,
    common_look,
    drawn,
    image_bytes,
    legend,
    panels,
    title,
)

DATASETS = "scalaradj,wikilists,reviews,entsalience"
PROBES = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")
BASELINES = ("random", "pca")
EPOCHS = (0, 20, 50, 100, 200, 1000)
RATES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
MARGINS = (0.05, 0.1, 0.2, 0.4, 0.8)
LAYER_STEPS = 6
"""Layers in the grid: so many, evenly spread up to the last."""
INITIAL = ("uniform", "pca")
"""The values of `initial`, stored as their places."""
TITLES = {
    "epochs": "epochs",
    "learning_rate": "learning rate",
    "margin": "margin",
    "initial": "initialisation",
    "layer": "layer",
}
COLOURS = {
    "ccs-pair": "#08519c",
    "ccs": "#6baed6",
    "margin": "#2a9d78",
    "triplet": "#c95a00",
    "ordreg": "#a8459b",
    "random": "0.55",
    "pca": "0.2",
}


MARKERS = {
    "ccs-pair": "s",
    "ccs": "D",
    "margin": "^",
    "triplet": "o",
    "ordreg": "v",
    "random": "x",
    "pca": "+",
}


@dataclass(frozen=True)
class Point:
    """|τ| of one probe with one value of one setting."""

    dataset: str
    probe: str
    setting: str
    """epochs, learning_rate, margin, initial or layer."""
    value: float
    abs_tau: float
    sd: float
    """Over seeds; 0 for a probe without seeds."""


def layers_of(depth: int) -> list[int]:
    """Evenly spread layers, the last among them."""
    return sorted({round(depth * (place + 1) / LAYER_STEPS) for place in range(LAYER_STEPS)} - {0})


def variants(probe: str) -> Iterator[tuple[str, float, Settings]]:
    """The settings of the last layer to train with: which one is varied, its value, all of them."""
    if OBJECTIVES[probe].loss is None:
        return
    yield from (("epochs", epochs, Settings(epochs=epochs)) for epochs in EPOCHS)
    yield from (("learning_rate", rate, Settings(learning_rate=rate)) for rate in RATES)
    if "margin" in OBJECTIVES[probe].options:
        yield from (("margin", margin, Settings(margin=margin)) for margin in MARGINS)
    yield "initial", 0, Settings()
    yield "initial", 1, Settings(initial="pca")


def measure_dataset(
    dataset: str,
    tasks: Sequence[Task],
    reader: Reader,
    probes: Sequence[str],
    seeds: int,
    device: str = "cpu",
    wanted: Sequence[str] = tuple(TITLES),
) -> list[Point]:
    """The points of one dataset for the wanted settings."""
    tasks, templates = [canonical(task)[0] for task in tasks], load_templates()
    layers = layers_of(reader.depth) if "layer" in wanted else [reader.depth]
    states: dict[str, list[np.ndarray]] = {}
    for prompt, read in (("single", read_single_states), ("pair", read_pair_states)):
        if any(OBJECTIVES[probe].prompt == prompt for probe in probes):
            states[prompt] = read(tasks, Prompter(reader, templates), layers)[0]
    found = []
    for probe in probes:
        objective = OBJECTIVES[probe]
        own = states[objective.prompt]
        chosen = tuple(range(seeds)) if objective.seeded else (0,)
        options: dict[str, Any] = {"seeds": chosen, "device": device}
        # All layers of all tasks are trained together.
        by_layer = [one[:, column] for column in range(len(layers)) for one in own]
        scores = fit_each(by_layer, probe, **options).scores(by_layer)
        for column, layer in enumerate(layers):
            part = scores[column * len(tasks) : (column + 1) * len(tasks)]
            found.append(point_of(dataset, probe, "layer", layer, part, tasks))
        default = found[-1]
        last = [one[:, -1] for one in own]
        for setting, value, settings in variants(probe):
            if setting not in wanted:
                continue
            if settings == Settings():
                found.append(Point(dataset, probe, setting, float(value), default.abs_tau, default.sd))
                continue
            scores = fit_each(last, probe, settings=settings, **options).scores(last)
            found.append(point_of(dataset, probe, setting, value, scores, tasks))
        say(f"{dataset}: {probe}")
    return [one for one in found if one.setting in wanted]


def point_of(
    dataset: str, probe: str, setting: str, value: float, scores: Sequence[np.ndarray], tasks: Sequence[Task]
) -> Point:
    """Mean |τ| over tasks for each seed, then mean and deviation over seeds. scores: per task (seeds, N) or pairs."""
    if OBJECTIVES[probe].prompt == "pair":
        scores = [points_of_pairs(own, len(task.items)) for own, task in zip(scores, tasks, strict=True)]
    taus = np.abs(
        [[kendall_tau(row, gold_of(task)) for row in own] for own, task in zip(scores, tasks, strict=True)]
    ).mean(axis=0)
    deviation = float(taus.std(ddof=1)) if len(taus) > 1 else 0.0
    return Point(dataset, probe, setting, float(value), float(taus.mean()), deviation)


def gold_of(task: Task) -> tuple[float, ...]:
    """Every task of these datasets has gold."""
    assert task.values is not None
    return task.values


@drawn
def figure_of(points: Sequence[Point], chance: dict[str, float]) -> Figure:
    """Small multiples: a row for each setting, a column for each dataset, a line for each probe."""
    datasets = list(chance)
    measured = {point.setting for point in points}
    titles = {setting: name for setting, name in TITLES.items() if setting in measured}
    figure, axes = panels(len(titles), len(datasets), 1.75 * len(titles) + 0.5, sharey="col")
    probes = list(dict.fromkeys(point.probe for point in points))
    for row, (setting, name) in enumerate(titles.items()):
        for column, dataset in enumerate(datasets):
            one = axes[row, column]
            one.axhline(chance[dataset], color=CHANCE_LINE, lw=1, ls=(0, (4, 2)), zorder=1)
            for probe in probes:
                own = [
                    point
                    for point in points
                    if (point.dataset, point.probe, point.setting) == (dataset, probe, setting)
                ]
                if own:
                    places = [point.value for point in own]
                    one.errorbar(
                        places,
                        [point.abs_tau for point in own],
                        yerr=[point.sd for point in own],
                        color=COLOURS.get(probe, "0.4"),
                        marker=MARKERS.get(probe, "."),
                        ms=3,
                        lw=0.9 if probe in PROBES else 0.7,
                        ls="-" if probe in PROBES else ":",
                        elinewidth=0.5,
                    )
            if setting == "epochs":
                one.set_xscale("symlog", linthresh=20)
                one.set_xticks([0, 20, 200, 1000], ["0", "20", "200", "1000"])
                one.minorticks_off()
            elif setting == "learning_rate":
                one.set_xscale("log")
            elif setting == "initial":
                one.set_xticks([0, 1], INITIAL)
                one.set_xlim(-0.4, 1.4)
            one.set_xlabel(name)
            if row == 0:
                title(one, dataset)
            if column == 0:
                one.set_ylabel("|τ|")
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color=COLOURS.get(probe, "0.4"),
            marker=MARKERS.get(probe, "."),
            ms=3,
            ls="-" if probe in PROBES else ":",
            label=probe,
        )
        for probe in probes
    ]
    handles.append(Line2D([], [], color=CHANCE_LINE, ls=(0, (4, 2)), label="chance"))
    legend(figure, handles, columns=len(handles))
    return figure


def print_ranges(points: Sequence[Point], chance: dict[str, float]) -> None:
    """For each setting and probe: the lowest and highest |τ| over its values, mean over datasets of both."""
    print(f"{'setting':<14} {'probe':<9} {'lowest':>7} {'highest':>8} {'paper':>7}   mean over datasets")
    for setting in TITLES:
        for probe in dict.fromkeys(point.probe for point in points):
            own = [one for one in points if (one.probe, one.setting) == (probe, setting)]
            if own:
                low, high, default = (float(np.mean(part)) for part in ranges(own, setting))
                print(f"{setting:<14} {probe:<9} {low:7.3f} {high:8.3f} {default:7.3f}")
    print(f"chance {np.mean(list(chance.values())):.3f}")


def ranges(points: Sequence[Point], setting: str) -> tuple[list[float], list[float], list[float]]:
    """The lowest, highest and default |τ| of each dataset."""
    low, high, default = [], [], []
    for dataset in dict.fromkeys(point.dataset for point in points):
        own = {point.value: point.abs_tau for point in points if point.dataset == dataset}
        low.append(min(own.values()))
        high.append(max(own.values()))
        paper = {"layer": max(own), "initial": 0.0}.get(setting)
        default.append(own[getattr(Settings(), setting) if paper is None else paper])
    return low, high, default


def extended(
    stored: dict[str, Any], about: dict[str, Any], points: Sequence[Point]
) -> tuple[dict[str, Any], list[Point]]:
    """The facts and points of an earlier run, with new points in place of the same ones or after them."""
    for name in ("model", "seeds", "limit"):
        if stored[name] != about[name]:
            raise SystemExit(f"the stored points have {name} {stored[name]}, the new ones {about[name]}")

    def key(point: Point) -> tuple[str, str, str, float]:
        return point.dataset, point.probe, point.setting, point.value

    merged = {key(point): point for point in (*(Point(**one) for one in stored.pop("points")), *points)}
    device = " and ".join(dict.fromkeys((stored["device"], about["device"])))
    seconds = round(stored["seconds"] + about["seconds"], 1)
    return {**stored, "device": device, "seconds": seconds}, sorted(merged.values(), key=key)


def say(message: str) -> None:
    """A line of progress, on stderr."""
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("--datasets", default=DATASETS, help=f"comma-separated; {DATASETS} without it")
    parser.add_argument("--data-dir", default=None, help="folder of the datasets' files")
    parser.add_argument("--probes", default=",".join((*PROBES, *BASELINES)), help="comma-separated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=None, help="tasks of each dataset, evenly spread")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, default=None, help="write the points as JSON")
    parser.add_argument("--figure", type=Path, default=None, help="write FIGURE.png and FIGURE.svg")
    parser.add_argument("--settings", default=",".join(TITLES), help="which to measure, comma-separated")
    parser.add_argument("--extend", type=Path, default=None, help="keep the other points of this JSON file")
    parser.add_argument("--plugin", type=Path, default=None, help="a file that registers an objective")
    parser.add_argument("--draw", type=Path, default=None, help="only draw the points of this JSON file")
    asked = parser.parse_args()
    if asked.plugin is not None:
        load_plugin(asked.plugin)
    if asked.draw is not None:
        stored = json.loads(asked.draw.read_text(encoding="utf-8"))
        points, about = [Point(**point) for point in stored["points"]], stored
    else:
        start = time.perf_counter()
        # Contexts that are too long are truncated rather than left out, so that all points are over the same tasks.
        reader = Reader.open(
            asked.model, ReaderOptions(device=asked.device, dtype=asked.dtype, truncate=True)
        )
        points, chance, counts = [], {}, {}
        for dataset in asked.datasets.split(","):
            tasks = spread(load_dataset(dataset, asked.data_dir), asked.limit)
            chance[dataset] = round(float(np.mean([chance_abs_tau(len(task.items)) for task in tasks])), 4)
            counts[dataset] = len(tasks)
            points += measure_dataset(
                dataset,
                tasks,
                reader,
                asked.probes.split(","),
                asked.seeds,
                training_device(reader),
                asked.settings.split(","),
            )
        about = {
            "model": reader.name,
            "device": str(reader.loaded.model.device.type),
            "seeds": asked.seeds,
            "limit": asked.limit,
            "seconds": round(time.perf_counter() - start, 1),
            "tasks": counts,
            "chance": chance,
        }
        say(f"{about['seconds']} s")
        if asked.extend is not None:
            about, points = extended(json.loads(asked.extend.read_text(encoding="utf-8")), about, points)
            chance = about["chance"]
    if asked.out is not None and asked.draw is None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json_text(about, points), encoding="utf-8")
    if asked.figure is not None:
        asked.figure.parent.mkdir(parents=True, exist_ok=True)
        with common_look():
            figure = figure_of(points, about["chance"])
        for form in ("png", "svg"):
            asked.figure.with_suffix(f".{form}").write_bytes(image_bytes(figure, form))
    print_ranges(points, about["chance"])


def json_text(about: dict[str, Any], points: Sequence[Point]) -> str:
    """A JSON object with one point on a line."""
    lines = [
        json.dumps({**asdict(point), "abs_tau": round(point.abs_tau, 4), "sd": round(point.sd, 4)})
        for point in points
    ]
    head = json.dumps(about, indent=1)[:-2]
    return head + ',\n "points": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


if __name__ == "__main__":
    main()
