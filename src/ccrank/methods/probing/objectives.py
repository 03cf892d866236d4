"""The table of probes, their training settings, and the trial of a user's loss before it is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

import torch
from torch import Tensor

from ccrank.errors import CcrankError
from ccrank.methods.probing import losses

SEEDS = (0, 1, 2, 3, 4)
SUB_BATCH_ITEMS = {"pairs": 2, "triples": 3}
"""Items of a sub-batch."""
LOSS_SETTINGS = ("margin", "consistency")
"""Settings that a registered loss may take by name."""


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
            value, choices = getattr(self, name), get_args(kind)
            if name == "own":
                continue
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
    sub_batch: Literal["none", "pairs", "triples"] = "none"
    """The sub-batches that it can be trained on: for unsupervised losses that are means over pairs or triples of items.
    A triplet needs three items; ordreg looks at all items at once."""
    slopes: Callable[[Tensor, float], Tensor] | None = None
    """The derivative of the loss of a sub-batch; a loss without one is differentiated."""
    summary: str = ""
    """Description of a baseline without a loss, or of a registered objective."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Further options of a registered objective's loss, with their defaults."""
    registered: bool = False
    """Whether a user registered it."""

    @property
    def paired(self) -> bool:
        """Whether it reads ordered pairs of items, answered Yes and No."""
        return self.prompt == "pair"

    @property
    def seeded(self) -> bool:
        """Whether results depend on the seed."""
        return self.initial != "pca"


OBJECTIVES: dict[str, Objective] = {
    "ccs-pair": Objective(
        losses.ccs_pair_loss, prompt="pair", sub_batch="pairs", slopes=losses.ccs_pair_slopes
    ),
    "ccs": Objective(losses.ccs_loss, sub_batch="pairs", slopes=losses.ccs_slopes),
    "margin": Objective(
        losses.margin_loss, options=("margin",), sub_batch="pairs", slopes=losses.margin_slopes
    ),
    "triplet": Objective(
        losses.triplet_loss, options=("margin",), sub_batch="triples", slopes=losses.triplet_slopes
    ),
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


@dataclass(frozen=True)
class ProbeSpec:
    """Which probe is trained, and how."""

    name: str
    """The name of its objective."""
    seeds: Sequence[int] = SEEDS
    settings: Settings = field(default_factory=Settings)
    protocol: str = "same-task"
    """same-task trains and tests on one task (the paper's main setting), leave-one-out scores each item by a probe that
    has not seen it, across-tasks trains on other tasks in folds, across-items without the items of the
    held-out tasks."""
    device: str | torch.device = "cpu"
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if len(self.seeds) == 0 or any(seed < 0 for seed in self.seeds):
            raise CcrankError(f"seeds must be one or more integers of at least 0, got {list(self.seeds)}")
        object.__setattr__(self, "seeds", tuple(map(int, self.seeds)))

    @property
    def objective(self) -> Objective:
        """The objective of that name."""
        return objective_of(self.name)


def default_settings(method: str) -> dict[str, Any]:
    """The options of a probe's training with their defaults, including the options of a registered loss."""
    settings = {entry.name: entry.default for entry in fields(Settings) if entry.name != "own"}
    return {**settings, **objective_of(method).own}


def settings_of(method: str, options: Mapping[str, Any]) -> Settings:
    """Settings from options by name, including the options of a registered loss."""
    own = {name: options.get(name, default) for name, default in objective_of(method).own.items()}
    names = {entry.name for entry in fields(Settings)} & set(options)
    return Settings(**{name: options[name] for name in names}, own=tuple(own.items()))


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


def own_options(name: str, loss: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only parameters of a loss, with their defaults."""
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        raise CcrankError(f"{name}: the loss must be a function loss(scores, mask), got {loss!r}") from None
    defaults = {setting.name: setting.default for setting in fields(Settings)}
    options = {}
    for parameter in parameters:
        option, default = parameter.name, parameter.default
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        if option in defaults and option not in LOSS_SETTINGS:
            raise CcrankError(
                f"{name}: {option} is a setting of all probes; give the loss's option another name"
            )
        if option not in defaults and not isinstance(default, (bool, int, float, str)):
            raise CcrankError(
                f"{name}: the loss's option {option} needs a default that is a number or a word"
            )
        options[option] = defaults.get(option, default)
    return options


def check_loss(name: str, objective: Objective) -> None:
    """Raise an error if the loss is not one finite number per task, has no gradient, or looks at absent items, by a
    trial on three probes and two tasks, the second padded: what would fail hours into a study fails here."""
    loss = objective.loss
    assert loss is not None
    full, part = (12, 6) if objective.paired else (6, 4)
    values = torch.rand(3, 2, full, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    mask = torch.arange(full) < torch.tensor([[full], [part]])
    gold = mask.cumsum(-1) % 2.0 if objective.paired else mask.cumsum(-1) - 1.0
    options = {option: getattr(Settings(), option) for option in objective.options} | dict(objective.own)

    def losses_of(values: Tensor, mask: Tensor, gold: Tensor) -> Tensor:
        try:
            result = loss(values, mask, *([gold] if objective.supervised else []), **options)
        except Exception as error:
            raise CcrankError(
                f"{name}: the loss fails on scores {tuple(values.shape)} and a mask {tuple(mask.shape)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        if shape != (wanted := tuple(values.shape[:-1])):
            raise CcrankError(
                f"{name}: the loss must return one number per task, a tensor {wanted} for scores "
                f"{tuple(values.shape)}; it returned {shape}"
            )
        return result

    values.requires_grad_()
    batched = losses_of(values, mask, gold)
    if not batched.requires_grad:
        raise CcrankError(f"{name}: the loss does not depend on the scores, so there is nothing to train")
    [slope] = torch.autograd.grad(batched.sum(), values)
    if not (torch.isfinite(batched).all() and torch.isfinite(slope).all()):
        raise CcrankError(
            f"{name}: the loss or its gradient is NaN or infinite where items are absent (mask False)"
        )
    alone = losses_of(values[:, 1:, :part], mask[1:, :part], gold[1:, :part])
    if not torch.allclose(batched[:, 1:], alone, rtol=1e-4, atol=1e-6):
        raise CcrankError(
            f"{name}: a task's loss changes with the length to which it is padded; use the mask (True for the items of "
            "the task) in every sum and mean"
        )
