"""The routes against the model asked by hand, and against planted directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_model, tiny_reader

from ccrank.criteria.lexicon import poles_of
from ccrank.errors import CcrankError
from ccrank.methods.labelfree.combine import POLES, axis_direction, axis_of, written_of
from ccrank.methods.labelfree.signals import (
    Plan,
    Wording,
    are_sentences,
    exemplars,
    read_raw,
    wordings_of,
)
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import middle_and_late
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task
from ccrank.util.zscores import z_scores

TEMPLATES = load_templates()
SIZE = Criterion("size", poles=("small", "large"), category="country")
TASKS = [
    Task(SIZE, ("Russia", "Chad", "the new tower"), id="one"),
    Task(Criterion("how zorby it is"), ("Peru", "a fox"), id="two"),
    Task(SIZE, ("Canada", "Brazil", "Monaco", "dog"), "The tower is high.", id="three"),
]


@torch.no_grad()
def said(prompt, answer):
    """log p(answer | prompt), token by token, by the plain model: (k,) for its k tokens."""
    loaded = tiny_reader().loaded
    start = loaded.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    whole = loaded.tokenizer(f"{prompt} {answer}", add_special_tokens=False)["input_ids"]
    assert whole[: len(start)] == start
    begin = [] if loaded.bos is None else list(np.atleast_1d(loaded.bos))
    logits = loaded.model(torch.tensor([begin + whole])).logits[0].double().log_softmax(-1)
    places = range(len(begin) + len(start), len(begin) + len(whole))
    return np.array([logits[place - 1, (begin + whole)[place]].item() for place in places])


def read_with(tasks, plan, reader=None, templates=TEMPLATES):
    """What a plan reads to fit tasks."""
    raws, _ = read_raw(tasks, [plan] * len(tasks), Prompter(reader or tiny_reader(), templates), fitting=True)
    return raws


def context_of(task):
    return f"{task.context}\n\n" if task.context else ""


def test_poles_are_log_odds_of_the_ends_words():
    """log Σ p(high words) − log Σ p(low words) behind the prompt, several tasks with ends of unlike length at once."""
    found = [raw.values[POLES] for raw in read_with(TASKS, Plan(poles=True))]
    for task, scores in zip(TASKS, found, strict=True):
        ends, many = poles_of(task.criterion), "countries" if task.criterion.category else "items"
        for item, score in zip(task.items, scores, strict=True):
            asked = (
                f"Compared to other {many} in terms of {task.criterion.name}, {item} is considered extremely"
            )
            prompt = context_of(task) + asked
            high, low = (
                sum(np.exp(said(prompt, word).sum()) for word in end) for end in (ends.high, ends.low)
            )
            assert score == pytest.approx(np.log(high / low), abs=2e-3)


WORDINGS = {
    "such-as": "In terms of {name}, there are many very {word} {many}, such as",
    "considered": "In terms of {name}, there are many {many} considered very {word}, such as",
    "list-of": "Here is a list of very {word} {many}:",
    "that-are": "Here is a list of {many} that are very {word}:",
    "this-is": "This is a very {word} {kind}:",
}


def asked(task, template, word, context=True):
    """A wording about one end, as a reader would write it."""
    many = "countries" if task.criterion.category else "items"
    words = {"name": task.criterion.name, "word": word, "many": many, "kind": task.criterion.kind}
    return (context_of(task) if context else "") + WORDINGS[template].format(**words)


@pytest.mark.parametrize("template", WORDINGS)
def test_likelihood_is_the_contrast_of_both_ends(template):
    """log p(item | the high end is named) − log p(item | the low end is), for every wording."""
    found = [raw.values for raw in read_with(TASKS, Plan(wordings=(Wording(template),)))]
    for task, scores in zip(TASKS, found, strict=True):
        ends = poles_of(task.criterion)
        assert [*scores] == [template]
        for item, score in zip(task.items, scores[template], strict=True):
            high, low = (
                said(asked(task, template, word), item).sum() for word in (ends.high[0], ends.low[0])
            )
            assert score == pytest.approx(high - low, abs=2e-3)


def test_likelihood_per_token():
    """Against nothing: the mean log-probability of the item's tokens, so that long names do not lose."""
    found = [raw.values for raw in read_with(TASKS, Plan(wordings=(Wording("this-is", "nothing"),)))]
    for task, scores in zip(TASKS, found, strict=True):
        word = poles_of(task.criterion).high[0]
        for item, score in zip(task.items, scores["this-is"], strict=True):
            assert score == pytest.approx(said(asked(task, "this-is", word), item).mean(), abs=2e-3)


