"""Layer and template chosen without labels: the rule, and the probes that follow it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import kendalltau
from tiny import tiny_reader

from ccrank.api import fit, rank_tasks
from ccrank.errors import CcrankError
from ccrank.methods.probe_pipeline import rankers, states
from ccrank.methods.probe_pipeline.rankers import agreement, closest_to_anchors
from ccrank.methods.probe_pipeline.states import read_anchors
from ccrank.models import Cost
from ccrank.models.prompter import Prompter
from ccrank.models.reader_like import parse_layers
from ccrank.prompts import load_templates
from ccrank.ranking import canonical
from ccrank.scale import Scale
from ccrank.scale.stored import Known
from ccrank.task import Criterion, Task

SIZE = Criterion("size", poles=("small", "large"), category="country")
TASKS = [
    canonical(Task(SIZE, items, values=tuple(map(float, range(len(items)))), id=f"task {number}"))[0]
    for number, items in enumerate(
        [("Russia", "Canada", "Brazil", "Chad", "Peru", "Monaco"), ("red", "fox", "dog", "tower", "bridge")]
    )
]
LAYERS = (2, 4, 6)


def ranked(method, **options):
    return rank_tasks(TASKS, tiny_reader(num_hidden_layers=6), method, options={"seeds": 2, **options})


def same(first, second):
    return all(
        np.allclose(one.scores, other.scores, atol=1e-5) for one, other in zip(first, second, strict=True)
    )


def test_agreement_is_the_mean_of_scipys_tau():
    """Ties on either side, all-tied rows and rows of several tasks included; the direction plays no part."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        anchors = [generator.integers(0, 6, size).astype(float) for size in (2, 5, 9)]
        scores = [generator.integers(0, 4, (3, len(anchor))).astype(float) for anchor in anchors]
        wanted = np.nan_to_num(
            [
                abs(kendalltau(row, anchor).statistic)
                for own, anchor in zip(scores, anchors, strict=True)
                for row in own
            ]
        ).mean()
        assert agreement(scores, anchors) == pytest.approx(wanted)
        assert agreement([-one for one in scores], anchors) == pytest.approx(wanted)


def test_the_closest_is_taken_and_of_equals_the_last():
    """A candidate that contains the anchors, even reversed, is chosen over noise; one that failed is never chosen."""
    generator = np.random.default_rng(1)
    anchors = [generator.normal(size=8) for _ in range(4)]
    noise = [[generator.normal(size=(2, 8)) for _ in anchors] for _ in range(3)]
    planted = [np.stack([-anchor, 0.1 * anchor]) for anchor in anchors]
    for place in range(4):
        assert closest_to_anchors([*noise[:place], planted, *noise[place:]], anchors) == place
    assert closest_to_anchors([planted, noise[0], planted, noise[1]], anchors) == 2
    broken = [one.copy() for one in planted]
    broken[3][0, 0] = np.nan
    assert closest_to_anchors([noise[0], broken], anchors) == 0


def test_layers_are_named_once_and_from_zero():
    """Negative numbers, repeats and names give the numbers of layers; what the model lacks is refused."""
    assert parse_layers("last", tiny_reader(num_hidden_layers=6)) == [6]
    assert parse_layers("all", tiny_reader(num_hidden_layers=6)) == [1, 2, 3, 4, 5, 6]
    assert parse_layers("auto", tiny_reader(num_hidden_layers=6)) == list(LAYERS)
    assert parse_layers("-1,6,2,-5", tiny_reader(num_hidden_layers=6)) == [6, 2]
    assert parse_layers("-7", tiny_reader(num_hidden_layers=6)) == [0]
    for wrong in ("7", "-8", "2,7"):
        with pytest.raises(CcrankError, match=r"there is no layer -?[78]: tiny-llama has 0 to 6"):
            parse_layers(wrong, tiny_reader(num_hidden_layers=6))
    with pytest.raises(CcrankError, match="last, all, auto or a number from 0 to 6, not 'best'"):
        parse_layers("best", tiny_reader(num_hidden_layers=6))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("template", ["single", "poles"])
def test_the_pair_that_carries_the_anchors_is_found(monkeypatch, template, layer):
    """Anchors that are one pair's very scores: auto takes that pair, and its scores are those asked for by name."""
    wanted = ranked("pca", layer=str(layer), template=template)
    anchors = [-one.scores for one in wanted]
    monkeypatch.setattr(states, "read_anchors", lambda *_, **__: (anchors, [Cost()] * len(TASKS)))
    found = ranked("pca", layer="auto", template="auto")
    assert {(one.details["template"], one.details["layer"]) for one in found} == {(template, layer)}
    scorer = fit(TASKS[:1], method="pca", model=tiny_reader(num_hidden_layers=6)).scorer
    assert (scorer.template, scorer.layers) == ("single", (6,))
    assert same(found, wanted)


@pytest.mark.parametrize("method", ["margin", "sup-margin", "ccs-pair", "sup-ordreg"])
def test_every_probe_takes_the_layer_that_carries_the_anchors(monkeypatch, method):
    """Probes on pairs and supervised ones too: the choice depends on the anchors only, not on gold."""
    options = {"epochs": "20", "protocol": "leave-one-out" if method.startswith("sup-") else "same-task"}
    seeds = {}

    def keep(*arguments):
        scores, *rest = seed_scores(*arguments)
        seeds.setdefault("scores", []).append(scores)
        return scores, *rest

    seed_scores = rankers.seed_scores
    monkeypatch.setattr(rankers, "seed_scores", keep)
    wanted = ranked(method, layer="4", **options)
    anchors = [scores[1] for scores in seeds["scores"][0]]  # of one seed, so that no layer agrees in full
    monkeypatch.setattr(states, "read_anchors", lambda *_, **__: (anchors, [Cost()] * len(TASKS)))
    found = ranked(method, layer="auto", **options)
    means = [agreement(scores, anchors) for scores in seeds["scores"][1:]]
    best = LAYERS[len(means) - 1 - int(np.argmax(means[::-1]))]
    assert {one.details["layer"] for one in found} == {best}
    assert same(found, wanted if best == 4 else ranked(method, layer=str(best), **options))
    assert found[0].details["template"] == ("pair" if method.endswith("-pair") else "single")


