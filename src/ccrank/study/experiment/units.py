"""The grid of units of a study, in an order that shares readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.probe_pipeline.fitting import ACROSS
from ccrank.study.datasets import datasets
from ccrank.study.experiment.method_spec import MethodSpec
from ccrank.study.experiment.study import Study, digest
from ccrank.task import Task
from ccrank.util.text import did_you_mean


@dataclass(frozen=True)
class TaskSet:
    """A dataset as used by a study."""

    name: str
    kind: str
    """facts, context, or other for a task file."""
    tasks: tuple[Task, ...]

    @property
    def digest(self) -> str:
        """A hash that changes with any text or value of a task."""
        return digest([task.to_json() for task in self.tasks])


@dataclass(frozen=True)
class Unit:
    """One model, one dataset, one method with its split and layers: run, stored and skipped as a whole."""

    model: str
    dataset: str
    choice: MethodSpec
    layers: str
    """The study's layers; "-" for a method without layers."""

    @property
    def digest(self) -> str:
        """The name of the unit's file. The folder's fingerprint covers everything else that results depend on."""
        return digest([self.model, self.dataset, str(self.choice), self.layers])

    @property
    def group(self) -> tuple[str, ...]:
        """Units of one group probe the same states."""
        if not self.choice.probe:
            return (self.model, self.dataset, str(self.choice))
        return (self.model, self.dataset, self.choice.states, self.layers)

    def __str__(self) -> str:
        return f"{self.model} · {self.dataset} · {self.choice}"


def load_task_sets(study: Study, data_dir: str | Path | None = None) -> dict[str, TaskSet]:
    """The tasks of every dataset of a study, by the dataset's name in the results."""
    known = datasets()
    sets: dict[str, TaskSet] = {}
    for name in study.datasets:
        if name in known:
            tasks = known[name].load(data_dir, **study.dataset_options.get(name, {}))
            label, kind = name, known[name].kind
        elif Path(name).suffix or Path(name).exists():
            tasks = read_tasks(name)
            label, kind = Path(name).stem, "other"
        else:
            raise CcrankError(
                f"{name!r} is neither a dataset nor an existing task file; {did_you_mean(name, known)}datasets: "
                f"{', '.join(known)}"
            )
        if label in sets:
            raise CcrankError(f"two datasets of the study are named {label!r}; rename the file {name}")
        if repeated := [
            task_id for task_id, times in Counter(task.id for task in tasks).items() if times > 1
        ]:
            raise CcrankError(f"{name}: two tasks have the id {min(repeated)!r}; results are stored by id")
        sets[label] = TaskSet(label, kind, tuple(spread(tasks, study.limit)))
    return sets


def spread(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """At most `limit` tasks, evenly spaced: the first tasks of a dataset are often similar."""
    if limit is None or limit >= len(tasks):
        return list(tasks)
    return [tasks[index * len(tasks) // limit] for index in range(limit)]


def plan_units(study: Study, sets: Mapping[str, TaskSet]) -> list[Unit]:
    """All units, model by model and dataset by dataset, with units that share readings next to each other.

    Training across tasks needs two tasks: a dataset of one task has no such units.
    """
    units: list[Unit] = []
    for model in study.addresses:
        for name, task_set in sets.items():
            groups: dict[tuple[str, ...], list[Unit]] = {}
            for choice in study.choices:
                if choice.split in ACROSS and len(task_set.tasks) < 2:
                    continue
                layers = "-" if not choice.probe else "0" if choice.embeddings else study.layers
                unit = Unit(model, name, choice, layers)
                groups.setdefault(unit.group, []).append(unit)
            units += chain.from_iterable(groups.values())
    return units


CHARACTERS_PER_TOKEN = 4.3
"""Of `weight`, over all units of the paper's study on the default model."""


def weight(unit: Unit, tasks: Sequence[Task], first_of_group: bool) -> float:
    """An estimate of a unit's cost in characters read, for the remaining time only."""
    total = 0.0
    for task in tasks:
        count = len(task.items)
        item = sum(map(len, task.items)) / count + 20
        prompts = unit.choice.method.prompts(count)
        if unit.choice.probe:
            fitting = {"leave-one-out": count}.get(unit.choice.split, 1) * count
            total += 2.0 * fitting * (count if unit.choice.paired else 1)
            prompts = prompts if first_of_group else 0
            if first_of_group and unit.layers == "auto":
                prompts += 3 * count
        total += len(task.context or "") * (prompts > 0) + prompts * item
    return total + 50.0


def weights_of(units: Sequence[Unit], sets: Mapping[str, TaskSet]) -> dict[Unit, float]:
    """`weight` of each unit; the first of a group reads for all of it."""
    weights: dict[Unit, float] = {}
    groups: set[tuple[str, ...]] = set()
    for unit in units:
        weights[unit] = weight(unit, sets[unit.dataset].tasks, unit.group not in groups)
        groups.add(unit.group)
    return weights
