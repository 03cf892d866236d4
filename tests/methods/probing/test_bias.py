"""Properties of ordreg's bias terms for any α and β."""

from __future__ import annotations

import literal_probes as literal
import pytest
import torch

from ccrank.methods.probing.losses import bias_terms

VALUES = (-50.0, -2.0, 0.0, 0.3, 0.8, 1.0, 1.2, 3.0, 50.0)


@pytest.mark.parametrize("ranks", [2, 3, 4, 10, 100, 1000])
def test_biases_decrease_strictly_and_are_centred(ranks):
    """b_1 > … > b_{K−1} with mean 0 in float32, over a grid of α, β far beyond what training reaches."""
    alpha, beta = torch.meshgrid(torch.tensor(VALUES), torch.tensor(VALUES), indexing="ij")
    found = bias_terms(alpha, beta, torch.full_like(alpha, ranks), ranks - 1)
    assert torch.isfinite(found).all()
    assert (found.diff(dim=-1) < 0).all()
    scale = found.abs().amax(-1)
    assert (found.mean(-1).abs() <= 1e-5 * scale.clamp(min=1)).all()


def test_the_uninformative_prior_gives_steps_of_one():
    """With α = β = 1, neighbouring biases differ by 1 and are centred at 0."""
    one = torch.ones(())
    assert bias_terms(one, one, torch.tensor(4), 3).tolist() == [1.0, 0.0, -1.0]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.8, 1.2), (1.2, 1.2), (0.8, 0.8), (2.0, 0.7)])
def test_biases_equal_the_printed_polynomial(alpha, beta):
    """Within the limits the terms are the paper's δ^(α−1)(1−δ)^(β−1), summed from the right and centred."""
    a, b = torch.tensor(alpha, dtype=torch.float64), torch.tensor(beta, dtype=torch.float64)
    expected = torch.stack(literal.biases(a, b, 10))
    torch.testing.assert_close(bias_terms(a, b, torch.tensor(10), 9), expected)


def test_smaller_tasks_in_a_batch_have_their_own_biases():
    """The biases of K = 4 are the same in a batch with K = 7, and 0 beyond their own."""
    shape = torch.tensor([0.9, 0.9])
    both = bias_terms(shape, shape, torch.tensor([4, 7]), 6)
    torch.testing.assert_close(both[0, :3], bias_terms(shape[0], shape[0], torch.tensor(4), 3))
    assert (both[0, 3:] == 0).all()
