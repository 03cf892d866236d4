"""Scales on a stand-in for the model hub: uploaded with a card, and loaded again."""

from __future__ import annotations

import numpy as np
import pytest
from hub_server import client_of, serving
from tiny import tiny_reader

from ccrank import Scale, fit
from ccrank.errors import CcrankError

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "Cuba", "Japan", "France")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that lets repositories be made."""
    with serving({}) as hub, client_of(hub, monkeypatch, tmp_path / "cache"):
        hub.uploads = tmp_path / "uploads"
        yield hub


def test_a_scale_goes_to_the_hub_and_back(hub, tmp_path):
    """The same scores; the card has criterion, model, method, agreement, confidence and how to use it, and neither it
    nor the file an item of the list."""
    scale = fit(ITEMS, "largest", model=tiny_reader(), labels={"Russia": 3.0, "Chad": 1.0})
    address = scale.push_to_hub("me/size", token="hf_x")
    assert address == f"{hub.endpoint}/me/size"
    card = (tmp_path / "uploads/me/size/README.md").read_text(encoding="utf-8")
    for text in (
        "largest first",
        "tiny-llama",
        "| method | auto |",
        "| fitted on | 9 items |",
        "| labels | 2 |",
    ):
        assert text in card
    assert 'Scale.from_hub("me/size")' in card
    assert not any(item in card for item in ITEMS)
    again = Scale.from_hub("me/size", tiny_reader())
    assert np.array_equal(again(["Mali", "Russia"]), scale(["Mali", "Russia"]))
    plain = fit(ITEMS, "size", model=tiny_reader())
    plain.push_to_hub("me/plain", token="hf_x")
    card = (tmp_path / "uploads/me/plain/README.md").read_text(encoding="utf-8")
    assert "| confidence |" in card
    assert "| agreement of the signals" in card


def test_what_the_hub_refuses(hub):
    """No such repository, no permission and a bad name are errors that say what to do."""
    scale = fit(ITEMS, "size", model=tiny_reader(), method="poles")
    with pytest.raises(CcrankError, match="it does not exist, or you may not"):
        Scale.from_hub("me/none")
    with pytest.raises(CcrankError, match="is not a hub id"):
        Scale.from_hub("a b")
    hub.uploads = None
    with pytest.raises(CcrankError, match="you may not read or write it"):
        scale.push_to_hub("me/mine", token="hf_x")
