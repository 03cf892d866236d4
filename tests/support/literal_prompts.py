"""Formulas written out, number by number."""

from __future__ import annotations

import math
from collections.abc import Sequence


def probabilities(logits: Sequence[float]) -> list[float]:
    """exp(l) / Σ exp(l)"""
    weights = [math.exp(value) for value in logits]
    return [weight / sum(weights) for weight in weights]
