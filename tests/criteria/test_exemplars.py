"""Exemplars written for common criteria: which criterion they are for, in which direction, and their balance."""

from __future__ import annotations

from importlib import resources

import pytest

from ccrank.criteria import criterion_of
from ccrank.criteria.exemplars import exemplars_of
from ccrank.task import Criterion
from ccrank.util.files import parse_toml

TABLE = parse_toml(resources.files("ccrank.criteria") / "exemplars.toml")
WEIGHT = exemplars_of(Criterion("weight"), "things")
POLITENESS = exemplars_of(Criterion("politeness"), "texts")


def test_a_criterion_is_found_by_its_name_or_its_poles():
    """The name, a longer name that ends with it, a phrase, or both poles: the same exemplars."""
    assert WEIGHT is not None
    assert POLITENESS is not None
    assert "elephant" in WEIGHT.high
    for criterion in (
        Criterion("body weight", poles=("light", "heavy")),
        Criterion("heaviness"),
        criterion_of("how heavy it is"),
    ):
        assert exemplars_of(criterion, "things") == WEIGHT
    for criterion in (Criterion("manners", poles=("rude", "polite")), criterion_of("how polite it is")):
        assert exemplars_of(criterion, "texts") == POLITENESS


@pytest.mark.parametrize(
    "criterion",
    [
        Criterion("rudeness"),
        Criterion("politeness", poles=("polite", "rude")),
        Criterion("politeness", comparative="ruder"),
        criterion_of("least polite"),
        criterion_of("how rude it is"),
    ],
    ids=["reversed name", "reversed poles", "comparative", "least", "reversed adjective"],
)
def test_the_direction_is_that_of_the_criterion(criterion):
    """A criterion whose high pole is the low one of the exemplars has them reversed."""
    assert exemplars_of(criterion, "texts") == POLITENESS[::-1]


@pytest.mark.parametrize(
    ("criterion", "kind"),
    [
        (Criterion("number of legs"), "things"),
        (Criterion("height of the highest mountain"), "things"),
        (Criterion("lifespan of the owner", poles=("short", "long")), "things"),
        (Criterion("weight", poles=("polite", "rude")), "things"),
        (Criterion("zorb"), "texts"),
        (Criterion("temperature"), "texts"),
    ],
)
def test_other_criteria_have_none(criterion, kind):
    """Poles that many criteria share are not enough, nor is the property of something else, nor a name whose poles are
    those of another scale."""
    assert exemplars_of(criterion, kind) is None


def test_texts_and_things_are_apart():
    """Toxicity of a comment is not that of a mushroom."""
    comment, mushroom = (exemplars_of(Criterion("toxicity"), kind) for kind in ("texts", "things"))
    assert comment is not None
    assert mushroom is not None
    assert comment != mushroom


@pytest.mark.parametrize("kind", ["texts", "things"])
def test_the_exemplars_are_balanced(kind):
    """As many at each pole, none twice within a criterion, and poles of similar length, which is no criterion here."""
    for entry in TABLE[kind]:
        if kind == "texts":
            low, high = ([pair[side] for pair in entry["pairs"]] for side in (0, 1))
        else:
            low, high = entry["low_items"], entry["high_items"]
        assert len(low) == len(high) >= 12
        assert len({*low, *high}) == 2 * len(low)
        ratio = sum(map(len, high)) / sum(map(len, low))
        if "conciseness" not in entry["names"]:
            assert 0.75 < ratio < 1.35, entry["names"][0]


def test_no_name_has_two_meanings():
    """A name belongs to one entry of its kind, and no adjective to both poles of an entry."""
    for entries in TABLE.values():
        names = [name for entry in entries for name in entry["names"]]
        assert len(names) == len(set(names))
        assert not any(set(entry["low"]) & set(entry["high"]) for entry in entries)
