"""Trying out a user's loss before it is registered: what would fail hours into a study fails here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ccrank.errors import CcrankError
from ccrank.methods.probing.objectives import Objective, Settings

LOSS_SETTINGS = ("margin", "consistency")
"""Settings that a loss may take by name."""


def own_options(name: str, loss: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only parameters of a loss, with their defaults."""
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        raise CcrankError(f"{name}: the loss must be a function loss(scores, mask), got {loss!r}") from None
    options = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    defaults = {setting.name: setting.default for setting in Settings.__dataclass_fields__.values()}
    for option, default in options.items():
        if option in LOSS_SETTINGS:
            options[option] = defaults[option]
        elif option in defaults:
            raise CcrankError(
                f"{name}: {option} is a setting of all probes; give the loss's option another name"
            )
        elif not isinstance(default, (bool, int, float, str)):
            raise CcrankError(
                f"{name}: the loss's option {option} needs a default that is a number or a word"
            )
    return options


def check_loss(name: str, objective: Objective) -> None:
    """Raise an error if the loss is not one finite number per task, has no gradient, or looks at absent items.

    The loss is tried on three probes and two tasks, the second padded: its value must be that of the task alone.
    """
    loss = objective.loss
    assert loss is not None
    full, part = (12, 6) if objective.prompt == "pair" else (6, 4)
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(3, 2, full, generator=generator) * 0.8 + 0.1
    mask = torch.arange(full) < torch.tensor([[full], [part]])
    gold = mask.cumsum(-1) - 1.0 if objective.prompt == "single" else mask.cumsum(-1) % 2.0
    options = {option: getattr(Settings(), option) for option in objective.options} | dict(objective.own)

    def losses(values: torch.Tensor, mask: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
        given = (values, mask, gold) if objective.supervised else (values, mask)
        try:
            found = loss(*given, **options)
        except Exception as error:
            raise CcrankError(
                f"{name}: the loss fails on scores {tuple(values.shape)} and a mask {tuple(mask.shape)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        wanted = values.shape[:-1]
        if not isinstance(found, torch.Tensor) or found.shape != wanted:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise CcrankError(
                f"{name}: the loss must return one number per task, a tensor {tuple(wanted)} for scores "
                f"{tuple(values.shape)}; it returned {shape}"
            )
        return found

    values.requires_grad_()
    batched = losses(values, mask, gold)
    if not batched.requires_grad:
        raise CcrankError(f"{name}: the loss does not depend on the scores, so there is nothing to train")
    [slope] = torch.autograd.grad(batched.sum(), values)
    if not (torch.isfinite(batched).all() and torch.isfinite(slope).all()):
        raise CcrankError(
            f"{name}: the loss or its gradient is NaN or infinite where items are absent (mask False)"
        )
    alone = losses(values[:, 1:, :part], mask[1:, :part], gold[1:, :part])
    if not torch.allclose(batched[:, 1:], alone, rtol=1e-4, atol=1e-6):
        raise CcrankError(
            f"{name}: a task's loss changes with the length to which it is padded; use the mask (True for the items of "
            "the task) in every sum and mean"
        )
