"""The table of probes: name, loss, prompts, and whether gold is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.probing import losses, supervised
from ccrank.probing.bias import column_logits


@dataclass(frozen=True, slots=True)
class Settings:
    """Training settings of a probe; the defaults are the paper's."""

    epochs: int = 200
    """Passes over the task (or all training tasks); without sub-batches each is one step."""
    learning_rate: float = 1e-3
    margin: float = 0.2
    weight_decay: float = 0.0
    """L2 penalty on the weight vector only, added to the gradient as torch.optim.Adam does."""
    optimiser: Literal["adam", "lbfgs"] = "adam"
    initial: Literal["uniform", "pca"] = "uniform"
    """uniform: as torch.nn.Linear; pca: along the first principal component, the same for all seeds."""
    consistency: losses.Consistency = "squared"
    """ordreg's first term: squared per column, or as printed in the paper."""
    sub_batch: Literal["none", "pairs", "triples"] = "none"
    """none: one step per epoch, on the whole task. pairs: one step for every two items (ccs-pair, ccs and margin);
    triples: one for every three (triplet)."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("learning_rate", 0), ("margin", 0), ("weight_decay", 0)):
            value = getattr(self, name)
            if not least <= value < float("inf"):
                raise CcrankError(f"{name} must be a finite number of at least {least}, got {value!r}")
        for name, known in (
            ("optimiser", ("adam", "lbfgs")),
            ("initial", ("uniform", "pca")),
            ("consistency", ("squared", "as-printed")),
            ("sub_batch", ("none", "pairs", "triples")),
        ):
            if (value := getattr(self, name)) not in known:
                raise CcrankError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.sub_batch != "none" and self.optimiser != "adam":
            raise CcrankError(f"sub_batch={self.sub_batch} is trained by adam, not by {self.optimiser}")


Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Settings], Tensor]
"""(logits (..., M), mask (..., M), gold (..., M), shape (..., 2), settings) -> (...).

M is N items, or 2P answered prompts as x⁺₁, x⁻₁, x⁺₂, … . gold is ranks, or the truth of each answer; unsupervised
losses ignore it. shape is α, β of the bias terms; only the ordinal losses use it.
"""


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a probe; without a loss, the initial direction is the result."""

    loss: Loss | None
    prompt: Literal["single", "pair"] = "single"
    supervised: bool = False
    ordinal: bool = False
    """Whether the bias terms are computed from α and β instead of one free bias."""
    initial: Literal["uniform", "pca"] | None = None
    """Overrides the setting, for baselines that consist of an initial direction."""
    reflects: bool = False
    """Supervised, but with a loss that is symmetric in direction: the trained probe is reflected to agree with gold."""
    summary: str = ""
    """Description of a baseline without a loss."""

    @property
    def seeded(self) -> bool:
        """Whether results depend on the seed."""
        return self.initial != "pca"


def _ccs_pair(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    scores = logits.sigmoid().unflatten(-1, (-1, 2))
    return losses.ccs_pair_loss(scores[..., 0], scores[..., 1], mask[..., ::2])


def _ccs(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return losses.ccs_loss(logits.sigmoid(), mask)


def _margin(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return losses.margin_loss(logits.sigmoid(), mask, settings.margin)


def _triplet(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return losses.triplet_loss(logits.sigmoid(), mask, settings.margin)


def _ordreg(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    columns = column_logits(logits, shape[..., 0], shape[..., 1], mask)
    return losses.ordreg_loss(columns.sigmoid(), mask, settings.consistency)


def _sup_ccs_pair(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return supervised.sup_ccs_pair_loss(logits, mask, gold)


def _sup_ccs(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return supervised.sup_ccs_loss(logits, mask, gold)


def _sup_margin(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return supervised.sup_margin_loss(logits.sigmoid(), mask, gold, settings.margin)


def _sup_triplet(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return supervised.sup_triplet_loss(logits.sigmoid(), mask, gold, settings.margin)


def _sup_ordreg(logits: Tensor, mask: Tensor, gold: Tensor, shape: Tensor, settings: Settings) -> Tensor:
    return supervised.sup_ordreg_loss(column_logits(logits, shape[..., 0], shape[..., 1], mask), mask, gold)


OBJECTIVES: dict[str, Objective] = {
    "ccs-pair": Objective(_ccs_pair, prompt="pair"),
    "ccs": Objective(_ccs),
    "margin": Objective(_margin),
    "triplet": Objective(_triplet),
    "ordreg": Objective(_ordreg, ordinal=True),
    "sup-ccs-pair": Objective(_sup_ccs_pair, prompt="pair", supervised=True),
    "sup-ccs": Objective(_sup_ccs, supervised=True),
    "sup-margin": Objective(_sup_margin, supervised=True),
    "sup-triplet": Objective(_sup_triplet, supervised=True, reflects=True),
    "sup-ordreg": Objective(_sup_ordreg, supervised=True, ordinal=True),
    "random": Objective(None, initial="uniform", summary="A random direction in the states."),
    "pca": Objective(None, initial="pca", summary="The first principal component of the states."),
}


def objective_of(method: str) -> Objective:
    """The objective of a probe by name."""
    if method not in OBJECTIVES:
        raise CcrankError(f"unknown probe {method!r}; choose one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[method]


def data_points(method: str, count: int) -> int:
    """The data points in an unsupervised probe's loss on a task of N items, the last column of the paper's table of
    complexity: prompts, pairs of items, an anchor with a pair of others, or items.

    Parameters
    ----------
    method
        The name of the probe.
    count
        N.
    """
    pairs = count * (count - 1) // 2
    points = {
        "ccs-pair": 2 * pairs,
        "ccs": pairs,
        "margin": pairs,
        "triplet": pairs * (count - 2),
        "ordreg": count,
    }
    if method not in points:
        raise CcrankError(f"data points are counted for {', '.join(points)}, not for {method!r}")
    return points[method]


def task_losses(
    method: str, logits: Tensor, mask: Tensor, gold: Tensor | None, shape: Tensor, settings: Settings
) -> Tensor:
    """The loss of each task: logits (..., T, M), shape (..., 2) -> (..., T)."""
    loss = objective_of(method).loss
    if loss is None:
        return torch.zeros(logits.shape[:-1], dtype=logits.dtype, device=logits.device)
    return loss(logits, mask, mask if gold is None else gold, shape.unsqueeze(-2), settings)
