"""Everyday: its structure, its halves, and that its criteria are its own."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from scipy.stats import kendalltau

from ccrank.errors import CcrankError
from ccrank.study.datasets import counts, get_dataset, load_dataset
from ccrank.study.datasets.lists import packaged
from ccrank.task import normal_form

HALVES = ("choose", "report")
LISTS = packaged("everyday")["list"]
FIELDS = {"id", "domain", "name", "comparative", "poles", "category", "half", "basis", "items"}


def by_half(lists: list[dict[str, Any]]) -> tuple[int, int]:
    """How many of the lists are in each half."""
    count = Counter(entry["half"] for entry in lists)
    return count["choose"], count["report"]


@pytest.mark.parametrize("entry", LISTS, ids=lambda entry: entry["id"])
def test_a_list_is_whole(entry: dict[str, Any]) -> None:
    """A list has all its fields, a unit if and only if it is of facts, 8 to 12 different items and no ties."""
    assert set(entry) == FIELDS | ({"unit"} if entry["basis"] == "fact" else set())
    assert entry["basis"] in ("fact", "judgement")
    assert entry["half"] in HALVES
    for field in set(entry) - {"poles", "items"}:
        assert isinstance(entry[field], str)
        assert entry[field] == entry[field].strip() != ""
    assert len(set(entry["poles"])) == 2
    texts = [normal_form(text).casefold() for text, _ in entry["items"]]
    values = [value for _, value in entry["items"]]
    assert 8 <= len(texts) <= 12
    assert len(set(texts)) == len(texts)
    assert all(higher > lower for higher, lower in pairwise(values))


@pytest.mark.parametrize("entry", LISTS, ids=lambda entry: entry["id"])
def test_items_do_not_spell_out_their_value(entry: dict[str, Any]) -> None:
    """No item has a digit, and none has the criterion's name, its comparative or its unit as a whole word."""
    telling = [entry["name"], entry["comparative"], *([entry["unit"]] if "unit" in entry else [])]
    for text, _ in entry["items"]:
        assert not any(char.isnumeric() for char in text), text
        for phrase in telling:
            assert not re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE), (text, phrase)


@pytest.mark.parametrize(
    "entry", [entry for entry in LISTS if entry["basis"] == "judgement"], ids=lambda e: e["id"]
)
def test_a_judgement_has_places_and_no_made_up_figures(entry: dict[str, Any]) -> None:
    """The values of a judgement are the places from below."""
    assert [value for _, value in entry["items"]] == list(range(len(entry["items"]), 0, -1))


def test_every_criterion_is_its_own() -> None:
    """No two lists share an id or the name of their criterion."""
    assert len({entry["id"] for entry in LISTS}) == len(LISTS)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", entry["id"]) for entry in LISTS)
    assert len({entry["name"].casefold() for entry in LISTS}) == len(LISTS)


def test_no_criterion_is_one_of_worldlists() -> None:
    """What is chosen on these lists can be reported on WorldLists: no (criterion, category) is in both."""
    theirs = {
        (entry["name"].casefold(), entry["category"].casefold()) for entry in packaged("worldlists")["list"]
    }
    ours = {(entry["name"].casefold(), entry["category"].casefold()) for entry in LISTS}
    assert not ours & theirs


def test_halves_are_balanced() -> None:
    """The halves are as large as each other, also among facts, judgements, phrases and the lists of each domain."""
    groups = {
        "all": LISTS,
        "fact": [entry for entry in LISTS if entry["basis"] == "fact"],
        "judgement": [entry for entry in LISTS if entry["basis"] == "judgement"],
        "phrase": [entry for entry in LISTS if entry["name"].startswith("how ")],
    }
    for domain in {entry["domain"] for entry in LISTS}:
        groups[domain] = [entry for entry in LISTS if entry["domain"] == domain]
    for group, lists in groups.items():
        choose, report = by_half(lists)
        assert choose > 0, group
        assert report > 0, group
        assert abs(choose - report) <= (1 if group not in ("fact", "judgement", "phrase") else 2), group


def test_criteria_vary_in_wording() -> None:
    """Most names are short nouns, 10 to 20 % are phrases, and at least five lists are of whole sentences."""
    phrases = sum(entry["name"].startswith("how ") for entry in LISTS)
    assert 0.1 <= phrases / len(LISTS) <= 0.2
    assert sum(len(entry["name"].split()) <= 2 for entry in LISTS) > len(LISTS) / 2
    sentences = [e for e in LISTS if all(text[-1] in ".!?" for text, _ in e["items"])]
    assert len(sentences) >= 5
    assert 0 not in by_half(sentences)


def test_tasks_carry_the_lists_and_do_not_leak_their_order() -> None:
    """A task has its list's gold, criterion and metadata; the order of its items is independent of gold."""
    tasks = load_dataset("everyday")
    assert [task.id for task in tasks] == [entry["id"] for entry in LISTS]
    for task, entry in zip(tasks, LISTS, strict=True):
        assert task.values is not None
        assert dict(zip(task.items, task.values, strict=True)) == dict(entry["items"])
        assert task.order == tuple(text for text, _ in entry["items"])
        assert task.criterion.to_json() == {
            key: entry[key] for key in ("name", "comparative", "poles", "category")
        }
        assert task.about == {key: entry[key] for key in ("unit", "basis", "half") if key in entry}
        pairs = len(task.items) * (len(task.items) - 1) / 2
        assert abs(kendalltau(task.values, range(len(task.values))).statistic) * pairs <= 1 + 1e-9


def test_halves_split_the_tasks() -> None:
    """The two halves share no task and are together the whole; another half does not exist."""
    whole = load_dataset("everyday")
    halves = {half: load_dataset("everyday", half=half) for half in HALVES}
    for half, tasks in halves.items():
        assert {task.about["half"] for task in tasks} == {half}
        assert tasks == [task for task in whole if task.about["half"] == half]
    assert sum(map(len, halves.values())) == len(whole)
    assert dict(get_dataset("everyday").options) == {"half": "all"}
    with pytest.raises(CcrankError, match="half must be one of 'all', 'choose', 'report', got 'test'"):
        load_dataset("everyday", half="test")


def test_the_card_counts_right() -> None:
    """The card's number of lists and their sizes are those of the file."""
    sizes = [len(entry["items"]) for entry in LISTS]
    assert f"{len(LISTS)} lists of {min(sizes)} to {max(sizes)} items" in get_dataset("everyday").summary
    assert counts(load_dataset("everyday")) == (len(LISTS), sum(sizes) / len(LISTS))
