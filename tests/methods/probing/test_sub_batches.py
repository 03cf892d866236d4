"""Sub-batches: a step of Adam for every two or three items, batched over tasks, equals a plain loop over one task."""

from __future__ import annotations

import math
from itertools import combinations

import literal_probes as literal
import numpy as np
import pytest
import torch

from ccrank.errors import CcrankError
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.methods.probing.fits import cross_validate, fit_each
from ccrank.methods.probing.objectives import OBJECTIVES, SUB_BATCH_ITEMS, Settings
from ccrank.methods.probing.optimisers import orders_of, sub_batch_rows
from ccrank.methods.probing.trainer import initial_weights
from ccrank.util.zscores import z_scores
from methods.probing.test_trainer import WIDTH, states_of

SIZES = (4, 6, 3, 6, 5)
SUB_BATCHES = {name: entry.sub_batch for name, entry in OBJECTIVES.items() if entry.sub_batch != "none"}


def sub_loss(method: str, items: tuple[int, ...], logits: torch.Tensor, count: int) -> torch.Tensor:
    """The paper's equation on a few items of a task, whose rows are all given."""
    scores = logits.sigmoid()
    if method == "ccs-pair":
        prompts = [index for index, (a, b) in enumerate(ordered_pairs(count)) if {int(a), int(b)} == {*items}]
        return literal.ccs_pair(
            [scores[2 * prompt] for prompt in prompts], [scores[2 * prompt + 1] for prompt in prompts]
        )
    own = [scores[item] for item in items]
    if method == "ccs":
        return literal.ccs(own)
    return literal.margin(own, 0.2) if method == "margin" else literal.triplet(own, 0.2)


def plain_loop(method: str, states: np.ndarray, count: int, seed: int, epochs: int, decay: float):
    """Weights and bias after nn.Linear and torch.optim.Adam have seen each pair or triple of one task in turn."""
    rows = z_scores(torch.from_numpy(states), axis=0).reshape(-1, WIDTH)
    linear = torch.nn.Linear(WIDTH, 1, dtype=torch.float64)
    with torch.no_grad():
        linear.weight[0], linear.bias[:] = initial_weights(seed, WIDTH)
    optimiser = torch.optim.Adam(
        [{"params": [linear.weight], "weight_decay": decay}, {"params": [linear.bias]}], lr=0.02
    )
    groups = list(combinations(range(count), 3 if method == "triplet" else 2))
    for order in orders_of(seed, len(groups), epochs):
        for place in order:
            optimiser.zero_grad()
            sub_loss(method, groups[place], linear(rows).squeeze(-1), count).backward()
            optimiser.step()
    return linear.weight[0].detach(), linear.bias[0].detach()


