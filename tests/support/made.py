"""Made-up lists: states, a label-free score and a truth, drawn from the model's own prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ccrank.labels import Labels
from ccrank.methods.labelled.fit import Fitted, fit
from ccrank.methods.labelled.observations import Observations, observations_of
from ccrank.methods.labelled.prior import DRAWS, Kernel, Setting, grid
from ccrank.util.zscores import z_scores


def made(
    seed: int, items: int = 60, beta: float = 0.5, share: float = 0.5, depth: int = 4, width: int = 12
) -> tuple[np.ndarray, np.ndarray, Kernel]:
    """(truth, label-free score, kernel): truth = β a + √s Xw + what is particular to each item."""
    rng = np.random.default_rng(seed)
    slot, item = rng.standard_normal((2, items, depth, width)).astype(np.float32)
    kernel = Kernel([(slot, item)])
    prior = z_scores(rng.standard_normal(items))
    setting = Setting(beta, share, "all")
    states = sum(np.sqrt(0.25) * table @ rng.standard_normal(table.shape[1]) for _, table in kernel.layers())
    noise = rng.standard_normal(items)
    return beta * prior + np.sqrt(share) * states + np.sqrt(setting.residual) * noise, prior, kernel


def dense(kernel: Kernel, setting: Setting) -> np.ndarray:
    """(N, N) the kernel of all items under a setting, without what is particular to an item."""
    total = np.zeros((kernel.count, kernel.count))
    for group, table in kernel.layers():
        total += setting.groups[group] * table.astype(float) @ table.T.astype(float)
    return setting.kernel_share * total


def fitted(
    prior: np.ndarray,
    kernel: Kernel,
    seen: Observations,
    settings: Sequence[Setting] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Fitted:
    """A fit to labels on such a list."""
    return fit(
        prior, kernel.products(seen.items, draws, seed), seen, grid() if settings is None else settings
    )


def observe(
    values: Iterable[tuple[int, float]] = (),
    pairs: Iterable[Iterable[int]] = (),
    best: Iterable[int] = (),
    worst: Iterable[int] = (),
    count: int = 100,
) -> Observations:
    """Labels of a list whose items are numbers."""
    orders: tuple[Any, ...] = tuple(tuple(map(str, pair)) for pair in pairs)
    picks = tuple(map(str, best)), tuple(map(str, worst))
    labels = Labels(tuple((str(item), value) for item, value in values), orders, *picks)
    return observations_of([labels], [[str(item) for item in range(count)]])
