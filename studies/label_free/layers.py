"""How well the layer and template of a probe are chosen without labels, against the best, last and mean layer.

    python -m studies.label_free.layers [--model default] [--datasets everyday,scalaradj] [--probes pca,triplet]
        [--seeds 2] [--limit N] [--device auto] [--json]

For each dataset, probe and template: Kendall's |τ| with gold, mean over tasks and seeds, at each candidate layer; the
layer that agrees best with the label-free anchors (what `layer=auto` and `--layers auto` take), the best layer, which
needs gold, the last one, the mean over layers, and chance. `auto` chooses template and layer together; its last layer
is that of `single`. Supervised probes are tested on held-out items (leave-one-out), and have lines for signed τ too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import numpy as np

from ccrank import Reader, ReaderOptions, Task, load_dataset
from ccrank.methods.probe_pipeline.rankers import TEMPLATES, closest_to_anchors, seed_scores
from ccrank.methods.probe_pipeline.states import read_anchors, read_single_states
from ccrank.methods.probing.objectives import ProbeSpec, Settings, objective_of
from ccrank.metrics.chance import chance_abs_tau
from ccrank.metrics.order import kendall_tau
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import parse_layers
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import canonical
from ccrank.study.experiment.units import spread

DATASETS = "everyday,scalaradj,wikilists,reviews,entsalience"
PROBES = "pca,triplet,margin,ordreg,sup-margin,sup-ordreg"

Scores = list[np.ndarray]
"""Per task (seeds, N)."""


@dataclass(frozen=True)
class Line:
    """One choice among candidates, with the measure of each."""

    dataset: str
    probe: str
    template: str
    """That of the candidates, or auto."""
    measure: str
    """|τ|, or τ for a directed probe."""
    candidates: list[str]
    """Each template:layer."""
    reached: list[float]
    """The measure of each candidate."""
    chosen: int
    """Index of the candidate that was chosen without labels."""
    last: int
    """Index of the last layer (of `single`)."""
    chance: float

    @property
    def best(self) -> int:
        """Index of the best candidate, by gold."""
        return int(np.argmax(self.reached))

    @property
    def shortfall(self) -> float:
        """How far the choice is from the best."""
        return self.reached[self.best] - self.reached[self.chosen]

    @property
    def gain(self) -> float:
        """How much better than the last layer the choice is."""
        return self.reached[self.chosen] - self.reached[self.last]


def measure_dataset(
    dataset: str,
    tasks: Sequence[Task],
    reader: Reader,
    templates: Templates,
    probes: Sequence[str],
    seeds: int,
    device: str = "cpu",
) -> list[Line]:
    """The lines of one dataset: of each probe by template, then of template and layer together."""
    tasks = [canonical(task)[0] for task in tasks]
    layers = parse_layers("auto", reader)
    anchors, _ = read_anchors(tasks, Prompter(reader, templates))
    found: dict[str, dict[tuple[str, int], Scores]] = {probe: {} for probe in probes}
    for template in TEMPLATES:
        states, _ = read_single_states(tasks, Prompter(reader, templates), layers, template)
        for probe in probes:
            say(f"{dataset}: {probe} on {template}")
            protocol = "leave-one-out" if objective_of(probe).supervised else "same-task"
            spec = ProbeSpec(probe, tuple(range(seeds)), Settings(), protocol, device)
            for column, layer in enumerate(layers):
                own = [one[:, column] for one in states]
                found[probe][template, layer] = seed_scores(tasks, own, spec)[0]
    lines = []
    for probe in probes:
        measures = ("|τ|", "τ") if objective_of(probe).supervised else ("|τ|",)
        for measure in measures:
            for template in (*reversed(TEMPLATES), "auto"):
                own_scores = {key: one for key, one in found[probe].items() if template in (key[0], "auto")}
                lines.append(line_of(dataset, probe, template, measure, own_scores, tasks, anchors))
    return lines


def line_of(
    dataset: str,
    probe: str,
    template: str,
    measure: str,
    scores: Mapping[tuple[str, int], Scores],
    tasks: Sequence[Task],
    anchors: Sequence[np.ndarray],
) -> Line:
    """The candidates' τ with gold, and the candidate that the anchors choose."""
    free = measure == "|τ|"
    return Line(
        dataset,
        probe,
        template,
        measure,
        [f"{name}:{layer}" for name, layer in scores],
        [mean_tau(one, tasks, free) for one in scores.values()],
        closest_to_anchors([*scores.values()], anchors),
        len(scores) - 1,  # candidates end with the last layer of `single`
        float(np.mean([chance_abs_tau(len(task.items)) for task in tasks])) if free else 0.0,
    )


