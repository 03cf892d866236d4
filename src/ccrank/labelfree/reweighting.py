"""A few labels: the weight of each signal, fitted to known pairs and shrunk towards equal weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

PRIOR = 1.5
"""The strength of the shrinkage (see `fit_weights`): two labels never reverse a single signal, four that all contradict
it do. Between 1 and 2 the choice matters little if the labels are right."""

MOST_LEFT_OUT = 400
"""Of more known pairs than this, an even sample is left out in turn: each takes a fit."""

Pairs = Sequence[tuple[int, int]]
"""(higher, lower) as places among the items."""


@dataclass(frozen=True)
class Fitted:
    """Signals weighted by a few labels, and how well that predicts labels that it has not seen."""

    scores: np.ndarray
    """(N,)"""
    weights: np.ndarray
    """(R,) of the signals; 1/R each without labels."""
    labelled: int
    leave_one_out_tau: float
    """τ over the known pairs, each ordered by weights that were fitted without the labels of its two items."""
    without_labels_tau: float
    """τ over the known pairs by equal weights."""

    def details(self, signals: Sequence[str]) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "labelled": self.labelled,
            "leave_one_out_tau": round(self.leave_one_out_tau, 4),
            "without_labels_tau": round(self.without_labels_tau, 4),
            "weights": {
                signal: round(float(weight), 4) for signal, weight in zip(signals, self.weights, strict=True)
            },
        }


def fit_signal_weights(signals: Mapping[str, np.ndarray], pairs: Pairs, prior: float = PRIOR) -> Fitted:
    """Weight Z-scored signals, each (N,), by known pairs, and see how well each pair is predicted without its items."""
    table = np.stack([*signals.values()])  # (R, N)
    weights = fit_weights(table, pairs, prior)
    return Fitted(
        weights @ table,
        weights,
        len({item for pair in pairs for item in pair}),
        float(np.mean(_left_out(table, pairs, prior))),
        float(np.mean(_signs(table.mean(axis=0), pairs))),
    )


def _left_out(signals: np.ndarray, pairs: Pairs, prior: float) -> list[float]:
    """For each known pair, whether weights that have seen no label of either item order it correctly.

    Leaving out one item alone would be biased: the scores of the others follow their labels, so the item with the
    highest label is then above whatever was left out, even if the labels are noise.
    """
    signs = []
    for high, low in [*pairs][:: -(-len(pairs) // MOST_LEFT_OUT)]:
        others = [pair for pair in pairs if not {high, low} & {*pair}]
        signs += _signs(fit_weights(signals, others, prior) @ signals, [(high, low)])
    return signs


def fit_weights(signals: np.ndarray, pairs: Pairs, prior: float = PRIOR) -> np.ndarray:
    """The weights w = u/R of R signals, by logistic regression on pairs, shrunk towards u = 1.

    u = argmin T · mean_{i>j} log(1 + exp(−(s_i − s_j)/σ)) + prior/2 · mean_r (u_r − 1)², with s = Σ_r u_r z_r / R and σ
    the deviation of s at u = 1, or that of the labelled items if larger. The k(k−1)/2 pairs of k labelled items are
    not independent, so they count as T pairs, the edges of a spanning forest (k − 1 if all are connected). A signal
    that is right on every pair gains weight, one that is wrong loses it and may end up negative. (R, N) -> (R,)
    """
    count = len(signals)
    if not pairs:
        return np.full(count, 1 / count)
    high, low = np.array(pairs).T
    differences = (signals[:, high] - signals[:, low]).T / count  # (M, R)
    # √½ of the root mean square is what items differ by on average; labels on two far outliers count as any two.
    spread = max(float(signals.mean(axis=0).std()), float(np.sqrt(np.mean(differences.sum(axis=1) ** 2) / 2)))
    differences /= spread if spread > 1e-9 else 1.0
    effective_pairs = _effective_pairs(pairs)

    def loss(factors: np.ndarray) -> tuple[float, np.ndarray]:
        margins = differences @ factors
        shift = factors - 1
        value = effective_pairs * np.logaddexp(0, -margins).mean() + prior / 2 * (shift**2).mean()
        slope = -effective_pairs * (expit(-margins) @ differences) / len(pairs) + prior * shift / count
        return float(value), slope

    found = minimize(loss, np.ones(count), jac=True, method="BFGS", options={"gtol": 1e-9})
    return np.asarray(found.x / count)


def _effective_pairs(pairs: Pairs) -> int:
    """Labelled items less the connected components of their pairs: the edges of a spanning forest."""
    items, places = np.unique(np.array(pairs), return_inverse=True)
    edges = places.reshape(-1, 2)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(len(items), len(items)))
    groups, _ = connected_components(graph, directed=False)
    return len(items) - int(groups)


def _signs(scores: np.ndarray, pairs: Pairs) -> list[float]:
    """For each known pair +1 if the scores order it so, −1 if in reverse, 0 if they tie."""
    return [float(np.sign(scores[high] - scores[low])) for high, low in pairs]
