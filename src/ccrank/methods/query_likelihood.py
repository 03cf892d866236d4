"""Relevance as query likelihood: how much more likely a document makes the query.

The document is the prompt and the query is its answer. What differs between wordings follows the document, so that all
of them share its tokens in the prefix tree, and logits are computed at the tokens of the query only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, islice
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.methods.baselines import first_stage_scores, query_of
from ccrank.models import Cost, ReaderLike
from ccrank.models.prompter import Prompter
from ccrank.models.reading import by_item, checked_logits, shares_by_items, steps
from ccrank.prompts import Form, Piece, Prompt
from ccrank.ranking import Answer
from ccrank.task import Task
from ccrank.util.text import quoted
from ccrank.util.zscores import z_scores

WORDINGS = ("query-question", "query-short", "query-search")
"""The templates that are averaged."""
PASSAGE_TOKENS = 512
"""Longer documents are read in passages of this length."""
MIN_ROOM = 16
"""The least tokens of a passage."""
SLACK = 8
"""Tokens that a document may take more in its prompt than alone."""

CountTokens = Callable[[Sequence[str]], list[int]]
"""Texts → the number of tokens of each."""

OVERLAP = 0.25
"""The share of a passage that the next one repeats, so that what a cut divides is whole in one of the two."""
_WORD = re.compile(r"\s*(?:[!-\u058f]{1,24}|[^\s!-\u058f]{1,4})")
"""A word with the white space before it; what has no white space, such as Chinese, is cut by characters."""
_BLANKS = re.compile(r"\s{3,}")


def passages(text: str, max_tokens: int, count: CountTokens) -> list[str]:
    """Passages of at most `max_tokens` tokens that cover the text; the text itself if it is short enough."""
    text = text.strip()
    # No tokenizer makes more tokens than bytes, so most texts need no counting.
    if len(text.encode("utf-8")) <= max_tokens or count([text])[0] <= max_tokens:
        return [text]
    words = [match.group() for match in _WORD.finditer(_BLANKS.sub("\n\n", text))]
    before = [0, *accumulate(count(words))]  # tokens before each word, and in all
    cut: list[str] = []
    start = stop = 0
    while stop < len(words):
        stop = max(start + 1, bisect_right(before, before[start] + max_tokens) - 1)
        cut.append("".join(words[start:stop]).strip())
        start = min(stop, max(start + 1, bisect_left(before, before[stop] - OVERLAP * max_tokens)))
    return cut


def query_likelihood(
    tasks: Sequence[Task],
    prompter: Prompter,
    *,
    wordings: str = ",".join(WORDINGS),
    passage: int = PASSAGE_TOKENS,
    weighted: bool = True,
    first_stage: str = "none",
) -> list[Answer]:
    """How much more likely a document makes the query: log p(query | document) − log p(query), per token.

    A token that is unlikely without a document weighs more, by √(−log p(token)); `weighted=no` weighs all the same. The
    mean over several `wordings` (templates, comma-separated) that are read after the document. A document of more than
    `passage` tokens, or longer than the model's window, has the score of its best passage.

    `first_stage=given` adds the scores that the tasks have (auto: where they have them), `first_stage=bm25` BM25 over
    the documents of all tasks: both Z-scored within the list, so that they weigh the same.
    """
    names = [name.strip() for name in wordings.split(",") if name.strip()]
    if not names:
        raise CcrankError(f"wordings={wordings!r}: name at least one template, such as {WORDINGS[0]}")
    earlier = first_stage_scores(tasks, first_stage)
    read = partial(_read, prompter=prompter, wordings=names, passage=passage, weighted=weighted)
    in_steps = prompter.shows_scores and len(tasks) == 1
    answers = [_read_in_steps(tasks[0], read, prompter)] if in_steps else read(tasks)
    return [
        answer if first is None else _with_first_stage(task, answer, first)
        for task, answer, first in zip(tasks, answers, earlier, strict=True)
    ]


def _with_first_stage(task: Task, answer: Answer, first: np.ndarray) -> Answer:
    """The sum of an answer and scores of a first stage (N,), both Z-scored."""
    signals = {"query-likelihood": z_scores(answer.scores), "first-stage": z_scores(first)}
    by_signal = {name: by_item(task.items, row) for name, row in signals.items()}
    scores = np.sum(list(signals.values()), axis=0)
    return replace(answer, scores=scores, details={**answer.details, "signals": by_signal})


def _read_in_steps(task: Task, read: Callable[[Sequence[Task]], list[Answer]], prompter: Prompter) -> Answer:
    """The documents of one task, some at a time, since none depends on the others; scores are shown as they come."""
    scores, details, cost = np.zeros(0), dict[str, Any](), Cost()
    for part in steps(len(task.items)):
        [answer] = read([task.unchecked(task.items[part], task.context)])
        scores, cost = np.concatenate([scores, answer.scores]), cost + answer.cost
        best = details.get("best_passages", {}) | answer.details.get("best_passages", {})
        details = {**answer.details, **({"best_passages": best} if best else {})}
        prompter.show(task.items, scores)
    return Answer(scores, {}, cost, details)


def _read(
    tasks: Sequence[Task], prompter: Prompter, wordings: Sequence[str], passage: int, weighted: bool
) -> list[Answer]:
    """Query likelihoods of all documents of all tasks in one reading, and the best passages of long documents."""
    reader = prompter.reader
    asked: list[tuple[Prompt, str]] = []
    texts: list[list[list[str]]] = []  # per task and document: its passages
    for name in wordings:
        prompter.check_fields(name, "item")
    for task in tasks:
        query = query_of(task)
        bare = [_without_document(prompter.exemplar(task, "", name)) for name in wordings]
        room = _room(task, bare, reader, passage)
        texts.append([passages(item, room, reader.count_tokens) for item in task.items])
        parts = chain.from_iterable(texts[-1])
        given = [prompter.exemplar(task, text, name) for text in parts for name in wordings]
        asked += [slot for prompt in [*bare, *given] for slot in _slots(prompt, query, reader.form)]
    candidates = [[answer] for _, answer in asked]
    readings = prompter.read([prompt for prompt, _ in asked], candidates, per_token=True)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    rows = zip(readings.logits, readings.answer_tokens, strict=True)
    tokens = iter([row[:count].astype(float) for row, [count] in rows])
    answers = []
    for task, documents, cost in zip(tasks, texts, shares_by_items(readings.cost, tasks), strict=True):
        slots = len(query_of(task).split()) if reader.form == "masked" else 1
        of_task = [*islice(tokens, slots * len(wordings) * (1 + sum(map(len, documents))))]
        checked_logits(np.concatenate(of_task), task.id)
        gains = _gains(of_task, len(wordings), slots, weighted)
        by_document = np.split(gains, np.cumsum([*map(len, documents)])[:-1])
        best = {
            item: parts[int(document.argmax())]
            for item, parts, document in zip(task.items, documents, by_document, strict=True)
            if len(parts) > 1
        }
        scores = np.array([document.max() for document in by_document])
        details = {"wordings": [*wordings], **({"best_passages": best} if best else {})}
        answers.append(Answer(scores, {}, cost, details))
    return answers


def _gains(tokens: Sequence[np.ndarray], wordings: int, slots: int, weighted: bool) -> np.ndarray:
    """(passages,) the mean gain over wordings, from log-probabilities of the query's tokens: for each wording alone,
    then for each passage and wording, in `slots` pieces."""
    whole = [np.concatenate(tokens[first : first + slots]) for first in range(0, len(tokens), slots)]
    bare, given = whole[:wordings], whole[wordings:]
    gains = [gain(row, bare[number % wordings], weighted) for number, row in enumerate(given)]
    return np.asarray(np.reshape(gains, (-1, wordings)).mean(axis=1))


def gain(given: np.ndarray, bare: np.ndarray, weighted: bool = True) -> float:
    """Σ w (log p(token | document) − log p(token)) / Σ w over the query's tokens, with w = √(−log p(token)): likely
    tokens, such as the words of a question, count less. w = 1 where a document changes how the query is cut into
    tokens."""
    if not weighted or given.shape != bare.shape:
        return float(given.mean() - bare.mean())
    weights = np.sqrt(np.maximum(-bare, 0.0))
    if not weights.any():
        weights = np.ones_like(bare)
    return float((weights * (given - bare)).sum() / weights.sum())


def _without_document(prompt: Prompt) -> Prompt:
    """The wording alone: the prompt from the first text after the document, which is empty."""
    pieces = list(prompt.pieces)
    while pieces and pieces[0].role != "slot":
        text = pieces[0].text.lstrip()
        if text:
            pieces[0] = Piece(text, pieces[0].role)
            break
        pieces.pop(0)
    return Prompt(tuple(pieces), task=prompt.task)


def _slots(prompt: Prompt, query: str, form: Form) -> list[tuple[Prompt, str]]:
    """The prompts whose answers together are the query, each with its answer: one, or for the pseudo-log-likelihood of
    a masked model one for each word between the others."""
    if form != "masked":
        return [(prompt, query)]
    words = query.split()
    slots = []
    for number, word in enumerate(words):
        before, after = " ".join(words[:number]), " ".join(words[number + 1 :])
        pieces = (
            *prompt.before,
            *([Piece(f"{before} ", "criterion")] if before else []),
            Piece("", "slot"),
            *([Piece(f" {after}", "criterion")] if after else []),
            *prompt.after,
        )
        slots.append((Prompt(pieces, task=prompt.task), word))
    return slots


def _room(task: Task, bare: Sequence[Prompt], reader: ReaderLike, passage: int) -> int:
    """The most tokens of a document that fit beside the query, at most `passage`."""
    if passage < MIN_ROOM:
        raise CcrankError(f"passage must be at least {MIN_ROOM} tokens, got {passage}")
    if reader.window is None:
        return passage
    query = query_of(task)
    other = max(reader.count_tokens([f"{prompt.text} {query} {task.context or ''}" for prompt in bare]))
    room = reader.window - other - SLACK
    if room < MIN_ROOM:
        raise CcrankError(
            f"task {task.id!r}: the query {quoted(query)} has about {other:,} tokens with its wording, and the "
            f"model's window is {reader.window:,}; shorten it"
        )
    return min(passage, room)


def describe_relevance(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    """What the score is made of, as phrases."""
    count = len(details["wordings"]) if "wordings" in details else 0
    phrases = [f"query likelihood, {count} wording{'s' if count > 1 else ''}"] if count else []
    if "first-stage" in details.get("signals", {}):
        phrases.append("plus the first stage, both Z-scored")
    if long := len(details.get("best_passages", {})):
        phrases.append(f"{long} long document{'s' if long > 1 else ''} by the best passage")
    return phrases
