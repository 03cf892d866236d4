"""The number of tokens per forward pass."""

from __future__ import annotations

import os

import pytest
import torch

from ccrank.errors import CcrankError
from ccrank.lm import budget as budget_module
from ccrank.lm.budget import FASTEST_ON_CPU, LEAST, bytes_per_token, free_memory, token_budget
from tiny import FAMILIES, tiny_model


def test_a_number_is_taken_as_it_is():
    """A given number, also as text from a command line, is used unchanged."""
    assert token_budget(300, None) == token_budget("300", None) == 300


@pytest.mark.parametrize("batch_tokens", ["many", 15, "-1", None, "", "1e3"])
def test_nonsense_is_refused(batch_tokens):
    """A value that is not a number of tokens, or too small, is refused."""
    with pytest.raises(CcrankError, match="--batch-tokens"):
        token_budget(batch_tokens, None)


def test_auto_fits_memory_between_its_bounds(monkeypatch):
    """Half of the free memory, within the lower and upper limits."""
    model = tiny_model("gpt2").model
    each = bytes_per_token(model)
    for free, expected in ((0, LEAST), (2 * each * 1000, 1000), (1 << 50, FASTEST_ON_CPU)):
        monkeypatch.setattr(budget_module, "free_memory", lambda device, free=free: free)
        assert token_budget("auto", model) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_per_token_knows_every_family(family):
    """Whatever a family calls its widths, a token's share is above that of its own inner states."""
    model = tiny_model(family).model
    assert bytes_per_token(model) > 4 * (32 + 48)


def test_free_memory_is_of_this_machine(monkeypatch):
    """Free memory is positive and below the total; on a system that does not report it, a default is used."""
    free = free_memory(torch.device("cpu"))
    assert 0 < free <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    assert free_memory(torch.device("cpu")) > 0
