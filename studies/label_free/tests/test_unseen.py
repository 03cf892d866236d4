"""The benchmark of unseen criteria: how its items and halves are chosen. Its packages are not needed here."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccrank import Criterion, Task, load_dataset
from ccrank.errors import CcrankError
from studies.label_free import unseen

ENTRIES = unseen.tomllib.loads(unseen.LISTS.read_text(encoding="utf-8"))


def _gap(values: list[float]) -> float:
    ordered = sorted(values)
    return min(b - a for a, b in itertools.pairwise(ordered))


@given(st.lists(st.integers(0, 60), min_size=4, max_size=9, unique=True), st.integers(3, 4))
def test_widest_leaves_the_widest_smallest_gap(numbers: list[int], count: int) -> None:
    """No other choice of as many items has a wider smallest gap (against all choices)."""
    place = {str(number): float(number) for number in numbers}
    order = sorted(place, key=place.__getitem__)
    kept = unseen.widest(order, place, count)
    best = max(_gap(list(map(float, choice))) for choice in itertools.combinations(numbers, count))
    assert len(set(kept)) == count
    assert _gap([place[item] for item in kept]) == best


@given(st.lists(st.floats(0.01, 1e6), min_size=8, max_size=30), st.booleans())
def test_spread_keeps_neighbours_apart_or_refuses(numbers: list[float], log: bool) -> None:
    """What is kept has 8 to 12 items with their own values, and no two of them tie."""
    values = {f"item {at}": number for at, number in enumerate(numbers)}
    try:
        kept = unseen.spread(values, log=log)
    except CcrankError:
        return
    assert 8 <= len(kept) <= 12
    assert len(set(kept.values())) == len(kept)
    assert all(values[item] == value for item, value in kept.items())


def test_spread_does_not_depend_on_the_order_of_the_items() -> None:
    """The same values in another order give the same list."""
    values = {f"item {at}": float(at * at) for at in range(20)}
    turned = dict(reversed(values.items()))
    assert unseen.spread(values) == unseen.spread(turned)


def test_spread_refuses_what_cannot_be_told_apart() -> None:
    """Seven clusters cannot give eight items."""
    values = {f"item {at}": at % 7 + at / 1e6 for at in range(30)}
    with pytest.raises(CcrankError, match="fewer than 8"):
        unseen.spread(values)


@given(st.sets(st.text(min_size=1), min_size=1, max_size=30))
def test_halves_are_balanced_and_do_not_depend_on_order(keys: set[str]) -> None:
    """The halves differ by at most one criterion, for any order of the criteria."""
    ordered = sorted(keys)
    half = unseen.halves(ordered)
    assert half == unseen.halves(reversed(ordered))
    sizes = [list(half.values()).count(name) for name in ("first", "second")]
    assert sum(sizes) == len(keys)
    assert abs(sizes[0] - sizes[1]) <= 1


def test_no_criterion_is_one_of_the_packaged_lists() -> None:
    """No criterion with its category is in everyday or worldlists, and none has more than two lists."""
    keys = [f"{entry['name']} / {entry['category']}" for entry in ENTRIES["list"]]
    known = {
        unseen.criterion_key(task.criterion)
        for name in ("everyday", "worldlists")
        for task in load_dataset(name)
    }
    assert not known & set(keys)
    assert max(map(keys.count, keys)) <= 2
    assert len({entry["id"] for entry in ENTRIES["list"]}) == len(keys)


def test_check_refuses_a_packaged_criterion() -> None:
    """A list by a criterion that methods were chosen on is refused by its name."""
    task = load_dataset("everyday")[0]
    with pytest.raises(CcrankError, match="packaged lists"):
        unseen.check([Task(task.criterion, task.items, about={"source": "x"})])


def test_check_refuses_a_third_list_by_one_criterion() -> None:
    """At most two lists share a criterion."""
    tasks = [Task(Criterion("newness"), ("a", "b"), id=str(at), about={"source": str(at)}) for at in range(3)]
    unseen.check(tasks[:2])
    with pytest.raises(CcrankError, match="3 lists"):
        unseen.check(tasks)


def test_an_own_list_must_find_all_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt item of a list is an error, while a shared pool may contain items that a table lacks."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"name": ["one", "two", "two"], "size": [1.0, 2.0, 4.0]})
    monkeypatch.setitem(unseen.READERS, "here", lambda entry, keys: table)
    entry = {"id": "x", "source": "here", "table": "t", "key": "name", "value": "size * 2", "merge": "mean"}
    items = ["1 = one", "2 = two", "3 = three"]
    with pytest.raises(CcrankError, match="3"):
        unseen.values_of({**entry, "items": items}, items)
    assert unseen.values_of({**entry, "items": "pool"}, items) == {"1": 2.0, "2": 6.0}
    assert unseen.values_of({**entry, "items": "pool", "merge": "only"}, items) == {"1": 2.0}
