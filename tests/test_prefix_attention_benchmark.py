"""Attention to the trunk of prefix trees apart from that among branches: the numbers of one mask."""

from __future__ import annotations

import pytest
import torch

from ccrank.lm.layout import Layout
from ccrank.lm.tree import Sorted
from scripts import load_benchmark


@pytest.mark.parametrize("branches", ["kernel", "products"])
def test_two_steps_give_the_attention_of_one_mask(branches: str) -> None:
    """Every node of trees with different trunks, padding aside, has the output of masked attention."""
    script = load_benchmark("prefix_attention")
    layout = Layout.trees(Sorted(script.made_up_pairs(3, (250, 261), items=4, longest=3)), 1024)
    [batch] = layout.batches(1024)
    trees = script.Trees.of(batch, "cpu")
    assert len(batch.rows) == 3
    assert 250 < trees.trunk < 261 < batch.tokens.shape[1]
    torch.manual_seed(0)
    query, key, value = torch.randn((3, 3, 2, batch.tokens.shape[1], 16))
    found = script.in_two_steps(
        query, key, value, trees.trunk, trees.mask(torch.float32, trees.trunk), script.BRANCHES[branches]
    )
    expected = script.masked(query, key, value, trees.mask(torch.float32))
    assert script.agreement(found, expected, batch) < 1e-5
    # The mask matters: without it the numbers are others.
    with pytest.raises(SystemExit, match="differs"):
        script.agreement(script.masked(query, key, value, 0 * trees.mask(torch.float32)), expected, batch)


def test_small_shapes_run_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    """The measurement compares both ways and prints their times."""
    script = load_benchmark("prefix_attention")
    script.measure(script.made_up_pairs(2, [250], 3), heads=1, width=8, budget=1024, device="cpu")
    printed = capsys.readouterr().out
    assert "one mask" in printed
    assert printed.count("largest difference") == 2
