"""The table of probes: name, loss, prompts, and whether gold is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing import losses


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
    features: Literal["linear", "rbf"] = "linear"
    """What the probe is linear in: the Z-scored states, or random features of a Gaussian kernel on them."""
    own: tuple[tuple[str, Any], ...] = ()
    """(name, value) of the options of a registered objective's loss."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Settings).items():
            if name == "own":
                continue
            value, choices = getattr(self, name), get_args(kind)
            if choices and value not in choices:
                raise CcrankError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
            if not choices and not 0 <= value < float("inf"):
                raise CcrankError(f"{name} must be a finite number of at least 0, got {value!r}")
        if self.sub_batch != "none" and self.optimiser != "adam":
            raise CcrankError(f"sub_batch={self.sub_batch} is trained by adam, not by {self.optimiser}")


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a probe; without a loss, the initial direction is the result."""

    loss: Callable[..., Tensor] | None
    """(values, mask (..., M), *gold, **options) -> (...), where values are scores (..., M), or (..., M, width) for the
    ordinal losses. M is N items, or 2P answered prompts as x⁺₁, x⁻₁, x⁺₂, … . gold (..., M), for supervised losses, is
    ranks, or the truth of each answer."""
    prompt: Literal["single", "pair"] = "single"
    supervised: bool = False
    ordinal: bool = False
    """Whether the bias terms are computed from α and β instead of one free bias."""
    on_logits: bool = False
    """Whether the loss takes logits in place of scores."""
    options: tuple[str, ...] = ()
    """The settings that the loss takes."""
    initial: Literal["uniform", "pca"] | None = None
    """Overrides the setting, for baselines that consist of an initial direction."""
    reflects: bool = False
    """Supervised, but with a loss that is symmetric in direction: the trained probe is reflected to agree with gold."""
    summary: str = ""
    """Description of a baseline without a loss, or of a registered objective."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Further options of a registered objective's loss, with their defaults."""
    registered: bool = False
    """Whether a user registered it."""

    @property
    def seeded(self) -> bool:
        """Whether results depend on the seed."""
        return self.initial != "pca"


OBJECTIVES: dict[str, Objective] = {
    "ccs-pair": Objective(losses.ccs_pair_loss, prompt="pair"),
    "ccs": Objective(losses.ccs_loss),
    "margin": Objective(losses.margin_loss, options=("margin",)),
    "triplet": Objective(losses.triplet_loss, options=("margin",)),
    "ordreg": Objective(losses.ordreg_loss, ordinal=True, options=("consistency",)),
    "sup-ccs-pair": Objective(losses.sup_ccs_pair_loss, prompt="pair", supervised=True, on_logits=True),
    "sup-ccs": Objective(losses.sup_ccs_loss, supervised=True, on_logits=True),
    "sup-margin": Objective(losses.sup_margin_loss, supervised=True, options=("margin",)),
    "sup-triplet": Objective(losses.sup_triplet_loss, supervised=True, options=("margin",), reflects=True),
    "sup-ordreg": Objective(losses.sup_ordreg_loss, supervised=True, ordinal=True, on_logits=True),
    "random": Objective(None, initial="uniform", summary="A random direction in the states."),
    "pca": Objective(None, initial="pca", summary="The first principal component of the states."),
}


def objective_of(method: str) -> Objective:
    """The objective of a probe by name."""
    if method not in OBJECTIVES:
        raise CcrankError(f"unknown probe {method!r}; choose one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[method]


def settings_of(method: str, options: Mapping[str, Any]) -> Settings:
    """Settings from options by name, among them those of the objective's own loss."""
    own = {name: options.get(name, default) for name, default in objective_of(method).own.items()}
    known = {entry.name for entry in fields(Settings)}
    return Settings(
        **{name: value for name, value in options.items() if name in known}, own=tuple(own.items())
    )


def task_losses(
    method: str, logits: Tensor, mask: Tensor, gold: Tensor | None, shape: Tensor, settings: Settings
) -> Tensor:
    """The loss of each task: logits (..., T, M), shape (..., 2) -> (..., T)."""
    objective = objective_of(method)
    if objective.loss is None:
        return torch.zeros(logits.shape[:-1], dtype=logits.dtype, device=logits.device)
    values = logits
    if objective.ordinal:
        values = losses.column_logits(logits, shape[..., None, 0], shape[..., None, 1], mask)
    if not objective.on_logits:
        values = values.sigmoid()
    options = {name: getattr(settings, name) for name in objective.options} | dict(settings.own)
    return objective.loss(values, mask, *([gold] if objective.supervised else []), **options)
