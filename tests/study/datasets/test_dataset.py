"""The datasets as a whole: cards, options, the shuffle."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from ccrank.errors import CcrankError
from ccrank.study.datasets import counts, datasets, get_dataset, load_dataset
from ccrank.study.datasets.dataset import first_words, shuffled, task_of_gold
from ccrank.study.datasets.locate import find
from ccrank.task import Criterion

NAMES = (
    "synthfacts",
    "scalaradj",
    "wikilists",
    "worldlists",
    "everyday",
    "synthcontext",
    "reviews",
    "reviews-letters",
    "entsalience",
)


def load(name, request, **options):
    dataset = get_dataset(name)
    if not dataset.files:
        return dataset.load(**options)
    data_dir = request.getfixturevalue("data_dir")
    # A file that is never downloaded is an extra of its dataset.
    absent = [f.path for f in dataset.files if f.sha256 and find(f, data_dir) is None]
    if absent:
        pytest.skip(f"{absent[0]} is not in {data_dir}")
    return dataset.load(data_dir, **options)


@given(st.integers(2, 12), st.text(max_size=8))
def test_shuffle_is_uncorrelated_with_gold(n, task_id):
    """The order shown is a permutation of gold whose τ with it is 0, or one pair away from 0."""
    order = [f"item {i}" for i in range(n)]
    shown = shuffled(order, task_id)
    assert sorted(shown) == sorted(order)
    tau = kendalltau([order.index(item) for item in shown], range(n)).statistic
    pairs = n * (n - 1) // 2
    assert round(abs(tau) * pairs) == pairs % 2


def test_shuffle_is_the_same_in_another_process():
    """The shuffle depends on the id only, not on Python's hash seed."""
    code = "from ccrank.study.datasets.dataset import shuffled; print(shuffled('abcdefgh', 'some id'))"
    out = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert out == {str(shuffled("abcdefgh", "some id"))}
    assert shuffled("abcdefgh", "another id") != shuffled("abcdefgh", "some id")


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.integers(-99, 99), min_size=2, max_size=8)
)
def test_gold_values_stay_with_their_items(gold):
    """Shuffling moves items and values together, and an order is a decreasing row of values."""
    gold = {item: value + place / 100 for place, (item, value) in enumerate(gold.items())}
    by_value = task_of_gold(Criterion("size"), gold, "t")
    assert dict(zip(by_value.items, by_value.values, strict=True)) == gold
    order = sorted(gold, key=lambda item: -gold[item])
    by_order = task_of_gold(Criterion("size"), order, "t")
    assert list(by_order.order) == list(by_value.order) == order
    assert by_order.items == by_value.items


@pytest.mark.parametrize("name", NAMES)
def test_every_dataset_is_fit_for_a_benchmark(name, request):
    """Any dataset: own ids, gold without ties, at least 4 items, shown order uncorrelated with gold, same twice.

    Letters are random in each task, and uncorrelated over all tasks.
    """
    tasks = load(name, request)
    shown = [kendalltau(task.values, range(len(task.items))).statistic for task in tasks]
    assert abs(np.mean(shown)) < 0.1
    assert name == "reviews-letters" or max(map(abs, shown)) <= 1 / 6 + 1e-9
    assert len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        assert len(task.items) >= 4
        assert task.values is not None
        assert len(set(task.values)) == len(task.values)
        assert task.criterion.comparative
        assert task.criterion.category
    assert load(name, request) == tasks
    dataset = get_dataset(name)
    inline_reviews = name == "reviews"
    assert all((task.context is not None) == (dataset.kind == "context") for task in tasks) or inline_reviews


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("synthfacts", {}, (2, 6.0)),
        ("synthcontext", {}, (2, 6.0)),
        ("wikilists", {}, (69, 9.23)),
        ("scalaradj", {}, (39, 4.46)),
        ("entsalience", {"words": 5}, (353, 5.70)),
        ("reviews", {"source": "clothing"}, (143, 5.0)),
        ("reviews", {"source": "clothing", "disjoint": True}, (659, 5.0)),
        ("reviews", {"source": "clothing", "words": None}, (143, 5.0)),
        ("reviews-letters", {"source": "clothing"}, (143, 5.0)),
    ],
)
def test_counts(name, options, expected, request):
    """Tasks and mean items are those that docs/reference/file-formats.md names."""
    tasks, items = counts(load(name, request, **options))
    assert (tasks, round(items, 2)) == expected


