"""Faults of the paper that its formulas show by themselves; see paper_faults.py."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy


@dataclass(frozen=True)
class Finding:
    """A small table and what follows from it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    conclusion: str

    def __str__(self) -> str:
        cells = [tuple(map(_cell, row)) for row in (self.columns, *self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, "", *lines, "", self.conclusion])


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def loss(items: int = 6, steps: int = 2000) -> Finding:
    """OrdRegCCR as printed and with a square, at a few score matrices and where gradient descent ends."""
    ranking = torch.ones(items, items).tril()  # item n ranks at least k: columns sum to K, K − 1, …, 1
    matrices = {
        "a perfect ranking": ranking,
        "its reverse": ranking.flip(0),
        "all scores ½": torch.full((items, items), 0.5),
        "all scores 1": torch.ones(items, items),
    }
    for name, square in (("printed", False), ("squared", True)):
        matrices[f"gradient descent, {name}"] = minimiser(items, square, steps)
    rows = []
    for name, scores in matrices.items():
        printed, squared = (float(ordreg(scores, square)) for square in (False, True))
        rows.append((name, " ".join(f"{total:.1f}" for total in scores.sum(0)), printed, squared))
    return Finding(
        f"OrdRegCCR on {items} items: the whole loss, consistency and confidence",
        ("scores", "column sums", "as printed", "consistency squared"),
        tuple(rows),
        f"As printed, all ones has the lowest loss ({rows[3][2]:.0f}; a perfect ranking: {rows[0][2]:.0f}), and the\n"
        "loss is a sum over single scores: it pushes those above ½ to 1, whatever the other items do.\n"
        f"With a square, column sums come within ½ of {items}, {items - 1}, …, 2; the last column has no such term.",
    )


def ordreg(scores: Tensor, square: bool) -> Tensor:
    """The paper's equation, literally: Σ_{k<K} ((K − (k − 1)) − Σ_n s^k_n) + Σ_n Σ_k min(s, 1 − s); scores (N, K)."""
    count = scores.shape[1]
    short = torch.arange(count, 0, -1) - scores.sum(0)
    consistency = (short**2 if square else short)[: count - 1].sum()
    return consistency + torch.minimum(scores, 1 - scores).sum()


def minimiser(items: int, square: bool, steps: int) -> Tensor:
    """Scores σ(z) that minimise the loss over free logits z, from a random start."""
    logits = torch.randn(items, items, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        ordreg(logits.sigmoid(), square).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return logits.detach().sigmoid()


def biases(ranks: int = 5) -> Finding:
    """How many bias terms each reading of "cut [0, 1] into K − 1 pieces" gives, and whether training can keep them."""
    ends = np.linspace(0, 1, ranks)
    rows = []
    for name, cuts in (
        ("inner cut points of K − 1 pieces", ends[1:-1]),
        ("all cut points of K − 1 pieces", ends),
        ("K − 1 points from 0 to 1", np.linspace(0, 1, ranks - 1)),
        ("midpoints of K − 1 pieces (ccrank)", (ends[1:] + ends[:-1]) / 2),
    ):
        rows.append((name, len(cuts), *(_are_usable(cuts, value) for value in (1.0, 0.9, 1.1))))
    return Finding(
        f"Bias terms for K = {ranks}; K are announced, K − 1 are summed over",
        ("reading", "biases", "decreasing at α = β = 1", "at 0.9", "at 1.1"),
        tuple(rows),
        "The printed recipe gives K − 2 or K biases. Where 0 and 1 are among the cut points, δ^(α−1)(1 − δ)^(β−1) is\n"
        "infinite or 0 there as soon as training moves α and β. With K biases, k̂ = 1 + Σ_k 1[s^k > ½] reaches K + 1.",
    )


def _are_usable(cuts: np.ndarray, value: float) -> str:
    """Whether the reverse cumulative sums of δ^(α−1) (1 − δ)^(β−1) are finite and strictly decreasing; α = β."""
    with np.errstate(divide="ignore"):
        steps = cuts ** (value - 1) * (1 - cuts) ** (value - 1)
    sums = np.cumsum(steps[::-1])[::-1]
    if not np.isfinite(sums).all():
        return "infinite"
    return "yes" if (np.diff(sums) < 0).all() else "ties"


def rule() -> Finding:
    """The printed and the original prediction of origCCS where f(x⁻) = 1 − f(x⁺), as the loss demands."""
    rows = []
    for plus in (0.95, 0.75, 0.5, 0.25, 0.05):
        minus = 1 - plus
        rows.append((plus, minus, abs(0.5 * (plus - (1 - minus))), 0.5 * (plus + (1 - minus))))
    return Finding(
        "Predictions of a consistent probe, f(x⁺) + f(x⁻) = 1",
        ("f(x⁺)", "f(x⁻)", "printed: ½(f(x⁺) − (1 − f(x⁻)))", "CCS: ½(f(x⁺) + (1 − f(x⁻)))"),
        tuple(rows),
        "The printed rule is half the residual that training brings to 0: it is 0 for every consistent pair,\n"
        "whatever the answer. CCS averages the two.",
    )


def chance(most: int = 10, draws: int = 20_000) -> Finding:
    """Chance of |τ| and of the better direction's accuracy for N items: exact, and by drawing random orders."""
    generator = np.random.default_rng(0)
    rows = []
    for items in range(4, most + 1):
        gold = np.arange(items)
        drawn = (
            np.array(list(permutations(range(items))))
            if items <= 6
            else generator.permuted(np.tile(gold, (draws, 1)), axis=1)
        )
        first, second = np.triu_indices(items, 1)
        right = (drawn[:, first] < drawn[:, second]).mean(axis=1)
        drawn_tau, drawn_accuracy = np.abs(2 * right - 1).mean(), np.maximum(right, 1 - right).mean()
        rows.append(
            (
                items,
                chance_abs_tau(items),
                float(drawn_tau),
                f"{chance_free_accuracy(items):.1%}",
                f"{drawn_accuracy:.1%}",
            )
        )
    return Finding(
        "Random orders, reversed where that is better",
        ("items", "|τ|, exact", "|τ|, drawn", "accuracy, exact", "accuracy, drawn"),
        tuple(rows),
        "With the direction left free, random orders reach these values, not τ = 0 and 50 %. They depend on the\n"
        "number of items, so datasets with lists of different lengths cannot be compared without them.",
    )
