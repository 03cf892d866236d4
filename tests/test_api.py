"""`rank` and `rank_tasks`: no method hangs on the order in which the items are given."""

from __future__ import annotations

import inspect
import math
import re

import numpy as np
import pytest
from fake import FakeReader, logits_among, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import save_model, scores_by_item, tiny_reader

import ccrank
from ccrank.api import rank, rank_tasks
from ccrank.cli.commands.methods import costs
from ccrank.errors import CcrankError
from ccrank.methods.registry import METHODS
from ccrank.task import Criterion, Task

ASKING = [name for name in METHODS if name.startswith("prompt-")]
ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco", "the tower")
WAYS = [
    ("prompt-pair", {}),
    ("prompt-pair", {"pairs": "sort"}),
    ("prompt-pair", {"pairs": 2, "aggregate": "bradley-terry"}),
    ("prompt-pair", {"aggregate": "kemeny", "calibration": "pmi"}),
    ("prompt-point", {}),
    ("prompt-point", {"score": "expected", "calibration": "contextual"}),
    ("prompt-list", {"shuffles": 3}),
    ("prompt-list", {"calibration": "letters", "window": 4, "aggregate": "kemeny"}),
]


def test_every_method_is_tried_here():
    """The list of ways leaves no way of asking out."""
    assert {name for name, _ in WAYS} == set(ASKING)


@pytest.mark.parametrize(("method", "options"), WAYS)
@given(items=st.permutations(ITEMS), seed=st.integers(0, 1000), tied=st.booleans())
@settings(max_examples=12, deadline=None)
def test_the_order_given_does_not_matter(method, options, items, seed, tied):
    """Any shuffle of the items gives each item the same score, and the same order: for any answers, tied ones too."""
    logit = logits_among([0.0, 1.0], seed) if tied else random_logits(seed)
    first, second = (
        rank_tasks([Task(Criterion("size"), given)], FakeReader(logit), method, options=options)[0]
        for given in (ITEMS, tuple(items))
    )
    assert scores_by_item(first) == scores_by_item(second)
    assert first.items == second.items


@pytest.mark.parametrize(("method", "options"), WAYS)
def test_the_order_given_does_not_matter_to_a_model(method, options):
    """The same on a tiny model: prompts, tokens and sums are the very same."""
    reversed_items = ITEMS[::-1]
    first, second = (
        rank(items, "size", model=tiny_reader(), method=method, options=options)
        for items in (ITEMS, reversed_items)
    )
    assert scores_by_item(first) == scores_by_item(second)
    assert first.items == second.items
    assert sorted(first.items) == sorted(ITEMS)


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
@pytest.mark.parametrize("method", ASKING)
def test_every_form_of_model_ranks(family, method):
    """Causal, masked and encoder-decoder models serve every method."""
    found = rank(["Russia", "Canada", "Brazil"], "size", model=tiny_reader(family), method=method)
    assert sorted(found.items) == ["Brazil", "Canada", "Russia"]
    assert np.isfinite(found.scores).all()
    assert found.cost.prompts > 0


def test_results_come_in_the_order_of_the_tasks():
    """Each ranking carries its own task, untouched."""
    tasks = [Task(Criterion("size"), ("b", "a"), id="1"), Task(Criterion("age"), ("d", "c", "e"), id="2")]
    rankings = rank_tasks(tasks, FakeReader(random_logits(0)), "prompt-point")
    assert [ranking.task for ranking in rankings] == tasks
    assert [len(ranking.scores) for ranking in rankings] == [2, 3]
    assert rank_tasks([], FakeReader(random_logits(0))) == []


def test_rank_is_a_function_every_time():
    """No module hides `ccrank.rank`, and its signature shows every parameter."""
    for _ in range(2):
        assert inspect.isfunction(ccrank.rank)
        assert list(inspect.signature(ccrank.rank).parameters)[:3] == ["items", "by", "comparative"]
        assert ccrank.rank(["Chad", "Peru"], by="size", model=tiny_reader()).model == "tiny-llama"


def test_public_names_are_listed_and_there():
    """`dir(ccrank)` is `__all__`, and each name can be imported and has a docstring."""
    assert sorted(dir(ccrank)) == sorted(ccrank.__all__)
    for name in ccrank.__all__:
        assert name == "__version__" or getattr(ccrank, name).__doc__


PUBLIC_FUNCTIONS = ["load_dataset", "load_results", "rank", "rank_tasks"]


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_every_public_parameter_is_documented(name):
    """Each parameter of a public function is named in its Parameters section."""
    function = getattr(ccrank, name)
    _, _, documented = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^[a-z_, *]*\b{parameter}\b[a-z_, *]*$", documented, re.MULTILINE), parameter


def test_public_names():
    """`ccrank.rank` is the function, with the reader's name in the result."""
    found = ccrank.rank(
        ["Chad", "Peru"],
        by="size",
        comparative="larger",
        poles=("small", "large"),
        category="country",
        model=tiny_reader(),
    )
    assert isinstance(found, ccrank.Ranking)
    assert found.model == "tiny-llama"
    assert found.task.criterion == Criterion("size", "larger", ("small", "large"), "country")


