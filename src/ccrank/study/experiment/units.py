"""The grid of units of a study, in an order that shares readings, and which of them models behind servers can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.probe_pipeline.rankers import ACROSS
from ccrank.methods.registry import methods_without_states
from ccrank.models.remote import Address, Client, is_remote
from ccrank.models.remote.server import served_model
from ccrank.study.datasets import datasets
from ccrank.study.experiment.study import EMBEDDINGS, MethodSpec, Study, digest
from ccrank.task import Task
from ccrank.util.text import did_you_mean

CHARACTERS_PER_TOKEN = 4.3
"""Characters of `weights_of` for each token that is read: the mean of the paper's study on the default model."""


class TaskSet(NamedTuple):
    """A dataset as used by a study."""

    kind: str
    """facts, context, relevance, or other for a task file."""
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
        states = self.choice.states
        return (self.model, self.dataset, *((states, self.layers) if states else (str(self.choice),)))

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
        counts = Counter(task.id for task in tasks)
        if repeated := [task_id for task_id, count in counts.items() if count > 1]:
            raise CcrankError(f"{name}: two tasks have the id {min(repeated)!r}; results are stored by id")
        sets[label] = TaskSet(kind, tuple(spread(tasks, study.limit)))
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
    for model, (name, task_set) in product(study.addresses, sets.items()):
        groups: dict[tuple[str, ...], list[Unit]] = {}
        for choice in study.choices:
            if choice.split in ACROSS and len(task_set.tasks) < 2:
                continue
            layers = "-" if choice.states is None else "0" if choice.states == EMBEDDINGS else study.layers
            unit = Unit(model, name, choice, layers)
            groups.setdefault(unit.group, []).append(unit)
        units += chain.from_iterable(groups.values())
    return units


def weights_of(units: Sequence[Unit], sets: Mapping[str, TaskSet]) -> dict[Unit, float]:
    """An estimate of each unit's cost in characters read, for the remaining time only; the first of a group reads for
    all of it."""
    weights: dict[Unit, float] = {}
    groups: set[tuple[str, ...]] = set()
    for unit in units:
        first_of_group = unit.group not in groups
        groups.add(unit.group)
        total = 0.0
        for task in sets[unit.dataset].tasks:
            count = len(task.items)
            item = sum(map(len, task.items)) / count + 20
            prompts = unit.choice.method.prompts(count)
            if unit.choice.states:
                fitting = {"leave-one-out": count}.get(unit.choice.split, 1) * count
                total += 2.0 * fitting * (count if unit.choice.states == "pair" else 1)
                prompts = prompts if first_of_group else 0
                if first_of_group and unit.layers == "auto":
                    prompts += 3 * count
            total += len(task.context or "") * (prompts > 0) + prompts * item
        weights[unit] = total + 50.0
    return weights


def supported_units(study: Study, sets: Mapping[str, TaskSet]) -> tuple[list[Unit], dict[str, list[str]]]:
    """The units that can be run, and model → methods that are left out because they need hidden states, which a server
    does not give.

    A study with such methods is refused unless it says that they are left out; something must remain.
    """
    units = plan_units(study, sets)
    unsupported = [
        unit
        for unit in units
        if is_remote(unit.model)
        and unit.choice.method.reads_states(sets[unit.dataset].tasks, study.options_of(unit.choice))
    ]
    left_out: dict[str, list[str]] = {}
    for model, choice in product(study.addresses, study.choices):
        names = [unit.dataset for unit in unsupported if (unit.model, unit.choice) == (model, choice)]
        if names:
            where = "" if len(names) == len(sets) else f" (on {', '.join(names)})"
            left_out.setdefault(model, []).append(f"{choice}{where}")
    for model, methods in left_out.items():
        everything = all(unit in unsupported for unit in units if unit.model == model)
        if everything or not study.skip_unsupported:
            remedy = ", or add --skip-unsupported (skip_unsupported = true in a study's file)"
            raise CcrankError(
                f"{model} is behind a server, which gives no hidden states, and {', '.join(methods)} "
                f"need{'s' if len(methods) == 1 else ''} them; give --methods of {', '.join(methods_without_states())}"
                f"{'' if everything else remedy}"
            )
    return [unit for unit in units if unit not in unsupported], left_out


def with_names(study: Study) -> Study:
    """The study with every model named: results are stored under a model's name, and tomorrow the same address may lead
    to another model."""
    return replace(study, models=tuple(map(_named, study.models)))


def _named(model: str) -> str:
    """The address with the model's name; a server whose address names no model is asked."""
    if not is_remote(model) or Address.parse(model).model is not None:
        return model
    address = Address.parse(model)
    try:
        name, _ = served_model(Client(address))
    except CcrankError as error:
        raise CcrankError(
            f"{address.name} names no model, and its server could not be asked for one: {error}"
        ) from None
    return f"{model.removesuffix('#')}#{name}"
