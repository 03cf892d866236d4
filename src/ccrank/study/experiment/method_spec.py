"""A method as written in a study: `NAME[@VARIANT][:SPLIT]`, or `NAME:single` for its single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods.probe_pipeline.rankers import PROTOCOLS
from ccrank.methods.probing.objectives import OBJECTIVES, Settings
from ccrank.methods.registry import Method, get_method

SETTINGS = tuple(Settings.__dataclass_fields__)
SINGLE = "single"
"""The split of a method that joins several runs, where each run has its own rows."""
EMBEDDINGS = "embeddings"
"""The variant of a probe on single items that reads the item's last token at layer 0, the input embeddings."""
DEFAULT_SPLITS = ("same-task", "leave-one-out", "across-tasks")
"""Those of a supervised probe that is written without a split."""


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
    """One method with one split.

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
