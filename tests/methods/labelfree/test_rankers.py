"""The label-free methods on tiny models: which end is up, what is shared, what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.special import expit
from tiny import scores_by_item, tiny_model, tiny_reader

from ccrank.api import fit, rank, rank_tasks
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.anchored import smoothed
from ccrank.methods.labelfree.signals import read_signals
from ccrank.metrics.order import kendall_tau
from ccrank.models import Cost, Reader
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import middle_and_late
from ccrank.ranking import canonical
from ccrank.scale import Scale
from ccrank.study.datasets import load_dataset
from ccrank.task import Criterion, Task

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco", "the tower")
SIZE = Criterion("size", poles=("small", "large"), category="country")
PLAIN = Criterion("population", poles=("small", "large"), category="country")
"""A criterion without exemplars."""
DIRECTED = ("auto", "poles", "likelihood", "axis")


def pool(criterion, count=5):
    """Tasks of one criterion, each with its own items."""
    return [
        Task(criterion, tuple(f"{item} {number}" for item in ITEMS[:4]), id=f"task {number}")
        for number in range(count)
    ]


@pytest.mark.parametrize("method", DIRECTED)
@pytest.mark.parametrize("family", ["llama", "bert"])
@pytest.mark.parametrize(
    "criteria",
    [
        (SIZE, Criterion("size", poles=("large", "small"), category="country")),
        (Criterion("size", "more lazy"), Criterion("size", "less lazy")),
        (Criterion("zorb", "higher"), Criterion("zorb", "lower")),
    ],
    ids=["poles", "made up", "fallback"],
)
def test_swapped_ends_turn_the_scores(method, family, criteria):
    """Every directed method: the ends the other way round, the scores times −1. No prompt names the comparative."""
    up, down = (rank(ITEMS, criterion, model=tiny_reader(family), method=method) for criterion in criteria)
    assert down.scores == pytest.approx(-up.scores, abs=2e-3 * np.abs(up.scores).max())
    assert np.ptp(up.scores) > 1e-3


@pytest.mark.parametrize("context", [None, "Chad is small."])
def test_swapped_ends_turn_anchored_scores(context):
    """A probe that was fitted to turned anchors is the turned probe; only per-token likelihood asks one end alone."""
    scores = []
    for poles in (("small", "large"), ("large", "small")):
        tasks = pool(Criterion("size", poles=poles))
        tasks = [dataclasses.replace(task, context=context) for task in tasks]
        scores.append([one.scores for one in rank_tasks(tasks, tiny_reader(), "anchored")])
    if context is None:
        for up, down in zip(*scores, strict=True):
            assert down == pytest.approx(-up, abs=2e-2)
    else:
        assert all(np.isfinite(one).all() for half in scores for one in half)


@pytest.mark.parametrize("method", [*DIRECTED, "anchored"])
def test_the_order_of_the_items_does_not_matter(method):
    """The very same score for each item, for one list and for a pool."""
    tasks = pool(SIZE)
    turned = [dataclasses.replace(task, items=task.items[::-1]) for task in tasks]
    for first, second in zip(
        rank_tasks(tasks, tiny_reader(), method), rank_tasks(turned, tiny_reader(), method), strict=True
    ):
        assert scores_by_item(first) == scores_by_item(second)
        assert first.items == second.items


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
@pytest.mark.parametrize("context", [None, "Chad is large."])
def test_every_form_of_model(family, context):
    """Causal, masked and encoder-decoder models serve the default, with a context and without."""
    found = rank(ITEMS, "size", context=context, model=tiny_reader(family))
    assert sorted(found.items) == sorted(ITEMS)
    assert np.isfinite(found.scores).all()
    assert found.directed


def test_few_tasks_are_no_pool():
    """Three tasks of a criterion get no probe, four get one: anchored, and auto by itself. Four items are no pool."""
    for method in ("anchored", "auto"):
        few = rank_tasks(pool(SIZE, 3), tiny_reader(), method)
        plain = rank_tasks(pool(SIZE, 3), tiny_reader(), "auto", options={"anchor": False})
        for one, other in zip(few, plain, strict=True):
            assert one.scores == pytest.approx(other.scores, abs=1e-4)
        with pytest.raises(CcrankError, match="a scale for each of these 3 tasks"):
            fit(pool(SIZE, 3), model=tiny_reader(), method=method)
        assert fit(pool(SIZE, 4), model=tiny_reader(), method=method).scorer.probes
    with pytest.raises(CcrankError, match="a scale for each"):
        fit(pool(SIZE, 4), model=tiny_reader(), options={"anchor": False})


def test_a_long_list_is_its_own_pool():
    """The scores of eight items or more are smoothed over similar states at the item; `anchor=no` leaves the mean."""
    items = tuple(f"{item} {number}" for item in ITEMS[:4] for number in range(3))
    task = canonical(Task(SIZE, items, id="long"))[0]
    plain = rank_tasks([task], tiny_reader(), options={"anchor": False})[0]
    [raw], _ = read_signals([task], Prompter(tiny_reader()))
    assert plain.scores == pytest.approx(raw.signals.total(), abs=1e-4)
    expected = smoothed(raw.states[0], raw.signals.total())
    for method in ("auto", "anchored"):
        found = rank_tasks([task], tiny_reader(), method)[0]
        assert found.scores == pytest.approx(expected, abs=1e-3)
    assert np.abs(expected - plain.scores).max() > 0.1
    short = dataclasses.replace(task, items=items[:7])
    one, other = (
        rank_tasks([short], tiny_reader(), options={"anchor": anchor})[0] for anchor in (True, False)
    )
    assert one.scores == pytest.approx(other.scores)


def test_criteria_are_pooled_apart():
    """Tasks of two criteria in one call: each criterion as if it were alone, in the order given."""
    age = Criterion("age", category="country")
    large, old = pool(SIZE, 4), pool(age, 2)
    mixed = [large[0], old[0], *large[1:3], old[1], large[3]]
    mixed = [dataclasses.replace(task, id=str(number)) for number, task in enumerate(mixed)]
    found = rank_tasks(mixed, tiny_reader())
    assert [one.task.id for one in found] == list("012345")
    alone = {**dict(zip((0, 2, 3, 5), rank_tasks(large, tiny_reader()), strict=True))}
    alone |= dict(zip((1, 4), rank_tasks(old, tiny_reader()), strict=True))
    for number, one in alone.items():
        assert found[number].scores == pytest.approx(one.scores, abs=1e-3)


def test_a_pooled_scale_scores_by_its_probe(tmp_path):
    """σ(wᵀx) of the states of its one layer, with the normalisation of all items of the pool, also from its file."""
    tasks = pool(SIZE)
    fit(tasks, model=tiny_reader(), method="anchored").save(tmp_path / "x.scale")
    scale = Scale.load(tmp_path / "x.scale", tiny_reader())
    [probe], scorer = scale.scorer.probes, scale.scorer
    raws, _ = read_signals([canonical(task)[0] for task in tasks], Prompter(tiny_reader()), with_states=True)
    place = middle_and_late(tiny_reader().depth).index(scorer.layers[0])
    position = ("item", "slot").index(scorer.position)
    states = [raw.states[position][:, place].astype(float) for raw in raws]
    every = np.concatenate(states)
    for task, own in zip(tasks, states, strict=True):
        expected = expit((own - every.mean(0)) / every.std(0) @ probe.weights)
        assert scale(canonical(task)[0].items) == pytest.approx(expected, abs=1e-4)
    assert scale.rank(tasks[0].items).directed
    assert len(scale) == 0


def test_a_model_without_head():
    """auto goes by states alone and knows of no agreement; what needs words is refused with a way out."""
    found = rank(ITEMS, PLAIN, model=tiny_reader(headless=True))
    assert set(found.details["signals"]) == {"axis"}
    assert found.to_json()["consistency"] == {"signals_agree": None, "signals_p_value": None}
    axis = rank(ITEMS, PLAIN, model=tiny_reader(headless=True), method="axis")
    assert kendall_tau(found.scores, axis.scores) == 1
    assert set(rank(ITEMS, SIZE, model=tiny_reader(headless=True)).details["signals"]) == {
        "axis",
        "exemplars",
    }
    assert fit(pool(SIZE), model=tiny_reader(headless=True), method="anchored").scorer.probes
    for method in ("poles", "likelihood"):
        with pytest.raises(CcrankError, match="no language-model head"):
            rank(ITEMS, SIZE, model=tiny_reader(headless=True), method=method)


def test_the_cost_is_what_was_read():
    """One list bears all that its reader spent; of several, the shares add up."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    assert rank(ITEMS, SIZE, model=reader).cost == reader.spent
    before = reader.spent
    shares = sum((one.cost for one in rank_tasks(pool(SIZE), reader)), Cost())
    for field in ("prompts", "prompt_tokens", "distinct_tokens"):
        total = getattr(reader.spent, field) - getattr(before, field)
        assert getattr(shares, field) == pytest.approx(total, abs=5)


