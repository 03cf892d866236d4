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

from ccrank.errors import CcrankError, check_kind
from ccrank.methods.plugins import load_plugin
from ccrank.methods.probe_pipeline.rankers import PROTOCOLS
from ccrank.methods.probing.objectives import OBJECTIVES, Settings
from ccrank.methods.registry import Method, get_method
from ccrank.models.remote import shown_name
from ccrank.prompts import Templates, check_named, load_templates
from ccrank.reader_options import ReaderOptions
from ccrank.study.datasets import get_dataset
from ccrank.study.results.directions import SINGLE
from ccrank.util.files import parse_toml
from ccrank.util.text import did_you_mean

READER_DEFAULTS: Mapping[str, Any] = asdict(ReaderOptions())
NOT_IN_RESULTS = ("device", "batch_tokens", "strict")
"""Reader options that do not change results, so a study may be resumed with other values."""
AUTO_LAYERS = "auto, the layer closest to label-free anchors"
"""The fingerprint's entry for auto: studies that chose layers by another rule must not be mixed with these."""
SETTINGS = tuple(Settings.__dataclass_fields__)
EMBEDDINGS = "embeddings"
"""The variant of a probe on single items that reads the item's last token at layer 0, the input embeddings."""
DEFAULT_SPLITS = ("same-task", "leave-one-out", "across-tasks")
"""The splits of a supervised probe that is written without one."""


def option_variants() -> dict[str, dict[str, dict[str, Any]]]:
    """Method → its other variants, each with the options that it sets, so that a study can have a method twice."""
    variants: dict[str, dict[str, dict[str, Any]]] = {"prompt-point": {"expected": {"score": "expected"}}}
    for name, objective in OBJECTIVES.items():
        variants[name] = {"rbf": {"features": "rbf"}}
        if objective.sub_batch != "none":
            variants[name][objective.sub_batch] = {"sub_batch": objective.sub_batch}
    return variants


@dataclass(frozen=True)
class MethodSpec:
    """One method with one split, in a study written as `NAME[@VARIANT][:SPLIT]`, or `NAME:single` for its single runs.

    >>> [str(choice) for choice in MethodSpec.parse("pca@embeddings")]
    ['pca@embeddings']
    """

    name: str
    """The name in the registry of methods."""
    split: str
    """none for a method without training, single for its single runs; else one of `PROTOCOLS`."""
    variant: str = ""
    """embeddings, or one of `option_variants`."""

    def __str__(self) -> str:
        return self.label if self.split == "none" else f"{self.label}:{self.split}"

    @property
    def label(self) -> str:
        """The method's name in the results."""
        return f"{self.name}@{self.variant}" if self.variant else self.name

    @property
    def method(self) -> Method:
        """The method's entry in the registry."""
        return get_method(self.name)

    @property
    def states(self) -> str | None:
        """Which states a probe reads, once for all probes that share them: single, pair or embeddings; None for other
        methods."""
        objective = self.method.objective
        if objective is None:
            return None
        return EMBEDDINGS if self.variant == EMBEDDINGS else objective.prompt

    @property
    def family(self) -> str:
        """The method's family; a probe of the embeddings is a baseline."""
        return "baseline" if self.variant == EMBEDDINGS else self.method.family

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A user's options of the method, converted to their types."""
        parsed = self.method.parse_options(given)
        objective = self.method.objective
        if objective is not None and (taken := sorted(set(parsed) - {*SETTINGS, *objective.own})):
            raise CcrankError(
                f"{self.name}: {taken[0]} is set by the study itself: use seeds, layers, `{self.name}:SPLIT` and the "
                "template single"
            )
        return {**parsed, **option_variants().get(self.name, {}).get(self.variant, {})}

    @classmethod
    def parse(cls, text: str) -> list[MethodSpec]:
        """The methods that a study's entry stands for; a supervised probe without a split is all three splits."""
        head, colon, split = text.strip().partition(":")
        name, at, variant = head.partition("@")
        method = get_method(name)
        probe = method.objective
        embeddings = variant == EMBEDDINGS and probe is not None and probe.prompt == "single"
        if at and variant not in option_variants().get(name, {}) and not embeddings:
            others = ", ".join(
                f"{known}@{other}"
                for known, others in option_variants().items()
                for other in others
                if other != "rbf"
            )
            raise CcrankError(
                f"{text!r}: a suffix with @ is @rbf, for probes, @{EMBEDDINGS}, for probes on single items, or {others}"
            )
        if probe is not None and variant == probe.sub_batch and colon and split != "same-task":
            raise CcrankError(f"{text!r}: sub-batches are for the split same-task")
        if split == SINGLE and method.repeats_option is not None:
            return [cls(name, SINGLE)]
        if colon and probe is None:
            raise CcrankError(f"{text!r}: {method.name} is not trained and has no split")
        if colon and split not in PROTOCOLS:
            raise CcrankError(f"{text!r}: a split must be one of {', '.join(PROTOCOLS)}, not {split!r}")
        if probe is not None and not probe.supervised and split == "leave-one-out":
            # Without labels nothing can leak, and unsupervised probes have no common direction for an item.
            raise CcrankError(
                f"{text!r}: leave-one-out is for supervised probes; use same-task or across-tasks"
            )
        splits: Sequence[str] = (split or "same-task",)
        if probe is None or (probe.loss is None and splits == ("same-task",)):
            splits = ("none",)
        elif probe.supervised and not colon:
            splits = DEFAULT_SPLITS
        return [cls(name, split, variant) for split in splits]


@dataclass(frozen=True)
class Study:
    """The models, datasets and methods of a study, with their options."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    """Names of datasets, and paths of task files."""
    methods: tuple[str, ...]
    """Each `NAME[@VARIANT][:SPLIT]`, or `NAME:single`; see `MethodSpec`."""
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
                "a study names its models; 'auto' stands for another model on each machine (see `ccrank models list`)"
            )
        object.__setattr__(self, "layers", _checked_layers(self.layers))
        for name, value in (("seeds", self.seeds), ("limit", self.limit)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise CcrankError(f"{name} must be at least 1, got {value!r}")
        judged = any(choice.method.directed and not choice.states for choice in self.choices)
        if self.jury and (len(self.models) < 2 or not judged):
            raise CcrankError(
                "a jury needs two or more models, and a method with a direction other than a probe, such as auto"
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
            check_kind(f"{where}: {name}", given.get(name, {}), Mapping, "a table")
        for name in ("skip_unsupported", "save_probes", "jury"):
            check_kind(f"{where}: {name}", given.get(name, False), bool, "true or false")
        for kind in ("options", "dataset_options"):
            for name, table in given.get(kind, {}).items():
                check_kind(f"{where}: {kind}.{name}", table, Mapping, "a table of options")
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
    if not re.fullmatch(r"last|all|auto|-?\d+(,-?\d+)*", text):
        raise CcrankError(f"layers must be last, all, auto or numbers such as 12,20, not {layers!r}")
    return text
