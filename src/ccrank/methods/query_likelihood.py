"""Relevance as query likelihood: how much more likely a document makes the query.

The document is the prompt and the query is its answer. A document is long and belongs to one prompt alone, so what
differs between wordings follows it: all wordings of a document share its tokens in the prefix tree, and logits are
computed at the tokens of the query only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm import Cost, ReaderLike
from ccrank.lm.reader import Progress
from ccrank.lm.reading import Request, checked_logits, shares_by_items
from ccrank.lm.watch import Watcher, by_item, steps
from ccrank.prompts import Form, Piece, Prompt, Templates
from ccrank.ranking import Answer
from ccrank.relevance.first_stage import first_stage_scores
from ccrank.relevance.passages import passages
from ccrank.relevance.task_query import query_of
from ccrank.standardise import z_scores
from ccrank.task import Task
from ccrank.text import quoted

WORDINGS = ("query-question", "query-short", "query-search")
"""The templates that are averaged."""
PASSAGE_TOKENS = 512
"""Longer documents are read in passages of this length."""
LEAST_ROOM = 16
"""Fewer tokens than this are no passage."""
SLACK = 8
"""Tokens that a document may have in its prompt beyond those that it has alone."""


def query_likelihood(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    *,
    wordings: str = ",".join(WORDINGS),
    passage: int = PASSAGE_TOKENS,
    weighted: bool = True,
    first_stage: str = "none",
    progress: Progress | None = None,
) -> list[Answer]:
    """How much more likely a document makes the query: log p(query | document) − log p(query), per token.

    A token that is unlikely without a document weighs more, by √(−log p(token)); `weighted=no` weighs all the same. The
    mean over several `wordings` (templates, comma-separated) that are read after the document. A document of more than
    `passage` tokens, or longer than the model's window, has the score of its best passage.

    `first_stage=bm25` adds BM25 over the documents, `first_stage=given` the scores that the tasks have (auto: where
    they have them): both Z-scored within the list, so that they weigh the same.
    """
    names = [name.strip() for name in wordings.split(",") if name.strip()]
    if not names:
        raise CcrankError(f"wordings={wordings!r}: name at least one template, such as {WORDINGS[0]}")
    earlier = [first_stage_scores(task, first_stage) for task in tasks]
    found = read_query_likelihood(tasks, reader, templates, names, passage, weighted, progress)
    costs = shares_by_items(found.cost, tasks)
    answers = []
    for task, scores, first, best, cost in zip(tasks, found.scores, earlier, found.best, costs, strict=True):
        details: dict[str, Any] = {"wordings": names}
        if best:
            details["best_passages"] = best
        if first is not None:
            signals = {"query-likelihood": z_scores(scores), "first-stage": z_scores(first)}
            scores = np.sum(list(signals.values()), axis=0)
            details["signals"] = {
                name: {item: round(float(one), 4) for item, one in zip(task.items, row, strict=True)}
                for name, row in signals.items()
            }
        answers.append(Answer(scores, {}, cost, details))
    return answers


@dataclass(frozen=True)
class QueryLikelihoods:
    """What one reading gives for all tasks."""

    scores: list[np.ndarray]
    """Per task (N,)."""
    best: list[dict[str, str]]
    """Per task: document → its best passage, for documents of several passages."""
    cost: Cost


def read_query_likelihood(
    tasks: Sequence[Task],
    reader: ReaderLike,
    templates: Templates,
    wordings: Sequence[str] = WORDINGS,
    passage: int = PASSAGE_TOKENS,
    weighted: bool = True,
    progress: Progress | None = None,
) -> QueryLikelihoods:
    """Query likelihoods of all documents of all tasks in one reading.

    Parameters
    ----------
    tasks
        Tasks with a query.
    reader, templates, progress
        As of any method.
    wordings
        Names of templates.
    passage
        The most tokens of a document that are read together.
    weighted
        Whether tokens that are unlikely without a document weigh more.
    """
    if isinstance(progress, Watcher) and len(tasks) == 1:
        watcher, how = progress, (wordings, passage, weighted, progress.progress)
        return _read_in_steps(
            tasks[0], lambda task: read_query_likelihood([task], reader, templates, *how), watcher
        )
    prompts: list[Prompt] = []
    candidates: list[list[str]] = []
    texts: list[list[list[str]]] = []  # per task and document: its passages

    def ask(prompt: Prompt, query: str) -> None:
        for one, answer in _slots(prompt, query, reader.form):
            prompts.append(one)
            candidates.append([answer])

    for task in tasks:
        query = query_of(task)
        bare = [_without_document(_prompt(task, "", name, reader.form, templates)) for name in wordings]
        room = _room(task, bare, reader, passage)
        texts.append([passages(item, room, reader.count_tokens) for item in task.items])
        for prompt in bare:
            ask(prompt, query)
        for own in texts[-1]:
            for text in own:
                for name in wordings:
                    ask(_prompt(task, text, name, reader.form, templates), query)
    readings = reader.read(prompts, candidates, per_token=True, progress=progress)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    tokens = [
        row[:count].astype(float)
        for row, [count] in zip(readings.logits, readings.answer_tokens, strict=True)
    ]
    scores: list[np.ndarray] = []
    best: list[dict[str, str]] = []
    start = 0
    for task, documents in zip(tasks, texts, strict=True):
        slots = len(_slots(Prompt((Piece("", "slot"),)), query_of(task), reader.form))
        stop = start + slots * len(wordings) * (1 + sum(map(len, documents)))
        checked_logits(np.concatenate(tokens[start:stop]), task.id)
        gains = _gains(tokens[start:stop], len(wordings), slots, weighted)
        values, chosen = _best_passages(task, documents, gains)
        scores.append(values)
        best.append(chosen)
        start = stop
    return QueryLikelihoods(scores, best, readings.cost)


def _read_in_steps(
    task: Task, read: Callable[[Task], QueryLikelihoods], watcher: Watcher
) -> QueryLikelihoods:
    """The documents of one task, some at a time, since none depends on the others; the watcher sees their scores."""
    found: list[QueryLikelihoods] = []
    scores = np.zeros(0)
    for part in steps(len(task.items)):
        some = Task(task.criterion, task.items[part], task.context, id=task.id, query=task.query)
        found.append(read(some))
        scores = np.concatenate([scores, found[-1].scores[0]])
        watcher.partial(by_item(task.items, scores))
    best = {item: text for one in found for item, text in one.best[0].items()}
    return QueryLikelihoods([scores], [best], sum((one.cost for one in found), Cost()))


def _gains(tokens: Sequence[np.ndarray], wordings: int, slots: int, weighted: bool) -> np.ndarray:
    """(passages,) the mean gain over wordings, from log-probabilities of the query's tokens: for each wording alone,
    then for each passage and wording, in `slots` pieces."""
    whole = [np.concatenate(tokens[first : first + slots]) for first in range(0, len(tokens), slots)]
    bare, told = whole[:wordings], whole[wordings:]
    gain = weighted_gain if weighted else lambda with_it, without: with_it.mean() - without.mean()
    gains = [gain(one, bare[place % wordings]) for place, one in enumerate(told)]
    return np.asarray(np.reshape(gains, (-1, wordings)).mean(axis=1))


def weighted_gain(told: np.ndarray, bare: np.ndarray) -> float:
    """Σ w (log p(token | document) − log p(token)) / Σ w over the query's tokens, with w = √(−log p(token)).

    What is said anyway, such as the end of a word or the words of a question, counts less than what only a document
    makes likely. Where a document changes how the query is cut into tokens, all of them count the same.

    Parameters
    ----------
    told, bare
        The log-probabilities of the query's tokens with and without the document.
    """
    if told.shape != bare.shape:
        return float(told.mean() - bare.mean())
    weights = np.sqrt(np.maximum(-bare, 0.0))
    if not weights.any():
        weights = np.ones_like(bare)
    return float((weights * (told - bare)).sum() / weights.sum())


def _best_passages(
    task: Task, documents: Sequence[Sequence[str]], gains: np.ndarray
) -> tuple[np.ndarray, dict[str, str]]:
    """The score of each document's best passage, and that passage where there are several."""
    scores, best, place = [], {}, 0
    for item, own in zip(task.items, documents, strict=True):
        part = gains[place : place + len(own)]
        place += len(own)
        scores.append(float(part.max()))
        if len(own) > 1:
            best[item] = own[int(part.argmax())]
    return np.array(scores), best