@pytest.mark.parametrize(
    ("asked", "candidates"),
    [
        ({"layer": "auto"}, [("single", str(layer)) for layer in LAYERS]),
        ({"layer": "auto", "template": "poles"}, [("poles", str(layer)) for layer in LAYERS]),
        ({"layer": "last", "template": "auto"}, [("poles", "last"), ("single", "last")]),
        (
            {"layer": "auto", "template": "auto"},
            [(template, str(layer)) for template in ("poles", "single") for layer in LAYERS],
        ),
    ],
)
def test_auto_is_the_best_of_what_can_be_asked_for(asked, candidates):
    """The answer is that of the candidate, asked for by name, that agrees best with the anchors that were read."""
    anchors, _ = read_anchors(TASKS, Prompter(tiny_reader(num_hidden_layers=6)))
    answers = [ranked("pca", template=template, layer=layer) for template, layer in candidates]
    means = [
        np.mean(
            [abs(kendalltau(one.scores, own).statistic) for one, own in zip(answer, anchors, strict=True)]
        )
        for answer in answers
    ]
    best = max(range(len(means)), key=lambda place: (means[place], place))
    found = ranked("pca", **asked)
    assert same(found, answers[best])
    assert [one.details for one in found] == [one.details for one in answers[best]]


def test_the_template_can_be_chosen_for_layers_that_are_joined():
    """layer=all with template=auto is all layers of one of the templates."""
    found = ranked("pca", layer="all", template="auto")
    assert found[0].details["layer"] == list(range(1, 7))
    assert same(found, ranked("pca", layer="all", template=found[0].details["template"]))


def test_cost_counts_all_that_was_read():
    """The candidates that were not taken and the anchors too: tasks' shares add up to what the reader spent."""
    for options in ({"layer": "auto"}, {"layer": "auto", "template": "auto"}, {"template": "poles"}):
        before = tiny_reader(num_hidden_layers=6).spent
        found = ranked("pca", **options)
        after, total = tiny_reader(num_hidden_layers=6).spent, sum((one.cost for one in found), Cost())
        for field in dataclasses.fields(Cost):
            spent = getattr(after, field.name) - getattr(before, field.name)
            assert spent > 0
            assert getattr(total, field.name) == pytest.approx(spent, abs=6)


def test_what_has_no_such_template_is_refused():
    """Probes on pairs have none; a template that is not there, not of single items or without them is named."""
    for template in ("auto", "poles"):
        with pytest.raises(CcrankError, match="ccs-pair reads pairs of items"):
            ranked("ccs-pair", template=template)
    with pytest.raises(CcrankError, match=r"no template 'mine'; .*there are"):
        ranked("pca", template="mine")
    with pytest.raises(CcrankError, match=r"template 'pair' needs \{item\}"):
        ranked("pca", template="pair")
    itemless = load_templates(changes=["mine=The {name} of it is {slot}"])
    with pytest.raises(CcrankError, match=r"template 'mine' needs \{item\}"):
        rank_tasks(TASKS, tiny_reader(num_hidden_layers=6), "pca", itemless, options={"template": "mine"})


@pytest.mark.parametrize(
    ("method", "template"), [("margin", "poles"), ("pca", "mine"), ("ccs-pair", "single")]
)
def test_a_saved_probe_reads_in_the_words_it_was_fitted_on(tmp_path, method, template):
    """A scale scores other items in the wording of its fit, though the templates have since been changed."""
    changes = ["mine={item}, seen for its {name}, is {slot}", "pair={item_b} or {item_a}? {slot}"]
    reader = tiny_reader(num_hidden_layers=6)
    fitted = fit(
        TASKS[:1],
        model=reader,
        method=method,
        templates=load_templates(changes=changes),
        options={"template": template, "seeds": 2, "epochs": 20},
    )
    fitted.save(tmp_path / "x.scale")
    again = Scale.load(tmp_path / "x.scale", reader)
    assert again.scorer.template == ("pair" if method == "ccs-pair" else template)
    unknown = dataclasses.replace(again, known=Known.none())
    items = TASKS[0].items
    scores = unknown.rank(items).scores
    assert np.abs(scores - fitted.ranking.scores).max() < 1e-5
    assert np.ptp(scores) > 1e-3


@pytest.mark.parametrize("layer", ["all", "2,4"])
def test_the_consensus_of_layers_scores_other_items(layer):
    """Of several layers' probes the scale keeps the weights of their consensus: on its own items it gives their scores,
    and one by one as together."""
    reader = tiny_reader(num_hidden_layers=6)
    scale = fit(TASKS[:1], model=reader, method="pca", options={"layer": layer})
    unknown = dataclasses.replace(scale, ranking=None, known=Known.none())
    items = TASKS[0].items
    np.testing.assert_allclose(unknown(items), scale.ranking.scores, atol=1e-5)
    assert unknown(items[:1])[0] == pytest.approx(scale.ranking.scores[0], abs=1e-5)
