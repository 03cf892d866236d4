"""Query likelihood against the plain model, on every family, and by the best passage of long documents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import FAMILIES, MASKED, tiny_model, tiny_reader

import ccrank
from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.methods.estimate import CountingReader, expected_cost
from ccrank.methods.query_likelihood import WORDINGS, query_likelihood
from ccrank.methods.registry import METHODS
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task

QUERY = "the large tower is high"
DOCUMENTS = (
    "The old stone bridge is taller than the new tower.",
    "Most students selected blue, followed by red.",
    "The quick brown fox jumps over the lazy dog. The dog is small.",
    "Russia",
)
TASK = Task.of_query(QUERY, DOCUMENTS, id="towers")
OTHER = Task.of_query("Is the fox small", DOCUMENTS[1:], id="foxes")
WITH_CONTEXT = Task.of_query("blue red", DOCUMENTS[:2], context="On a scale.", id="with a context")


def scores_of(tasks, reader, **options):
    return [ranking.scores for ranking in rank_tasks(tasks, reader, "query-likelihood", options=options)]


@torch.no_grad()
def said(reader, prompt, answer):
    """log p of each token of the answer after the prompt, by the plain causal model."""
    loaded = reader.loaded
    start = loaded.tokenizer(prompt.rstrip(" "), add_special_tokens=False)["input_ids"]
    whole = loaded.tokenizer(prompt + answer, add_special_tokens=False)["input_ids"]
    assert whole[: len(start)] == start
    ids = [*loaded.bos, *whole]
    logits = loaded.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    places = range(len(loaded.bos) + len(start), len(ids))
    return np.array([logits[place - 1, ids[place]].item() for place in places])


def test_the_score_is_the_gain_per_token():
    """The mean over wordings of log p(token | document) − log p(token), weighted by √(−log p(token)), by hand."""
    reader = tiny_reader()
    templates = load_templates()
    for task, scores in zip([TASK, OTHER], scores_of([TASK, OTHER], reader), strict=True):
        for item, score in zip(task.items, scores, strict=True):
            gains = []
            for name in WORDINGS:
                cue = templates[name].text.split("{item}")[1].removesuffix("{slot}")
                told, bare = said(reader, item + cue, task.query), said(reader, cue.lstrip(), task.query)
                gains.append(np.average(told - bare, weights=np.sqrt(-bare)))
            assert score == pytest.approx(np.mean(gains), abs=2e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_equals_one_by_one(family):
    """On every family: all tasks in one reading give the scores of each task alone, read prompt by prompt."""
    loaded = tiny_model(family, **({} if family == "t5" else {"max_position_embeddings": 512}))
    tasks = [TASK, OTHER, WITH_CONTEXT]
    together = scores_of(tasks, Reader(loaded, batch_tokens=256))
    for task, scores in zip(tasks, together, strict=True):
        [alone] = scores_of([task], Reader(loaded, path="one"))
        np.testing.assert_allclose(scores, alone, atol=1e-4)
        assert np.std(scores) > 1e-4


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_masked_models_give_pseudo_log_likelihoods(family, monkeypatch):
    """Each word of the query is predicted between the others."""
    asked = []
    monkeypatch.setattr(
        CountingReader,
        "read",
        lambda self, prompts, candidates, *_, **how: asked.extend(zip(prompts, candidates, strict=True)),
    )
    with pytest.raises(AttributeError):  # nothing was read
        query_likelihood([TASK], Prompter(CountingReader(tiny_reader(family))))
    words = QUERY.split()
    assert [answer for _, [answer] in asked[: len(words)]] == words
    texts = [prompt.text for prompt, _ in asked]
    assert len(texts) == len(words) * len(WORDINGS) * (1 + len(DOCUMENTS))
    assert any(text.endswith("finds this text: _ large tower is high") for text in texts)
    assert any(text.endswith("finds this text: the large _ is high") for text in texts)
    assert np.isfinite(scores_of([TASK], tiny_reader(family))[0]).all()


@pytest.mark.parametrize("family", ["llama", MASKED[0], "t5"])
def test_a_long_document_has_the_score_of_its_best_passage(family):
    """A document longer than the window is as relevant as its most relevant passage, which is reported."""
    reader = tiny_reader(family)
    filler = "Most students selected blue, followed by red. " * 60
    long = Task.of_query(QUERY, (filler + DOCUMENTS[0] + " " + filler, DOCUMENTS[1]), id="long")
    assert reader.count_tokens(long.items)[0] > 512
    [ranking] = rank_tasks([long], reader, "query-likelihood", options={"passage": 64})
    [best] = ranking.details["best_passages"].values()
    assert reader.count_tokens([best])[0] <= 64 + 8
    [alone] = scores_of([Task.of_query(QUERY, (best, DOCUMENTS[1]))], reader)
    np.testing.assert_allclose(ranking.scores, alone, atol=1e-4)
    [whole] = scores_of([long], reader)  # passages of the default length fit the window too
    assert np.isfinite(whole).all()


def test_wordings_share_the_document():
    """A second wording adds its own words and the query, not the document."""
    reader = tiny_reader()
    costs = [
        rank_tasks([TASK], reader, "query-likelihood", options={"wordings": names})[0].cost
        for names in ("query-question", "query-question,query-short")
    ]
    added = costs[1].distinct_tokens - costs[0].distinct_tokens
    assert added < (len(DOCUMENTS) + 1) * (reader.count_tokens([f"\n\nQuery: {QUERY}"])[0] + 1)
    assert costs[1].computed_tokens == costs[1].distinct_tokens < costs[1].prompt_tokens


def test_the_cost_is_known_before():
    """The prompts and distinct tokens that `ccrank cost` and progress bars count are those that are read."""
    reader = tiny_reader()
    expected = expected_cost(TASK, reader, METHODS["query-likelihood"], load_templates())
    [ranking] = rank_tasks([TASK], reader)
    assert ranking.cost.prompts == expected.prompts == 3 * len(DOCUMENTS) + 3
    assert ranking.cost.distinct_tokens == expected.distinct_tokens


def test_auto_takes_query_likelihood_for_a_query():
    """Tasks with a query are ranked as by `query-likelihood`, others beside them as without."""
    reader = tiny_reader()
    plain = Task(Criterion("size"), ("Russia", "Chad", "Peru"), id="plain")
    mixed = rank_tasks([plain, TASK], reader)
    np.testing.assert_allclose(mixed[1].scores, scores_of([TASK], reader)[0], atol=1e-6)
    np.testing.assert_allclose(mixed[0].scores, rank_tasks([plain], reader)[0].scores, atol=1e-4)
    assert ccrank.rank(DOCUMENTS, query=QUERY, model=reader).task.query == QUERY


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"by": "size", "query": QUERY}, "a query is the criterion; leave out by"),
        ({"query": QUERY, "category": "city"}, "leave out category"),
        ({}, "no criterion: give one .* or a query"),
        ({"query": "  "}, "query must be a question or keywords, got '  '"),
        ({"query": QUERY, "labels": {DOCUMENTS[0]: 1}}, "labels do not change a ranking by query"),
        (
            {"by": "size", "method": "query-likelihood"},
            "has no query to rank documents for; give --query TEXT",
        ),
        (
            {"query": QUERY, "method": "query-likelihood", "options": {"wordings": ","}},
            "at least one template",
        ),
        (
            {"query": QUERY, "method": "query-likelihood", "options": {"passage": 3}},
            "at least 16 tokens, got 3",
        ),
        ({"query": "tower " * 600}, "the model's window is 512; shorten it"),
    ],
)
def test_wrong_queries_are_refused(words, message):
    """The message has the value and the remedy."""
    with pytest.raises(CcrankError, match=message):
        ccrank.rank(DOCUMENTS, model=tiny_reader(), **words)


PAGES = {
    "how is bread made?": "Mix flour, water, salt and yeast, let the dough rise, and bake the loaf in a hot oven.",
    "causes of storms": "Warm, moist air rises over the sea, cools and condenses; strong winds and heavy rain follow.",
    "who wrote Hamlet": "William Shakespeare was an English playwright whose tragedies are performed to this day.",
    "tax return deadline": "Citizens declare their income to the revenue office by the end of April each year.",
}


@pytest.mark.real
@pytest.mark.parametrize("query", PAGES)
def test_the_default_model_finds_the_page_that_answers(default_reader, query):
    """Of four pages the one that the query is about comes first, with a score above 0."""
    ranking = ccrank.rank(list(PAGES.values()), query=query, model=default_reader)
    assert ranking.items[0] == PAGES[query]
    assert max(ranking.scores) > 0
