"""The losses are the paper's, to the last digit and in their gradients."""

from __future__ import annotations

import literal_probes as literal
import pytest
import torch

from ccrank.methods.probing import losses
from ccrank.methods.probing.objectives import OBJECTIVES, Settings, task_losses

MARGIN = 0.2
ITEM_METHODS = [name for name, entry in OBJECTIVES.items() if entry.prompt == "single" and entry.loss]
PAIR_METHODS = [name for name, entry in OBJECTIVES.items() if entry.prompt == "pair"]


def literal_loss(method, logits, shape, gold, settings):
    """The literal loss of one task without padding, by the method's name."""
    rows = list(logits)
    scores = [torch.sigmoid(row) for row in rows]
    squared = settings.consistency == "squared"
    if method in PAIR_METHODS:
        plus, minus = scores[::2], scores[1::2]
        if method == "ccs-pair":
            return literal.ccs_pair(plus, minus)
        return literal.sup_ccs_pair(plus, minus, [bool(truth) for truth in gold[::2]])
    return {
        "ccs": lambda: literal.ccs(scores),
        "margin": lambda: literal.margin(scores, MARGIN),
        "triplet": lambda: literal.triplet(scores, MARGIN),
        "ordreg": lambda: literal.ordreg(rows, shape[0], shape[1], squared),
        "sup-ccs": lambda: literal.sup_ccs(scores, gold),
        "sup-margin": lambda: literal.sup_margin(scores, gold, MARGIN),
        "sup-triplet": lambda: literal.sup_triplet(scores, gold, MARGIN),
        "sup-ordreg": lambda: literal.sup_ordreg(rows, shape[0], shape[1], gold),
    }[method]()


def batch_of(method, seed):
    """Logits (2, 3, 6) of two probes on three tasks of 6, 4 and 3 rows (items), not packed from the left."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    mask = torch.ones(1, 3, 6, dtype=torch.bool)
    if method in PAIR_METHODS:  # a prompt is two neighbouring rows
        mask[0, 1, 2:4] = False
        gold = torch.tensor([[[1, 0, 0, 1, 1, 0]] * 3], dtype=torch.float64)
    else:
        mask[0, 1, [0, 3]] = False
        mask[0, 2, [1, 2, 5]] = False
        values = torch.rand(1, 3, 6, generator=generator, dtype=torch.float64)
        gold = torch.stack(
            [
                torch.stack(
                    [((values[0, t] < values[0, t, n]) & mask[0, t]).sum().double() for n in range(6)]
                )
                for t in range(3)
            ]
        ).unsqueeze(0)
    shape = 1 + 0.4 * torch.randn(2, 2, generator=generator, dtype=torch.float64)
    return logits, mask, gold, shape


@pytest.mark.parametrize(
    ("dense_limit", "block"), [(0, 1), (32, 1), (32, 2**22)], ids=["sorted", "blocks", "dense"]
)
@pytest.mark.parametrize(
    ("method", "consistency"),
    [(name, "squared") for name in ITEM_METHODS + PAIR_METHODS] + [("ordreg", "as-printed")],
)
def test_losses_and_gradients_equal_the_literal_equations(
    method, consistency, dense_limit, block, monkeypatch
):
    """Batched, masked losses and their gradients equal loops over the pairs and triples of each task."""
    monkeypatch.setattr(losses, "DENSE_LIMIT", dense_limit)
    monkeypatch.setattr(losses, "BLOCK", block)
    settings = Settings(margin=MARGIN, consistency=consistency)
    for seed in range(3):
        logits, mask, gold, shape = batch_of(method, seed)
        logits.requires_grad_()
        shape.requires_grad_()
        found = task_losses(method, logits, mask, gold, shape, settings)
        assert found.shape == (2, 3)
        expected = torch.stack(
            [
                torch.stack(
                    [
                        literal_loss(
                            method,
                            logits[p, t][mask[0, t]],
                            shape[p],
                            gold[0, t][mask[0, t]].tolist(),
                            settings,
                        )
                        for t in range(3)
                    ]
                )
                for p in range(2)
            ]
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        share = torch.rand(2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for ours, theirs in zip(
            torch.autograd.grad((found * share).sum(), [logits, shape], allow_unused=True),
            torch.autograd.grad((expected * share).sum(), [logits, shape], allow_unused=True),
            strict=True,
        ):
            if ours is not None or theirs is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12)


def test_counts_agree_with_brute_force_with_ties():
    """Both ways of counting neighbours equal a double loop, also where values are equal."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 5, (7, 70), generator=generator).double() / 4
    mask = torch.rand(7, 70, generator=generator) < 0.7
    for wide in (values, values[:, :20]):
        present = mask[:, : wide.shape[1]]
        found = losses.neighbours(wide, present, 0.3)
        for row in range(len(wide)):
            for i in range(wide.shape[1]):
                gaps = [
                    float(wide[row, j] - wide[row, i])
                    for j in range(wide.shape[1])
                    if j != i and present[row, j]
                ]
                near = [gap for gap in gaps if abs(gap) < 0.3]
                here = bool(present[row, i])
                assert found.larger[row, i] == here * sum((gap > 0) + 0.5 * (gap == 0) for gap in gaps)
                assert found.pull[row, i] == here * sum((gap > 0) - (gap < 0) for gap in near)
                assert found.close[row, i] == here * len(near)


