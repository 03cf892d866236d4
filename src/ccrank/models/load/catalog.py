"""The models that ccrank knows, by size: what each needs, whether it is on this machine, and which one `auto` takes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.lm.budget import available_memory
from ccrank.lm.hub import KnownModel, known_models
from ccrank.lm.loading import choose_device, choose_dtype, families
from ccrank.paths import cache_folder
from ccrank.prompts import Piece, Prompt
from ccrank.reader_options import ReaderOptions

if TYPE_CHECKING:
    from ccrank.lm.reader import Reader

AUTO = "auto"
BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.5}
SHOWN = ("float32", "bfloat16", "int8", "int4")
ROOM = 1.25
"""Memory that a model needs, relative to its weights."""
SPEED_PROMPTS = 12
SPEED_WORDS = 48


@dataclass(frozen=True)
class Rung:
    """A model on the ladder."""

    name: str
    """What `--model` takes."""
    hub: str
    parameters: int
    licence: str
    form: str
    local: bool
    what: str = ""
    head: bool = True
    tau: Mapping[str, float] = field(default_factory=dict)
    """Study → mean signed τ, as measured."""
    speed: Mapping[str, Any] | None = None
    """Tokens per second on this machine, with device and precision; None if it was never measured."""
    context: int | None = None
    """The context window in tokens; None if it is not stated."""
    gated: bool = False
    """Whether the hub asks for an agreement before a download."""

    @property
    def mean_tau(self) -> float | None:
        """The mean over the studies; None if there is none."""
        return sum(self.tau.values()) / len(self.tau) if self.tau else None

    def memory(self, precision: str) -> int:
        """Bytes of the weights.

        Parameters
        ----------
        precision
            A key of `BYTES`.
        """
        return int(self.parameters * BYTES[precision])


def named_rungs() -> list[Rung]:
    """The models with short names, the smallest first."""
    rungs = [
        Rung(
            model.name,
            model.hub,
            model.parameters,
            model.licence,
            "causal" if model.head else "masked",
            is_local(model),
            model.what,
            model.head,
            model.tau,
            known_speed(model.name),
            model.context,
            model.gated,
        )
        for model in known_models().values()
    ]
    return sorted(rungs, key=lambda rung: rung.parameters)


def hub_rungs() -> list[Rung]:
    """The ids on the hub of the families that are tested, the smallest first."""
    rungs = [
        Rung(
            one["id"],
            one["id"],
            int(one["parameters"]),
            one["licence"],
            form,
            in_hub_cache(one["id"]),
            "; ".join(text for text in (family.get("quirk"), one.get("note"), gate) if text),
            speed=known_speed(one["id"]),
            context=one["context"],
            gated=bool(gate),
        )
        for form, table in families().items()
        for family in table.values()
        for one in family.get("hub", ())
        for gate in ["gated on the hub" if one.get("gated") else ""]
    ]
    return sorted(rungs, key=lambda rung: rung.parameters)


def best_model(options: ReaderOptions | None = None) -> tuple[str, str]:
    """The model that `auto` stands for, and why: the best of those that are on disk and fit in memory.

    Models with measured τ are compared by it; the others follow by size.

    Parameters
    ----------
    options
        Device and precision, which decide how much memory there is and how much is needed.
    """
    chosen = options or ReaderOptions()
    device = choose_device(chosen.device)
    precision = chosen.quantize
    if precision not in BYTES:
        precision = str(choose_dtype(chosen.dtype, device)).removeprefix("torch.")
    room = available_memory(device)
    hub = {rung.hub for rung in named_rungs()}
    rungs = [*named_rungs(), *(rung for rung in hub_rungs() if rung.hub not in hub)]
    here = [rung for rung in rungs if rung.local and rung.head and rung.form == "causal"]
    fitting = [rung for rung in here if ROOM * rung.memory(precision) <= room]
    stated = f"{_gigabytes(room)} free, {precision}"
    if not fitting:
        reason = "no model on disk fits" if here else "no model is on disk"
        return "default", f"auto: default, because {reason} ({stated})"
    best = max(fitting, key=lambda rung: (rung.mean_tau is not None, rung.mean_tau or 0.0, rung.parameters))
    others = f"of {len(fitting)} on disk that fit" if len(fitting) > 1 else "the only one on disk that fits"
    if best.mean_tau is None:
        reason = f"the largest {others}" if len(fitting) > 1 else others
    else:
        reason = f"the highest measured τ ({best.mean_tau:+.2f}) {others}"
    return best.name, f"auto: {best.name}, {reason} ({stated})"


def is_local(model: KnownModel) -> bool:
    """Whether a model with a short name is on this machine.

    Parameters
    ----------
    model
        The model.
    """
    return (model.folder / "config.json").is_file() or in_hub_cache(model.hub)


def in_hub_cache(repo: str) -> bool:
    """Whether the weights of a hub id are in the hub's own cache.

    Parameters
    ----------
    repo
        Such as "Qwen/Qwen3-0.6B-Base".
    """
    folder = _hub_cache() / f"models--{repo.replace('/', '--')}" / "snapshots"
    return any(True for _ in folder.glob("*/*.safetensors")) or any(
        True for _ in folder.glob("*/pytorch_model*.bin")
    )


def _hub_cache() -> Path:
    """Where `huggingface_hub` keeps models; importing it takes longer than this."""
    if chosen := os.environ.get("HF_HUB_CACHE"):
        return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    return Path(home).expanduser() / "hub"


def measure_speed(reader: Reader) -> dict[str, Any]:
    """Measure tokens per second on texts without a common prefix, and store it for `ccrank models list`.

    Parameters
    ----------
    reader
        An open model. Its cache of readings is not used.
    """
    plain = reader.with_engine(reader.engine)
    plain.cache = None
    generator = np.random.default_rng(0)
    words = np.array(["river", "stone", "music", "paper", "winter", "garden", "mother", "silver"])
    prompts = [
        Prompt((Piece(" ".join(generator.choice(words, SPEED_WORDS)) + " "), Piece("", "slot")))
        for _ in range(SPEED_PROMPTS)
    ]
    plain.read(prompts[:1], layers=[-1])  # the first pass allocates memory
    start = time.perf_counter()
    cost = plain.read(prompts[1:], layers=[-1]).cost
    seconds = time.perf_counter() - start
    speed = {
        "model": reader.name,
        "tokens_per_second": round(cost.computed_tokens / seconds, 1),
        **_where(reader),
    }
    note = _speed_note(reader.name)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(note, json.dumps(speed))
    except (OSError, CcrankError):
        pass  # a read-only cache costs time, not correctness
    return speed


def known_speed(name: str, reader: Reader | None = None) -> Mapping[str, Any] | None:
    """What `measure_speed` stored for a model; None if it was never measured.

    Parameters
    ----------
    name
        The model's name.
    reader
        The open model: a speed on another device or in another precision does not count.
    """
    try:
        speed = json.loads(_speed_note(name).read_bytes())
        wanted = {"model": name, **({} if reader is None else _where(reader))}
        return speed if all(speed[key] == value for key, value in wanted.items()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _where(reader: Reader) -> dict[str, str]:
    """The device and the precision."""
    model = reader.loaded.model
    return {"device": model.device.type, "dtype": str(model.dtype).removeprefix("torch.")}


def _speed_note(name: str) -> Path:
    return cache_folder("speeds", name.replace("/", "--") + ".json")


def _gigabytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
