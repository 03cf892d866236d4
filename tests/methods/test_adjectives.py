"""Adjectives with several senses: the items and their category choose, and what is close is said."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest
from completion_server import serving
from fake import FakeReader
from phrase_table import TABLE
from tiny import tiny_reader

from ccrank import rank
from ccrank.criteria import criterion_of, understand
from ccrank.criteria.exemplars import exemplars_of
from ccrank.criteria.lexicon import known_adjectives
from ccrank.criteria.meaning import of_adjective, senses_of
from ccrank.methods.adjectives import CLOSE, USUAL, in_best_sense, with_senses
from ccrank.models.remote import RemoteReader
from ccrank.request import PreparedTask
from ccrank.task import Criterion, Task
from ccrank.util.files import parse_toml

PEPPERS = ("habanero", "bell pepper", "jalapeño", "poblano")
SENSES = parse_toml(resources.files("ccrank.criteria") / "senses.toml")


class Judge(FakeReader):
    """Finds one opposite likelier than all others."""

    def __init__(self, likely: str) -> None:
        super().__init__(lambda _, word: -1.0 if word == likely else -9.0)

    def read(self, prompts, candidates=None, layers=(), **options):
        return super().read(prompts, candidates, layers, **{**options, "log_probabilities": False})


def poles(phrase, likely, *, category="pepper", items=PEPPERS):
    task = Task(criterion_of(phrase, category=category), items)
    return with_senses([task], Judge(likely))[0].criterion.poles


@pytest.mark.parametrize("adjective", sorted(SENSES))
def test_every_sense_of_the_table_can_be_chosen(adjective):
    """Each sense is another scale, with the adjective first, and least of it last."""
    usual = of_adjective(adjective)
    senses = senses_of(usual)
    assert adjective in known_adjectives()
    assert len({sense.low for sense in (usual, *senses)}) == len(senses) + 1
    assert {sense.low for sense in senses} == {*SENSES[adjective]} - {usual.low}
    for sense in senses:
        assert sense.high == adjective
        assert poles(f"most {adjective}", sense.low) == (sense.low, adjective)
        assert poles(f"least {adjective}", sense.low) == (adjective, sense.low)


def test_the_sense_names_the_scale_and_the_rest_are_alternatives():
    """Hot peppers are ranked by spiciness; the lexicon's own sense is offered with the others."""
    [task] = with_senses([Task(criterion_of("hottest", category="pepper"), PEPPERS)], Judge("mild"))
    found = task.criterion.understood
    assert (task.criterion.name, task.criterion.category) == ("spiciness", "pepper")
    assert (found.source, found.certain, found.phrase) == ("sense", True, "hottest")
    assert ("cold", "hot") in [other.poles for other in found.alternatives]
    assert found.to_json()["alternatives"][0].keys() == {"first", "poles"}


def test_a_sense_is_chosen_once_for_all_lists_of_a_criterion():
    """Lists of one criterion share a sense, and a prepared task is not asked about again."""
    reader = Judge("mild")
    lists = [Task(Criterion("hot"), PEPPERS[:2]), Task(Criterion("hot"), PEPPERS[2:])]
    tasks = with_senses(lists, reader)
    assert {task.criterion.poles for task in tasks} == {("mild", "hot")}
    assert reader.readings == 1
    assert all(item in reader.asked[0] for item in PEPPERS)
    assert with_senses(tasks, reader) == tasks
    assert reader.readings == 1


def test_nothing_is_asked_about_words_with_one_sense():
    """Nouns, given poles and adjectives with one opposite cost nothing."""
    reader = Judge("mild")
    for criterion in (
        criterion_of("price"),
        criterion_of("cheapest"),
        criterion_of("hot", poles=("cold", "hot")),
    ):
        assert with_senses([Task(criterion, PEPPERS)], reader)[0].criterion == criterion
    assert reader.readings == 0


def test_the_order_of_the_items_does_not_matter():
    """The model sees the items in one order."""
    readers = [Judge("mild"), Judge("mild")]
    for reader, items in zip(readers, (PEPPERS, PEPPERS[::-1]), strict=True):
        with_senses([Task(criterion_of("hot"), items)], reader)
    assert readers[0].asked == readers[1].asked


