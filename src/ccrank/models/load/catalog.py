"""The models that ccrank knows, by size: what each needs, whether it is on this machine, and which one `auto` takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ccrank.models.capacity import available_memory, known_speed
from ccrank.models.load.known_models import KnownModel, choices_of, known_models
from ccrank.models.load.loading import families
from ccrank.models.load.transformers_settings import choose_device, choose_dtype
from ccrank.reader_options import ReaderOptions

AUTO = "auto"
BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.5}
SHOWN = ("float32", "bfloat16", "int8", "int4")
ROOM = 1.25
"""Memory that a model needs, relative to its weights."""


@dataclass(frozen=True, slots=True)
class CatalogEntry(KnownModel):
    """A model of the catalog; its name is what `--model` takes."""

    form: str = "causal"
    local: bool = False
    """Whether it is on this machine."""
    speed: Mapping[str, Any] | None = None
    """Tokens per second on this machine, with device and precision; None if it was never measured."""
    default: bool = False
    """Whether `default` stands for it on this machine."""

    @property
    def mean_tau(self) -> float | None:
        """The mean over the studies; None if there is none."""
        return sum(self.tau.values()) / len(self.tau) if self.tau else None

    def memory(self, precision: str) -> int:
        """Bytes of the weights."""
        return int(self.parameters * BYTES[precision])


def named_models() -> list[CatalogEntry]:
    """The models with short names, the smallest first."""
    default = default_model()
    entries = [
        CatalogEntry(
            **{field.name: getattr(model, field.name) for field in fields(model)},
            form="causal" if model.head else "masked",
            local=is_local(model),
            speed=known_speed(model.name),
            default=model == default,
        )
        for model in known_models().values()
    ]
    return sorted(entries, key=lambda entry: entry.parameters)


def hub_models() -> list[CatalogEntry]:
    """The ids on the hub of the families that are tested, the smallest first."""
    entries = [
        CatalogEntry(
            entry["id"],
            "; ".join(text for text in (family.get("quirk"), entry.get("note"), gate) if text),
            entry["licence"],
            hub=entry["id"],
            parameters=int(entry["parameters"]),
            context=entry["context"],
            gated=bool(gate),
            form=form,
            local=in_hub_cache(entry["id"]),
            speed=known_speed(entry["id"]),
        )
        for form, table in families().items()
        for family in table.values()
        for entry in family.get("hub", ())
        for gate in ["gated on the hub" if entry.get("gated") else ""]
    ]
    return sorted(entries, key=lambda entry: entry.parameters)


def best_model(options: ReaderOptions | None = None) -> tuple[str, str]:
    """The model that `auto` stands for, and why: the best of those that are on disk and fit in memory.

    Models with measured τ are compared by it; the others follow by size.
    """
    chosen = options or ReaderOptions()
    device = choose_device(chosen.device)
    precision = chosen.quantize
    if precision not in BYTES:
        precision = str(choose_dtype(chosen.dtype, device)).removeprefix("torch.")
    room = available_memory(device)
    hub = {entry.hub for entry in named_models() if entry.local}
    entries = [*named_models(), *(entry for entry in hub_models() if entry.hub not in hub)]
    here = [entry for entry in entries if entry.local and entry.head and entry.form == "causal"]
    fitting = [entry for entry in here if ROOM * entry.memory(precision) <= room]
    stated = f"{_gigabytes(room)} free, {precision}"
    if not fitting:
        reason = "no model on disk fits" if here else "no model is on disk"
        return "default", f"auto: default, because {reason} ({stated})"
    best = max(
        fitting, key=lambda entry: (entry.mean_tau is not None, entry.mean_tau or 0.0, entry.parameters)
    )
    others = f"of {len(fitting)} on disk that fit" if len(fitting) > 1 else "the only one on disk that fits"
    if best.mean_tau is None:
        reason = f"the largest {others}" if len(fitting) > 1 else others
    else:
        reason = f"the highest measured τ ({best.mean_tau:+.2f}) {others}"
    return best.name, f"auto: {best.name}, {reason} ({stated})"


def default_model() -> KnownModel | None:
    """The weights that `default` stands for on this machine; None if it would have to fetch some."""
    return next((model for model in choices_of("default") if is_local(model)), None)


def is_local(model: KnownModel) -> bool:
    """Whether a model with a short name is on this machine."""
    return model.unpacked or (bool(model.hub) and in_hub_cache(model.hub, model.revision))


def in_hub_cache(repo: str, revision: str = "") -> bool:
    """Whether the weights of a hub id are in the hub's own cache."""
    folder = _hub_cache() / f"models--{repo.replace('/', '--')}" / "snapshots"
    kinds = ("*.safetensors", "pytorch_model*.bin")
    return any(path for kind in kinds for path in folder.glob(f"{revision or '*'}/{kind}"))


def _hub_cache() -> Path:
    """Where `huggingface_hub` keeps models; importing it takes longer than this."""
    if chosen := os.environ.get("HF_HUB_CACHE"):
        return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    return Path(home).expanduser() / "hub"


def _gigabytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
