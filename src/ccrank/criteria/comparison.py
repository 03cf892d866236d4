"""The question about two items, in words."""

from __future__ import annotations

from ccrank.criteria.inflection import comparative_of
from ccrank.task import Criterion

AMOUNTS = {"low": "lower", "high": "higher", "few": "lower", "many": "higher"}
"""Poles that are said of the criterion and not of the items, with their comparatives."""


def comparison(criterion: Criterion) -> str:
    """How the higher of two items compares with the other: "larger"."""
    understood = criterion.understood
    if understood is None:
        return criterion.comparative_phrase
    high = understood.poles[1]
    if not understood.comparative.startswith("more in terms of"):
        return understood.comparative
    if high in AMOUNTS:
        return f"{AMOUNTS[high]} in {understood.name}"
    return comparative_of(high)
