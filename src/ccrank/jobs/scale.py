"""A scale that was fixed on a sample: raw signals of any item to its score, item by item.

On the sample, a ranking standardises each signal, averages them and smooths the mean over items with similar states.
Each of these steps has constants, means, deviations and regression weights, which are computed on the sample once and
then applied to items that were not in it. All of them are linear in the hidden states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from ccrank.jobs.linear import Linear, Units
from ccrank.jobs.raw_signals import Plan, RawSignals, read_raw
from ccrank.methods.labelfree.signals import Wording
from ccrank.models import ReaderLike
from ccrank.models.reading import Progress
from ccrank.prompts import Templates
from ccrank.task import Task
from ccrank.util.files import write_atomically


@dataclass(frozen=True)
class SignalScale:
    """Scores items by label-free signals, with the constants of a sample.

    Parameters
    ----------
    plan
        Which signals are read.
    units
        Signal → its constants.
    axis
        The projection on the direction between exemplars, in the units of the sample; None if it is no signal.
    smoothing
        What similar items add to the mean of the signals; None if nothing.
    written
        The probe of texts that were written for the criterion, its weight, and the constants of the mean of all other
        signals; None where there are no such texts.
    labelled
        What labels add, with the constants and the weight of the label-free score; None without labels.
    """

    plan: Plan
    units: Mapping[str, Units]
    axis: Linear | None = None
    smoothing: Linear | None = None
    written: tuple[Linear, float, Units] | None = None
    labelled: tuple[Units, float, Linear] | None = None

    def score(
        self, task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
    ) -> np.ndarray:
        """Scores of any items, (N,): each depends on the item alone."""
        return self.of(read_raw(task, reader, templates, self.plan, progress))

    def of(self, raw: RawSignals) -> np.ndarray:
        """Scores of what was read of some items: (N,)."""
        rows = [self.units[name](values) for name, values in raw.signals.items()]
        if self.axis is not None:
            rows.append(self.axis(*raw.states))
        scores = np.mean(rows, axis=0)
        if self.written is not None:
            probe, share, others = self.written
            scores = share * probe(*raw.states) + (1 - share) * others(scores)
        if self.smoothing is not None:
            scores = scores + self.smoothing(*raw.states)
        if self.labelled is not None:
            units, weight, states = self.labelled
            scores = weight * units(scores) + states(*raw.states)
        return np.asarray(scores)

    def save(self, path: Path) -> None:
        """Write the scale to one safetensors file."""
        about: dict[str, Any] = {
            "template": self.plan.template,
            "poles": self.plan.poles,
            "layers": self.plan.layers,
            "wordings": [(one.template, one.against) for one in self.plan.wordings],
            "units": {name: (one.mean, one.factor) for name, one in self.units.items()},
        }
        tensors = {"empty": np.zeros(1)}
        labelled = None if self.labelled is None else self.labelled[2]
        written = None if self.written is None else self.written[0]
        linear = {"axis": self.axis, "smoothing": self.smoothing, "written": written, "labelled": labelled}
        for name, one in linear.items():
            if one is not None:
                tensors[name] = np.ascontiguousarray(one.weights)
                about[name] = one.offset
        if self.labelled is not None:
            about["prior"] = (self.labelled[0].mean, self.labelled[0].factor, self.labelled[1])
        if self.written is not None:
            about["share"] = (self.written[1], self.written[2].mean, self.written[2].factor)
        header = {"about": json.dumps(about)}
        write_atomically(path, save(tensors, header), sync=True)

    @classmethod
    def load(cls, path: Path) -> SignalScale:
        """A scale from its file."""
        with safe_open(str(path), framework="numpy") as file:
            about = json.loads(file.metadata()["about"])
            found = {
                name: Linear(file.get_tensor(name), about[name])
                for name in ("axis", "smoothing", "written", "labelled")
                if name in about
            }
        plan = Plan(
            about["template"],
            about["poles"],
            tuple(about["layers"]),
            tuple(Wording(*one) for one in about["wordings"]),
        )
        labelled = None
        if "labelled" in found:
            mean, factor, weight = about["prior"]
            labelled = (Units(mean, factor), weight, found["labelled"])
        written = None
        if "written" in found:
            share, mean, factor = about["share"]
            written = (found["written"], share, Units(mean, factor))
        units = {name: Units(*one) for name, one in about["units"].items()}
        return cls(plan, units, found.get("axis"), found.get("smoothing"), written, labelled)