def _prompt(task: Task, document: str, name: str, form: Form, templates: Templates) -> Prompt:
    templates[name].check_fields(form, "item")
    return templates.exemplar(task, document, form, name)


def _without_document(prompt: Prompt) -> Prompt:
    """The prompt that begins after the place of the document, which is empty: its wording alone."""
    pieces = list(prompt.pieces)
    while pieces and pieces[0].role != "slot":
        text = pieces[0].text.lstrip()
        if text:
            pieces[0] = Piece(text, pieces[0].role)
            break
        pieces.pop(0)
    return Prompt(tuple(pieces), task=prompt.task)


def _slots(prompt: Prompt, query: str, form: Form) -> list[tuple[Prompt, str]]:
    """The prompts whose answers together are the query, each with its answer.

    A decoder has one. A masked model predicts each word between the others, which gives the pseudo-log-likelihood.
    """
    if form != "masked":
        return [(prompt, query)]
    words = query.split()
    found = []
    for place, word in enumerate(words):
        before, after = " ".join(words[:place]), " ".join(words[place + 1 :])
        pieces = (
            *prompt.before,
            *([Piece(f"{before} ", "criterion")] if before else []),
            Piece("", "slot"),
            *([Piece(f" {after}", "criterion")] if after else []),
            *prompt.after,
        )
        found.append((Prompt(pieces, task=prompt.task), word))
    return found