@pytest.mark.parametrize("method", SUB_BATCHES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sub_batches_equal_a_plain_loop(method: str, decay: float) -> None:
    """Tasks of different sizes, trained together for two seeds, end where loops over each task's pairs end."""
    states = states_of(method, SIZES)
    settings = Settings(epochs=3, learning_rate=0.02, weight_decay=decay, sub_batch=SUB_BATCHES[method])
    fits = fit_each(states, method, seeds=(3, 8), settings=settings, dtype=torch.float64)
    for task, count in enumerate(SIZES):
        for position, seed in enumerate((3, 8)):
            weights, bias = plain_loop(method, states[task], count, seed, 3, decay)
            torch.testing.assert_close(fits.weights[task, position], weights, rtol=0, atol=1e-9)
            torch.testing.assert_close(fits.bias[task, position], bias, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", SUB_BATCHES)
def test_slopes_are_those_of_autograd(method: str) -> None:
    """The written derivative of every sub-batch loss equals autograd's, on and off the margin."""
    slopes_of = OBJECTIVES[method].slopes
    assert slopes_of is not None
    generator = torch.Generator().manual_seed(0)
    width = 4 if method == "ccs-pair" else SUB_BATCH_ITEMS[SUB_BATCHES[method]]
    scores = torch.rand(300, width, generator=generator, dtype=torch.float64)
    scores[:100] = 0.5 + 0.1 * (scores[:100] - 0.5)  # within the margin
    for row in scores:
        row.requires_grad_()
        own = list(row)
        if method == "ccs-pair":
            loss = literal.ccs_pair(own[::2], own[1::2])
        elif method == "ccs":
            loss = literal.ccs(own)
        else:
            loss = (literal.margin if method == "margin" else literal.triplet)(own, 0.2)
        [wanted] = torch.autograd.grad(loss, row)
        torch.testing.assert_close(slopes_of(row.detach(), 0.2), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", SUB_BATCHES)
def test_sub_batches_are_not_the_whole_batch(method: str) -> None:
    """One pass over the pairs moves a probe further than one step on their mean: Adam's steps do not average."""
    states = states_of(method, (6,))
    start = fit_each(states, method, seeds=(0,), settings=Settings(epochs=0)).weights
    whole = fit_each(states, method, seeds=(0,), settings=Settings(epochs=1)).weights
    settings = Settings(epochs=1, sub_batch=SUB_BATCHES[method])
    parts = fit_each(states, method, seeds=(0,), settings=settings).weights
    assert float((parts - start).norm()) > 2 * float((whole - start).norm())


@pytest.mark.parametrize("method", SUB_BATCHES)
def test_every_group_of_items_is_a_sub_batch_once(method: str) -> None:
    """A pass has C(N, 2) or C(N, 3) sub-batches, no two of the same items, in an order that the seed decides."""
    items = SUB_BATCH_ITEMS[SUB_BATCHES[method]]
    rows = sub_batch_rows(method, 6)
    assert len(rows) == math.comb(6, items)
    pairs = np.repeat(ordered_pairs(6), 2, axis=0)
    found = [frozenset(pairs[row].ravel().tolist() if method == "ccs-pair" else row.tolist()) for row in rows]
    assert set(found) == {frozenset(group) for group in combinations(range(6), items)}
    first, again, other = orders_of(0, 15, 4), orders_of(0, 15, 4), orders_of(1, 15, 4)
    assert (np.sort(first, axis=1) == np.arange(15)).all()
    assert (first == again).all()
    assert (first != other).any()
    assert (first[0] != first[1]).any()


def test_without_a_step_a_probe_stays_where_it_starts() -> None:
    """Two items have no triple, and a learning rate of 0 moves nothing; other tasks of the batch are trained."""
    states = states_of("triplet", (2, 3))
    start = fit_each(states, "triplet", settings=Settings(epochs=0)).weights
    found = fit_each(states, "triplet", settings=Settings(epochs=2, sub_batch="triples")).weights
    assert torch.equal(found[0], start[0])
    assert not torch.equal(found[1], start[1])
    still = Settings(epochs=2, learning_rate=0.0, sub_batch="triples")
    assert torch.equal(fit_each(states, "triplet", settings=still).weights, start)


def test_what_has_no_sub_batches_is_refused() -> None:
    """ordreg, supervised probes, the wrong number of items, L-BFGS and training across tasks are errors."""
    states = states_of("margin")
    for call, message in (
        (
            lambda: fit_each(states, "ordreg", settings=Settings(sub_batch="pairs")),
            "ordreg has no sub-batches",
        ),
        (lambda: fit_each(states, "triplet", settings=Settings(sub_batch="pairs")), "sub_batch=triples"),
        (lambda: fit_each(states, "margin", settings=Settings(sub_batch="triples")), "sub_batch=pairs"),
        (lambda: cross_validate(states, "margin", settings=Settings(sub_batch="pairs")), "same-task"),
        (lambda: Settings(sub_batch="pairs", optimiser="lbfgs"), "adam"),
        (lambda: Settings(sub_batch="two"), "none, pairs, triples"),
    ):
        with pytest.raises(CcrankError, match=message):
            call()  # type: ignore[no-untyped-call]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", SUB_BATCHES)
def test_a_gpu_gives_the_same(method: str) -> None:
    """Weights trained on a GPU in float64 equal those of the CPU."""
    states = states_of(method)
    settings = Settings(epochs=3, sub_batch=SUB_BATCHES[method])
    here, there = (
        fit_each(states, method, settings=settings, dtype=torch.float64, device=device).weights
        for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(here, there.cpu(), rtol=0, atol=1e-9)
    assert OBJECTIVES[method].loss is not None
