"""The confidence in a ranking, the warnings that follow from it, and how both reach a user of Python."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model, tiny_reader

import ccrank
from ccrank import CcrankWarning, Task, rank, rank_tasks
from ccrank.confidence import CHANCE, MAX_BITS, MAX_UNKNOWN, Confidence, Features, confidence_of, level_of
from ccrank.criteria.lexicon import poles_of
from ccrank.methods.labelfree.combine import Signals
from ccrank.models import Reader
from ccrank.task import Criterion

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco")
SIZE = Criterion("size", poles=("small", "large"), category="country")
SURE = Features(12, 0.8, 1e-9, "name", "poles", True)
ORDER = ("low", "medium", "high")


def probability(features: Features) -> float:
    found = confidence_of(features)
    assert found is not None
    return found.probability


# ---- the model ------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0, 1))
def test_levels_rise_with_the_probability(first, second):
    """A higher probability never has a lower level, and both ends are reached."""
    low, high = sorted((first, second))
    assert ORDER.index(level_of(low)) <= ORDER.index(level_of(high))
    assert (level_of(0.0), level_of(1.0)) == ("low", "high")


@given(
    st.floats(-0.5, 0.9),
    st.floats(0.01, 0.5),
    st.integers(2, 1000),
    st.sampled_from(["name", "text", "context"]),
    st.sampled_from(["poles", "name", "fallback"]),
)
def test_more_agreement_is_more_confidence(agreement, more, count, kind, source):
    """All else equal, signals that agree better make the order likelier to be right, up to what is known at most where
    no poles are known or items are few."""
    less = replace(SURE, agreement=agreement, p_value=0.05, n_items=count, kind=kind, poles=source)
    one, other = probability(less), probability(replace(less, agreement=agreement + more))
    assert other > one or (one == other and (source == "fallback" or count < 4))
    assert confidence_of(less).level == level_of(one)


@pytest.mark.parametrize("kind", ["name", "text"])
def test_given_poles_do_not_raise_the_confidence(kind):
    """Poles that were given are trusted as much as those of a name; where none are known, never more."""
    for agreement in (-0.1, 0.4, 0.9):
        features = replace(SURE, kind=kind, agreement=agreement)
        sources = ("poles", "given", "comparative", "lexicon", "name", "sense")
        [known] = {probability(replace(features, poles=source)) for source in sources}
        for source in ("fallback", "model", "a source of the future"):
            assert probability(replace(features, poles=source)) <= known


@given(st.floats(-0.5, 1), st.integers(2, 300), st.sampled_from(["name", "text"]))
def test_less_detail_is_less_confidence(agreement, count, kind):
    """The category and exemplars that were written for the criterion never lower the probability."""
    less = Features(count, agreement, 0.05, kind, "name", category=False)
    assert probability(less) <= probability(replace(less, category=True))
    assert probability(less) <= probability(replace(less, exemplars=True))


def test_an_unknown_language_is_a_low_confidence():
    """However well the signals agree; the warning says why. Of texts nothing is said, nor where bits are not known."""
    found = confidence_of(replace(SURE, bits=MAX_BITS + 1.2))
    assert found.level == "low"
    assert found.probability <= MAX_UNKNOWN
    assert f"the language of these items ({MAX_BITS + 1.2:.1f} bits per character)" in found.warning()
    assert "translate" in found.warning()
    for changes in ({"kind": "text", "bits": 9.0}, {"bits": MAX_BITS - 1}, {"bits": 0.0}):
        assert confidence_of(replace(SURE, **changes)).features.language_known
    assert "language" not in Confidence("low", 0.2, SURE).warning()


def test_agreement_alone_is_not_high():
    """Signals that agree perfectly on poles that nobody knows are not of high confidence."""
    assert confidence_of(replace(SURE, agreement=1.0, p_value=0.0, poles="fallback")).level != "high"
    assert confidence_of(replace(SURE, agreement=1.0, p_value=0.0)).level == "high"


@pytest.mark.parametrize("count", [2, 3])
def test_very_short_lists_are_not_of_high_confidence(count):
    """Four signals agree on two items by chance once in eight times, which is no reason to trust them."""
    agreement, p_value = Signals(dict.fromkeys("abcd", np.arange(count))).agreement()
    assert agreement == 1
    features = replace(SURE, n_items=count, agreement=agreement, p_value=p_value)
    assert confidence_of(features).level == "medium"
    assert confidence_of(replace(features, n_items=4)).level == "high"


def test_no_agreement_no_confidence():
    """Where there is one signal only, nothing is claimed."""
    assert confidence_of(replace(SURE, agreement=float("nan"), p_value=float("nan"))) is None


# ---- warnings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "advised"),
    [
        ({}, ("--labels", "--model")),
        ({"poles": "name"}, ("--labels", "--model")),
        ({"poles": "fallback", "category": False}, ("--poles LOW HIGH", "--category", "--labels", "--model")),
    ],
)
def test_advice_is_about_what_is_missing(changes, advised):
    """A low confidence says what a user can do, and does not ask for what was given or would not help, such as poles
    for a name that the lexicon knows; higher ones say nothing."""
    features = replace(SURE, **changes)
    text = Confidence("low", 0.2, features).warning()
    assert [one for one in ("--poles LOW HIGH", "--category", "--labels", "--model") if one in text] == [
        *advised
    ]
    assert "chance" not in text
    assert "no better than chance" in Confidence("low", 0.2, replace(features, p_value=2 * CHANCE)).warning()
    assert Confidence("medium", 0.6, features).warning() is None
    assert Confidence("high", 0.9, features).warning() is None


def test_warnings_and_confidence_of_auto():
    """Tiny models know nothing: whenever the confidence is low there is a warning, and only then, for known poles."""
    levels = set()
    for seed in range(4):
        reader = Reader(tiny_model("llama", seed=seed, max_position_embeddings=512))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = rank(ITEMS, SIZE, model=reader)
        own = [str(one.message) for one in caught if one.category is CcrankWarning]
        assert found.confidence.features.n_items == len(ITEMS)
        assert found.confidence.features.agreement == found.consistency["signals_agree"]
        assert bool(found.warnings) == (found.confidence.level == "low")
        assert own == [f"ranking by size: {'; '.join(found.warnings)}"] * bool(found.warnings)
        levels.add(found.confidence.level)
    assert "low" in levels


def test_unknown_poles_are_warned_of():
    """low and high for want of better words: a warning that names them and the remedy, at the caller's line."""
    assert poles_of(Criterion("zorb")).source == "fallback"
    with pytest.warns(CcrankWarning, match=r"poles of 'zorb': low and high .*--poles LOW HIGH") as caught:
        found = rank(ITEMS, "zorb", model=tiny_reader())
    assert "'zorb'" in found.warnings[0]
    assert {one.filename for one in caught if one.category is CcrankWarning} == {__file__}


