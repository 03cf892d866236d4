"""Running a study: finished units are skipped, failures are recorded, and the remaining units continue."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from ccrank.errors import RECOVERABLE_ERRORS, CcrankError, UnavailableError, reason_of
from ccrank.methods.probe_pipeline.probe_rankers import training_device
from ccrank.methods.probe_pipeline.states import TaskStates, read_states
from ccrank.methods.probing.objectives import settings_of
from ccrank.models import Cost, Reader, ReadingCache
from ccrank.models.capacity import tokens_per_second
from ccrank.models.load.hub import stored_depth
from ccrank.models.reader_like import parse_layers
from ccrank.models.remote import OpenModel, is_remote
from ccrank.models.remote.address import check_options
from ccrank.prompts import Templates
from ccrank.ranking import canonical
from ccrank.reader_options import ReaderOptions
from ccrank.study.experiment.execute import Outcome, run_method, run_probe
from ccrank.study.experiment.servers import (
    LeftOutMethod,
    check_methods,
    notices,
    open_server,
    unsupported,
    with_names,
    without,
)
from ccrank.study.experiment.study import Study
from ccrank.study.experiment.study_folder import StudyFolder, record_environment, record_model
from ccrank.study.experiment.units import (
    CHARACTERS_PER_TOKEN,
    TaskSet,
    Unit,
    load_task_sets,
    plan_units,
    weights_of,
)
from ccrank.study.results.load import FAILURES

OpenReader = Callable[[str], OpenModel]


class StudyWatcher:
    """Receives the progress of a study; the base class ignores it."""

    def begin(self, units: int, done: int, weight: float) -> None:
        """The run starts: `units` in total, `done` of them before; `weight` is the cost estimate of the rest."""

    def say(self, words: str) -> None:
        """A status message."""

    def expect(self, model: str, units: int, seconds: float) -> None:
        """A model is loaded; `seconds` is the expected time of its units."""

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
    left_out: tuple[LeftOutMethod, ...] = ()
    """Methods that models behind servers cannot run."""


def run_study(
    study: Study,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    cache: ReadingCache | Path | str | None = None,
    force_new: bool = False,
    retry: bool = False,
    watcher: StudyWatcher | None = None,
    open_reader: OpenReader | None = None,
) -> StudyReport:
    """Run the units that a study's folder does not contain yet, then write its table.

    `cache` is the cache of readings: a folder, an open cache, or None for `out/cache`. `retry` repeats units with
    failed tasks. `open_reader` replaces loading models by name.

    Methods that need hidden states are refused for models behind servers before anything is read, or left out if the
    study says so (`skip_unsupported`).
    """
    start = time.perf_counter()
    folder, watcher = StudyFolder(out), watcher or StudyWatcher()
    check_options(study.models, ReaderOptions(**study.reader))
    sets = load_task_sets(study, data_dir)
    left_out = unsupported(study, sets)
    check_methods(study, sets, left_out)
    study = with_names(study)
    left_out = unsupported(study, sets)
    units = without(plan_units(study, sets), left_out)
    if open_reader is None and (force_new or not folder.exists()):
        check_models(study)
    with folder.locked():
        folder.begin(study, sets, force_new)
        if retry:
            folder.forget([unit for unit in units if folder.failures_of(unit)])
        pending = [unit for unit in units if not folder.is_done(unit, study.save_probes)]
        broken: dict[Unit, str] = {}
        weights = weights_of(pending, sets)
        watcher.begin(len(units), len(units) - len(pending), sum(weights.values()))
        for notice in notices(left_out):
            watcher.say(notice)
        if pending:
            folder.forget_results()
            record_environment(folder)
            if not isinstance(cache, ReadingCache):
                cache = ReadingCache(Path(cache) if cache else folder.path / "cache")
            opener = open_reader or _opener(study, cache, watcher)
            run = _Run(study, folder, sets, watcher, weights, broken, left_out, study.load_templates())
            for model, members in groupby(pending, key=attrgetter("model")):
                run.model(model, list(members), opener)
                _free_memory()
        failures = [entry for unit in units for entry in _failures(unit, folder, sets, broken)]
        folder.write(FAILURES, "".join(json.dumps(entry) + "\n" for entry in failures).encode())
        rows = folder.join([unit for unit in units if unit not in broken])
    seconds = time.perf_counter() - start
    return StudyReport(len(units), len(units) - len(pending), rows, failures, seconds, tuple(left_out))


def check_models(study: Study) -> None:
    """Raise an error for a name that cannot be a model, and for a layer that a model stored here does not have.

    A fault that only loading a model shows fails its units, and other models continue.
    """
    for name in study.addresses:
        if is_remote(name):
            continue
        depth = stored_depth(name)
        if depth is not None and any(choice.probe and not choice.embeddings for choice in study.choices):
            parse_layers(study.layers, _Depth(name, depth))


@dataclass(frozen=True)
class _Depth:
    """What `parse_layers` asks of a model."""

    name: str
    depth: int


@dataclass(frozen=True)
class _Run:
    """One run of a study, model by model."""

    study: Study
    folder: StudyFolder
    sets: dict[str, TaskSet]
    watcher: StudyWatcher
    weights: dict[Unit, float]
    broken: dict[Unit, str]
    left_out: Sequence[LeftOutMethod]
    templates: Templates

    def model(self, name: str, units: Sequence[Unit], opener: OpenReader) -> None:
        """All units of one model, which is loaded before and freed after them."""
        try:
            reader = opener(name)
        except CcrankError as error:
            self.watcher.say(f"{name}: {error}")
            self.broken.update(dict.fromkeys(units, reason_of(error)))
            return
        record_model(self.folder, name, reader, [method for method in self.left_out if method.model == name])
        if not reader.behind_server:
            tokens = sum(self.weights[unit] for unit in units) / CHARACTERS_PER_TOKEN
            self.watcher.expect(name, len(units), tokens / tokens_per_second(reader.loaded.model))
        try:
            for _, group in groupby(units, key=attrgetter("group")):
                members = list(group)
                if members[0].choice.probe and reader.gives_states:
                    self._probes(members, reader)
                else:
                    for unit in members:
                        self._guarded(unit, reader, partial(self._ask, unit, reader))
        except UnavailableError as error:
            # A server that can no longer be read fails the rest at once.
            rest = [unit for unit in units if unit not in self.broken and not self.folder.is_done(unit)]
            self.watcher.say(f"{rest[0]}: {error}")
            self.broken.update(dict.fromkeys(rest, reason_of(error)))

    def _ask(self, unit: Unit, reader: OpenModel) -> Outcome:
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
                states = read_states(
                    sorted_tasks,
                    reader,
                    self.templates,
                    unit.layers,
                    paired=unit.choice.paired,
                    position="item" if unit.choice.embeddings else "slot",
                    folder=self.folder.path,
                    isolate=True,
                    progress=self.watcher.reading,
                )
                shared.append(states)
            options = unit.choice.parse_options(self.study.options.get(unit.choice.name, {}))
            return run_probe(
                unit,
                task_set,
                shared[0],
                sorted_tasks,
                orders,
                self.study.seeds,
                settings_of(unit.choice.name, options),
                training_device(reader),
            )

        for unit in units:
            self._guarded(unit, reader, partial(probe, unit))
        for task_states in shared:
            task_states.close()

    def _guarded(self, unit: Unit, reader: OpenModel, work: Callable[[], Outcome]) -> None:
        """Run a unit and store it. One that fails as a whole is not stored, so that the next run repeats it."""
        self.watcher.start(unit)
        start = time.perf_counter()
        try:
            outcome = work()
        except UnavailableError:
            raise
        except RECOVERABLE_ERRORS as error:
            self.broken[unit] = reason_of(error)
            self.watcher.say(f"{unit}: {self.broken[unit]}")
            return
        self.folder.put(unit, outcome, self.study.save_probes)
        seconds = time.perf_counter() - start
        self.watcher.finish(unit, outcome, seconds, self.weights[unit], reader.spent)


def _opener(study: Study, cache: ReadingCache, watcher: StudyWatcher) -> OpenReader:
    options, addresses = ReaderOptions(**study.reader), study.addresses

    def opened(name: str) -> OpenModel:
        if is_remote(name):
            return open_server(addresses[name], cache, watcher.say)
        return Reader.open(name, options, cache=cache, say=watcher.say)

    return opened


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
    failures = folder.failures_of(unit)
    if len(failures) == len(sets[unit.dataset].tasks) and len(set(failures.values())) == 1:
        return [{**where, "task": None, "reason": next(iter(failures.values()))}]
    return [{**where, "task": task, "reason": reason} for task, reason in failures.items()]


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
