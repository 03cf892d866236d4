"""The result of a fit: a small frozen direction that scores new items."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccrank.errors import CcrankError
from ccrank.util.files import write_atomically
from ccrank.util.tensors import encode, load
from ccrank.util.zscores import FLOAT32_ROUNDING, Units, mean_and_deviation


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A linear probe σ(θᵀx + b) with its normalisation; callable on the states of a task's items.

    Parameters
    ----------
    weights
        (d,) the direction θ.
    bias
        b.
    mean, deviation
        Fixed normalisation, (d,) or (2, d) if paired: to subtract, and to divide by, where features with deviation 0
        are ignored. None Z-scores within each task.
    paired
        Whether it reads pairs of states, "Yes" and "No".
    about
        Metadata that JSON can represent: method, model, layer, template, position, wording.

    Examples
    --------
    >>> Probe(np.array([1.0, 0.0]), 0.0)(np.array([[1.0, 5.0], [3.0, 5.0]])).round(2).tolist()
    [0.27, 0.73]
    """

    weights: np.ndarray
    bias: float
    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None
    paired: bool = False
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", np.asarray(self.weights))
        if type(self.about.get("layer", 0)) is not int:
            raise CcrankError(f"a probe's layer must be a number, got {self.about['layer']!r}")
        if self.weights.ndim != 1 or not self.weights.size:
            raise CcrankError(f"a probe's weights must be one vector, got shape {self.weights.shape}")
        form = (2, *self.weights.shape) if self.paired else self.weights.shape
        if (self.mean is None) != (self.deviation is None):
            raise CcrankError(
                "a probe needs both mean and deviation, or neither (to Z-score within each task)"
            )
        for name, value in (("mean", self.mean), ("deviation", self.deviation)):
            if value is not None and np.shape(value) != form:
                raise CcrankError(
                    f"a probe's {name} has shape {np.shape(value)}; expected {form} for its weights"
                )

    @property
    def normalisation(self) -> str:
        """ "within-task" or "fixed"."""
        return "within-task" if self.mean is None else "fixed"

    def __call__(self, states: Any) -> np.ndarray:
        """Scores in [0, 1]; higher is more only if `about["directed"]` is true, else the direction is unknown.

        Parameters
        ----------
        states
            (N, d), or (P, 2, d) for a probe on pairs; the scores are (N,) or (P,).
        """
        values = _as_array(states)
        form = "(P, 2, d)" if self.paired else "(N, d)"
        if values.ndim != 2 + self.paired or values.shape[-1] != len(self.weights):
            raise CcrankError(
                f"this probe needs states {form} with d = {len(self.weights)}, got shape {values.shape}; "
                "use the model and layer it was fitted on"
            )
        if self.paired and values.shape[1] != 2:
            raise CcrankError(f"this probe needs states (P, 2, d), Yes then No, got shape {values.shape}")
        if self.normalisation == "within-task" and len(values) < 2:
            raise CcrankError(
                f"this probe Z-scores within a task and got {len(values)} item; give at least 2, or fix "
                "the normalisation with `Probe.with_fixed`"
            )
        if self.mean is None or self.deviation is None:
            units = Units.of(values, axis=0, rounding=FLOAT32_ROUNDING)
        else:
            units = Units(self.mean.astype(np.float64), self.deviation.astype(np.float64))
        logits = units(values) @ self.weights.astype(np.float64) + self.bias
        scores = 0.5 * (1 + np.tanh(0.5 * logits))  # the sigmoid, without overflow
        return np.asarray(0.5 * (scores[:, 0] + 1 - scores[:, 1]) if self.paired else scores)

    def with_fixed(self, states: Any) -> Probe:
        """A copy of the probe with the normalisation of these states, so that items can be scored one by one.

        Parameters
        ----------
        states
            (N, d).
        """
        mean, deviation = mean_and_deviation(_as_array(states), axis=0, rounding=FLOAT32_ROUNDING)
        return Probe(self.weights, self.bias, mean[0], deviation[0], self.paired, dict(self.about))

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: weights, bias and normalisation, with the metadata as JSON in its header.

        Parameters
        ----------
        path
            The file.
        """
        write_atomically(path, encode(self))

    @classmethod
    def load(cls, path: str | Path) -> Probe:
        """Load a probe that was written by `save`.

        Parameters
        ----------
        path
            The file.
        """
        return load(cls, path)


def _as_array(states: Any) -> np.ndarray:
    if isinstance(states, torch.Tensor):
        states = states.detach().to("cpu", torch.float64).numpy()
    return np.asarray(states, dtype=np.float64)
