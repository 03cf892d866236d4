"""Running a study: finished units are skipped, failures are recorded, and the remaining units continue."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.experiment.environment import record_environment, record_model
from ccrank.experiment.execute import Outcome, run_method, run_probe
from ccrank.experiment.folder import StudyFolder
from ccrank.experiment.study import Study
from ccrank.experiment.units import (
    CHARACTERS_PER_TOKEN,
    TaskSet,
    Unit,
    load_task_sets,
    plan_units,
    weight,
)
from ccrank.lm import Cost, Reader, ReadingCache
from ccrank.lm.layers import parse_layers
from ccrank.lm.speed import tokens_per_second
from ccrank.probe_pipeline import StateRequest, TaskStates, add_anchors, read_states
from ccrank.probe_pipeline.rankers import training_device
from ccrank.probing.objectives import Settings
from ccrank.prompts import Templates
from ccrank.ranking import canonical
from ccrank.reader_options import ReaderOptions
from ccrank.recoverable import RECOVERABLE_ERRORS, reason_of
from ccrank.results.schema import FAILURES

OpenReader = Callable[[str], Reader]


class Watcher:
    """Receives the progress of a study; the base class ignores it."""

    def begin(self, units: int, done: int, weight: float) -> None:
        """The run starts: `units` in total, `done` of them before; `weight` is the cost estimate of the rest."""

    def say(self, words: str) -> None:
        """A status message."""

    def expect(self, model: str, units: int, seconds: float) -> None:
        """A model is loaded, and its units are expected to take about so long."""

    def start(self, unit: Unit) -> None:
        """A unit starts."""

    def reading(self, tokens: int) -> None:
        """`tokens` further distinct tokens are read."""

    def finish(self, unit: Unit, outcome: Outcome, seconds: float, weight: float, spent: Cost) -> None:
        """A unit is stored; `spent` is the total cost of its model so far."""


@dataclass(frozen=True)
class StudyReport:
    """The outcome of a run."""

    units: int
    done_before: int
    rows: int
    failures: list[dict[str, Any]]
    seconds: float


def run_study(
    study: Study,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    cache: ReadingCache | Path | str | None = None,
    force_new: bool = False,
    retry: bool = False,
    watcher: Watcher | None = None,
    open_reader: OpenReader | None = None,
) -> StudyReport:
    """Run the units that a study's folder does not contain yet, then write its table.

    `cache` is the cache of readings: a folder, an open cache, or None for `out/cache`. `retry` repeats units with
    failed tasks. `open_reader` replaces loading models by name.
    """
    start = time.perf_counter()
    folder, watcher = StudyFolder(out), watcher or Watcher()
    sets = load_task_sets(study, data_dir)
    units = plan_units(study, sets)
    with folder.locked():
        folder.begin(study, sets, force_new)
        if retry:
            folder.forget([unit for unit in units if folder.failures_of(unit)])
        pending = [unit for unit in units if not folder.is_done(unit)]
        broken: dict[Unit, str] = {}
        weights = _weights(pending, sets)
        watcher.begin(len(units), len(units) - len(pending), sum(weights.values()))
        if pending:
            folder.forget_results()
            record_environment(folder)
            if not isinstance(cache, ReadingCache):
                cache = ReadingCache(Path(cache) if cache else folder.path / "cache")
            opener = open_reader or _opener(study, cache, watcher)
            run = _Run(study, folder, sets, watcher, weights, broken)
            for model, own in groupby(pending, key=lambda unit: unit.model):
                run.model(model, list(own), opener)
                _free_memory()
        failures = [entry for unit in units for entry in _failures(unit, folder, sets, broken)]
        folder.write(FAILURES, "".join(json.dumps(entry) + "\n" for entry in failures).encode())
        rows = folder.join([unit for unit in units if unit not in broken])
    return StudyReport(len(units), len(units) - len(pending), rows, failures, time.perf_counter() - start)


class _Run:
    """One run of a study, model by model."""

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        sets: dict[str, TaskSet],
        watcher: Watcher,
        weights: dict[Unit, float],
        broken: dict[Unit, str],
    ) -> None:
        self.study, self.folder, self.sets = study, folder, sets
        self.watcher, self.weights, self.broken = watcher, weights, broken
        self.templates: Templates = study.load_templates()

    def model(self, name: str, units: Sequence[Unit], opener: OpenReader) -> None:
        """All units of one model, which is loaded before and freed after them."""
        try:
            reader = opener(name)
        except CcrankError as error:
            self.watcher.say(f"{name}: {error}")
            self.broken.update(dict.fromkeys(units, reason_of(error)))
            return
        record_model(self.folder, reader)
        tokens = sum(self.weights[unit] for unit in units) / CHARACTERS_PER_TOKEN
        self.watcher.expect(name, len(units), tokens / tokens_per_second(reader.loaded.model))
        for _, group in groupby(units, key=lambda unit: unit.group):
            members = list(group)
            if members[0].choice.probe:
                self._probes(members, reader)
            else:
                for unit in members:
                    self._guarded(unit, reader, lambda unit=unit: self._ask(unit, reader))  # type: ignore[misc]

    def _ask(self, unit: Unit, reader: Reader) -> Outcome:
        options = unit.choice.parse_options(self.study.options.get(unit.choice.name, {}))
        return run_method(
            unit, self.sets[unit.dataset], reader, self.templates, options, self.watcher.reading
        )

    def _probes(self, units: Sequence[Unit], reader: Reader) -> None:
        """Units that probe the same states, which are read once, for the first of them."""
        task_set = self.sets[units[0].dataset]
        sorted_tasks, orders = zip(*(canonical(task) for task in task_set.tasks), strict=True)
        shared: list[TaskStates] = []

        def probe(unit: Unit) -> Outcome:
            if not shared:
                request = StateRequest(
                    tuple(parse_layers(unit.layers, reader)),
                    "pair" if unit.choice.paired else "single",
                    unit.choice.paired,
                    "item" if unit.choice.embeddings else "slot",
                )
                common: dict[str, Any] = {"isolate": True, "progress": self.watcher.reading}
                states = read_states(
                    sorted_tasks, reader, self.templates, request, folder=self.folder.path, **common
                )
                if unit.layers == "auto":
                    add_anchors(states, sorted_tasks, reader, self.templates, **common)
                shared.append(states)
            options = unit.choice.parse_options(self.study.options.get(unit.choice.name, {}))
            return run_probe(
                unit,
                task_set,
                shared[0],
                sorted_tasks,
                orders,
                self.study.seeds,
                Settings(**options),
                training_device(reader),
            )

        for unit in units:
            self._guarded(unit, reader, lambda unit=unit: probe(unit))  # type: ignore[misc]
        for one in shared:
            one.close()

    def _guarded(self, unit: Unit, reader: Reader, work: Callable[[], Outcome]) -> None:
        """Run a unit and store it. One that fails as a whole is not stored, so that the next run repeats it."""
        self.watcher.start(unit)
        start = time.perf_counter()
        try:
            outcome = work()
        except RECOVERABLE_ERRORS as error:
            self.broken[unit] = reason_of(error)
            self.watcher.say(f"{unit}: {self.broken[unit]}")
            return
        self.folder.put(unit, outcome)
        seconds = time.perf_counter() - start
        self.watcher.finish(unit, outcome, seconds, self.weights[unit], reader.spent)


def _opener(study: Study, cache: ReadingCache, watcher: Watcher) -> OpenReader:
    return lambda name: Reader.open(name, ReaderOptions(**study.reader), cache=cache, say=watcher.say)


def _weights(units: Sequence[Unit], sets: dict[str, TaskSet]) -> dict[Unit, float]:
    weights: dict[Unit, float] = {}
    groups: set[tuple[str, ...]] = set()
    for unit in units:
        weights[unit] = weight(unit, sets[unit.dataset].tasks, unit.group not in groups)
        groups.add(unit.group)
    return weights


def _failures(
    unit: Unit, folder: StudyFolder, sets: dict[str, TaskSet], broken: dict[Unit, str]
) -> list[dict[str, Any]]:
    """Entries of the list of failures; a reason shared by all tasks of a unit is one entry."""
    where = {
        "model": unit.model,
        "dataset": unit.dataset,
        "method": unit.choice.label,
        "split": unit.choice.split,
    }
    if unit in broken:
        return [{**where, "task": None, "reason": broken[unit]}]
    found = folder.failures_of(unit)
    if len(found) == len(sets[unit.dataset].tasks) and len(set(found.values())) == 1:
        return [{**where, "task": None, "reason": next(iter(found.values()))}]
    return [{**where, "task": task, "reason": reason} for task, reason in found.items()]


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
