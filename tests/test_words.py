"""Words for the two ends of a criterion: which end is up, whatever the user typed."""

from __future__ import annotations

from collections import Counter
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccrank.task import Criterion
from ccrank.toml import parse_toml
from ccrank.words import ends_of, plural, positive_form, superlative

SCALES = parse_toml(resources.files("ccrank") / "words.toml")["scale"]
PAIRS = [(low, high) for scale in SCALES for low in scale["low"] for high in scale["high"]]
WORDS = sorted({word for pair in PAIRS for word in pair})


def of(name, comparative=None, poles=None):
    return ends_of(Criterion(name, comparative, poles))


def test_no_noun_belongs_to_two_scales():
    """The words for a name hang on the name alone, not on which scale the table lists first."""
    assert [noun for noun, n in Counter(n for scale in SCALES for n in scale["nouns"]).items() if n > 1] == []


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: scale["high"][0])
def test_the_ends_of_a_scale_are_apart(scale):
    """No word stands for both ends or twice for one; each end has three; a noun of it leads back to the scale."""
    assert len({*scale["low"], *scale["high"]}) == 6
    assert len(scale["low"]) == len(scale["high"]) == 3
    assert all(word == word.lower().strip() for word in (*scale["low"], *scale["high"], *scale["nouns"]))
    for noun in scale["nouns"]:
        found = of(noun)
        assert (list(found.low), list(found.high), found.source) == (scale["low"], scale["high"], "name")


@given(st.sampled_from(PAIRS), st.sampled_from(WORDS), st.booleans())
def test_poles_are_the_users_own(pair, name, shout):
    """A user's poles come first and decide the direction, whatever the name and the comparative say."""
    low, high = (word.upper() for word in pair) if shout else pair
    found = of(name, name, (low, high))
    assert (found.low[0], found.high[0], found.source) == (low, high, "poles")
    assert (found.least, found.most) == (superlative(low), superlative(high))
    everything = [word.lower() for word in (*found.low, *found.high)]
    assert len(everything) == len(set(everything)) == 6


@given(st.one_of(st.sampled_from(PAIRS), st.tuples(st.sampled_from(WORDS), st.just("zorby"))))
def test_swapped_poles_turn_the_scale(pair):
    """Swapping the poles swaps all the words and nothing else."""
    assert of("it", poles=pair[::-1]) == of("it", poles=pair).turned()


def test_unknown_poles_stand_alone():
    """No synonym is added to a pair that the table does not have; blanks around a pole are no part of it."""
    found = of("wokeness", poles=(" asleep", "awake "))
    assert (found.low, found.high, found.least, found.most) == (
        ("asleep",),
        ("awake",),
        "most asleep",
        "most awake",
    )
    assert of("size", poles=("small", "spicy")).low == ("small",)


@pytest.mark.parametrize(
    ("name", "comparative", "low", "high"),
    [
        ("size", "larger", "small", "large"),
        ("size", "smaller", "large", "small"),
        ("size", "bigger", "small", "big"),
        ("price", "more expensive", "cheap", "expensive"),
        ("price", "less expensive", "expensive", "cheap"),
        ("price", "cheaper", "expensive", "cheap"),
        ("price", "higher", "cheap", "expensive"),
        ("price", "lower", "expensive", "cheap"),
        ("date", "earlier", "late", "early"),
        ("founding date", "older", "late", "old"),
        ("year", "more recent", "early", "recent"),
        ("calories", "higher in calories", "low", "high"),
        ("sugar content", "higher in sugar", "sour", "sweet"),
        ("sugar content", "lower in sugar", "sweet", "sour"),
        ("temperature", "less hot", "hot", "cold"),
        ("quality", "better", "bad", "good"),
        ("quality", "worse", "good", "bad"),
        ("sentiment", "better", "negative", "good"),
        ("population", "more people", "uninhabited", "populous"),
        ("population", "larger", "uninhabited", "large"),
        ("power", "more power", "weak", "strong"),
        ("power", "less power", "strong", "weak"),
        ("number of goals", "more goals", "low", "high"),
        ("area", "greater", "small", "large"),
        ("area", "lesser", "large", "small"),
        ("distance", "farther away", "near", "far"),
        ("distance", "closer to the centre", "far", "close"),
        ("weight", "much lighter", "heavy", "light"),
        ("brightness", "lighter", "dark", "light"),
        ("shade", "lighter", "heavy", "light"),
        ("taste", "more bitter", "sweet", "bitter"),
        ("fit", "proper", "informal", "proper"),
        ("zip", "zippier", "not zippy", "zippy"),
        ("zip", "less zippy", "zippy", "not zippy"),
        ("zip", "more", "low", "high"),
        ("zip", "more than", "low", "high"),
        ("zip", "less", "high", "low"),
        ("zip", "lower", "high", "low"),
    ],
)
def test_the_comparative_says_which_end_is_up(name, comparative, low, high):
    """Its own adjective is the high end; "more", "less", "higher" and "lower" take the name's words."""
    found = of(name, comparative)
    assert (found.low[0], found.high[0]) == (low, high)


