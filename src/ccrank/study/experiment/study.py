"""The definition of a study: models × datasets × methods, as data from a file or the command line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods.plugins import load_plugin
from ccrank.models.remote import shown_name
from ccrank.prompts import Templates, check_named, load_templates
from ccrank.reader_options import ReaderOptions
from ccrank.study.datasets import get_dataset
from ccrank.study.experiment.method_spec import MethodSpec
from ccrank.util.files import parse_toml
from ccrank.util.text import did_you_mean

READER_DEFAULTS: Mapping[str, Any] = asdict(ReaderOptions())
NOT_IN_RESULTS = ("device", "batch_tokens", "strict")
"""Reader options that do not change results, so a study may be resumed with other values."""
AUTO_LAYERS = "auto, the layer closest to label-free anchors"
"""The fingerprint's entry for auto: studies with another selection rule must not be mixed with these."""


@dataclass(frozen=True)
class Study:
    """The models, datasets and methods of a study, with their options."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    """Names of datasets, and paths of task files."""
    methods: tuple[str, ...]
    """Each `NAME[@VARIANT][:SPLIT]`; see `MethodSpec`."""
    seeds: int = 5
    """Probes are trained from seeds 0 … seeds − 1; each seed gives its own rows."""
    layers: str = "last"
    """The layers that are probed: last, all, numbers such as "12,20", or auto: for each probe the one of the middle
    and late layers that agrees best with label-free anchors."""
    limit: int | None = None
    """Maximal number of tasks per dataset, evenly spaced."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of methods, by method name."""
    dataset_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of datasets, by dataset name: `{"entsalience": {"words": None}}` keeps whole articles."""
    template: tuple[str, ...] = ()
    """Changed templates, each NAME=TEXT."""
    templates: str | None = None
    """A TOML file of templates that override the packaged ones."""
    reader: Mapping[str, Any] = field(default_factory=dict)
    """How models are read: device, dtype, chat, truncate …"""
    folds: str = "tasks"
    """What is disjoint between the folds of across-tasks training: tasks; items, so that held-out tasks share no item
    with those trained on (split across-items); or both, one after the other."""
    save_probes: bool = False
    """Store the directions of all probes except leave-one-out ones."""
    jury: bool = False
    """Add the jury of all models, as one more model."""
    plugins: tuple[str, ...] = ()
    """Python files that register methods or objectives of the study."""
    skip_unsupported: bool = False
    """Leave out methods that need hidden states where a model is behind a server, instead of refusing the study."""

    def __post_init__(self) -> None:
        for name in ("models", "datasets", "methods", "template", "plugins"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for path in self.plugins:
            load_plugin(path)
        for name in ("models", "datasets", "methods"):
            entries = getattr(self, name)
            if not entries:
                raise CcrankError(f"a study needs at least one entry in {name}")
            shown = [shown_name(entry) for entry in entries] if name == "models" else entries
            if repeated := sorted({entry for entry in shown if shown.count(entry) > 1}):
                raise CcrankError(f"{name} contains {repeated[0]!r} twice")
        if "auto" in self.models:
            raise CcrankError(
                "a study names its models; 'auto' is another one on each machine (see `ccrank models list`)"
            )
        object.__setattr__(self, "layers", _checked_layers(self.layers))
        for name, value in (("seeds", self.seeds), ("limit", self.limit)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise CcrankError(f"{name} must be at least 1, got {value!r}")
        judged = any(choice.method.directed and not choice.states for choice in self.choices)
        if self.jury and (len(self.models) < 2 or not judged):
            raise CcrankError(
                "a jury needs two or more models, and a method with a direction that is no probe, such as auto"
            )
        if self.folds not in ("tasks", "items", "both"):
            raise CcrankError(f"folds must be tasks, items or both, not {self.folds!r}")
        if unknown := sorted(set(self.reader) - set(READER_DEFAULTS)):
            raise CcrankError(
                f"[reader] has no option {unknown[0]!r}; its options: {', '.join(READER_DEFAULTS)}"
            )
        object.__setattr__(self, "reader", {**READER_DEFAULTS, **self.reader})
        names = {choice.name for choice in self.choices}
        for name in self.options:
            if name not in names:
                raise CcrankError(f"there are options for {name!r}, which is not one of the study's methods")
        for choice in self.choices:
            self.options_of(choice)
        for name in self.dataset_options:
            if name not in self.datasets:
                raise CcrankError(
                    f"there are options for the dataset {name!r}, which the study does not have; "
                    f"{did_you_mean(name, self.datasets)}its datasets: {', '.join(self.datasets)}"
                )
        parsed = {
            name: get_dataset(name).parse_options(table) for name, table in self.dataset_options.items()
        }
        object.__setattr__(self, "dataset_options", parsed)
        check_named(self.load_templates(), self.template, self.options.values())

    def options_of(self, choice: MethodSpec) -> dict[str, Any]:
        """The options of a method, converted to their types."""
        return choice.parse_options(self.options.get(choice.name, {}))

    @property
    def addresses(self) -> dict[str, str]:
        """The name of each model in results → the name by which it is opened: an address may contain secrets."""
        return {shown_name(model): model for model in self.models}

    @property
    def choices(self) -> tuple[MethodSpec, ...]:
        """The methods, parsed; a method with several splits is several choices."""
        choices: dict[MethodSpec, None] = {}
        for choice in (choice for text in self.methods for choice in MethodSpec.parse(text)):
            across = choice.split == "across-tasks"
            if not across or self.folds != "items":
                choices[choice] = None
            if across and self.folds != "tasks":
                choices[replace(choice, split="across-items")] = None
        return tuple(choices)

    @classmethod
    def parse(cls, value: Mapping[str, Any], where: str = "the study") -> Study:
        """A study from the tables of a TOML file."""
        known = [entry.name for entry in fields(cls)]
        if unknown := sorted(set(value) - set(known)):
            raise CcrankError(f"{where} has an unknown entry {unknown[0]!r}; known are {', '.join(known)}")
        given = dict(value)
        for name in ("models", "datasets", "methods", "template", "plugins"):
            entry = given.get(name, [] if name != "models" else ["default"])
            if isinstance(entry, str):
                whole = name in ("template", "plugins")
                entry = [entry] if whole else [part.strip() for part in entry.split(",")]
            if not isinstance(entry, Sequence) or not all(isinstance(part, str) and part for part in entry):
                raise CcrankError(f"{where}: {name} must be a list of names, got {entry!r}")
            given[name] = tuple(entry)
        for name in ("options", "dataset_options", "reader"):
            if not isinstance(given.get(name, {}), Mapping):
                raise CcrankError(f"{where}: {name} must be a table, got {given[name]!r}")
        for name in ("skip_unsupported", "save_probes", "jury"):
            if not isinstance(given.get(name, False), bool):
                raise CcrankError(f"{where}: {name} must be true or false")
        for kind in ("options", "dataset_options"):
            for name, table in given.get(kind, {}).items():
                if not isinstance(table, Mapping):
                    raise CcrankError(f"{where}: {kind}.{name} must be a table of options, got {table!r}")
        return cls(**given)

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """A study from a TOML file; paths in it are relative to the working directory."""
        return cls.parse(parse_toml(Path(path)), str(path))

    def load_templates(self) -> Templates:
        """The templates of this study."""
        return load_templates(self.templates, self.template)

    def to_toml(self) -> str:
        """The study as a file that `Study.load` reads; addresses have no secrets there."""
        entries = {**asdict(self), "models": tuple(self.addresses)}
        empty: tuple[Any, ...] = (None, (), {}, False)
        return to_toml({key: value for key, value in entries.items() if value not in empty})

    def fingerprint(self) -> dict[str, Any]:
        """Everything that results depend on, as plain values by name, so that two studies can be compared entry by
        entry."""
        entries: dict[str, Any] = {
            "models": list(self.addresses),
            "datasets": list(self.datasets),
            "methods": [str(choice) for choice in self.choices],
            "seeds": self.seeds,
            "layers": AUTO_LAYERS if self.layers == "auto" else self.layers,
            "limit": self.limit,
        }
        for name, template in sorted(self.load_templates().by_name.items()):
            entries[f"template {name}"] = digest(asdict(template))
        entries |= {f"plugin {Path(path).name}": load_plugin(path) for path in self.plugins}
        for kind, tables in (("options", self.options), ("dataset_options", self.dataset_options)):
            for owner, table in tables.items():
                entries |= {f"{kind}.{owner}.{name}": value for name, value in table.items()}
        in_results = {name: value for name, value in self.reader.items() if name not in NOT_IN_RESULTS}
        return entries | {f"reader.{name}": value for name, value in in_results.items()}


def preset(name: str) -> dict[str, Any]:
    """The entries of a packaged study."""
    known = parse_toml(resources.files("ccrank.study.experiment") / "presets.toml")
    if name not in known:
        raise CcrankError(f"unknown preset {name!r}; choose one of {', '.join(known)}")
    entries = dict(known[name])
    if "extends" in entries:
        entries = {**preset(entries.pop("extends")), **entries}
    for key in ("datasets", "methods"):
        entries[key] = [*entries[key], *entries.pop(f"more_{key}", [])]
    return entries


def digest(value: Any) -> str:
    """A short hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def to_toml(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Plain values and tables as TOML."""
    lines = [
        f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if not isinstance(value, Mapping)
    ]
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = (*path, key)
            if not all(isinstance(item, Mapping) for item in value.values()):
                lines.append(f"\n[{'.'.join(map(_key, inner))}]\n")
            lines.append(to_toml(value, inner))
    return "".join(lines)


def _key(text: str) -> str:
    return text if re.fullmatch("[A-Za-z0-9_-]+", text) else _value(text)


def _value(value: Any) -> str:
    # TOML has no null: options read the word. JSON's escapes are valid in TOML, which also requires DEL to be escaped.
    return json.dumps("none" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _checked_layers(layers: Any) -> str:
    text = ",".join(map(str, layers)) if isinstance(layers, (list, tuple)) else str(layers).replace(" ", "")
    if text not in ("last", "all", "auto"):
        try:
            [int(number) for number in text.split(",")]
        except ValueError:
            raise CcrankError(
                f"layers must be last, all, auto or numbers such as 12,20, not {layers!r}"
            ) from None
    return text
