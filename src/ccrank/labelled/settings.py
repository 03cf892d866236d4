"""What the evidence chooses among: how far to trust the label-free score, how much the states explain, and which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import log

import numpy as np

from ccrank.labelled.kernel import MIXES

LABEL_NOISE = 0.1
"""The share of the residual variance that is noise of the labels; the rest is what is particular to an item. Only the
sum matters for items without labels."""

PRIOR_WEIGHTS: dict[float, float] = {0.0: 0.2, 0.25: 0.25, 0.5: 0.3, 0.7: 0.2, 0.85: 0.05}
"""β → probability. β is the correlation of the label-free score with the truth."""
WRITTEN_PRIOR_WEIGHTS: dict[float, float] = {0.0: 0.05, 0.25: 0.2, 0.5: 0.4, 0.7: 0.25, 0.85: 0.1}
"""The same where exemplars were written for the criterion: such a score is rarely wrong altogether, so a few labels
should not overrule it."""
UNDECIDED_PRIOR_WEIGHTS: dict[float, float] = dict.fromkeys(PRIOR_WEIGHTS, 1 / len(PRIOR_WEIGHTS))
"""The same for the choice of pairs to ask about: all equally probable, so that the first answers settle β."""
KERNEL_SHARES: dict[float, float] = {0.02: 0.1, 0.1: 0.2, 0.2: 0.2, 0.35: 0.2, 0.5: 0.2, 0.7: 0.1}
"""s → probability. s is the share of the variance that the states explain beyond the label-free score."""
MIX_PRIOR = {"all": 0.5, "slot": 0.125, "item": 0.125, "middle": 0.125, "late": 0.125}
LEAST_RESIDUAL = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """Hyper-parameters of the prior f ~ N(βa, s K + (1 − q) e I), y = f + N(0, q e); β² + s + e = 1, so that the
    variance of y is 1 as that of normal scores is."""

    prior_weight: float
    """β"""
    kernel_share: float
    """s"""
    mix: str
    """Which weights of the groups of states: K = Σ_g mix_g K_g."""
    log_prior: float = 0.0

    @property
    def residual(self) -> float:
        """e"""
        return 1 - self.kernel_share - self.prior_weight**2

    @property
    def particular(self) -> float:
        """(1 − q) e: the variance of what is particular to an item."""
        return (1 - LABEL_NOISE) * self.residual

    @property
    def noise(self) -> float:
        """q e: the variance of the noise of a label."""
        return LABEL_NOISE * self.residual

    @property
    def groups(self) -> np.ndarray:
        """(G,) weights of the groups of states."""
        return np.array(MIXES[self.mix])


@cache
def grid(written: bool = False) -> tuple[Setting, ...]:
    """All settings, with their prior probabilities.

    Parameters
    ----------
    written
        Whether exemplars of the criterion are part of the label-free score.
    """
    return _settings(WRITTEN_PRIOR_WEIGHTS if written else PRIOR_WEIGHTS)


@cache
def undecided_grid() -> tuple[Setting, ...]:
    """All settings, every weight of the label-free score being equally probable."""
    return _settings(UNDECIDED_PRIOR_WEIGHTS)


def _settings(weights: dict[float, float]) -> tuple[Setting, ...]:
    found = [
        Setting(beta, share, mix, log(p_beta) + log(p_share) + log(MIX_PRIOR[mix]))
        for mix in MIXES
        for beta, p_beta in weights.items()
        for share, p_share in KERNEL_SHARES.items()
    ]
    return tuple(one for one in found if one.residual >= LEAST_RESIDUAL)