@pytest.mark.parametrize(
    ("up", "down"),
    [
        ("larger", "smaller"),
        ("more expensive", "cheaper"),
        ("more expensive", "less expensive"),
        ("later", "earlier"),
        ("higher", "lower"),
        ("more", "less"),
        ("heavier", "lighter"),
        ("zippier", "less zippy"),
        ("more zorby", "less zorby"),
        ("hotter", "colder"),
    ],
)
@pytest.mark.parametrize("name", ["size", "price", "date", "temperature", "weight", "zip"])
def test_a_turned_comparative_turns_the_scale(name, up, down):
    """For every name, also one of another scale: nothing but the direction changes."""
    first, second = of(name, up), of(name, down)
    assert first.turned().low[0] == second.low[0] or second.low[0] in first.high
    assert first.turned().high[0] == second.high[0] or second.high[0] in first.low
    assert not {*first.high} & {*second.high}
    assert not {*first.low} & {*second.low}


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("Size", "small", "large"),
        ("how noisy it is", "quiet", "noisy"),
        ("how very quiet it is", "loud", "quiet"),
        ("how rare it is", "common", "rare"),
        ("how often it rains", "rare", "common"),
        ("how far north it lies", "southern", "northern"),
        ("how far it is", "near", "far"),
        ("how much it costs", "cheap", "expensive"),
        ("how zorby it is", "not zorby", "zorby"),
        ("price (USD)", "cheap", "expensive"),
        ("average depth in metres", "shallow", "deep"),
        ("release date", "early", "late"),
        ("start of reign", "early", "late"),
        ("length of reign", "short", "long"),
        ("production cost", "cheap", "expensive"),
        ("cost of production", "cheap", "expensive"),
        ("interest rate", "low", "high"),
        ("noise level", "quiet", "loud"),
        ("level of noise", "quiet", "loud"),
        ("alcohol content", "soft", "alcoholic"),
        ("GDP per capita", "poor", "rich"),
        ("population density", "uninhabited", "populous"),
        ("risk reduction", "low", "high"),
        ("lack of importance", "low", "high"),
        ("zorbiness", "low", "high"),
        ("123", "low", "high"),
    ],
)
def test_the_name_alone(name, low, high):
    """The head of a compound decides, a measure leaves it to the other word, an adjective behind "how" is the high
    end, and what turns its neighbour round ("lack of …") does not borrow the neighbour's words."""
    found = of(name)
    assert (found.low[0], found.high[0]) == (low, high)


def test_the_source_is_told():
    """What says that no words were known, so that the user can be asked for them."""
    assert of("size").source == of("how loud it is").source == of("how zorby it is").source == "name"
    assert of("size", "larger").source == of("x", "more zorby").source == "comparative"
    assert of("size", "larger", ("small", "large")).source == "poles"
    assert (
        of("zorbiness").source == of("zorbiness", "higher").source == of("zorb", "lower").source == "fallback"
    )


@pytest.mark.parametrize(
    ("adjective", "expected"),
    [
        ("large", "largest"),
        ("big", "biggest"),
        ("thin", "thinnest"),
        ("heavy", "heaviest"),
        ("dry", "driest"),
        ("grey", "greyest"),
        ("early", "earliest"),
        ("unhealthy", "most unhealthy"),
        ("shallow", "shallowest"),
        ("narrow", "narrowest"),
        ("low", "lowest"),
        ("new", "newest"),
        ("simple", "simplest"),
        ("polite", "most polite"),
        ("quiet", "quietest"),
        ("cool", "coolest"),
        ("broad", "broadest"),
        ("good", "best"),
        ("few", "fewest"),
        ("southern", "southernmost"),
        ("expensive", "most expensive"),
        ("pricey", "most pricey"),
        ("well known", "most well known"),
        ("not safe", "least safe"),
    ],
)
def test_superlatives(adjective, expected):
    """By the rules of English spelling."""
    assert superlative(adjective) == expected


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("country", "countries"),
        ("day", "days"),
        ("City", "Cities"),
        ("bus", "buses"),
        ("box", "boxes"),
        ("church", "churches"),
        ("glass", "glasses"),
        ("crisis", "crises"),
        ("person", "people"),
        ("salesperson", "salespeople"),
        ("woman", "women"),
        ("salesman", "salesmen"),
        ("human", "humans"),
        ("German", "Germans"),
        ("Child", "Children"),
        ("species", "species"),
        ("TV series", "TV series"),
        ("volcano", "volcanoes"),
        ("animals", "animals"),
        ("countries", "countries"),
        ("moon of Jupiter", "moons of Jupiter"),
        ("opera by Puccini", "operas by Puccini"),
        ("ethnic group in the US", "ethnic groups in the US"),
    ],
)
def test_plurals(noun, expected):
    """Of the head of the phrase, by the rules of English spelling; what is a plural already stays."""
    assert plural(noun) == expected


@pytest.mark.parametrize(
    ("comparative", "adjective"),
    [
        ("larger in area", "large"),
        ("busier", "busy"),
        ("redder", "red"),
        ("nicer", "nice"),
        ("braver", "brave"),
        ("greener", "green"),
        ("slower", "slow"),
        ("cleverer", "clever"),
        ("truer", "true"),
        ("freer", "free"),
        ("looser", "loose"),
        ("stiffer", "stiff"),
        ("more valuable", "valuable"),
        ("Better", "good"),
        ("tender", "tender"),
        ("in front", None),
        ("", None),
    ],
)
def test_positive_forms(comparative, adjective):
    """Spelling undone: dropped e, doubled consonant, y turned i; known or not."""
    assert positive_form(comparative) == adjective


@given(
    st.sampled_from(sorted({scale["high"][0] for scale in SCALES} | {scale["low"][0] for scale in SCALES}))
)
def test_superlatives_lead_back(adjective):
    """The comparative that goes with a superlative ("biggest" → "bigger") has the adjective as its positive form."""
    most = superlative(adjective)
    comparative = (
        f"more {adjective}" if not most.endswith("est") or most.startswith("most ") else most[:-3] + "er"
    )
    if most not in ("best", "farthest", "fewest"):
        assert positive_form(comparative) == adjective
