"""Beyond the paper: rankings without labels that know which end is up."""

from ccrank.labelfree.methods import anchored, auto, axis, likelihood, poles

__all__ = ["anchored", "auto", "axis", "likelihood", "poles"]
