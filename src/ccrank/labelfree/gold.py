"""A few labels: how much each route counts, fitted to known pairs but never far from what no label says."""

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
"""How strongly labels are held back (see `fit_weights`): two labels never turn a lone route round, four that all say
the opposite do. Between 1 and 2 the choice matters little where labels are right."""

MOST_LEFT_OUT = 400
"""Of more known pairs than this, an even sample is left out in turn: each takes a fit."""

Pairs = Sequence[tuple[int, int]]
"""(higher, lower) as places among the items."""


@dataclass(frozen=True)
class Fitted:
    """Routes weighed by a few labels, and how well that foretells labels that it has not seen."""

    scores: np.ndarray
    """(N,)"""
    weights: np.ndarray
    """(R,) of the routes; 1/R each is what no label says."""
    labelled: int
    leave_one_out_tau: float
    """τ over the known pairs, each ordered by weights that were fitted without the labels of its two items."""
    without_gold_tau: float
    """τ over the known pairs by equal weights."""

    def details(self, routes: Sequence[str]) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "labelled": self.labelled,
            "leave_one_out_tau": round(self.leave_one_out_tau, 4),
            "without_gold_tau": round(self.without_gold_tau, 4),
            "weights": {
                route: round(float(weight), 4) for route, weight in zip(routes, self.weights, strict=True)
            },
        }


def fit_gold(parts: Mapping[str, np.ndarray], pairs: Pairs, prior: float = PRIOR) -> Fitted:
    """Weigh standardised routes, each (N,), by known pairs, and see how well each is foretold without its items."""
    routes = np.stack([*parts.values()])  # (R, N)
    weights = fit_weights(routes, pairs, prior)
    return Fitted(
        weights @ routes,
        weights,
        len({item for pair in pairs for item in pair}),
        float(np.mean(_left_out(routes, pairs, prior))),
        float(np.mean(_signs(routes.mean(axis=0), pairs))),
    )


def _left_out(routes: np.ndarray, pairs: Pairs, prior: float) -> list[float]:
    """For each known pair, whether weights order it so that have seen no label of either item.

    To leave out one item alone would flatter: the scores of the others follow their labels, and the item with the
    highest label, put high for that, is then rightly above whatever was left out, even where labels are mere noise.
    """
    signs = []
    for high, low in [*pairs][:: -(-len(pairs) // MOST_LEFT_OUT)]:
        others = [pair for pair in pairs if not {high, low} & {*pair}]
        signs += _signs(fit_weights(routes, others, prior) @ routes, [(high, low)])
    return signs


def fit_weights(routes: np.ndarray, pairs: Pairs, prior: float = PRIOR) -> np.ndarray:
    """The weights w = u/R of R routes, by logistic regression on pairs, shrunk towards u = 1.

    u = argmin T · mean_{i>j} log(1 + exp(−(s_i − s_j)/σ)) + prior/2 · mean_r (u_r − 1)², with s = Σ_r u_r z_r / R and σ
    the deviation of s at u = 1, or that of the labelled items if larger. The pairs of k labelled items are not
    k(k−1)/2 pieces of news, so they count T, as many as it takes to tie the items together (k − 1, if all hang
    together). A route that is right on every pair gains, one
    that is wrong loses and in the end counts upside down. (R, N) -> (R,)
    """
    count = len(routes)
    if not pairs:
        return np.full(count, 1 / count)
    high, low = np.array(pairs).T
    differences = (routes[:, high] - routes[:, low]).T / count  # (M, R)
    # √½ of the root mean square is what items differ by on average; labels on two far outliers count as any two.
    spread = max(float(routes.mean(axis=0).std()), float(np.sqrt(np.mean(differences.sum(axis=1) ** 2) / 2)))
    differences /= spread if spread > 1e-9 else 1.0
    news = _news(pairs)

    def loss(factors: np.ndarray) -> tuple[float, np.ndarray]:
        margins = differences @ factors
        shift = factors - 1
        value = news * np.logaddexp(0, -margins).mean() + prior / 2 * (shift**2).mean()
        slope = -news * (expit(-margins) @ differences) / len(pairs) + prior * shift / count
        return float(value), slope

    found = minimize(loss, np.ones(count), jac=True, method="BFGS", options={"gtol": 1e-9})
    return np.asarray(found.x / count)


def _news(pairs: Pairs) -> int:
    """Labelled items less the groups that no pair ties together: the edges of a spanning forest."""
    items, places = np.unique(np.array(pairs), return_inverse=True)
    ends = places.reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(items), len(items)))
    groups, _ = connected_components(graph, directed=False)
    return len(items) - int(groups)


def _signs(scores: np.ndarray, pairs: Pairs) -> list[float]:
    """For each known pair +1 if the scores order it so, −1 if the other way round, 0 if they tie."""
    return [float(np.sign(scores[high] - scores[low])) for high, low in pairs]