@pytest.mark.parametrize(
    ("items", "by", "message"),
    [
        ("one text", "size", "items must be a list of texts"),
        (["a"], "size", "at least 2 items"),
        ([], "size", "at least 2 items"),
        (["a", "b"], "", "no criterion"),
        (["a", "b"], None, "no criterion"),
        (["a", "a "], "size", "all 2 items are the same, 'a'"),
        (["a", ""], "size", "item 2 is empty"),
        (["a", 3], "size", "item 2 is not text"),
        (["a", "b\ud800"], "size", r"not valid Unicode: 'b\\ud800'"),
        (["a", "b"], "size\udce9", "not valid Unicode"),
    ],
)
def test_bad_input_is_refused(items, by, message):
    """With the value, and before a model is asked."""
    with pytest.raises(CcrankError, match=message):
        rank(items, by, model=tiny_reader())


@pytest.mark.parametrize("method", ASKING)
def test_odd_items_are_ranked(method):
    """Quotes, braces, breaks, answer words, right-to-left text and emoji are items like others."""
    items = [
        'say "no"',
        "{item}",
        "two\nlines",
        "Yes",
        "10",
        "A, B",
        "מגדל גבוה",
        "👩‍👩‍👧 family",
        "<mask>",
        "</s>",
    ]
    found = rank(items, "size", model=tiny_reader(), method=method)
    assert sorted(found.items) == sorted(items)


@pytest.mark.parametrize("method", ASKING)
def test_an_item_too_long_for_the_model_is_named(method):
    """5,000 words do not fit a window of 512 tokens: the message says so and what to do."""
    with pytest.raises(CcrankError, match=r"does not fit the model's window of 512.*--truncate"):
        rank(["word " * 5000, "short"], "size", model=tiny_reader(), method=method)


@pytest.mark.real
def test_the_default_model_ranks_by_size(default_reader):
    """The real default model gives every item a score, in one order however they are given."""
    animals = ["a mouse", "an elephant", "a dog", "a whale"]
    found = rank(animals, by="size", comparative="larger", model=default_reader)
    assert sorted(found.items) == sorted(animals)
    assert rank(animals[::-1], by="size", comparative="larger", model=default_reader).items == found.items


@pytest.mark.real
def test_what_prefixes_save(default_reader):
    """prompt-pair reads ≤ 45 % of its tokens at N = 10, and ≤ 8 % at N = 8 behind 300 tokens of context."""
    for count, context, most in ((10, 0, 0.45), (8, 300, 0.08)):
        [row] = [row for row in costs(default_reader, count, context) if row["method"] == "prompt-pair"]
        assert row["calls"] == count * (count - 1)
        assert math.isclose(row["share"], row["distinct_tokens"] / row["prompt_tokens"], abs_tol=1e-4)
        assert row["share"] <= most


def test_a_misspelled_keyword_is_named_with_its_nearest_match():
    """`categroy=` is not silently taken for something else."""
    with pytest.raises(TypeError, match=r"rank\(\) has no parameter 'categroy'; did you mean 'category'\?"):
        rank(ITEMS, by="size", categroy="country", model=tiny_reader())
    with pytest.raises(TypeError, match=r"no parameter 'shuffles'; .*options=\{"):
        rank(ITEMS, by="size", shuffles=3, model=tiny_reader())


def test_a_model_is_loaded_once(monkeypatch, tmp_path):
    """Repeated calls of `rank` keep the last model, and `load` gives an object that ranks."""
    loaded = tiny_reader().loaded
    save_model(loaded, tmp_path / "tiny")
    opened = []
    original = ccrank.Reader.open
    monkeypatch.setattr(
        ccrank.Reader,
        "open",
        lambda name, *rest, **more: opened.append(name) or original(name, *rest, **more),
    )
    name = str(tmp_path / "tiny")
    first, second = (ccrank.rank(ITEMS, by="size", model=name) for _ in range(2))
    assert opened == [name]
    ranker = ccrank.load(name, cache=False)
    assert opened == [name, name]
    assert ranker.rank(ITEMS, by="size") == first == second
    assert ranker.rank(ITEMS, by="size", method="length").method == "length"


def test_odd_arguments_are_refused_by_name(tmp_path):
    """Values that no check of a type would expect: an endless range of tasks, an array as a kind, a model's name where
    an open one is wanted, a name that no file system takes."""
    from ccrank import Scale

    reader = tiny_reader()
    ccrank.fit(["ant", "whale", "cat"], "size", model=reader).save(tmp_path / "size.scale")
    calls = {
        "each of tasks must be a Task": lambda: ccrank.rank_tasks(range(10**12), model=reader),
        "questions are grade, pair or both": lambda: ccrank.ask(
            ["ant", "whale"], "size", model=reader, kind=np.array(["pair", "both"])
        ),
        "model is an open reader": lambda: Scale.load(tmp_path / "size.scale", ccrank.load),
        "no model 'xxx": lambda: ccrank.load("x" * 5000),
    }
    for message, call in calls.items():
        with pytest.raises(CcrankError, match=message):
            call()
