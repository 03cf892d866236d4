"""Ranking as a user calls it: `rank(items, by=…)` for one list, `rank_tasks` for many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm import Reader, ReadingCache
from ccrank.lm.reader import Progress
from ccrank.methods import DEFAULT_METHOD, get_method
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking, canonical, from_canonical
from ccrank.task import Criterion, Task, check_text


def rank(
    items: Iterable[str],
    by: str | Criterion,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    context: str | None = None,
    labels: Mapping[str, float] | Sequence[Sequence[str]] | None = None,
    model: str | Reader = "default",
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    options: Mapping[str, Any] | None = None,
) -> Ranking:
    """Rank items by a criterion with a language model, without labels.

    Parameters
    ----------
    items
        The texts to rank, at least two.
    by
        The criterion: a name such as "size", or a `Criterion`.
    comparative
        What the higher item is, compared with the lower: "larger".
    poles
        Words for the low and the high end of the scale: ("small", "large").
    category
        What the items are, in the singular: "country".
    context
        A text that the items are about.
    labels
        A few known labels: item → value, or orders such as [("Russia", "Chad")], highest first.
    model
        A short name, a hub id, a folder, a .gguf file, or an open `Reader`.
    method
        A method's name; `ccrank methods` lists them.
    templates
        The prompts' wording; the shipped one if None.
    options
        The method's own options, by name; `ccrank methods NAME` lists them.

    Returns
    -------
    Ranking
        The items with scores, best first.
    """
    if isinstance(items, str):
        raise CcrankError(f"items is a list of texts, not one text: {items[:40]!r}")
    criterion = by if isinstance(by, Criterion) else Criterion(by, comparative, poles, category)
    task = Task(criterion, tuple(items), context, id=f"ranking by {criterion.name}")
    reader = model if isinstance(model, Reader) else Reader.open(model, cache=ReadingCache())
    given = dict(options or {})
    if labels is not None:
        given["labels"] = labels
    return rank_tasks([task], reader, method, templates, options=given)[0]


def rank_tasks(
    tasks: Sequence[Task],
    reader: Reader,
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
    method, templates, options
        As in `rank`.
    progress
        Called with the number of prompts read and their total.

    Returns
    -------
    list of Ranking
        One for each task, in the order of the tasks.
    """
    chosen = get_method(method)
    parsed = chosen.parse_options(options or {})
    if not tasks:
        return []
    for task in tasks:
        check_text(task)
    sorted_tasks, orders = zip(*(canonical(task) for task in tasks), strict=True)
    answers = chosen.run(sorted_tasks, reader, templates or load_templates(), progress=progress, **parsed)
    return [
        Ranking(
            task,
            from_canonical(answer.scores, order),
            chosen.name,
            reader.name,
            chosen.directed if answer.directed is None else answer.directed,
            answer.consistency,
            answer.cost,
            answer.details,
            answer.probe,
        )
        for task, order, answer in zip(tasks, orders, answers, strict=True)
    ]
