"""A method as a study names it: `NAME[@embeddings][:SPLIT]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods import get_method
from ccrank.probing.methods import PROTOCOLS
from ccrank.probing.objectives import OBJECTIVES, Settings

SETTINGS = tuple(Settings.__dataclass_fields__)
SURFACE = ("length", "frequency")
ALONE = ("prompt-pair", "prompt-point", "prompt-list", *SURFACE)
"""Methods for which a task's answer hangs on that task alone, so that tasks can be done a few at a time."""


@dataclass(frozen=True)
class Choice:
    """One method with one split.

    >>> [str(choice) for choice in Choice.parse("pca@embeddings")]
    ['pca@embeddings']
    """

    name: str
    """The name in the registry of methods."""
    split: str
    """none for a method without training; else same-task, leave-one-out or across-tasks."""
    embeddings: bool = False
    """Probe the item's last token in layer 0, before the model has read anything: what its input already says."""

    def __str__(self) -> str:
        return self.label if self.split == "none" else f"{self.label}:{self.split}"

    @property
    def label(self) -> str:
        """The method's name in the results."""
        return f"{self.name}@embeddings" if self.embeddings else self.name

    @property
    def probe(self) -> bool:
        """Whether states are read once and shared with other probes."""
        return self.name in OBJECTIVES

    @property
    def paired(self) -> bool:
        """Whether it reads ItemPair prompts, with both answers."""
        return self.probe and OBJECTIVES[self.name].prompt == "pair"

    @property
    def supervised(self) -> bool:
        """Whether it learns from gold."""
        return self.probe and OBJECTIVES[self.name].supervised

    @property
    def family(self) -> str:
        """prompting, probing, label-free, supervised or baseline."""
        if self.name.startswith("prompt-"):
            return "prompting"
        if self.supervised:
            return "supervised"
        if self.embeddings or self.name in SURFACE or (self.probe and OBJECTIVES[self.name].loss is None):
            return "baseline"
        return "probing" if self.probe else "label-free"

    @property
    def directed(self) -> bool:
        """Whether it knows which end is the high one."""
        return get_method(self.name).directed

    def seeds(self, count: int) -> tuple[int, ...]:
        """The seeds that make a difference to it."""
        seeded = self.probe and OBJECTIVES[self.name].initial != "pca"
        return tuple(range(count)) if seeded else (0,)

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A user's options of the method, made to fit their types."""
        parsed = get_method(self.name).parse_options(given)
        if self.probe and (taken := sorted(set(parsed) - set(SETTINGS))):
            raise CcrankError(
                f"{self.name}: {taken[0]} is set by the study itself, with seeds, layers, `{self.name}:SPLIT` and the "
                "wording of the template single"
            )
        return parsed

    @classmethod
    def parse(cls, text: str) -> list[Choice]:
        """What a study's line names. A supervised probe without a split is all three of them."""
        head, colon, split = text.strip().partition(":")
        name, at, where = head.partition("@")
        method = get_method(name)
        probe = OBJECTIVES.get(name)
        if name == "probe":
            raise CcrankError(
                "a study fits its own probes; a saved one is applied with `ccrank rank --method probe`"
            )
        if at and (where != "embeddings" or probe is None or probe.prompt == "pair"):
            raise CcrankError(
                f"{text!r}: @embeddings, for a probe of single items, is all that may stand behind @"
            )
        if colon and probe is None:
            raise CcrankError(f"{text!r}: {method.name} is not trained, so it has no split")
        if colon and split not in PROTOCOLS:
            raise CcrankError(f"{text!r}: a split is one of {', '.join(PROTOCOLS)}, not {split!r}")
        if colon and probe is not None and not probe.supervised and split == "leave-one-out":
            # Without labels there is nothing to leak, and unlabelled probes have no common direction to place one by.
            raise CcrankError(
                f"{text!r}: leave-one-out is for supervised probes; try same-task or across-tasks"
            )
        if colon:
            if probe is not None and probe.loss is None and split == "same-task":
                split = "none"
            splits: tuple[str, ...] = (split,)
        elif probe is None or probe.loss is None:
            splits = ("none",)
        else:
            splits = PROTOCOLS if probe.supervised else ("same-task",)
        return [cls(name, one, bool(at)) for one in splits]
