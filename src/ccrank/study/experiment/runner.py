"""Running a study: finished units are skipped, failures are recorded, and the remaining units continue."""

from __future__ import annotations

import gc
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ccrank.errors import RECOVERABLE_ERRORS, CcrankError, UnavailableError, reason_of
from ccrank.jury import SEPARATOR, weights_by_size
from ccrank.methods.probe_pipeline.rankers import training_device
from ccrank.methods.probe_pipeline.states import TaskStates, read_states
from ccrank.methods.probing.objectives import settings_of
from ccrank.models import Cost, Reader, ReadingCache
from ccrank.models.capacity import tokens_per_second
from ccrank.models.load.hub import stored_depth
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import parse_layers
from ccrank.models.remote import OpenModel, RemoteReader, is_remote
from ccrank.models.remote.address import check_options
from ccrank.prompts import Templates
from ccrank.ranking import canonical
from ccrank.reader_options import ReaderOptions
from ccrank.study.experiment.execute import Outcome, run_jury, run_method, run_probe
from ccrank.study.experiment.study import EMBEDDINGS, Study
from ccrank.study.experiment.study_folder import StudyFolder, record_environment, record_model
from ccrank.study.experiment.units import (
    CHARACTERS_PER_TOKEN,
    TaskSet,
    Unit,
    load_task_sets,
    supported_units,
    weights_of,
    with_names,
)
from ccrank.study.results.load import FAILURES, load_environment
from ccrank.study.results.schema import unit_rows

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
    left_out: Mapping[str, list[str]] = field(default_factory=dict)
    """Model behind a server → methods that it cannot run."""


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
    """See `ccrank.study.run_study`; `open_reader` replaces loading models by name.

    Methods that need hidden states are refused for models behind servers before anything is read, or left out if the
    study says so (`skip_unsupported`).
    """
    folder, watcher = StudyFolder(out), watcher or StudyWatcher()
    check_options(study.models, ReaderOptions(**study.reader))
    sets = load_task_sets(study, data_dir)
    supported_units(study, sets)  # refuses a study before a server is asked for a name
    study = with_names(study)
    units, left_out = supported_units(study, sets)
    if open_reader is None and (force_new or not folder.exists()):
        check_models(study)
    with folder.locked():
        folder.begin(study, sets, force_new)
        if retry:
            folder.forget(unit for unit in units if folder.failures_of(unit))
        pending = [unit for unit in units if not folder.is_done(unit, study.save_probes)]
        weights = weights_of(pending, sets)
        watcher.begin(len(units), len(units) - len(pending), sum(weights.values()))
        for model, methods in left_out.items():
            left = ", ".join(methods)
            watcher.say(f"{model} is behind a server, which gives no hidden states; left out for it: {left}")
        run = _Run(study, folder, sets, watcher, weights, study.load_templates())
        if pending:
            folder.forget()
            record_environment(folder)
            if not isinstance(cache, ReadingCache):
                cache = ReadingCache(Path(cache) if cache else folder.path / "cache")
            opener = open_reader or _opener(study, cache, watcher)
            for model, members in groupby(pending, key=attrgetter("model")):
                run.model(model, list(members), opener, left_out.get(model, []))
                _free_memory()
        failures = [entry for unit in units for entry in run.failures_of(unit)]
        folder.write(FAILURES, "".join(json.dumps(entry) + "\n" for entry in failures).encode())
        finished = [unit for unit in units if unit not in run.broken]
        if study.jury:
            finished += run.juries(finished)
        rows = folder.join(finished)
    return StudyReport(len(units), len(units) - len(pending), rows, failures, left_out)


def check_models(study: Study) -> None:
    """Raise an error for a name that cannot be a model, and for a layer that a model stored here does not have.

    A fault that shows only when a model is loaded fails the units of that model, and other models continue.
    """
    reads_layers = any(choice.states not in (None, EMBEDDINGS) for choice in study.choices)
    for name in study.addresses:
        depth = None if is_remote(name) else stored_depth(name)
        if depth is not None and reads_layers:
            parse_layers(study.layers, _Depth(name, depth))


class _Depth(NamedTuple):
    """What `parse_layers` asks of a model."""

    name: str
    depth: int