def test_counts_of_nothing():
    """No tasks have no items."""
    assert counts([]) == (0, 0.0)


def test_cards_are_complete():
    """Each dataset has a description, licence and source; downloaded files have a full checksum."""
    cards = datasets()
    assert tuple(cards) == (*NAMES, "cisi")
    for name, dataset in cards.items():
        assert dataset.name == name
        assert dataset.kind in ("facts", "context", "relevance")
        assert dataset.summary
        assert dataset.licence
        assert dataset.departs
        assert dataset.source.startswith("https://") or not dataset.files
        assert (dataset.paper_tasks is None) == (dataset.paper_items is None)
        for file in dataset.files:
            assert file.url.startswith("https://")
            assert not file.path.startswith("/")
            assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32
        with pytest.raises(dataclasses.FrozenInstanceError):
            dataset.name = "other"


def test_unknown_names_are_answered_with_the_known():
    """A wrong dataset or option is named, and so is what there is."""
    with pytest.raises(CcrankError, match=r"'wikilist'; did you mean 'wikilists'.*scalaradj"):
        load_dataset("wikilist")
    with pytest.raises(
        CcrankError,
        match=r"'reviews' has no option 'word'; did you mean 'words'\? its options: source, form, disj",
    ):
        load_dataset("reviews", word=3)
    with pytest.raises(CcrankError, match=r"'synthfacts' has no option 'words'; its options: none"):
        load_dataset("synthfacts", words=3)
    assert dict(get_dataset("entsalience").options) == {"words": 150}


def test_first_words():
    """A text is cut after the given number of words and marked; a shorter text is unchanged."""
    assert first_words(" one  two\nthree ", 2) == "one two ..."
    assert first_words(" one  two\nthree ", 3) == "one two three"
    assert first_words(" one  two\nthree ", None) == "one two three"
    for wrong in (0, -1, 1.5, "three", True):
        with pytest.raises(CcrankError, match="words must be at least 1"):
            get_dataset("entsalience").parse_options({"words": wrong})


@pytest.mark.parametrize(
    ("name", "given", "parsed"),
    [
        ("entsalience", {"words": "none"}, {"words": None}),
        ("reviews", {"words": "25", "disjoint": "true"}, {"words": 25, "disjoint": True}),
        ("reviews", {"form": "context"}, {"form": "context"}),
    ],
)
def test_options_may_be_text(name, given, parsed):
    """Options as typed on a command line become values of their types."""
    assert get_dataset(name).parse_options(given) == parsed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"words": "0"}, r"reviews.words must be at least 1, or none for all of them, got 0"),
        ({"words": "many"}, r"reviews.words must be at least 1.*got 'many'"),
        ({"form": "inlin"}, r"reviews.form must be one of 'inline', 'context', got 'inlin'"),
        ({"wrds": "9"}, r"did you mean 'words'"),
    ],
)
def test_bad_options_are_named_with_their_dataset(given, message):
    """A value or name that a dataset does not take is refused without reading a file."""
    with pytest.raises(CcrankError, match=message):
        get_dataset("reviews").parse_options(given)


def test_switches_are_not_numbers():
    """A choice is one of the known values; 1 is not True."""
    assert get_dataset("wikilists").parse_options({"turn": True}) == {"turn": True}
    with pytest.raises(CcrankError, match=r"wikilists\.turn must be one of True, False, got 1"):
        get_dataset("wikilists").parse_options({"turn": 1})
