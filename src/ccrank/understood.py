"""What a criterion phrase was taken to mean: data alone, so that a Criterion can carry it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Understood:
    """What a criterion phrase was taken to mean."""

    phrase: str
    """As it was typed."""
    name: str
    """The scale, as a noun: "price". It reads well in "in terms of price"."""
    poles: tuple[str, str]
    """Words for the two poles; what the second says comes first in the ranking."""
    comparative: str
    """What an item is, compared with those after it: "cheaper"."""
    first: str
    """What comes first, for people: "cheapest first"."""
    last: str
    """The same of a ranking that is shown in reverse: "most expensive first"."""
    source: str
    """How the poles were found: "given", "lexicon", "negation", "amount", "model" or "fallback"."""
    reversed: bool = False
    """Whether more of `name` comes later."""
    warning: str | None = None
    """Why the meaning is in doubt; None where it is certain."""

    @property
    def certain(self) -> bool:
        """Whether the phrase can mean nothing else."""
        return self.warning is None

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as the output of `ccrank rank --json` has it."""
        return {
            "phrase": self.phrase,
            "first": self.first,
            "poles": list(self.poles),
            "comparative": self.comparative,
            "source": self.source,
            "certain": self.certain,
        }
