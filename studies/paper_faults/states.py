"""Faults of the paper that probes on a model's states show; see paper_faults.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.api import rank_tasks
from ccrank.methods.probe_pipeline.states import read_single_states
from ccrank.methods.probing.fits import cross_validate, fit_each, held_out_scores, leave_one_item_out
from ccrank.methods.probing.objectives import Settings
from ccrank.metrics.chance import chance_abs_tau
from ccrank.metrics.order import kendall_tau
from ccrank.metrics.tasks import mean_with_interval
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.ranking import canonical
from ccrank.task import Task
from studies.paper_faults.formulas import Finding

PROBES = ("ccs", "margin", "triplet", "ordreg")


@dataclass(frozen=True)
class Material:
    """Tasks with gold and the states of their items at the slot, in one layer."""

    tasks: list[Task]
    states: list[np.ndarray]
    reader: Reader
    about: str

    @property
    def gold(self) -> list[np.ndarray]:
        return [np.asarray(task.values, dtype=float) for task in self.tasks]


def material(tasks: Iterable[Task], reader: Reader, layer: int = -1, name: str = "") -> Material:
    """The states of these tasks' items."""
    kept = [canonical(task)[0] for task in tasks if task.values is not None]
    states, _ = read_single_states(kept, Prompter(reader), [layer])
    about = f"{name or reader.name}, {len(kept)} tasks, layer {layer % (reader.depth + 1)} of {reader.depth}"
    return Material(kept, [own[:, 0] for own in states], reader, about)


def direction(given: Material, seeds: int = 5) -> Finding:
    """Scores of undirected probes and of a directed signal: signed, one direction for all tasks, one for each task."""
    rows = []
    floor = float(np.mean([chance_abs_tau(len(own)) for own in given.gold]))
    for name in ("random", "pca", "triplet"):
        own = range(1 if name == "pca" else seeds)
        scores = fit_each(given.states, name, seeds=list(own)).scores(given.states)
        taus = np.array(
            [[kendall_tau(row, gold) for row in task] for task, gold in zip(scores, given.gold, strict=True)]
        )
        rows.append((name, *_directions(taus), floor))
    rankings = rank_tasks(given.tasks, given.reader, "poles")
    taus = np.array([[kendall_tau(one.scores, gold)] for one, gold in zip(rankings, given.gold, strict=True)])
    rows.append(("poles (directed)", *_directions(taus), floor))
    return Finding(
        f"Mean τ by how the direction is chosen ({given.about})",
        (
            "method",
            "as it is",
            "one for all tasks, by gold",
            "one for each task, by gold",
            "chance of the last",
        ),
        tuple(rows),
        "Choosing the direction of each task by its gold lifts the τ of a random direction from "
        f"{rows[0][1]:.2f} to {rows[0][3]:.2f},\nnear the chance level of |τ| ({floor:.2f}). "
        "A user without gold gets the first column.",
    )


def _directions(taus: np.ndarray) -> tuple[float, float, float]:
    """Means over tasks and seeds: as they are, reversed for all tasks of a seed where that is better, or per task."""
    return float(taus.mean()), float(np.abs(taus.mean(axis=0)).mean()), float(np.abs(taus).mean())


def start(given: Material, seeds: int = 5) -> Finding:
    """Probes before and after their 200 epochs."""
    numbers = list(range(seeds))
    before = fit_each(given.states, "random", seeds=numbers).scores(given.states)
    rows = []
    for name in PROBES:
        untrained = fit_each(given.states, name, seeds=numbers, settings=Settings(epochs=0))
        trained = fit_each(given.states, name, seeds=numbers)
        after = trained.scores(given.states)
        kept, agreement, found = [], [], []
        for old, new, gold in zip(before, after, given.gold, strict=True):
            for first, second in zip(old, new, strict=True):
                kept.append(bool((np.argsort(first) == np.argsort(second)).all()))
                agreement.append(kendall_tau(second, first))
                found.append(abs(kendall_tau(second, gold)))
        rows.append(
            (
                name,
                float(untrained.loss.mean()),
                float(trained.loss.mean()),
                f"{np.mean(kept):.0%}",
                float(np.mean(agreement)),
                float(np.mean(found)),
            )
        )
    for name, scores in (
        ("random", before),
        ("pca", fit_each(given.states, "pca", seeds=[0]).scores(given.states)),
    ):
        value = np.mean(
            [
                abs(kendall_tau(row, gold))
                for task, gold in zip(scores, given.gold, strict=True)
                for row in task
            ]
        )
        rows.append((name, "", "", "", "", float(value)))
    rows.append(("chance", "", "", "", "", float(np.mean([chance_abs_tau(len(own)) for own in given.gold]))))
    return Finding(
        f"Probes against their own random start, {seeds} seeds ({given.about})",
        ("probe", "loss before", "after", "same order as at the start", "τ with the start", "|τ| with gold"),
        tuple(rows),
        f"Training lowers the losses of margin and triplet to {rows[1][2]:.2f} and {rows[2][2]:.2f}, "
        "mostly by spreading the scores in\nthe order in which they start "
        f"(τ = {rows[1][4]:.2f} and {rows[2][4]:.2f} with it): these losses prefer no order to another.\n"
        "The principal component spreads scores most and needs no training.",
    )


def ceiling(given: Material, seed: int = 0) -> Finding:
    """Supervised probes on the same task, with the item left out and on other tasks, given gold and shuffled gold."""
    generator = np.random.default_rng(seed)
    shuffled = [generator.permutation(own) for own in given.gold]
    rows = []
    for name in ("sup-ccs", "sup-margin", "sup-ordreg"):
        cells: list[Any] = []
        for gold in (given.gold, shuffled):
            fitted = fit_each(given.states, name, gold=gold, seeds=[seed]).scores(given.states)
            cells.append(_mean([kendall_tau(own[0], known) for own, known in zip(fitted, gold, strict=True)]))
        for gold in (given.gold, shuffled):
            left = leave_one_item_out(given.states, name, gold, seeds=[seed])
            held = [held_out_scores(own)[0] for own in left]
            cells.append(
                _mean([kendall_tau(own, known) for own, known in zip(held, gold, strict=True)], True)
            )
        for gold in (given.gold, shuffled):
            _, across = cross_validate(given.states, name, gold=gold, seeds=[seed])
            cells.append(
                _mean([kendall_tau(own[0], known) for own, known in zip(across, gold, strict=True)], True)
            )
        rows.append((name, *cells))
    sizes = [len(own) for own in given.gold]
    return Finding(
        f"τ of supervised probes ({given.about}; {min(sizes)} to {max(sizes)} items in {given.states[0].shape[1]} "
        "dimensions)",
        ("probe", "same task", "shuffled", "item left out", "shuffled", "other tasks", "shuffled"),
        tuple(rows),
        "Trained and tested on the same task, a linear probe fits shuffled gold as well as gold: such a ceiling says\n"
        "nothing about the model or the prompt. Trained on other tasks, it follows gold alone.",
    )


def _mean(taus: Sequence[float], interval: bool = False) -> str:
    found = mean_with_interval(taus, np.random.default_rng(0))
    return f"{found.mean:+.2f}" + (f" [{found.low:+.2f}, {found.high:+.2f}]" if interval else "")