def test_likelihood_against_no_context():
    """What the context adds to the item's log-probability, per token; without one there is nothing to add."""
    [found] = [raw.values for raw in read_with(TASKS[2:], Plan(wordings=(Wording("this-is", "context"),)))]
    for item, score in zip(TASKS[2].items, found["this-is"], strict=True):
        told, bare = (said(asked(TASKS[2], "this-is", "large", context), item) for context in (True, False))
        assert len(told) == len(bare)
        assert score == pytest.approx((told - bare).mean(), abs=2e-3)
    with pytest.raises(CcrankError, match="no context"):
        read_with(TASKS, Plan(wordings=(Wording("this-is", "context"),)))
    with pytest.raises(CcrankError, match="low, context, nothing"):
        Wording("this-is", "high")


def test_names_texts_and_contexts_are_asked_for_in_their_own_words():
    """Names after "such as", texts after a colon, and with a context what the context makes likely."""
    names, texts, told = (
        [wording.template for wording in wordings_of(task)]
        for task in (TASKS[0], Task(SIZE, ("So good! " * 20, "So bad. " * 20)), TASKS[2])
    )
    assert (names, texts, told) == (["such-as", "considered"], ["list-of"], ["that-are", "this-is"])


@pytest.mark.parametrize("plan", [Plan(poles=True, layers=(2,)), Plan(wordings=(Wording("such-as"),))])
def test_tasks_do_not_touch_each_other(plan):
    """Read together or alone, a task has the same scores."""
    for task, raw in zip(TASKS, read_with(TASKS, plan), strict=True):
        [alone] = read_with([task], plan)
        for name, scores in raw.values.items():
            assert scores == pytest.approx(alone.values[name], abs=1e-4)


def axis_scores(states, count, others=None):
    """Scores of the first items by the axis of the exemplars that follow them; at both positions alike by default."""
    both = (states, states if others is None else others)
    own = tuple(one[:count] for one in both)
    scores = axis_of(tuple(one[count:] for one in both), own)(*own)
    return scores / 2 if others is None else scores


def exemplar_scores(slot, item, count, made):
    """Scores of the first items by a probe of the texts from place `made` on."""
    own = item[:count], slot[:count]
    return written_of((item[made:], slot[made:]), own)(*own)


def test_the_axis_is_that_of_both_positions():
    """The item's last token and the slot count the same; the states of both come along."""
    for task, raw in zip(TASKS, read_with(TASKS, Plan(layers=(1, 2))), strict=True):
        assert not raw.values
        item, slot = raw.states
        scores = raw.axis(item, slot)
        prompts = [TEMPLATES.single(task, place, template="poles") for place in range(len(task.items))]
        made_up = exemplars(task, poles_of(task.criterion), TEMPLATES["poles"])
        prompts += [TEMPLATES.exemplar(task, text, template="poles") for text in made_up]
        found = tiny_reader().read(prompts, layers=[1, 2], items=True)
        count = len(task.items)
        assert slot == pytest.approx(found.states[:count], abs=1e-4)
        assert item == pytest.approx(found.item_states[:count], abs=1e-4)
        expected = axis_scores(found.states, count) + axis_scores(found.item_states, count)
        assert scores == pytest.approx(expected, abs=1e-3)