def test_signals_by_item():
    """Signals stand by item, beside the poles, and their mean is the score of a short list."""
    for seed in range(6):
        reader = Reader(tiny_model("llama", seed=seed, max_position_embeddings=512))
        found = rank(ITEMS, PLAIN, model=reader)
        total = np.mean(
            [[signal[item] for item in ITEMS] for signal in found.details["signals"].values()], axis=0
        )
        assert found.scores == pytest.approx(total, abs=1e-3)
        assert found.details["poles"] == ["small", "large"]


def test_exemplars_can_be_left_out():
    """Then a list of a common criterion has the signals of any other: alone, in a pool, and with labels."""
    labels = {"labels": {ITEMS[0]: 3.0, ITEMS[3]: 1.0}}
    for tasks, options in (([Task(SIZE, ITEMS)], {}), ([Task(SIZE, ITEMS)], labels), (pool(SIZE), {})):
        found = rank_tasks(tasks, tiny_reader(), options=options)
        without = rank_tasks(tasks, tiny_reader(), options={"exemplars": False, **options})
        for one, other in zip(found, without, strict=True):
            assert set(one.details["signals"]) - set(other.details["signals"]) == {"exemplars"}
            assert one.scores != pytest.approx(other.scores)


ANIMALS = {
    "a blue whale": 140_000,
    "an elephant": 5_000,
    "a horse": 500,
    "a lion": 190,
    "a wolf": 45,
    "a fox": 6,
    "a rabbit": 2,
    "a mouse": 0.02,
    "an ant": 0.000003,
}


@pytest.mark.real
def test_the_default_ranks_animals_by_weight(default_reader):
    """The parts agree, and the order is far better than chance, with its direction."""
    found = rank(ANIMALS, "weight", category="animal", model=default_reader)
    assert found.consistency["signals_agree"] > 0
    assert kendall_tau(found.scores, [*ANIMALS.values()]) > 0.3


@pytest.mark.real
def test_the_default_reads_no_more_than_four_times_what_ratings_do(default_reader):
    """10 items, short names (countries) and long ones (buildings): distinct tokens against prompt-point's."""
    lists = [
        task for task in load_dataset("worldlists") if task.criterion.category in ("country", "building")
    ]
    assert {task.criterion.category for task in lists} == {"country", "building"}
    for kind in ("country", "building"):
        own = [task for task in lists if task.criterion.category == kind]
        names = list(dict.fromkeys(item for task in own for item in task.items))[:10]
        task = Task(own[0].criterion, tuple(names))
        assert len(names) == 10
        most, least = (
            rank_tasks([task], default_reader, method)[0].cost.distinct_tokens
            for method in ("auto", "prompt-point")
        )
        assert most <= 4 * least