def test_one_warning_a_ranking():
    """Each of several tasks is warned of once, by its id, with all of its warnings."""
    tasks = [Task(Criterion("zorb"), ITEMS[:4], id=f"task {number}") for number in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rankings = rank_tasks(tasks, tiny_reader())
    own = [str(one.message) for one in caught if one.category is CcrankWarning]
    assert own == [f"{one.task.id}: {'; '.join(one.warnings)}" for one in rankings]


def test_methods_without_signals_have_no_confidence():
    """None for methods that have no signals, for a model without head, and with labels; auto and anchored have one."""
    for method in ("prompt-point", "poles", "axis", "likelihood", "pca"):
        assert rank(ITEMS, SIZE, model=tiny_reader(), method=method).confidence is None
    assert rank(ITEMS, SIZE, model=tiny_reader(headless=True)).confidence is None
    assert rank(ITEMS, SIZE, model=tiny_reader(), labels={"Russia": 2.0, "Chad": 1.0}).confidence is None
    for method in ("auto", "anchored"):
        assert rank(ITEMS, SIZE, model=tiny_reader(), method=method).confidence is not None


def test_an_unknown_direction_is_warned_of():
    """A method that is not directed says so, and what to use instead; a directed one does not."""
    with pytest.warns(CcrankWarning, match="may be reversed.*--method auto"):
        found = rank(ITEMS, SIZE, model=tiny_reader(), method="pca")
    assert not found.directed
    assert rank(ITEMS, SIZE, model=tiny_reader(), method="prompt-point").warnings == ()


def test_json_keys():
    """`warnings` is a list and `confidence` an object or null, whatever the method."""
    with pytest.warns(CcrankWarning):
        found = rank(ITEMS, "zorb", model=tiny_reader()).to_json()
    assert found["warnings"]
    assert set(found["confidence"]) == {"level", "probability"}
    assert found["confidence"]["level"] in ORDER
    plain = rank(ITEMS, SIZE, model=tiny_reader(), method="prompt-point").to_json()
    assert (plain["warnings"], plain["confidence"]) == ([], None)


def test_the_warning_is_public():
    """`ccrank.CcrankWarning` is a UserWarning, so that filters can name it."""
    assert issubclass(ccrank.CcrankWarning, UserWarning)
    assert "CcrankWarning" in ccrank.__all__


# ---- the default model ----------------------------------------------------------------------------------

COUNTRIES = (
    "Russia",
    "Canada",
    "Brazil",
    "India",
    "France",
    "Portugal",
    "Switzerland",
    "Luxembourg",
    "Monaco",
)


@pytest.mark.real
def test_nonsense_is_not_of_high_confidence(default_reader):
    """Criteria that mean nothing for the items, with poles or without."""
    for criterion in (
        Criterion("zorbness"),
        Criterion("blicket coefficient", category="country"),
        Criterion("quibble", poles=("unquibbled", "quibbled"), category="country"),
    ):
        assert rank(COUNTRIES, criterion, model=default_reader).confidence.level != "high"


@pytest.mark.real
def test_countries_by_size_are_not_of_low_confidence(default_reader):
    """A list that the default model knows."""
    found = rank(COUNTRIES, "size", category="country", model=default_reader)
    assert found.confidence.level != "low"
    assert found.warnings == ()


@pytest.mark.real
def test_german_foods_are_of_low_confidence(default_reader):
    """The default model ranks English foods well, and hardly knows German ones."""
    german = ["Apfel", "Brokkoli", "Pizza", "Bonbon", "Reis"]
    english = ["apple", "broccoli", "pizza", "candy", "rice"]
    with pytest.warns(CcrankWarning, match="hardly knows the language of these items"):
        found = rank(german, "healthiness", category="food", model=default_reader)
    assert found.confidence.level == "low"
    assert rank(english, "healthiness", category="food", model=default_reader).confidence.level == "high"


@pytest.mark.real
def test_items_without_letters_are_in_no_language(default_reader):
    """Emoji take many bits per character, which says nothing of a language."""
    found = rank(["😀", "😢", "🎉", "💀"], "positivity", model=default_reader)
    assert found.confidence.features.bits == 0
