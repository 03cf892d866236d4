"""How many labels choosing the questions saves: a session that asks, against as many random questions of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccrank import Criterion, Task
from ccrank.criteria.exemplars import WRITTEN
from ccrank.labels import LabelRow
from ccrank.methods.labelled.observations import normal_scores
from ccrank.methods.labelled.prior import Kernel, Setting
from ccrank.methods.labelled.session import Session, SessionKind
from ccrank.metrics.order import tau_b
from ccrank.ranking import Ranking
from ccrank.util.zscores import z_scores
from studies.labels.lists import LongList

SHOWN = (5, 10, 20, 30, 40)
DRAWN = Setting(0.5, 0.2, "all")
"""The setting that gold is drawn by."""
COPIES = 3


def varied(lists: Sequence[LongList], variant: str) -> list[LongList]:
    """Lists whose label-free score or gold is replaced, a few copies of each.

    unrelated: the label-free score is a random function of the states, uncorrelated with the gold. drawn: the gold is
    drawn from the model, so that no chooser of questions could have a better model.
    """
    found = []
    for number, one in enumerate(lists):
        kernel = Kernel([(one.slot, one.item)])
        for copy in range(COPIES):
            rng = np.random.default_rng([number, copy])
            states = np.sqrt(DRAWN.groups) @ kernel.products(np.arange(1), 1, rng).functions[:, :, 0]
            own = rng.standard_normal(len(states))
            if variant == "unrelated":
                gold = normal_scores(one.values)
                changed = replace(one, auto=z_scores(states - gold * (states @ gold) / (gold @ gold)))
            else:
                residual = np.sqrt(DRAWN.particular + DRAWN.noise) * own
                gold = DRAWN.prior_weight * one.auto + np.sqrt(DRAWN.kernel_share) * states + residual
                changed = replace(one, values=gold)
            found.append(replace(changed, name=f"{one.name} {variant} {copy + 1}"))
    return found


def print_asked(
    lists: Sequence[LongList], kind: SessionKind, draws: int, shown: Sequence[int] = SHOWN
) -> dict[int, tuple[float, float]]:
    """Print τ of all items, labelled ones too, by asked and by random labels, and how many asked ones reach the τ of
    random ones; labels -> both τ."""
    most = max(shown)
    asked, random = np.zeros(most + 1), np.zeros(most + 1)
    for one in lists:
        own = np.zeros((2, most + 1))
        for draw in range(draws):
            rows = random_rows(one, kind, most, np.random.default_rng(draw))
            own[0] += asked_curve(one, kind, rows[:1], most) / draws
            own[1] += curve(one, kind, rows) / draws
        figures = ", ".join(f"{labels}: {own[0, labels]:.3f} / {own[1, labels]:.3f}" for labels in shown)
        print(f"{one.name}: asked / random {figures}", flush=True)
        asked += own[0] / len(lists)
        random += own[1] / len(lists)
    start = np.mean([tau_b(one.auto, one.values) for one in lists])
    print(
        f"{len(lists)} lists, {draws} draws, questions: {kind}; mean τ of all items, without labels {start:.3f}"
    )
    for labels in shown:
        reached = np.flatnonzero(asked[1:] >= random[labels])
        share = f"{(reached[0] + 1) / labels:.0%}" if len(reached) else "more than all"
        print(
            f"{labels} labels: asked {asked[labels]:.3f}, random {random[labels]:.3f}; "
            f"{share} as many asked ones reach the latter"
        )
    return {labels: (float(asked[labels]), float(random[labels])) for labels in shown}


def random_rows(one: LongList, kind: SessionKind, count: int, rng: np.random.Generator) -> list[LabelRow]:
    """Answers to random questions: items to grade, each once, and pairs of items."""
    items = iter(rng.permutation(len(one.values)).tolist())
    rows: list[LabelRow] = []
    while len(rows) < count:
        if kind == "grade" or (kind == "both" and len(rows) % 2 == 0):
            item = next(items)
            rows.append(("value", str(item), str(one.values[item])))
            continue
        rows.append(higher_first(one, *rng.choice(len(one.values), 2, replace=False).tolist()))
    return rows


def higher_first(one: LongList, first: int, second: int) -> LabelRow:
    """The answer to which of two items is higher; of equal ones the first, which is arbitrary."""
    high, low = (first, second) if one.values[first] >= one.values[second] else (second, first)
    return ("pair", str(high), str(low))


def curve(one: LongList, kind: SessionKind, rows: Sequence[LabelRow]) -> np.ndarray:
    """τ after the first 0, 1, … of these answers."""
    session = session_of(one, kind)
    taus = [tau_b(one.auto, one.values)]
    for count in range(1, len(rows) + 1):
        session.resume(rows[:count])
        taus.append(tau_b(session.fitted.mean, one.values))
    return np.array(taus)


def asked_curve(one: LongList, kind: SessionKind, first: Sequence[LabelRow], most: int) -> np.ndarray:
    """τ after 0, 1, … answers to the session's own questions; draws differ in the first answer alone."""
    session = session_of(one, kind)
    session.resume(first)
    taus = [tau_b(one.auto, one.values), tau_b(session.fitted.mean, one.values)]
    while len(taus) <= most and (question := session.question()) is not None:
        places = [int(item) for item in question.items]
        if question.kind == "grade":
            question.answer(float(one.values[places[0]]))
        else:
            question.answer(higher_first(one, *places)[1])
        taus.append(tau_b(session.fitted.mean, one.values))
    return np.array([*taus, *[taus[-1]] * (most + 1 - len(taus))])


def session_of(one: LongList, kind: SessionKind) -> Session:
    """A session on a list whose items are named by their numbers."""
    task = Task(Criterion("criterion"), tuple(str(place) for place in range(len(one.values))))
    details = {"signals": {WRITTEN: []} if one.written else {}}
    ranking = Ranking(task, one.auto, method="auto", model="", directed=True, details=details)
    return Session(ranking, (one.slot, one.item), kind)
