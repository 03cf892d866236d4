"""Ranking as a user calls it: `rank(items, by=…)` for one list, `rank_tasks` for many."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from ccrank.errors import CcrankError
from ccrank.lm import Reader, ReadingCache
from ccrank.lm.reader import Progress
from ccrank.methods import get_method
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking, canonical, from_canonical
from ccrank.task import Criterion, Task, check_text

DEFAULT_METHOD = "auto"


def rank(
    items: Iterable[str],
    by: str | Criterion,
    *,
    more: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    context: str | None = None,
    model: str | Reader = "default",
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    **options: Any,
) -> Ranking:
    """Rank items by a criterion with a language model, without labels.

    `by` names the criterion ("size"); `more` ("larger"), `poles` (("small", "large")) and `category` ("country") help
    the templates to better words. `model` is a name or an open Reader; `options` are the method's own.
    """
    if isinstance(items, str):
        raise CcrankError(f"items is a list of texts, not one text: {items[:40]!r}")
    criterion = by if isinstance(by, Criterion) else Criterion(by, more, poles, category)
    task = Task(criterion, tuple(items), context, id=f"ranking by {criterion.name}")
    reader = model if isinstance(model, Reader) else Reader.open(model, cache=ReadingCache())
    return rank_tasks([task], reader, method, templates, **options)[0]


def rank_tasks(
    tasks: Sequence[Task],
    reader: Reader,
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Ranking]:
    """Rank many tasks together, which shares model passes between them."""
    chosen = get_method(method)
    parsed = chosen.parse_options(options)
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


class _RankModule(ModuleType):
    """Once anything has imported this module, Python sets `ccrank.rank` to it, and it has to serve as the function."""

    __call__ = staticmethod(rank)


sys.modules[__name__].__class__ = _RankModule
