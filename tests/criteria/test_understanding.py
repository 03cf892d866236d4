"""Any phrase for a criterion becomes a scale and a direction, or is refused; never the wrong way round in silence."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from phrase_table import PARTS, TABLE, judged

from ccrank.criteria import criterion_of, resolved, understand
from ccrank.criteria.inflection import comparative_of, superlative
from ccrank.criteria.lexicon import known_adjectives, known_nouns, poles_of
from ccrank.errors import CcrankError
from ccrank.task import Criterion

COUNTS = {"choose": 344, "report": 173, "fresh": 91, "kept": 14}
AMBIGUOUS = {"content", "fat", "level", "light"}
"""Nouns and adjectives of different scales; a warning says how they are taken."""
ADJECTIVES = sorted(
    word
    for word in known_adjectives()
    - AMBIGUOUS
    - {"high", "low", "many", "few", "great", "little", "random", "far", "numb", "evil", "quiet"}
    if not superlative(word).endswith("ernmost") and word != "nearby"
)
NOUNS = sorted(
    noun for noun in known_nouns() if not noun.startswith("how ") and noun not in {*AMBIGUOUS, "quiet"}
    and not noun.startswith(("chronological", "order in", "rank", "rate"))
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_the_table_of_phrases(part):
    """Of each part at least 95 % have the right poles and direction, and no phrase is reversed without a warning."""
    phrases = TABLE[part]["phrases"]
    verdicts = {phrase: judged(phrase, expected) for phrase, expected in phrases}
    assert len(verdicts) == len(phrases) == COUNTS[part]
    assert [phrase for phrase, verdict in verdicts.items() if verdict.silent] == []
    assert sum(verdict.right for verdict in verdicts.values()) / len(verdicts) >= 0.95


def test_the_parts_of_the_table_are_apart():
    """No phrase is in two parts, a third is for reporting, and every scale is used."""
    phrases = [phrase.lower() for part in PARTS for phrase, _ in TABLE[part]["phrases"]]
    assert len(phrases) == len(set(phrases)) >= 300
    assert COUNTS["report"] / (COUNTS["report"] + COUNTS["choose"]) >= 1 / 3
    used = {expected[1:] for part in PARTS for _, expected in TABLE[part]["phrases"] if expected != "refuse"}
    assert used == set(TABLE["scales"])


@given(
    st.sampled_from(ADJECTIVES),
    st.sampled_from(
        (
            *(
                "{0}",
                "most {0}",
                "more {0}",
                "{1}",
                "{2}",
                "the {1} one",
                "{1} first",
                "which one is the {1}?",
            ),
            *("how {0} it is", "sort by {1}", "is it {0}?", "who is {2}", "not very {0} last", "really {0}"),
        )
    ),
)
def test_an_adjective_of_any_degree_comes_first(adjective, frame):
    """Whatever the degree and the frame, the adjective itself is the pole that comes first."""
    found = understand(frame.format(adjective, superlative(adjective), comparative_of(adjective)))
    assert (found.poles[1], found.certain) == (adjective, True)
    assert found.comparative == comparative_of(adjective)
    assert found.first == f"{superlative(adjective)} first"


@given(
    st.sampled_from(ADJECTIVES),
    st.sampled_from(
        ("least {0}", "less {0}", "not {0}", "{1} last", "opposite of {0}", "isn't very {0}", "never {0}")
    ),
)
def test_what_negates_an_adjective_puts_it_last(adjective, frame):
    """Least, less, not, last: the adjective is the pole that comes last, and the name is the same."""
    found = understand(frame.format(adjective, superlative(adjective)))
    assert (found.poles[0], found.certain) == (adjective, True)
    upright = understand(f"most {adjective}")
    assert found.name == upright.name
    assert found.reversed is not upright.reversed


@given(st.sampled_from(NOUNS))
def test_a_noun_stays_as_it_is(noun):
    """A noun makes the criterion of that name with nothing added, so its prompts and numbers do not change."""
    criterion = criterion_of(noun)
    assert criterion == Criterion(noun)
    words = poles_of(criterion)
    assert criterion.understood.poles == (words.low[0], words.high[0])
    assert criterion.comparative_phrase == criterion.understood.comparative == f"more in terms of {noun}"


@given(
    st.sampled_from(NOUNS),
    st.sampled_from(
        (
            *(
                "{0} ascending",
                "{0} (low to high)",
                "{0}, lowest first",
                "lowest {0}",
                "lack of {0}",
                "least {0}",
            ),
            *("low {0}", "{0} from low to high", "which has the lowest {0}?", "sort by {0} asc", "{0} ↑"),
            *("reverse {0}", "{0} reversed"),
        )
    ),
)
def test_little_of_a_noun_first(noun, frame):
    """Lowest, ascending, lack of: the poles of the noun are turned round, or are high and low of it."""
    found, upright = understand(frame.format(noun)), understand(noun)
    assert found.poles in (upright.poles[::-1], ("high", "low"))
    assert found.reversed is True


@given(
    st.sampled_from(NOUNS),
    st.sampled_from(
        (
            "{0} descending",
            "highest {0}",
            "most {0}",
            "the {0}",
            "sort by {0}",
            "{0} (high to low)",
            "{0} (USD)",
        )
    ),
)
def test_much_of_a_noun_first(noun, frame):
    """Highest, descending and a unit in brackets leave the poles as they are."""
    found, upright = understand(frame.format(noun)), understand(noun)
    assert found.poles in (upright.poles, ("low", "high"))
    assert found.reversed is False


@pytest.mark.parametrize(
    ("phrase", "name", "poles", "comparative", "first", "source"),
    [
        ("least expensive", "price", ("expensive", "cheap"), "cheaper", "cheapest first", "lexicon"),
        ("most likely to fail", "probability of failing", ("unlikely", "likely"), "more likely to fail",
         "most likely to fail first", "lexicon"),
        ("easiest to learn", "difficulty of learning", ("difficult", "easy"), "easier to learn",
         "easiest to learn first", "lexicon"),
        ("most similar to coffee", "resemblance to coffee", ("different", "similar"), "more similar to coffee",
         "most similar to coffee first", "lexicon"),
        ("fewest calories", "calories", ("high", "low"), "lower in calories", "fewest calories first", "lexicon"),
        ("fewest legs", "legs", ("many", "few"), "lower in number of legs", "fewest legs first", "lexicon"),
        ("lowest churn", "churn", ("high", "low"), "lower in churn", "lowest churn first", "amount"),
        ("best battery life", "battery life", ("bad", "good"), "better in terms of battery life",
         "best battery life first", "lexicon"),
        ("least zippy", "zippiness", ("zippy", "not zippy"), "less zippy", "least zippy first", "negation"),
        ("unwalkable", "walkability", ("walkable", "unwalkable"), "more unwalkable",
         "most unwalkable first", "negation"),
        ("from asleep to awake", "asleepness", ("awake", "asleep"), "more asleep", "most asleep first", "given"),
    ],
)  # fmt: skip
def test_what_is_understood(phrase, name, poles, comparative, first, source):
    """All words agree with each other: name, poles, comparative and what a user is shown."""
    found = understand(phrase)
    assert (found.name, found.poles, found.comparative, found.first, found.source) == (
        name, poles, comparative, first, source,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("A to Z", "needs no model"),
        ("alphabetically", "needs no model"),
        ("random order", "needs no model"),
        ("ascending", "direction without a criterion"),
        ("low to high", "direction without a criterion"),
        ("highest first", "direction without a criterion"),
        ("lowest", "of what"),
        ("most of", "of what"),
        ("cheap and healthy", "more than one criterion"),
        ("?!", "has no words"),
        ("12", "has no words"),
        ("frobnicate first", "not understood"),
    ],
)
def test_what_cannot_be_a_criterion_is_refused(phrase, message):
    """With the phrase in the message, so that it can be mended."""
    with pytest.raises(CcrankError, match=message):
        understand(phrase)


@pytest.mark.parametrize(
    ("phrase", "says"),
    [
        ("sleep", "--poles LOW HIGH"),
        ("hype around the lowest of them", "'lowest' in"),
        ("light", "most light"),
        ("minimum wage", "lowest first"),
        ("highest price ascending", "cheapest first"),
        ("active users", "taken as a number"),
    ],
)
def test_a_doubt_is_a_warning(phrase, says):
    """A fallback to low and high, a word for a direction that is left over, two senses: each says how it is taken."""
    found = understand(phrase)
    assert says in found.warning
    assert found.certain is False
    assert found.to_json()["certain"] is False


def test_given_words_win():
    """Poles or a comparative decide; where the phrase says the opposite, a warning names both."""
    agreed = criterion_of("cheapest", poles=("expensive", "cheap"))
    assert (agreed.poles, agreed.reversed, agreed.understood.warning) == (("expensive", "cheap"), True, None)
    for given_words in ({"poles": ("cheap", "expensive")}, {"comparative": "more expensive"}):
        found = criterion_of("cheapest", **given_words)
        assert (found.name, found.reversed, found.understood.first) == (
            "price",
            False,
            "most expensive first",
        )
        assert found.understood.source == "given"
        assert "'cheapest' says cheapest first" in found.understood.warning
        assert "most expensive first" in found.understood.warning
    noun = criterion_of("price", poles=("expensive", "cheap"), category="watch")
    assert noun == Criterion("price", None, ("expensive", "cheap"), "watch", reversed=True)
    assert noun.understood.warning is None
    assert criterion_of("size", comparative="larger") == Criterion("size", "larger")
    assert criterion_of("A to Z", poles=("a", "z")).poles == ("a", "z")


def test_a_criterion_is_resolved_once():
    """A bare name is understood as a phrase; one with words of its own keeps them; a second time changes nothing."""
    bare = resolved(Criterion("least expensive", category="watch"))
    assert (bare.name, bare.poles, bare.category) == ("price", ("expensive", "cheap"), "watch")
    own = resolved(Criterion("least expensive", "larger", ("small", "large")))
    assert own == Criterion("least expensive", "larger", ("small", "large"))
    assert own.understood.first == "largest first"
    assert resolved(bare) is bare
    assert resolved(own) is own


def test_a_proposal_replaces_not_and_nothing_else():
    """The opposite of an unknown adjective is proposed; the adjective that was typed keeps its place."""
    asked = []

    def propose(adjective):
        asked.append(adjective)
        return "slow" if adjective == "zippy" else None

    up, down = (criterion_of(phrase, propose=propose) for phrase in ("zippiest", "least zippy"))
    assert (up.poles, up.understood.source) == (("slow", "zippy"), "model")
    assert (down.poles, down.comparative) == (("zippy", "slow"), "slower")
    assert resolved(criterion_of("zippy"), propose).poles == ("slow", "zippy")
    assert criterion_of("least pasty", propose=propose).poles == ("pasty", "not pasty")
    assert asked[-1] == "pasty"
    for phrase in ("cheapest", "walkable", "price", "sleep"):
        asked.clear()
        criterion_of(phrase, propose=propose)
        assert asked == []


@pytest.mark.parametrize(
    ("phrase", "high"),
    [
        ("level of noise", "loud"),
        ("level of arousal", "intense"),
        ("lowest level of noise", "quiet"),
        ("most level", "level"),
    ],
)
def test_a_noun_that_is_spelled_like_an_adjective(phrase, high):
    """Before "of" it is the noun; with a degree and nothing behind it is the adjective."""
    assert understand(phrase).poles[1] == high


@pytest.mark.parametrize(("phrase", "word"), TABLE["objects"]["phrases"])
def test_the_object_of_a_phrase_is_kept(phrase, word):
    """The likelihood *of churn*: the name in the prompts has the object, and so has what a user is shown."""
    found = understand(phrase)
    stem = word.removesuffix("l").removesuffix("e")  # "to cancel": the probability of canceling
    assert stem in found.name
    assert stem in found.first or found.first == "most worthwhile first"


@pytest.mark.parametrize(("phrase", "meant"), [*TABLE["misspelled"]["choose"], *TABLE["misspelled"]["kept"]])
def test_a_misspelled_word_is_noticed(phrase, meant):
    """A word that the lexicon lacks, one slip from one that it has, is asked about."""
    assert f"did you mean {meant!r}?" in understand(phrase).warning


@pytest.mark.parametrize("part", PARTS)
def test_no_phrase_of_the_table_is_taken_for_a_misspelling(part):
    """Real words are left in peace."""
    asked = []
    for phrase, _ in TABLE[part]["phrases"]:
        with suppress(CcrankError):
            asked += [phrase] if "did you mean" in (understand(phrase).warning or "") else []
    assert asked == []
