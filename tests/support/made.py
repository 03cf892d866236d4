"""Made-up lists: states, a label-free score and a truth, drawn from the model's own prior."""

from __future__ import annotations

import numpy as np

from ccrank.methods.labelled.prior import Kernel, Setting
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