def mean_tau(scores: Scores, tasks: Sequence[Task], free: bool) -> float:
    """Mean over tasks and seeds of τ with gold; of |τ| if the direction does not count."""
    taus = [kendall_tau(row, gold_of(task)) for own, task in zip(scores, tasks, strict=True) for row in own]
    return float(np.mean(np.abs(taus) if free else taus))


def gold_of(task: Task) -> tuple[float, ...]:
    """Every task of these datasets has gold."""
    assert task.values is not None
    return task.values


def print_lines(lines: Sequence[Line]) -> None:
    """Two tables (the choices; τ by layer) and the means over the choices."""
    names = max(len(line.dataset) for line in lines), max(len(line.probe) for line in lines)
    heads = f"{'dataset':<{names[0]}}  {'probe':<{names[1]}}  {'template':<8}  {'':<3}"
    print(f"{heads}  {'chosen':>9} {'':>6}  {'best':>9} {'':>6}  {'last':>6}  {'mean':>6}  {'chance':>6}")
    for line in lines:
        start = f"{line.dataset:<{names[0]}}  {line.probe:<{names[1]}}  {line.template:<8}  {line.measure:<3}"
        picks = "  ".join(
            f"{line.candidates[place]:>9} {line.reached[place]:>6.3f}" for place in (line.chosen, line.best)
        )
        rest = (line.reached[line.last], float(np.mean(line.reached)), line.chance)
        print(f"{start}  {picks}  {'  '.join(f'{value:>6.3f}' for value in rest)}")
    print("\nby layer; * chosen without labels, + best by gold")
    for line in lines:
        if line.template == "auto":
            continue
        cells = [
            f"{name.split(':')[1]}: {value:.3f}"
            f"{'*' if place == line.chosen else ''}{'+' if place == line.best else ''}"
            for place, (name, value) in enumerate(zip(line.candidates, line.reached, strict=True))
        ]
        print(f"{line.dataset} {line.probe} {line.template} {line.measure}  {'  '.join(cells)}")
    print("\nmeans over datasets and probes")
    for (measure, template), own in groupby(sorted(lines, key=_kind), key=_kind):
        group = [*own]
        print(
            f"{measure:<3}  {template:<8}  short of the best {np.mean([one.shortfall for one in group]):.3f}  "
            f"gain over the last layer {np.mean([one.gain for one in group]):+.3f}  ({len(group)} choices)"
        )


def _kind(line: Line) -> tuple[str, str]:
    return line.measure, line.template


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
    parser.add_argument("--probes", default=PROBES, help=f"comma-separated; {PROBES} without it")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None, help="tasks of each dataset, evenly spread")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, in place of tables")
    asked = parser.parse_args()
    probes = asked.probes.split(",")
    if paired := [probe for probe in probes if objective_of(probe).prompt == "pair"]:
        parser.error(f"{paired[0]} reads pairs of items, so it has no template to choose")
    # Contexts that are too long are truncated rather than left out, so that all choices are over the same tasks.
    reader = Reader.open(asked.model, ReaderOptions(device=asked.device, dtype=asked.dtype, truncate=True))
    device = reader.loaded.model.device
    lines: list[Line] = []
    for dataset in asked.datasets.split(","):
        tasks = spread(load_dataset(dataset, asked.data_dir), asked.limit)
        say(f"{dataset}: reading {len(tasks)} tasks")
        lines += measure_dataset(
            dataset,
            tasks,
            reader,
            load_templates(),
            probes,
            asked.seeds,
            str(device) if device.type == "cuda" else "cpu",
        )
    if asked.json:
        for line in lines:
            numbers = {"best": line.best, "shortfall": line.shortfall, "gain": line.gain}
            print(json.dumps({**asdict(line), **numbers, "mean": float(np.mean(line.reached))}))
    else:
        print_lines(lines)


if __name__ == "__main__":
    main()
