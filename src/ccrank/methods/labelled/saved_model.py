"""The fitted model as a small file: a linear score of states, for new items without the old list."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.labelled.fit import Fitted
from ccrank.labelled.kernel import Kernel, States
from ccrank.standardise import FLOAT32_ROUNDING, mean_and_deviation

FORMAT = "ccrank-states-probe-1"
MOST_ITEMS = 500
"""The label-free score is regressed on the states of so many items."""
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
        """Scores of any number of items, also of one: each depends on its own states alone. (N,)

        Parameters
        ----------
        states
            (N, L, d) at the slot and at the item, of the layers that the probe was fitted on.
        """
        for one in states:
            if one.ndim != 3 or one.shape[1:] != self.weights.shape[1:]:
                raise CcrankError(
                    f"this probe takes states (N, {self.weights.shape[1]}, {self.weights.shape[2]}), got {one.shape}; "
                    "read them with the model and layers it was fitted on"
                )
        scaled = self.weights / np.where(self.deviation > 0, self.deviation, 1.0) * (self.deviation > 0)
        total = -float(np.sum(scaled * self.mean))
        return np.asarray(
            sum(np.einsum("nld,ld->n", one.astype(float), w) for one, w in zip(states, scaled, strict=True))
            + total
        )

    def save(self, path: str | Path) -> None:
        """One safetensors file, with the notes as JSON in its header.

        Parameters
        ----------
        path
            The file to write.
        """
        tensors = {
            name: np.ascontiguousarray(getattr(self, name)) for name in ("weights", "mean", "deviation")
        }
        header = {
            "format": FORMAT,
            "about": json.dumps({**self.about, "layers": list(self.layers)}, sort_keys=True),
        }
        write_atomically(path, lambda partial: save_file(tensors, str(partial), header))

    @classmethod
    def load(cls, path: str | Path) -> StatesProbe:
        """A probe from its file.

        Parameters
        ----------
        path
            The file.
        """
        try:
            with safe_open(str(path), framework="numpy") as file:
                about = dict(json.loads((file.metadata() or {})["about"]))
                tensors = {name: file.get_tensor(name) for name in ("weights", "mean", "deviation")}
            layers = tuple(int(layer) for layer in about.pop("layers"))
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise CcrankError(
                f"{str(path)!r} is a damaged probe file: {error!r}; fit and save it again"
            ) from None
        return cls(**tensors, layers=layers, about=about)


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
    """Whether a file is one of these probes.

    Parameters
    ----------
    path
        Any file.
    """
    try:
        with safe_open(str(path), framework="numpy") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (SafetensorError, OSError, ValueError):
        return False


def probe_of(fitted: Fitted, kernel: Kernel, layers: tuple[int, ...], **about: Any) -> StatesProbe:
    """The posterior mean as a function of states alone.

    Parameters
    ----------
    fitted
        The model.
    kernel
        The states that it was fitted on.
    layers
        The layers of these states.
    about
        Notes to keep: model, template, wording.

    The part that the states explain is linear in them already: Σ_h p_h s_h K_h α_h. The label-free score is not, so it
    is replaced by its own regression on the states, of the same kernel.
    """
    seen, count = fitted.observations, kernel.count
    duals = np.zeros((len(fitted.products.kernels), len(seen.items)))
    for weight, setting, own in zip(fitted.weights, fitted.settings, fitted.posteriors, strict=True):
        duals += weight * setting.kernel_share * np.outer(setting.groups, seen.contrast.T @ own.dual)
    sample = np.unique(np.linspace(0, count - 1, min(count, MOST_ITEMS)).round().astype(int))
    gram = RESIDUAL * np.eye(len(sample))
    for _, table in kernel.layers():
        gram += 0.25 * table[sample].astype(float) @ table[sample].T.astype(float)
    anchor = 0.25 * fitted.prior_weight * np.linalg.solve(gram, fitted.prior[sample])
    weights = [
        table[seen.items].T @ duals[group] + table[sample].T @ anchor for group, table in kernel.layers()
    ]
    shape = (2, len(layers), -1)
    half = max(1, len(layers) // 2)
    share = np.array([half if place < half else len(layers) - half for place in range(len(layers))])
    width = kernel.lists[0][0].shape[2]
    scale = np.sqrt(width * share)[None, :, None]
    moments = [
        mean_and_deviation(
            np.concatenate([own[position] for own in kernel.lists]).astype(float), 0, FLOAT32_ROUNDING
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
