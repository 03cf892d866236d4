"""A method as a study names it: `NAME[@embeddings][:SPLIT]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods import Method, get_method
from ccrank.probe_pipeline.fitting import PROTOCOLS
from ccrank.probing.objectives import Settings

SETTINGS = tuple(Settings.__dataclass_fields__)


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
    """Probe the item's last token in layer 0: what the input embeddings alone say."""

    def __str__(self) -> str:
        return self.label if self.split == "none" else f"{self.label}:{self.split}"

    @property
    def label(self) -> str:
        """The method's name in the results."""
        return f"{self.name}@embeddings" if self.embeddings else self.name

    @property
    def method(self) -> Method:
        """What the registry knows of it."""
        return get_method(self.name)

    @property
    def probe(self) -> bool:
        """Whether states are read once and shared with other probes."""
        return self.method.objective is not None

    @property
    def paired(self) -> bool:
        """Whether it reads ItemPair prompts, with both answers."""
        objective = self.method.objective
        return objective is not None and objective.prompt == "pair"

    @property
    def states(self) -> str:
        """Which states a probe reads: single, pair or embeddings."""
        return "pair" if self.paired else "embeddings" if self.embeddings else "single"

    @property
    def protocol(self) -> str:
        """How a probe is trained and tested."""
        return "same-task" if self.split == "none" else self.split

    @property
    def family(self) -> str:
        """The method's family; what the embeddings alone give is a baseline."""
        return "baseline" if self.embeddings else self.method.family

    @property
    def directed(self) -> bool:
        """Whether it knows which end is the high one."""
        return self.method.directed

    def seeds(self, count: int) -> tuple[int, ...]:
        """The seeds that make a difference to it."""
        objective = self.method.objective
        return tuple(range(count)) if objective is not None and objective.seeded else (0,)

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A user's options of the method, made to fit their types."""
        parsed = self.method.parse_options(given)
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
        probe = method.objective
        if not method.for_studies:
            raise CcrankError(
                f"{name} needs a file of its own and is not run in studies; use `ccrank rank --method {name}`"
            )
        if at and (where != "embeddings" or probe is None or probe.prompt == "pair"):
            raise CcrankError(
                f"{text!r}: @embeddings, for a probe on single items, is the only suffix with @"
            )
        if colon and probe is None:
            raise CcrankError(f"{text!r}: {method.name} is not trained, so it has no split")
        if colon and split not in PROTOCOLS:
            raise CcrankError(f"{text!r}: a split is one of {', '.join(PROTOCOLS)}, not {split!r}")
        if colon and probe is not None and not probe.supervised and split == "leave-one-out":
            # Without labels nothing can leak, and unsupervised probes have no common direction to place an item by.
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
