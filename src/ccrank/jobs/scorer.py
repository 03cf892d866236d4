"""Scoring blocks of items on the scale of a sample, by the method that ranked the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.jobs.fit_scale import fit_signal_scale
from ccrank.jobs.job_folder import PROBE, SCALE
from ccrank.jobs.raw_signals import SIGNAL_METHODS
from ccrank.jobs.scale import SignalScale
from ccrank.methods.probe_pipeline.probe_rankers import apply_probe
from ccrank.methods.probing.probe import Probe
from ccrank.methods.registry import SAVED_PROBE, get_method
from ccrank.models import Reader
from ccrank.models.reading import Progress
from ccrank.prompts import Templates
from ccrank.ranking import Ranking, canonical
from ccrank.task import Task

AT_A_TIME = 256
"""Items whose states are in memory at a time."""
Blocks = Iterable[tuple[int, list[str]]]
Scored = Iterator[tuple[int, np.ndarray]]
Engine = Callable[[Blocks], Scored]
"""(block, its items) → (block, their scores), in any order."""


@dataclass(frozen=True)
class BlockScorer:
    """Scores items one block at a time; each score depends on the item and on the scale alone."""

    task: Task
    """The sample: the criterion, the context, and at least two items."""
    reader: Reader
    templates: Templates
    scale: SignalScale | None = None
    """For a method of signals."""
    probe: Path | None = None
    """For a method of probes: a file with fixed normalisation."""

    @classmethod
    def load(cls, folder: Path, task: Task, reader: Reader, templates: Templates) -> BlockScorer:
        """The scorer of a folder in which `fit_scorer` stored what it fitted."""
        if (path := folder / SCALE).exists():
            return cls(task, reader, templates, scale=SignalScale.load(path))
        return cls(task, reader, templates, probe=folder / PROBE)

    def __call__(self, items: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """(N,) scores of different items."""
        if not items:
            return np.zeros(0)
        # A task has two items at least, so an item of the sample is added to a single one.
        own = items if len(items) > 1 else [*items, next(one for one in self.task.items if one != items[0])]
        # Of equal lengths, so that none has a single item.
        cuts = np.linspace(0, len(own), 1 + -(-len(own) // AT_A_TIME)).round().astype(int)
        scores = [
            self._score(replace(self.task, items=tuple(own[start:stop]), values=None), progress)
            for start, stop in pairwise(cuts)
        ]
        return np.concatenate(scores)[: len(items)]

    def _score(self, task: Task, progress: Progress | None) -> np.ndarray:
        if self.scale is not None:
            return self.scale.score(task, self.reader, self.templates, progress)
        file = str(self.probe)
        [answer] = apply_probe([task], self.reader, self.templates, file=file, progress=progress)
        return answer.scores


def local_engine(scorer: BlockScorer) -> Engine:
    """Scores blocks in this process, one after the other."""
    return lambda blocks: ((number, scorer(items)) for number, items in blocks)


def check_streamable(method: str) -> None:
    """Raise an error for a method that cannot score an item by itself."""
    objective = get_method(method).objective
    fits_probe = objective is not None and not objective.supervised and objective.prompt != "pair"
    if method not in (*SIGNAL_METHODS, SAVED_PROBE) and not fits_probe:
        raise CcrankError(
            f"{method} compares the items of a list with each other, so it cannot score more items than the sample; "
            f"use --method auto, another of {', '.join(SIGNAL_METHODS)}, a probe, or a larger --sample"
        )


def fit_scorer(
    folder: Path,
    ranking: Ranking,
    reader: Reader,
    templates: Templates,
    options: Mapping[str, Any],
    progress: Progress | None = None,
) -> None:
    """Store what it takes to put further items on the scale of a ranked sample."""
    task, _ = canonical(ranking.task)
    if ranking.method in SIGNAL_METHODS:
        fit_signal_scale(task, reader, templates, ranking.method, options, ranking.probe, progress).save(
            folder / SCALE
        )
        return
    _fixed_probe(task, ranking, reader, templates, options, progress).save(folder / PROBE)


def _fixed_probe(
    task: Task,
    ranking: Ranking,
    reader: Reader,
    templates: Templates,
    options: Mapping[str, Any],
    progress: Progress | None,
) -> Any:
    """The probe of the ranking, normalised by the states of the sample."""
    from ccrank.methods.labelled.saved_model import StatesProbe, is_states_probe
    from ccrank.methods.probe_pipeline.probe_rankers import states_as_fitted

    if ranking.method == SAVED_PROBE:
        file = str(options.get("file", ""))
        if is_states_probe(file):
            return StatesProbe.load(file)
        probe = Probe.load(file)
    else:
        probe = ranking.probe
    if not isinstance(probe, Probe):
        raise CcrankError(
            f"{ranking.method} fits several layers at once, which cannot be saved as a probe; choose one with --layer"
        )
    if probe.paired:
        raise CcrankError(
            f"{ranking.method} reads pairs of items, so it cannot score an item by itself; use a probe on single items"
        )
    if probe.normalisation == "fixed":
        return probe
    states = states_as_fitted(probe, [task], reader, templates, progress)
    [own] = states.of_layer(0)
    return probe.with_fixed(own)
