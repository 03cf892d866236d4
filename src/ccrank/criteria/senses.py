"""Adjectives whose opposite depends on what is described: a hot day is not cold, a hot pepper is not mild.

The senses beyond the usual one are data (`senses.toml`). Which of them is meant is for a model that sees the items to
say (`ccrank.methods.senses`); here its scores become a choice, and a doubt where two are close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources

from ccrank.criteria.lexicon import known_nouns
from ccrank.criteria.meaning import Meaning, name_with
from ccrank.task import Criterion, Understood
from ccrank.util.files import parse_toml

USUAL = 0.5
"""Added to the score of the lexicon's usual sense. Chosen, as `CLOSE`, on 50 adjectives with categories and items."""
CLOSE = 1.0
"""Senses whose scores differ by less leave a doubt."""


@cache
def _table() -> dict[str, dict[str, str]]:
    return dict(parse_toml(resources.files("ccrank.criteria") / "senses.toml"))


def has_senses(adjective: str) -> bool:
    """Whether what an adjective says depends on what it describes."""
    return adjective in _table()


def senses_of(meaning: Meaning) -> tuple[Meaning, ...]:
    """What else the adjective of a meaning may say, each in the direction of the meaning.

    >>> from ccrank.criteria.meaning import of_adjective
    >>> [(sense.name, sense.low) for sense in senses_of(of_adjective("hard"))]
    [('difficulty', 'easy'), ('harshness', 'gentle')]
    """
    adjective, usual = meaning.adjective, (meaning.low, meaning.high)
    senses = []
    for opposite, noun in _table().get(adjective, {}).items():
        scale = known_nouns().get(noun)
        turned = scale is not None and (adjective in scale.low or opposite in scale.high)
        name = name_with(noun, meaning.complement)
        sense = replace(meaning, name=name, low=opposite, high=adjective, reversed=turned)
        if opposite not in usual:
            senses.append(sense if meaning.high == adjective else sense.flipped())
    return tuple(senses)


def adjective_and_opposites(senses: Sequence[Understood]) -> tuple[str, list[str]]:
    """The adjective that several senses have in common, and its opposite in each."""
    [adjective] = set.intersection(*({*sense.poles} for sense in senses))
    return adjective, [next(pole for pole in sense.poles if pole != adjective) for sense in senses]


def in_best_sense(criterion: Criterion, scores: Sequence[float]) -> Criterion:
    """The criterion in the sense with the highest score; the others, best first, are its alternatives.

    Parameters
    ----------
    criterion
        One whose `understood` has alternatives.
    scores
        One for its usual sense, then one for each alternative: log-probabilities.
    """
    usual = criterion.understood
    assert usual is not None
    senses = (usual, *usual.alternatives)
    totals = [score + USUAL * (not index) for index, score in enumerate(scores)]
    order = sorted(range(len(senses)), key=lambda index: -totals[index])
    best, *others = (replace(senses[index], source="sense", alternatives=()) for index in order)
    doubt = usual.warning
    if totals[order[0]] - totals[order[1]] < CLOSE:
        _, (taken, other) = adjective_and_opposites((best, others[0]))
        low, high = others[0].poles
        doubt = (
            f"{usual.phrase!r} is taken as the opposite of {taken!r}; if you mean that of {other!r}, name the poles: "
            f"--poles {low} {high} (poles=({low!r}, {high!r}))"
        )
    return in_sense(criterion, replace(best, alternatives=tuple(others), warning=doubt))


def in_sense(criterion: Criterion, sense: Understood) -> Criterion:
    """The criterion with a scale and a direction that its phrase may mean."""
    return Criterion(sense.name, sense.comparative, sense.poles, criterion.category, sense.reversed, sense)
