"""The expected time, memory and download of each model of a study, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import prod
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from ccrank.models.capacity import expected_speed, matmul_rate
from ccrank.models.load.catalog import BYTES, ROOM, choices_of, hub_models, named_models
from ccrank.models.load.hub import on_disk
from ccrank.models.load.transformers_settings import choose_device, choose_dtype
from ccrank.models.remote import is_remote
from ccrank.reader_options import ReaderOptions
from ccrank.study.experiment.study import Study
from ccrank.study.experiment.study_folder import StudyFolder
from ccrank.study.experiment.units import CHARACTERS_PER_TOKEN, TaskSet, plan_units, weights_of
from ccrank.util.files import parse_toml

HUB_SECONDS = 5
HUB_BYTES = 2
"""Bytes per weight in most files on the hub; older models have twice as many."""


@dataclass(frozen=True)
class ModelEstimate:
    """What one model of a study needs; None for what is not known."""

    model: str
    units: int
    """Units that are still to be run."""
    tokens: int
    """Distinct tokens that they read."""
    parameters: int | None = None
    memory: int | None = None
    """Bytes of the weights and room for a pass, in the precision of the study."""
    download: int | None = None
    """Bytes; 0 if the model is on this machine."""
    seconds: float | None = None
    """On this machine: reading alone, at the rate that a matrix product reaches here."""


def estimate(study: Study, sets: Mapping[str, TaskSet], out: str | Path) -> list[ModelEstimate]:
    """One estimate for each model of the study, for what its folder does not contain yet."""
    folder, options = StudyFolder(out), ReaderOptions(**study.reader)
    device = choose_device(options.device)
    dtype = choose_dtype(options.dtype, device)
    rate = matmul_rate(device, dtype)
    precision = options.quantize if options.quantize in BYTES else str(dtype).removeprefix("torch.")
    units = [unit for unit in plan_units(study, sets) if not folder.is_done(unit, study.save_probes)]
    weights = weights_of(units, sets)
    estimates = []
    for name in study.addresses:
        of_model = [weight for unit, weight in weights.items() if unit.model == name]
        tokens = round(sum(of_model) / CHARACTERS_PER_TOKEN)
        needs: dict[str, Any] = {"download": 0} if is_remote(name) or on_disk(name) is not None else {}
        if is_remote(name):
            needs["memory"] = 0
        elif (parameters := parameters_of(name)) is not None:
            needs.setdefault("download", HUB_BYTES * parameters)
            needs["parameters"], needs["memory"] = parameters, int(ROOM * parameters * BYTES[precision])
            needs["seconds"] = tokens / expected_speed(parameters, rate)
        estimates.append(ModelEstimate(name, len(of_model), tokens, **needs))
    return estimates


def parameters_of(name: str) -> int | None:
    """The number of weights: as listed, else counted in the files on this machine, else as the hub states."""
    listed = {entry.name: entry.parameters for entry in (*named_models(), *hub_models())} | dict(
        paper_models()
    )
    for known in (name, *(model.name for model in choices_of(name))):
        if listed.get(known):
            return listed[known]
    folder = on_disk(name)
    if folder is not None:
        return _counted(folder)
    return _stated_by_hub(name)


def _stated_by_hub(name: str) -> int | None:
    """The number of weights that the hub states; None if it does not answer at once (its client would try again)."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return None
    address = f"{constants.ENDPOINT}/api/models/{quote(name)}?expand[]=safetensors"
    try:
        with urlopen(address, timeout=HUB_SECONDS) as answer:
            return int(json.load(answer)["safetensors"]["total"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


@cache
def paper_models() -> Mapping[str, int]:
    """The paper's models, with their numbers of weights."""
    table = parse_toml(resources.files("ccrank.study.experiment") / "paper_models.toml")
    return {name: int(count) for name, count in table.items()}


def _counted(folder: Path) -> int | None:
    """The number of weights in the safetensors files of a folder; None without such files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        total += sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total or None
