"""A criterion phrase through the whole path: the pole that it names comes first, whatever the method."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake import FakeReader, random_logits
from tiny import tiny_model

from ccrank import rank
from ccrank.api import rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.adjectives import one_token_adjectives, propose_opposite
from ccrank.models import Reader
from ccrank.task import Criterion, Task

WATCHES = ("Rolex", "Casio", "Patek Philippe", "Swatch", "Timex")


@pytest.mark.parametrize("method", ["prompt-point", "prompt-list"])
def test_methods_that_ask_for_the_name_alone_are_turned(method):
    """ "Cheapest" reads the very prompts of "price" and gives the opposite scores."""
    upright, turned = (
        rank_tasks([Task(Criterion(name), WATCHES)], FakeReader(random_logits(3)), method)[0]
        for name in ("price", "cheapest")
    )
    assert np.allclose(turned.scores, -upright.scores)
    assert turned.items == upright.items[::-1]
    assert (upright.understood.first, turned.understood.first) == ("most expensive first", "cheapest first")


def test_pairs_are_asked_with_the_comparative_of_what_comes_first():
    """ "Is A cheaper than B?" for the cheapest; "Is A more in terms of price …?" for the noun, as ever."""
    for name, question in (
        ("cheapest", "Is Casio cheaper than Rolex?"),
        ("price", "Is Casio more in terms of price than"),
    ):
        reader = FakeReader(random_logits(0))
        rank_tasks([Task(Criterion(name), WATCHES)], reader, "prompt-pair")
        assert any(text.startswith(question) for text in reader.asked)


@pytest.mark.parametrize("method", ["auto", "poles", "likelihood", "axis"])
def test_label_free_methods_are_antisymmetric(method):
    """The poles the other way round give the opposite scores, so "cheapest" is exactly the reverse of "price"."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    upright, turned = (rank(WATCHES, by, model=reader, method=method) for by in ("price", "cheapest"))
    assert np.allclose(turned.scores, -upright.scores, atol=1e-4)


def test_phrases_in_task_files(tmp_path):
    """A criterion that is a plain string, or an object with a name alone, is understood; given poles are kept."""
    lines = [
        {"id": "a", "criterion": "least expensive", "items": ["x", "y"]},
        {"id": "b", "criterion": {"name": "size", "poles": ["large", "small"]}, "items": ["x", "y"]},
        {"id": "c", "criterion": "size", "items": ["x", "y"]},
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second, third = (task.criterion for task in read_tasks(path))
    assert (first.name, first.poles, first.reversed) == ("price", ("expensive", "cheap"), True)
    assert Criterion.parse(first.to_json()) == first
    assert second == Criterion("size", poles=("large", "small"))
    assert third == Criterion("size")


def test_a_fallback_warns():
    """No words for the poles: the ranking carries a warning, not a hint."""
    found = rank(WATCHES, "zorb", model=Reader(tiny_model("llama", max_position_embeddings=512)))
    assert "--poles LOW HIGH" in found.warnings[0]
    assert found.to_json()["understood"]["source"] == "fallback"


def test_a_model_of_chance_proposes_nothing():
    """A tiny random model leads back from its answer by luck alone, and a model without a head is not asked."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    assert one_token_adjectives(reader) == [] or propose_opposite("zippy", reader) is None


@pytest.mark.real
def test_least_expensive_puts_the_cheap_one_first(default_reader):
    """The default model: a cheap watch first for "least expensive", and exactly the opposite order for "price"."""
    cheap, dear = (
        rank(WATCHES, by, category="watch", model=default_reader) for by in ("least expensive", "price")
    )
    assert cheap.items[0] in ("Casio", "Swatch", "Timex")
    assert cheap.items[-1] in ("Rolex", "Patek Philippe")
    assert cheap.items == dear.items[::-1]
    assert (cheap.understood.first, dear.understood.first) == ("cheapest first", "most expensive first")


@pytest.mark.real
def test_the_default_model_proposes_opposites(default_reader):
    """It is right of plain words, and silent of a word that it does not know."""
    assert propose_opposite("near", default_reader) == "far"
    assert propose_opposite("ineffective", default_reader) == "effective"
    assert propose_opposite("zorby", default_reader) is None
