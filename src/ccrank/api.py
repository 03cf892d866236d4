"""The ranking API: `rank(items, by=…)` for one list, `rank_tasks` for many."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ccrank.criterion_phrase import criterion_of, resolved
from ccrank.errors import CcrankError, CcrankWarning
from ccrank.labelfree.rankers import label_free_states
from ccrank.labelled.session import Asked, Session
from ccrank.labels import Labels
from ccrank.lm import ReadingCache
from ccrank.lm.reader import Progress
from ccrank.methods import DEFAULT_METHOD, Method, get_method
from ccrank.opposites import opposite_proposer
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import (
    Answer,
    Ranking,
    canonical,
    from_canonical,
    margins_from_canonical,
    uncertainty_from_canonical,
)
from ccrank.reader_options import ReaderOptions
from ccrank.remote import OpenModel, RemoteReader, open_model
from ccrank.rows import rows_of_items
from ccrank.task import Criterion, Task, check_text

P = ParamSpec("P")
T = TypeVar("T")
UNDIRECTED = (
    "the direction is unknown, so the order may be reversed: compare two items that you know, or use --method auto "
    "(method='auto')"
)


class Ranker:
    """A loaded model that ranks list after list without loading again; see `load`."""

    def __init__(self, reader: OpenModel) -> None:
        self.reader = reader

    def rank(
        self,
        items: Iterable[Any],
        by: str | Criterion | None = None,
        *,
        query: str | None = None,
        column: Any | None = None,
        comparative: str | None = None,
        poles: tuple[str, str] | None = None,
        category: str | None = None,
        context: str | None = None,
        labels: Labels | Mapping[str, Any] | Sequence[Any] | None = None,
        method: str = DEFAULT_METHOD,
        templates: Templates | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Ranking:
        """Rank items by a criterion.

        Parameters
        ----------
        items, by, query, column, comparative, poles, category, context, labels, method, templates, options
            As in `ccrank.rank`.
        """
        return rank(
            items,
            by,
            query=query,
            column=column,
            comparative=comparative,
            poles=poles,
            category=category,
            context=context,
            labels=labels,
            model=self.reader,
            method=method,
            templates=templates,
            options=options,
        )

    def __repr__(self) -> str:
        return f"<Ranker on {self.reader.name}>"


def load(model: str = "default", options: ReaderOptions | None = None, *, cache: bool = True) -> Ranker:
    """Load a model once, to rank many lists with it.

    Parameters
    ----------
    model
        A short name, a hub id, a folder, a .gguf file, or openai:URL#NAME for a model behind a server.
    options
        Device, precision and the like.
    cache
        Keep readings on disk, so that no prompt is computed twice.
    """
    return Ranker(open_model(model, options, cache=ReadingCache() if cache else None))


@lru_cache(maxsize=1)
def _last_loaded(model: str) -> OpenModel:
    """The model of the last call stays in memory, so that repeated calls do not load it again."""
    return load(model).reader


def _suggesting(function: Callable[P, T]) -> Callable[P, T]:
    """A misspelled keyword is reported with the nearest parameter."""
    known = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*arguments: P.args, **keywords: P.kwargs) -> T:
        for name in keywords:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
                raise TypeError(
                    f"{function.__name__}() has no parameter {name!r}; {hint} "
                    "(a method's own options go into options={...})"
                )
        return function(*arguments, **keywords)

    return checked


@_suggesting
def rank(
    items: Iterable[Any],
    by: str | Criterion | None = None,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    query: str | None = None,
    context: str | None = None,
    column: Any | None = None,
    labels: Labels | Mapping[str, Any] | Sequence[Any] | None = None,
    model: str | OpenModel = "default",
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    options: Mapping[str, Any] | None = None,
) -> Ranking:
    """Rank items by a criterion, or documents by their relevance to a query, with a language model, without labels.

    Parameters
    ----------
    items
        The texts to rank, at least two different ones; equal ones are tied. Or a pandas or polars frame, whose rows
        are ranked by the texts of one column.
    by
        The criterion: a phrase such as "size", "least expensive" or "price (low to high)", or a `Criterion`. What was
        understood is in the result's `understood`; see docs/criteria.md.
    comparative
        How the higher item compares with the lower one: "larger".
    poles
        Words for the two poles, low and high: ("small", "large"). The high pole comes first.
    category
        What the items are, in the singular: "country".
    query
        A question or keywords, in place of a criterion: the items are documents, the most relevant first; see
        docs/relevance.md.
    context
        A text that the items are about.
    column
        The frame's column of texts; it may be left out where there is but one.
    labels
        A few known labels, which may contradict each other: item → value, where the keys "best" and "worst" may hold
        items, "ranks" item → rank and "orders" lists of items; or a list of orders such as [("Russia", "Chad")],
        highest first. The ranking then has an `uncertainty`.
    model
        A short name, a hub id, a folder, a .gguf file, openai:URL#NAME for a model behind a server (docs/remote.md),
        or an open `Reader`.
    method
        A method's name; `ccrank methods` lists them.
    templates
        The prompt templates; the packaged ones if None.
    options
        The method's own options, by name; `ccrank methods NAME` lists them.

    Returns
    -------
    Ranking
        The items with scores, best first; its `to_frame()` has all columns of a frame that was given. What to know
        before relying on it is in its `warnings`, and is warned of as a `CcrankWarning`.
    """
    rows = rows_of_items(items, column)
    if rows.unranked:
        warnings.warn(rows.notes()[0], CcrankWarning, stacklevel=3)
    words = {"by": by, "comparative": comparative, "poles": poles, "category": category}
    if query is not None:
        if given_too := [name for name, value in words.items() if value is not None]:
            raise CcrankError(f"a query is the criterion; leave out {', '.join(given_too)}, or the query")
        task = rows.task_of_query(query, context, id="ranking by relevance")
    elif by is None:
        raise CcrankError(
            "no criterion: give one, such as by='size', or a query that documents are ranked for"
        )
    else:
        criterion = by
        if not isinstance(criterion, Criterion):
            criterion = criterion_of(criterion, comparative=comparative, poles=poles, category=category)
        task = rows.task(criterion, context, id=f"ranking by {criterion.name}")
    reader = _last_loaded(model) if isinstance(model, str) else model
    given = dict(options or {})
    if labels is not None:
        given["labels"] = labels
    [ranking] = _rank_tasks([task], reader, method, templates, given, None)
    _warn(ranking)
    return replace(ranking, rows=rows)


def rank_tasks(
    tasks: Sequence[Task],
    reader: OpenModel,
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[Ranking]:
    """Rank many tasks together, which shares model passes between them.

    Parameters
    ----------
    tasks
        The tasks, in any order.
    reader
        An open model.
    method
        A method's name.
    templates
        The wording of the prompts; the packaged one if None.
    options
        The method's own options, by name.
    progress
        Called with the number of distinct tokens just read.

    Returns
    -------
    list of Ranking
        One for each task, in the order of the tasks. Each that has `warnings` is warned of as a `CcrankWarning`.
    """
    rankings = _rank_tasks(tasks, reader, method, templates, options, progress)
    for ranking in rankings:
        _warn(ranking)
    return rankings


def _rank_tasks(
    tasks: Sequence[Task],
    reader: OpenModel,
    method: str,
    templates: Templates | None,
    options: Mapping[str, Any] | None,
    progress: Progress | None,
) -> list[Ranking]:
    chosen = get_method(method)
    parsed = chosen.parse_options(options or {})
    if not tasks:
        return []
    for task in tasks:
        check_text(task)
    # A server would be asked for hundreds of words one by one.
    propose = None if isinstance(reader, RemoteReader) else opposite_proposer(reader)
    tasks = [replace(task, criterion=resolved(task.criterion, propose)) for task in tasks]
    sorted_tasks, orders = zip(*(canonical(task) for task in tasks), strict=True)
    answers = chosen.run(sorted_tasks, reader, templates or load_templates(), progress=progress, **parsed)
    return [
        ranking_of(task, order, answer, chosen, reader.name)
        for task, order, answer in zip(tasks, orders, answers, strict=True)
    ]


def ranking_of(task: Task, order: Sequence[int], answer: Answer, method: Method, model: str) -> Ranking:
    """The ranking that a method's answer makes.

    Parameters
    ----------
    task
        The task as it was given.
    order
        For each item of the canonical task, which the answer is about, its index in `task`.
    answer
        The method's answer.
    method
        The method.
    model
        The model's name.
    """
    directed = method.directed if answer.directed is None else answer.directed
    return Ranking(
        task,
        from_canonical(answer.scores, order),
        method.name,
        model,
        directed,
        answer.consistency,
        answer.cost,
        answer.details,
        answer.probe,
        uncertainty=uncertainty_from_canonical(answer.uncertainty, order),
        warnings=_warnings(task, answer, directed),
        confidence=answer.confidence,
        pair_margins=margins_from_canonical(answer.pair_margins, order),
        runs=None if answer.runs is None else np.stack([from_canonical(run, order) for run in answer.runs]),
    )


def _warnings(task: Task, answer: Answer, directed: bool) -> tuple[str, ...]:
    """Doubts about what the criterion means, the method's own warnings, a low confidence and an unknown direction."""
    understood, confidence = task.criterion.understood, answer.confidence
    found = (
        None if understood is None else understood.warning,
        *answer.warnings,
        None if confidence is None else confidence.warning(),
        None if directed else UNDIRECTED,
    )
    return tuple(one for one in found if one)