def test_margin_only_spreads_scores():
    """The smaller of MarginCCR's two hinges is max(0, m − |Δ|): it depends on distance only, not on direction."""
    a, b = torch.linspace(0, 1, 41).double(), torch.linspace(0, 1, 41).double().flip(0) * 0.7
    hinges = torch.minimum((a - b + MARGIN).clamp(min=0), (b - a + MARGIN).clamp(min=0))
    torch.testing.assert_close(hinges, (MARGIN - (a - b).abs()).clamp(min=0))
    both = torch.ones(41, 2, dtype=torch.bool)
    torch.testing.assert_close(losses.margin_loss(torch.stack([a, b], -1), both, MARGIN), hinges)


def test_ccs_without_confidence_is_content_with_one_half():
    """All scores = ½ make consistency 0, and for 3 or more items nothing else does: only confidence moves them."""
    mask = torch.ones(5, dtype=torch.bool)
    half = torch.full((5,), 0.5, dtype=torch.float64)
    confidence = 0.25
    assert float(losses.ccs_loss(half, mask)) == pytest.approx(confidence)
    answered = losses.ccs_pair_loss(half.repeat_interleave(2), mask.repeat_interleave(2))
    assert float(answered) == pytest.approx(confidence)
    for seed in range(20):
        scores = torch.rand(5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        pairs = [(scores[i] + scores[j] - 1) ** 2 for i in range(5) for j in range(i)]
        assert float(torch.stack(pairs).sum()) > 0


def test_ordreg_as_printed_is_minimised_by_ones():
    """Without the square all scores = 1 beat any other scores; with it they do not beat the right staircase."""
    mask = torch.ones(6, dtype=torch.bool)
    ones = torch.ones(6, 5, dtype=torch.float64)
    staircase = (
        torch.arange(6).unsqueeze(-1) > torch.arange(5)
    ).double()  # item n is above its first n columns
    printed = float(losses.ordreg_loss(ones, mask, "as-printed"))
    for seed in range(50):
        other = torch.rand(6, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert float(losses.ordreg_loss(other, mask, "as-printed")) > printed
    assert float(losses.ordreg_loss(staircase, mask, "as-printed")) > printed
    assert float(losses.ordreg_loss(staircase, mask)) == 0.0
    assert float(losses.ordreg_loss(ones, mask)) > 1.0


@pytest.mark.parametrize("method", ["ccs", "margin", "triplet", "ordreg"])
def test_unsupervised_losses_ignore_item_order(method):
    """No unsupervised loss changes when the items are shuffled."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 1, 9, generator=generator, dtype=torch.float64)
    mask, shape = torch.ones(1, 1, 9, dtype=torch.bool), torch.tensor([[1.1, 0.8]], dtype=torch.float64)
    shuffled = logits[..., torch.randperm(9, generator=generator)]
    ours = [task_losses(method, rows, mask, None, shape, Settings()) for rows in (logits, shuffled)]
    torch.testing.assert_close(ours[0], ours[1])


@pytest.mark.parametrize("method", ["margin", "triplet"])
def test_pair_losses_ignore_direction(method):
    """Margin and triplet losses of s and 1 − s are the same: the order is found up to reflection."""
    scores = torch.rand(9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mask = torch.ones(9, dtype=torch.bool)
    function = {"margin": losses.margin_loss, "triplet": losses.triplet_loss}[method]
    torch.testing.assert_close(function(scores, mask, MARGIN), function(1 - scores, mask, MARGIN))