@dataclass(frozen=True)
class _Run:
    """One run of a study, model by model."""

    study: Study
    folder: StudyFolder
    sets: Mapping[str, TaskSet]
    watcher: StudyWatcher
    weights: Mapping[Unit, float]
    templates: Templates
    broken: dict[Unit, str] = field(default_factory=dict)
    """Units that failed as a whole → reason."""

    def model(self, name: str, units: Sequence[Unit], opener: OpenReader, left_out: Sequence[str]) -> None:
        """All units of one model, which is loaded before and freed after them."""
        try:
            reader = opener(name)
        except CcrankError as error:
            self.watcher.say(f"{name}: {error}")
            self.broken.update(dict.fromkeys(units, reason_of(error)))
            return
        record_model(self.folder, name, reader, left_out)
        if not reader.behind_server:
            tokens = sum(self.weights[unit] for unit in units) / CHARACTERS_PER_TOKEN
            self.watcher.expect(name, len(units), tokens / tokens_per_second(reader.loaded.model))
        try:
            for _, group in groupby(units, key=attrgetter("group")):
                self._group(group, reader)
        except UnavailableError as error:
            # A server that can no longer be read fails the rest at once.
            rest = [unit for unit in units if unit not in self.broken and not self.folder.is_done(unit)]
            self.watcher.say(f"{rest[0]}: {error}")
            self.broken.update(dict.fromkeys(rest, reason_of(error)))

    def _group(self, units: Iterable[Unit], reader: OpenModel) -> None:
        """Run and store units that probe the same states, which are read once, for the first of them, or a single unit
        of another method. A unit that fails as a whole is not stored, so that the next run repeats it."""
        states: TaskStates | None = None
        for unit in units:
            self.watcher.start(unit)
            start = time.perf_counter()
            task_set, options = self.sets[unit.dataset], self.study.options_of(unit.choice)
            try:
                if unit.choice.states and reader.gives_states:
                    states = states or self._states(unit, reader)
                    settings, device = settings_of(unit.choice.name, options), training_device(reader)
                    outcome = run_probe(unit, task_set, states, self.study.seeds, settings, device)
                else:
                    progress = self.watcher.reading
                    outcome = run_method(unit, task_set, reader, self.templates, options, progress)
            except UnavailableError:
                raise
            except RECOVERABLE_ERRORS as error:
                self.broken[unit] = reason_of(error)
                self.watcher.say(f"{unit}: {self.broken[unit]}")
                continue
            self.folder.put(unit, outcome, self.study.save_probes)
            seconds = time.perf_counter() - start
            self.watcher.finish(unit, outcome, seconds, self.weights[unit], reader.spent)

    def _states(self, unit: Unit, reader: Reader) -> TaskStates:
        return read_states(
            [canonical(task)[0] for task in self.sets[unit.dataset].tasks],
            Prompter(reader, self.templates, self.watcher.reading),
            unit.layers,
            paired=unit.choice.states == "pair",
            position="item" if unit.choice.states == EMBEDDINGS else "slot",
            folder=self.folder.path,
            isolate=True,
        )

    def failures_of(self, unit: Unit) -> list[dict[str, Any]]:
        """Entries of the list of failures; a reason shared by all tasks of a unit is one entry."""
        reasons, whole = self.folder.failures_of(unit), self.broken.get(unit)
        if (
            whole is None
            and len(reasons) == len(self.sets[unit.dataset].tasks)
            and len({*reasons.values()}) == 1
        ):
            [whole] = {*reasons.values()}
        failures: Iterable[tuple[str | None, str]] = reasons.items() if whole is None else [(None, whole)]
        where = {
            "model": unit.model,
            "dataset": unit.dataset,
            "method": unit.choice.label,
            "split": unit.choice.split,
        }
        return [{**where, "task": task, "reason": reason} for task, reason in failures]

    def juries(self, units: Iterable[Unit]) -> list[Unit]:
        """Store the jury of all models for each dataset and each method that knows the direction and is not a probe."""
        models, facts = [*self.study.addresses], load_environment(self.folder.path)["models"]
        groups: dict[tuple[str, str], list[Unit]] = defaultdict(list)
        for unit in units:
            if unit.choice.method.directed and not unit.choice.states:
                groups[unit.dataset, str(unit.choice)].append(unit)
        stated = [
            facts[name].get("parameters") or facts[name]["weights"].get("parameters") for name in models
        ]
        weights = weights_by_size([count if isinstance(count, int) else None for count in stated])
        juries = []
        for members in groups.values():
            if len(members) == len(models):  # else one failed
                jury = replace(members[0], model=SEPARATOR.join(models))
                rows = [unit_rows(self.folder.unit_path(unit)) for unit in members]
                self.folder.put(jury, run_jury(jury, self.sets[jury.dataset], rows, weights))
                juries.append(jury)
        return juries


def _opener(study: Study, cache: ReadingCache, watcher: StudyWatcher) -> OpenReader:
    options, addresses = ReaderOptions(**study.reader), study.addresses

    def opened(name: str) -> OpenModel:
        if is_remote(name):  # it is checked for changes after each block of readings
            return RemoteReader.open(addresses[name], cache=cache, check_after=0.0, say=watcher.say)
        return Reader.open(name, options, cache=cache, say=watcher.say)

    return opened


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