def test_numbers_that_are_none_are_refused():
    """A model that overflows says so, instead of an order made of nothing."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    with torch.no_grad():
        loaded.model.lm_head.weight.fill_(float("nan"))
    for plan in (Plan(poles=True), Plan(wordings=wordings_of(TASKS[0]))):
        with pytest.raises(CcrankError, match=r"task .one..*not all finite.*--dtype float32"):
            read_with(TASKS[:1], plan, Reader(loaded))


def planted(seed, items=8, layers=3, width=16, noise=0.1):
    """States along one direction per layer, with exemplars at its two ends. -> states, places of the items"""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(layers, width))
    place = rng.permutation(np.linspace(-1, 1, items))
    ends = np.array([2.0, 1.5, -2.0, -1.5])
    states = np.concatenate([place, ends])[:, None, None] * direction
    return states + noise * rng.normal(size=states.shape), place


@given(st.integers(0, 1000))
def test_axis_recovers_a_planted_direction(seed):
    """The projections follow the places of the items, with their sign."""
    states, place = planted(seed)
    assert np.corrcoef(axis_scores(states, len(place)), place)[0, 1] > 0.9


@given(st.integers(0, 1000), st.floats(-50, 50), st.floats(0.1, 20))
def test_axis_does_not_see_shift_or_scale(seed, shift, scale):
    """What all states have in common, and how long they are in a layer, makes no difference; other ends turn it."""
    states, place = planted(seed)
    rng = np.random.default_rng(seed)
    moved = states * scale + shift * rng.normal(size=(1, *states.shape[1:]))
    scores = axis_scores(states, len(place))
    assert axis_scores(moved, len(place)) == pytest.approx(scores, abs=1e-8)
    turned = np.concatenate([states[:8], states[10:], states[8:10]])
    assert axis_scores(turned, len(place)) == pytest.approx(-scores, abs=1e-10)


def test_axis_without_a_direction_says_nothing():
    """Exemplars of both ends in one place: all items score 0, and nothing breaks."""
    states, place = planted(0)
    states[8:] = 1.0
    assert axis_scores(states, len(place)) == pytest.approx(0)


def test_made_up_items():
    """As many of each end, the high end first, also where an end has one word only."""
    assert exemplars(TASKS[0], poles_of(SIZE), TEMPLATES["poles"]) == [
        "a very large country",
        "a very big country",
        "a very small country",
        "a very little country",
    ]
    made = exemplars(TASKS[1], poles_of(TASKS[1].criterion), TEMPLATES["poles"])
    assert made[:2] == ["a very zorby item"] * 2
    assert len(made) == 4


def test_made_up_items_in_another_language(tmp_path):
    """A file of templates says how an item is made up, and the axis reads that."""
    path = tmp_path / "german.toml"
    path.write_text(
        '[poles]\ntext = "{item} ist sehr {slot}"\nexemplar = "{category} ({pole})"', encoding="utf-8"
    )
    german = load_templates(path)
    assert exemplars(TASKS[0], poles_of(SIZE), german["poles"])[0] == "country (large)"
    english = load_templates(changes=["poles={item} ist sehr {slot}"])
    [ours], [theirs] = (read_with(TASKS[:1], Plan(layers=(2,)), templates=one) for one in (german, english))
    np.testing.assert_allclose(ours.states[1], theirs.states[1], atol=1e-5)  # the items' prompts are the same
    ours, theirs = (one.axis(*one.states) for one in (ours, theirs))
    assert np.abs(ours - theirs).max() > 1e-3


@given(st.integers(1, 200))
def test_layers_from_the_middle_on(depth):
    """The last layer is always among them, none is from the first third, every second is left out."""
    layers = middle_and_late(depth)
    assert layers[-1] == depth
    assert layers[0] in (depth // 3, depth // 3 + 1)
    assert set(np.diff(layers)) <= {2}


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.floats(-9, 9), st.floats(0.01, 9))
def test_standard_scores(values, shift, scale):
    """Mean 0 and deviation 1, whatever the unit; 0 where all are equal."""
    scores = np.array(values)
    found = z_scores(scores)
    assert found.mean() == pytest.approx(0, abs=1e-6)
    if scores.std() > 1e-3:
        assert found.std() == pytest.approx(1)
        assert z_scores(scores * scale + shift) == pytest.approx(found, abs=1e-5)
    assert not z_scores(np.full(3, shift)).any()


def with_texts(seed=0, texts=14, count=30, layers=3, width=40):
    """Items and exemplar texts whose states have a planted direction, beside noise; and the items' places on it."""
    rng = np.random.default_rng(seed)
    direction, place = rng.standard_normal((layers, width)), rng.standard_normal(count)
    poles = np.repeat([1.0, -1.0], texts)
    tables = []
    for _ in range(2):
        own = np.concatenate([place, poles])[:, None, None] * direction
        tables.append((own + 2 * rng.standard_normal(own.shape)).astype(np.float32))
    return tables, place, count


def test_exemplar_scores_find_a_planted_direction():
    """A probe that was fitted to the exemplars alone orders the items; exchanged poles reverse it exactly."""
    (slot, item), place, count = with_texts()
    scores = exemplar_scores(slot, item, count, count)
    assert np.corrcoef(scores, place)[0, 1] > 0.9
    half = (len(slot) - count) // 2
    order = [*range(count), *range(count + half, count + 2 * half), *range(count, count + half)]
    assert exemplar_scores(slot[order], item[order], count, count) == pytest.approx(-scores, abs=1e-9)


def test_exemplar_scores_do_not_depend_on_units_of_the_states():
    """Dimensions are standardised by the exemplars, so that a large one does not decide; a constant one is ignored."""
    (slot, item), _, count = with_texts()
    scale = np.geomspace(0.1, 100, slot.shape[2]).astype(np.float32)
    scores = exemplar_scores(slot, item, count, count)
    assert exemplar_scores(slot * scale + 5, item * scale, count, count) == pytest.approx(scores, abs=1e-3)
    constant = [
        np.concatenate([one, np.full((*slot.shape[:2], 1), 7, np.float32)], axis=2) for one in (slot, item)
    ]
    assert exemplar_scores(*constant, count, count) == pytest.approx(scores, abs=0.05)


def test_what_counts_as_a_sentence():
    """Names do not, short sentences and long words' texts do."""
    assert not are_sentences(["Russia", "Chad"])
    assert not are_sentences(["the tall tower", "a very large country"])
    assert are_sentences(["Could you send me the map?", "Give me that map right now."])
    assert are_sentences(["Donaudampfschifffahrtsgesellschaft" * 2])


def test_poles_that_read_alike_have_no_direction():
    """States of both poles that differ by rounding alone give no direction, not one of rounding errors; others are unit
    vectors."""
    states = np.random.default_rng(0).normal(size=(6, 2, 8)).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(axis_direction(states), axis=1), 1)
    states[3:] = states[:3] * np.float32(1 + 1e-7)
    assert (states[3:] != states[:3]).any()
    assert (axis_direction(states) == 0).all()
