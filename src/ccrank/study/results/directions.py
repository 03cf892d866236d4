"""The directions of a study's probes: storing them, and how far they agree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.study.results.load import DIRECTIONS
from ccrank.util.files import write_atomically

SINGLE = "single"
"""The split of a method that joins several runs, where each run has its own rows."""
SPLITS = ("none", "same-task", "leave-one-out", "across-tasks", "across-items", SINGLE)
"""From the paper's main setting to the hardest one, then single runs."""
MAX_OWNERS = 400
"""Maximal number of tasks whose directions are compared; of more, evenly spaced ones are."""


@dataclass(frozen=True)
class Directions:
    """The weight vectors of the probes of one unit of a study."""

    model: str
    dataset: str
    method: str
    split: str
    seeds: tuple[int, ...]
    owners: tuple[str, ...]
    """What each was trained on: the id of a task, or the fold that was held out."""
    weights: Mapping[int, np.ndarray]
    """Layer → (owners, seeds, d)"""

    @property
    def name(self) -> str:
        """The method with its split."""
        return self.method if self.split == "none" else f"{self.method}:{self.split}"

    def save(self, path: Path) -> None:
        """Write one safetensors file: a tensor per layer, and what it is about as JSON in the header."""
        from safetensors.numpy import save

        about = {
            name: getattr(self, name) for name in ("model", "dataset", "method", "split", "seeds", "owners")
        }
        tensors = {str(layer): np.ascontiguousarray(rows) for layer, rows in self.weights.items()}
        write_atomically(path, save(tensors, {"about": json.dumps(about)}), sync=True)

    @classmethod
    def load(cls, path: Path) -> Directions:
        """Read a file that `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                about = json.loads((file.metadata() or {})["about"])
                weights = {int(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about |= {name: tuple(about[name]) for name in ("seeds", "owners")}
            shape = (len(about["owners"]), len(about["seeds"]))
            if any(rows.ndim != 3 or rows.shape[:2] != shape for rows in weights.values()):
                raise ValueError(f"its tensors are not of {shape[0]} tasks and {shape[1]} seeds")
            return cls(**about, weights=weights)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise CcrankError(
                f"the directions in {path} cannot be read: {error}; delete the file and run `ccrank bench` again"
            ) from None


def load_directions(folder: str | Path) -> list[Directions]:
    """The directions that a study stored (`ccrank bench --save-probes`)."""
    paths = sorted((Path(folder) / DIRECTIONS).glob("*.safetensors"))
    if not paths:
        raise CcrankError(
            f"{folder} has no directions of probes; `ccrank bench --out {folder} --save-probes` stores them"
        )
    return [Directions.load(path) for path in paths]


def compare_directions(directions: Sequence[Directions], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Mean |cosine| between directions, by model, dataset and layer, and its expectation for random directions.

    Within a method: between seeds of the same task (or fold), and between tasks (folds) of different seeds, since equal
    seeds share their start. Between two methods: on the same task (fold), with equal and with different seeds. A method
    is NAME[@VARIANT][:SPLIT]; without a split the main one: same-task.
    """
    groups: dict[tuple[str, str], list[Directions]] = {}
    for unit in directions:
        groups.setdefault((unit.model, unit.dataset), []).append(unit)
    rows: list[dict[str, Any]] = []
    for (model, dataset), units in groups.items():
        chosen = [_unit_of(method, units) for method in methods]
        for first, second in combinations_with_replacement(chosen, 2):
            rows += ({"model": model, "dataset": dataset, **row} for row in _between(first, second))
    return rows


def _unit_of(method: str, units: Sequence[Directions]) -> Directions:
    """The directions of a method, in the main setting if it has several."""
    for unit in sorted(units, key=lambda unit: SPLITS.index(unit.split)):
        if method in (unit.name, unit.method):
            return unit
    known = ", ".join(sorted(unit.name for unit in units))
    raise CcrankError(f"there are no directions of {method!r}; the study stored {known}")


def _between(first: Directions, second: Directions) -> Iterator[dict[str, Any]]:
    shared = [owner for owner in first.owners if owner in second.owners]
    if len(shared) > MAX_OWNERS:
        shared = [shared[index * len(shared) // MAX_OWNERS] for index in range(MAX_OWNERS)]
    for layer in first.weights:
        if layer not in second.weights or not shared:
            continue
        rows, columns = (
            _unit(unit.weights[layer][[unit.owners.index(owner) for owner in shared]])
            for unit in (first, second)
        )
        cosines = np.abs(np.einsum("asd,btd->abst", rows, columns))
        same_owner = np.eye(len(shared), dtype=bool)[:, :, None, None]
        same_seed = np.array([[a == b for b in second.seeds] for a in first.seeds])[None, None]
        single = len(first.seeds) == 1 or len(second.seeds) == 1
        what = "folds" if first.split.startswith("across") else "tasks"
        if first is second:
            relations = {"seeds": same_owner & ~same_seed, what: ~same_owner & (~same_seed | single)}
        else:
            relations = {"same seed": same_owner & same_seed, "other seeds": same_owner & ~same_seed}
        for relation, mask in relations.items():
            mask = np.broadcast_to(mask, cosines.shape)
            if mask.any():
                yield {
                    "layer": layer,
                    "first": first.name,
                    "second": second.name,
                    "relation": relation,
                    "cosine": float(cosines[mask].mean()),
                    "random": random_cosine(rows.shape[-1]),
                    "pairs": int(mask.sum()) // (2 if first is second else 1),
                }


def random_cosine(width: int) -> float:
    """E|cos| between two random directions of `width` dimensions: Γ(d/2) / (√π Γ((d + 1)/2))."""
    return math.exp(math.lgamma(width / 2) - math.lgamma((width + 1) / 2)) / math.sqrt(math.pi)


def _unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))