def test_what_the_phrase_says_the_items_are_counts_as_the_category():
    """ "Hottest pepper" asks about peppers."""
    reader = Judge("mild")
    with_senses([Task(criterion_of("hottest pepper"), PEPPERS)], reader)
    assert "Some peppers are very hot, others are very _" in reader.asked


def test_close_senses_leave_a_doubt_and_the_usual_one_has_the_benefit():
    """A warning names the poles of the runner-up; a difference above the threshold leaves none."""
    criterion = criterion_of("hot")
    senses = [criterion.understood, *criterion.understood.alternatives]
    low = [-50.0] * (len(senses) - 2)
    even = in_best_sense(criterion, [-3.0, -3.0, *low])
    assert even.poles == ("cold", "hot")
    assert "--poles mild hot" in even.understood.warning
    other = in_best_sense(criterion, [-3.0, -3.0 + USUAL + CLOSE / 2, *low])
    assert other.poles == ("mild", "hot")
    assert "--poles cold hot" in other.understood.warning
    assert in_best_sense(criterion, [-3.0, -3.0 + USUAL + 2 * CLOSE, *low]).understood.certain


def test_a_model_behind_a_server_is_asked_a_few_words():
    """It is asked for the opposites of one adjective alone, and says what the same model says here."""
    here = tiny_reader()
    criterion = criterion_of("hottest", category="pepper")
    with serving(here, "llamacpp") as server:
        reader = RemoteReader.open(f"openai:{server.url}")
        [remote] = with_senses([Task(criterion, PEPPERS)], reader)
    [local] = with_senses([Task(criterion, PEPPERS)], here)
    assert remote.criterion.understood == local.criterion.understood
    assert reader.spent.prompts == 3


@pytest.mark.parametrize(("phrase", "first"), [("hot", "hot"), ("least hot", "mild")])
def test_the_poles_that_are_offered_are_taken(phrase, first):
    """Each alternative's poles, given with the phrase, mean that alternative: scale, direction and no warning."""
    for other in understand(phrase).alternatives:
        found = criterion_of(phrase, poles=other.poles)
        assert (found.name, found.poles, found.reversed) == (other.name, other.poles, other.reversed)
        assert found.understood.warning is None
    assert understand(phrase).alternatives[0].poles[1] == first


@pytest.mark.real
@pytest.mark.parametrize(("part", "least"), [("choose", 0.95), ("kept", 0.8)])
def test_the_default_model_chooses_the_sense_that_fits(default_reader, part, least):
    """It is right far more often than the usual sense, and more often than not in doubt where it is wrong or right."""
    right, usual = [], []
    for phrase, category, items, opposites in TABLE["senses"][part]:
        task = Task(criterion_of(phrase, category=category), tuple(items))
        chosen = PreparedTask.of(task, default_reader).task.criterion.understood
        right.append(chosen.poles[0] in opposites.split())
        usual.append(task.criterion.understood.poles[0] in opposites.split())
    assert np.mean(right) >= least
    assert np.mean(right) > np.mean(usual) + 0.25


@pytest.mark.real
def test_a_dry_wine_is_not_sweet(default_reader):
    """Through the whole path, and the very order of the poles given by hand."""
    wines = ("Riesling Auslese", "Muscadet", "Sauternes", "Chablis")
    found = rank(wines, "driest", category="wine", model=default_reader)
    assert found.understood.poles == ("sweet", "dry")
    given = rank(wines, "driest", category="wine", poles=("sweet", "dry"), model=default_reader)
    assert np.allclose(found.scores, given.scores, atol=1e-5)


def test_a_scale_of_people_and_of_things_has_a_name_that_fits_both():
    """A student and a colour are dull or bright: the name is neither's alone, and no light is an exemplar of it."""
    task = Task(criterion_of("brightest", category="student"), ("Tom", "Sarah", "Peter"))
    [found] = with_senses([task], Judge("dull"))
    assert (found.criterion.poles, found.criterion.name) == (("dull", "bright"), "brilliance")
    assert exemplars_of(found.criterion, "things") is None