def _room(task: Task, bare: Sequence[Prompt], reader: ReaderLike, passage: int) -> int:
    """The most tokens of a document that fit beside the query, at most `passage`."""
    if passage < LEAST_ROOM:
        raise CcrankError(f"passage must be at least {LEAST_ROOM} tokens, got {passage}")
    if reader.window is None:
        return passage
    query = query_of(task)
    other = max(reader.count_tokens([f"{prompt.text} {query} {task.context or ''}" for prompt in bare]))
    room = reader.window - other - SLACK
    if room < LEAST_ROOM:
        raise CcrankError(
            f"task {task.id!r}: the query {quoted(query)} has about {other:,} tokens with its wording, and the "
            f"model's window is {reader.window:,}; shorten it"
        )
    return min(passage, room)


def query_likelihood_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `query-likelihood`; a criterion without a query stands for one of its length."""
    query = (task.query or task.criterion.name).strip()
    prompts = [_prompt(task, item.strip(), name, form, templates) for item in task.items for name in WORDINGS]
    prompts = [_without_document(_prompt(task, "", name, form, templates)) for name in WORDINGS] + prompts
    asked: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        for one, answer in _slots(prompt, query, form):
            asked.setdefault(answer, []).append(one)
    return [(own, [answer]) for answer, own in asked.items()]


def describe_relevance(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """What the score is made of, as phrases.

    Parameters
    ----------
    consistency, details
        Those of the ranking.
    """
    count = len(details["wordings"]) if "wordings" in details else 0
    phrases = [f"query likelihood, {count} wording{'s' if count > 1 else ''}"] if count else []
    if "first-stage" in details.get("signals", {}):
        phrases.append("plus the first stage, both Z-scored")
    if long := len(details.get("best_passages", {})):
        phrases.append(f"{long} long document{'s' if long > 1 else ''} by the best passage")
    return phrases
