"""The fitted model as a small file: a linear score of states, for new items without the old list."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ccrank.errors import CcrankError
from ccrank.methods.labelled.fit import Fitted
from ccrank.methods.labelled.prior import Kernel, States
from ccrank.methods.probing.probe import read_safetensors
from ccrank.util.files import write_atomically
from ccrank.util.zscores import FLOAT32_ROUNDING, mean_and_deviation

FORMAT = "ccrank-states-probe-1"
MAX_VALUE = 1e30
"""Larger values overflow, and NaN is not below it."""
MAX_ITEMS = 500
"""Items on whose states the label-free score is regressed."""
RESIDUAL = 0.5
"""The variance of what the states do not explain of it, beside a kernel of unit variance."""


@dataclass(frozen=True, slots=True, eq=False)
class StatesProbe:
    """A linear score of the states of several layers at both positions, with a fixed normalisation."""

    weights: np.ndarray
    """(2, L, d) at the slot and at the item."""
    mean: np.ndarray
    """(2, L, d)"""
    deviation: np.ndarray
    """(2, L, d); where it is 0 the dimension is left out."""
    layers: tuple[int, ...]
    about: dict[str, Any] = field(default_factory=dict)
    """Notes that JSON can hold: model, template, wording."""

    def __call__(self, states: States) -> np.ndarray:
        """Scores of any number of items: each depends on its states alone. (N, L, d) twice -> (N,)"""
        for table in states:
            if table.ndim != 3 or table.shape[1:] != self.weights.shape[1:]:
                layers, width = self.weights.shape[1:]
                raise CcrankError(
                    f"this probe takes states (N, {layers}, {width}), got {table.shape}; read them with the model and "
                    "layers it was fitted on"
                )
        scaled = self.weights / np.where(self.deviation > 0, self.deviation, 1.0) * (self.deviation > 0)
        scores = [
            np.einsum("nld,ld->n", table.astype(float), weights)
            for table, weights in zip(states, scaled, strict=True)
        ]
        return np.asarray(scores[0] + scores[1] - float(np.sum(scaled * self.mean)))

    def save(self, path: str | Path) -> None:
        """One safetensors file, with the notes as JSON in its header."""
        tensors = {
            name: np.ascontiguousarray(getattr(self, name)) for name in ("weights", "mean", "deviation")
        }
        header = {
            "format": FORMAT,
            "about": json.dumps({**self.about, "layers": list(self.layers)}, sort_keys=True),
        }
        write_atomically(path, save(tensors, header))

    @classmethod
    def load(cls, path: str | Path) -> StatesProbe:
        """A probe from its file."""
        header, tensors = read_safetensors(path)
        try:
            about = dict(json.loads(header["about"]))
            layers = tuple(int(layer) for layer in about.pop("layers"))
            if not all((np.abs(value) < MAX_VALUE).all() for value in tensors.values()):
                raise ValueError("it has values that are no numbers, or too large ones")
            if any(value.shape[:2] != (2, len(layers)) or value.ndim != 3 for value in tensors.values()):
                raise ValueError(f"its arrays do not fit its {len(layers)} layers")
            return cls(tensors["weights"], tensors["mean"], tensors["deviation"], layers, about)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CcrankError(
                f"{str(path)!r} is a damaged probe file: {error!r}; fit and save it again"
            ) from None


@dataclass(frozen=True, eq=False)
class UnsavedProbe:
    """The probe of a fit, made when it is asked for: most rankings never need it."""

    fitted: Fitted
    kernel: Kernel
    layers: tuple[int, ...]
    about: dict[str, Any]

    @cached_property
    def probe(self) -> StatesProbe:
        """The probe itself."""
        return probe_of(self.fitted, self.kernel, self.layers, **self.about)

    def __call__(self, states: States) -> np.ndarray:
        """See `StatesProbe`."""
        return self.probe(states)

    def save(self, path: str | Path) -> None:
        """See `StatesProbe.save`."""
        self.probe.save(path)


def is_states_probe(path: str | Path) -> bool:
    """Whether a file is one of these probes."""
    try:
        return read_safetensors(path)[0].get("format") == FORMAT
    except CcrankError:
        return False


def probe_of(fitted: Fitted, kernel: Kernel, layers: tuple[int, ...], **about: Any) -> StatesProbe:
    """The posterior mean as a function of states alone."""
    seen, count = fitted.observations, kernel.count
    duals = np.zeros((len(fitted.products.kernels), len(seen.items)))
    for weight, setting, posterior in zip(fitted.weights, fitted.settings, fitted.posteriors, strict=True):
        duals += weight * setting.kernel_share * np.outer(setting.groups, seen.contrast.T @ posterior.dual)
    sample = np.unique(np.linspace(0, count - 1, min(count, MAX_ITEMS)).round().astype(int))
    gram = RESIDUAL * np.eye(len(sample))
    for _, table in kernel.layers():
        gram += 0.25 * table[sample].astype(float) @ table[sample].T.astype(float)
    anchor = 0.25 * fitted.prior_weight * np.linalg.solve(gram, fitted.prior[sample])
    weights = [
        table[seen.items].T @ duals[group] + table[sample].T @ anchor for group, table in kernel.layers()
    ]
    shape = (2, len(layers), -1)
    half = max(1, len(layers) // 2)
    share = np.array([half if layer < half else len(layers) - half for layer in range(len(layers))])
    width = kernel.lists[0][0].shape[2]
    scale = np.sqrt(width * share)[None, :, None]
    moments = [
        mean_and_deviation(
            np.concatenate([states[position] for states in kernel.lists]).astype(float),
            0,
            FLOAT32_ROUNDING,
        )
        for position in range(2)
    ]
    return StatesProbe(
        np.stack(weights).reshape(shape) / scale,
        np.stack([mean[0] for mean, _ in moments]),
        np.stack([deviation[0] for _, deviation in moments]),
        tuple(layers),
        {"method": "auto", "directed": True, **about},
    )
