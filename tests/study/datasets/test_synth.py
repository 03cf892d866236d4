"""SynthFacts and SynthContext against the paper's table."""

from __future__ import annotations

from ccrank.study.datasets import load_dataset


def test_synthfacts_order():
    """The paper lists the lowest first; the highest has the highest value here."""
    adjectives, numbers = load_dataset("synthfacts")
    assert adjectives.order == ("awesome", "great", "good", "okay", "bad", "horrible")
    assert dict(zip(numbers.items, numbers.values, strict=True)) == {
        item: float(item) for item in numbers.items
    }
    assert len(numbers.items) == 6


def test_synthcontext_order():
    """The gold order is the one described in the context, and the context contains every item."""
    colors, people = load_dataset("synthcontext")
    assert colors.order == ("blue", "red", "yellow", "purple", "green", "brown")
    assert people.order == ("Jenny", "Sam", "Tom", "An", "Muhammad", "Emily")
    for task in (colors, people):
        assert all(item.lower() in task.context.lower() for item in task.items)
