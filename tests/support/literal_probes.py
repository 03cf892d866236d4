"""The paper's equations, one pair or triple at a time: slow and obvious twins of the package's losses.

Scores are lists of 0-dimensional tensors, so that autograd gives the literal loss's own gradient.
"""

from __future__ import annotations

import math
from itertools import permutations

import torch

Scores = list[torch.Tensor]


def mean(values: Scores) -> torch.Tensor:
    return torch.stack(values).mean() if values else torch.tensor(0.0, dtype=torch.float64)


def hinge(value: torch.Tensor) -> torch.Tensor:
    return torch.maximum(torch.zeros_like(value), value)


def ccs_pair(plus: Scores, minus: Scores) -> torch.Tensor:
    return mean([(p - (1 - n)) ** 2 + torch.minimum(p, n) ** 2 for p, n in zip(plus, minus, strict=True)])


def ccs(s: Scores) -> torch.Tensor:
    pairs = [(a, b) for i, a in enumerate(s) for j, b in enumerate(s) if i != j]
    return mean([(a - (1 - b)) ** 2 + torch.minimum(a, b) ** 2 for a, b in pairs])


def margin(s: Scores, m: float) -> torch.Tensor:
    pairs = [(a, b) for i, a in enumerate(s) for j, b in enumerate(s) if i != j]
    return mean([torch.minimum(hinge((a - b) + m), hinge((b - a) + m)) for a, b in pairs])


def triplet(s: Scores, m: float) -> torch.Tensor:
    terms = []
    for c, a, b in permutations(range(len(s)), 3):
        to_a, to_b = (s[c] - s[a]).abs(), (s[c] - s[b]).abs()
        contrast = torch.minimum(hinge(to_a - to_b + m), hinge(to_b - to_a + m))
        terms.append(contrast + hinge(m - torch.minimum(to_a, to_b)))
    return mean(terms)


def biases(alpha: torch.Tensor, beta: torch.Tensor, ranks: int) -> Scores:
    cuts = [(k - 0.5) / (ranks - 1) for k in range(1, ranks)]
    moved = [cut ** (alpha - 1) * (1 - cut) ** (beta - 1) for cut in cuts]
    upper = [torch.stack(moved[k:]).sum() for k in range(ranks - 1)]
    middle = torch.stack(upper).mean()
    return [value - middle for value in upper]


def ordreg(logits: Scores, alpha: torch.Tensor, beta: torch.Tensor, squared: bool) -> torch.Tensor:
    ranks = len(logits)
    total = torch.zeros((), dtype=torch.float64)
    for k, bias in enumerate(biases(alpha, beta, ranks), start=1):
        column = [torch.sigmoid(z + bias) for z in logits]
        total = total + (((ranks - k) - sum(column)) ** 2 if squared else (ranks - (k - 1)) - sum(column))
        for score in column:
            total = total + torch.minimum(score, 1 - score)
    return total / (ranks * (ranks - 1))


def log_loss(score: torch.Tensor, truth: float) -> torch.Tensor:
    return -(truth * torch.log(score) + (1 - truth) * torch.log(1 - score))


def sup_ccs_pair(plus: Scores, minus: Scores, above: list[bool]) -> torch.Tensor:
    terms = []
    for p, n, y in zip(plus, minus, above, strict=True):
        terms += [log_loss(p, float(y)), log_loss(n, float(not y))]
    return mean(terms)


def higher_lower(s: Scores, gold: list[float]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(s[i], s[j]) for i in range(len(s)) for j in range(len(s)) if gold[i] > gold[j]]


def sup_ccs(s: Scores, gold: list[float]) -> torch.Tensor:
    return mean([(log_loss(high, 1.0) + log_loss(low, 0.0)) / 2 for high, low in higher_lower(s, gold)])


def sup_margin(s: Scores, gold: list[float], m: float) -> torch.Tensor:
    return mean([hinge(m - (high - low)) for high, low in higher_lower(s, gold)])


def sup_triplet(s: Scores, gold: list[float], m: float) -> torch.Tensor:
    rank = [sum(other < value for other in gold) for value in gold]
    triples = [
        (c, p, n)
        for c, p, n in permutations(range(len(s)), 3)
        if abs(rank[c] - rank[p]) < abs(rank[c] - rank[n])
    ]
    return mean([hinge((s[c] - s[p]).abs() - (s[c] - s[n]).abs() + m) for c, p, n in triples])


def sup_ordreg(logits: Scores, alpha: torch.Tensor, beta: torch.Tensor, gold: list[float]) -> torch.Tensor:
    rank = [1 + sum(other < value for other in gold) for value in gold]
    terms = []
    for k, bias in enumerate(biases(alpha, beta, len(gold)), start=1):
        terms += [log_loss(torch.sigmoid(z + bias), float(rank[n] > k)) for n, z in enumerate(logits)]
    return mean(terms)


def chance_tau(count: int) -> tuple[float, float]:
    """Mean and standard deviation of |τ| between two random orders of `count` items, from the exact distribution.

    The number of inversions of a random order is a sum of independent uniforms on {0, …, k}, k < count.
    """
    ways = [1.0]
    for k in range(1, count):
        ways = [
            sum(ways[i - j] for j in range(k + 1) if 0 <= i - j < len(ways)) / (k + 1)
            for i in range(len(ways) + k)
        ]
    taus = [abs(1 - 2 * inversions / (len(ways) - 1)) for inversions in range(len(ways))]
    middle = sum(share * tau for share, tau in zip(ways, taus, strict=True))
    spread = sum(share * (tau - middle) ** 2 for share, tau in zip(ways, taus, strict=True))
    return middle, math.sqrt(spread)
