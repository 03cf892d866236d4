"""The number of tokens per forward pass."""

from __future__ import annotations

import os

import pytest
import torch
from tiny import FAMILIES, tiny_model

from ccrank.errors import CcrankError
from ccrank.models import capacity
from ccrank.models.capacity import (
    FASTEST_ON_CPU,
    MIN_TOKENS,
    UNKNOWN,
    available_memory,
    bytes_per_token,
    token_budget,
)


def test_a_number_is_taken_as_it_is():
    """A given number, also as text from a command line, is used unchanged."""
    assert token_budget(300, None) == token_budget("300", None) == 300


@pytest.mark.parametrize("batch_tokens", ["many", 15, "-1", None, "", "1e3"])
def test_nonsense_is_refused(batch_tokens):
    """A value that is not a number of tokens, or too small, is refused."""
    with pytest.raises(CcrankError, match="--batch-tokens"):
        token_budget(batch_tokens, None)


def test_auto_fits_memory_between_its_bounds(monkeypatch):
    """Half of the available memory, within the lower and upper limits."""
    model = tiny_model("gpt2").model
    each = bytes_per_token(model)
    for free, expected in ((0, MIN_TOKENS), (2 * each * 1000, 1000), (1 << 50, FASTEST_ON_CPU)):
        monkeypatch.setattr(capacity, "available_memory", lambda device, free=free: free)
        assert token_budget("auto", model) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_per_token_knows_every_family(family):
    """Whatever a family calls its widths, a token's share is above that of its own inner states."""
    model = tiny_model(family).model
    assert bytes_per_token(model) > 4 * (32 + 48)


def test_available_memory_is_of_this_machine(monkeypatch, tmp_path):
    """What Linux uses for copies of files is available too; a system that reports less gets less, or a default."""
    cpu = torch.device("cpu")
    assert 0 < available_memory(cpu) <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable: 5000 kB\n")
    monkeypatch.setattr(capacity, "MEMINFO", meminfo)
    assert available_memory(cpu) == 5000 * 1024

    meminfo.write_text("MemTotal: 9000 kB\nMemFree: 100 kB\n")
    pages = {"SC_AVPHYS_PAGES": 7, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert available_memory(cpu) == 7 * 4096

    def unknown(name):
        raise ValueError("unrecognized configuration name")

    meminfo.unlink()
    monkeypatch.setattr(os, "sysconf", unknown)
    assert available_memory(cpu) == UNKNOWN