def _warn(ranking: Ranking) -> None:
    """One warning for a ranking, at the line outside this file that asked for it."""
    if not ranking.warnings:
        return
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename == __file__:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(f"{ranking.task.id}: {'; '.join(ranking.warnings)}", CcrankWarning, stacklevel=depth + 1)


def ask(
    items: Iterable[str],
    by: str | Criterion,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    kind: Asked = "both",
    answers: Sequence[tuple[str, str, str]] = (),
    model: str | OpenModel = "default",
    templates: Templates | None = None,
    progress: Progress | None = None,
) -> Session:
    """Questions about items whose answers teach most: `for question in ask(...): question.answer(...)`.

    Parameters
    ----------
    items, by, comparative, poles, category, model, templates
        As in `rank`.
    kind
        grade: an item's value, such as a grade from 1 to 5; pair: which of two items is higher; both, by turns.
    answers
        Answers of an earlier session, its `rows`.
    progress
        As in `rank_tasks`.

    Returns
    -------
    Session
        An iterator over questions, with the `ranking` so far, the `labels`, and `undo`.
    """
    given = by
    if not isinstance(given, Criterion):
        given = criterion_of(given, comparative=comparative, poles=poles, category=category)
    task, _ = canonical(rows_of_items(items).task(given, None, id=f"ranking by {given.name}"))
    check_text(task)
    reader = _last_loaded(model) if isinstance(model, str) else model
    propose = None if isinstance(reader, RemoteReader) else opposite_proposer(reader)
    task = replace(task, criterion=resolved(task.criterion, propose))
    answer, states = label_free_states(task, reader, templates or load_templates(), progress)
    start = Ranking(
        task,
        answer.scores,
        DEFAULT_METHOD,
        reader.name,
        True,
        answer.consistency,
        answer.cost,
        answer.details,
    )
    return Session(start, states, kind, answers)
