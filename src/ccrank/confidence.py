"""How likely a ranking is right: a logistic model of features that are known without gold.

P(τ > 0.3) = 1 / (1 + exp(−(intercept + Σ_k c_k x_k))). The coefficients are data (`confidence.toml`), fitted on lists
with gold by `studies/confidence/confidence.py`; `studies/confidence/` has the reliability on held-out lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from ccrank.util.files import parse_toml

Level = Literal["low", "medium", "high"]
ItemKind = Literal["name", "text", "context"]
RIGHT = 0.3
"""An order is called right if its τ with gold is above this."""
CHANCE = 0.1
"""Signals whose agreement has a higher p-value than this are said to agree no better than chance."""
MIN_ITEMS, USUAL_ITEMS, MAX_ITEMS = 4, 8, 16
"""Items of the shortest and of the usual list of the fit; a longer list than the last counts as that long."""
MAX_BITS, MAX_UNKNOWN = 3.8, 0.34
"""Names that take more bits per character are in a language that the model hardly knows, as a rule; and the share of
right orders of such lists."""
NAME_POLES = "name the poles with --poles LOW HIGH (in Python poles=(low, high))"
GIVEN = frozenset({"given", "poles", "comparative"})
"""Sources of pole words that a user gave; see `Understood.source` and `lexicon.Poles.source`."""
NAMED = frozenset({"lexicon", "name", "sense"})
"""Sources of pole words that are in the lexicon."""


@dataclass(frozen=True)
class Features:
    """What is known of a ranking by several signals, without gold and for any model."""

    n_items: int
    agreement: float
    """Mean τ between the signals' rankings."""
    p_value: float
    """Of the agreement, under independent random orders; it did not help to predict."""
    kind: ItemKind
    """Whether the items are names, texts, or items of a context."""
    poles: str
    """The source of the pole words, in `GIVEN` or `NAMED`; any other source counts as unknown."""
    category: bool
    """Whether the category was given."""
    exemplars: bool = False
    """Whether exemplars that were written for the criterion are among the signals."""
    bits: float = 0.0
    """Bits per character that the model spends on the items; 0 where they are not known."""

    def values(self) -> dict[str, float]:
        """The numbers x_k by name."""
        length = math.log(min(max(self.n_items, MIN_ITEMS), MAX_ITEMS) / USUAL_ITEMS)
        return {
            "agreement": self.agreement,
            "length": length,
            "agreement_by_length": self.agreement * length,
            "exemplars": float(self.exemplars),
            "no_category": float(not self.category and self.kind != "context"),
        }

    @property
    def poles_known(self) -> bool:
        """Whether the poles were given or are in the lexicon."""
        return self.poles in GIVEN | NAMED

    @property
    def language_known(self) -> bool:
        """Whether the model knows the language of the items; orders of texts are right even where it hardly does."""
        return self.kind != "name" or self.bits <= MAX_BITS


@dataclass(frozen=True)
class Confidence:
    """How likely the order is right."""

    level: Level
    probability: float
    """P(τ > 0.3 with gold)."""
    features: Features
    """What it was computed from."""

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {"level": self.level, "probability": round(self.probability, 3)}

    @property
    def sentence(self) -> str:
        """What it means for a reader of the order."""
        return {
            "high": "the order is probably right; neighbours may be swapped",
            "medium": "the order is more likely right than wrong; check it before you rely on it",
            "low": "the order may well be wrong",
        }[self.level]

    def warning(self) -> str | None:
        """The remedies for a low confidence, missing input first; None for a higher one."""
        if self.level != "low":
            return None
        known, reasons = self.features, ["the confidence is low"]
        if known.p_value > CHANCE:
            reasons.append("the signals agree no better than chance")
        if not known.language_known:
            reasons.append(
                f"the model hardly knows the language of these items ({known.bits:.1f} bits per character)"
            )
        remedies = [] if known.poles_known else [NAME_POLES]
        if not known.category and known.kind != "context":
            remedies.append("say what the items are with --category (category=…)")
        if not known.language_known:
            remedies.append("translate the items")
        remedies.append("give a few labels with --labels (labels={…})")
        remedies.append("use a larger model with --model (model=…)")
        return f"{', and '.join(reasons)}: do not rely on this order; {', or '.join(remedies)}"


def confidence_of(features: Features) -> Confidence | None:
    """The confidence in a ranking; None where the agreement of its signals is not known.

    It is never high where no poles are known, because signals can agree on the wrong ones, nor for two or three items,
    on which signals often agree by chance; and it is low where the model does not know the language of the items.
    """
    if not (math.isfinite(features.agreement) and math.isfinite(features.p_value)):
        return None
    model = _model()
    total = model["intercept"] + sum(
        model["coefficients"][name] * value for name, value in features.values().items()
    )
    probability, thresholds = 1 / (1 + math.exp(-total)), model["thresholds"]
    if not features.poles_known or features.n_items < MIN_ITEMS:
        probability = min(probability, thresholds["high"] - 0.01)
    if not features.language_known:
        probability = min(probability, MAX_UNKNOWN)
    return Confidence(level_of(probability), probability, features)


def level_of(probability: float) -> Level:
    """low, medium or high, by the thresholds of the fit."""
    thresholds = _model()["thresholds"]
    if probability >= thresholds["high"]:
        return "high"
    return "low" if probability < thresholds["low"] else "medium"


@cache
def _model() -> Mapping[str, Any]:
    return parse_toml(resources.files("ccrank") / "confidence.toml")
