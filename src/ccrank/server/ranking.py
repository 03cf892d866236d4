"""From the body of a request to a ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ccrank.api import rank_tasks
from ccrank.criterion_phrase import criterion_of
from ccrank.errors import CcrankError
from ccrank.estimate import expected_tokens
from ccrank.methods import DEFAULT_METHOD, METHODS, SAVED_PROBE, Method
from ccrank.prompts import load_templates
from ccrank.ranking import Ranking
from ccrank.remote import OpenModel
from ccrank.rows import Rows, rows_of_items
from ccrank.server.bodies import RankBody
from ccrank.server.options import checked_options, prompts_needed
from ccrank.server.page_bodies import QuestionBody
from ccrank.server.replies import RequestError
from ccrank.server.settings import ServerSettings
from ccrank.task import Task


def served_methods() -> dict[str, Method]:
    """The methods that requests may use: all but the one that opens a file of the server."""
    return {name: method for name, method in METHODS.items() if name != SAVED_PROBE}


def check_texts(settings: ServerSettings, items: Sequence[str], **others: str | None) -> None:
    """Refuse more, or longer, texts than the server takes.

    Parameters
    ----------
    settings
        The limits.
    items
        The items.
    **others
        Further texts by name.
    """
    if len(items) > settings.most_items:
        raise RequestError(
            413, "too_many_items", f"{len(items):,} items; this server takes up to {settings.most_items:,}"
        )
    most = settings.most_item_characters
    for position, item in enumerate(items, start=1):
        if len(item) > most:
            raise RequestError(
                413,
                "item_too_long",
                f"item {position} has {len(item):,} characters; this server takes up to {most:,}",
            )
    for name, text in others.items():
        if text is not None and len(text) > most:
            raise RequestError(
                413,
                "text_too_long",
                f"{name} has {len(text):,} characters; this server takes up to {most:,}",
            )


class RankWork:
    """A checked request to rank, ready to run.

    Parameters
    ----------
    body
        The request.
    settings
        The limits.
    """

    def __init__(self, body: RankBody, settings: ServerSettings) -> None:
        check_texts(
            settings,
            body.items,
            by=body.by,
            context=body.context,
            query=body.query,
            comparative=body.comparative,
            category=body.category,
            low=body.poles[0] if body.poles else None,
            high=body.poles[1] if body.poles else None,
        )
        self.method = method_of(body.method)
        self.options = checked_options(self.method, body.options or {})
        if body.labels is not None:
            self.options |= self.method.parse_options({"labels": body.labels})
        self.rows: Rows = rows_of_items(body.items)
        self.task: Task = _task(body, self.rows)
        count = len(self.task.items)
        if (prompts := prompts_needed(self.method, self.options, count)) > settings.most_prompts:
            raise RequestError(
                413,
                "too_many_prompts",
                f"{self.method.name} needs about {prompts:,.0f} prompts for {count:,} items; this server takes up to "
                f"{settings.most_prompts:,}: send fewer items, or use method auto",
            )
        if self.method.objective is not None and count > settings.most_probe_items:
            raise RequestError(
                413,
                "too_many_items",
                f"{self.method.name} fits a probe; this server does that for up to {settings.most_probe_items:,} items "
                f"and got {count:,}: use method auto",
            )

    def run(self, reader: OpenModel, progress: Callable[[int], None] | None = None) -> Ranking:
        """The ranking.

        Parameters
        ----------
        reader
            The request's reader.
        progress
            Called with the number of tokens just read.
        """
        [ranking] = rank_tasks([self.task], reader, self.method.name, options=self.options, progress=progress)
        return replace(ranking, rows=self.rows)

    def tokens(self, reader: OpenModel) -> int | None:
        """About how many tokens will be read; None if that cannot be said.

        Parameters
        ----------
        reader
            The request's reader.
        """
        try:
            return expected_tokens([self.task], reader, self.method, load_templates(), self.options)
        except CcrankError:
            return None


def _task(body: RankBody, rows: Rows) -> Task:
    words = {"comparative": body.comparative, "poles": body.poles, "category": body.category}
    if body.query is not None:
        if given := [name for name, value in {"by": body.by, **words}.items() if value is not None]:
            raise CcrankError(f"a query is the criterion; leave out {', '.join(given)}, or the query")
        return rows.task_of_query(body.query, body.context, id="ranking by relevance")
    if body.by is None:
        raise CcrankError(
            'no criterion: send one, such as "by": "size", or a query that documents are ranked for'
        )
    return task_by(body.by, body, rows, body.context)


def task_by(by: str, body: RankBody | QuestionBody, rows: Rows, context: str | None = None) -> Task:
    """The task of a list and a criterion.

    Parameters
    ----------
    by
        The phrase of the criterion.
    body
        The request, which may have its comparative, poles and category.
    rows
        The items.
    context
        A text that the items are about.
    """
    poles = None if body.poles is None else (body.poles[0], body.poles[1])
    criterion = criterion_of(by, comparative=body.comparative, poles=poles, category=body.category)
    return rows.task(criterion, context, id=f"ranking by {by.strip()}")


def method_of(name: str | None) -> Method:
    """A method that requests may use, by its name.

    Parameters
    ----------
    name
        The name; None is the default method.
    """
    found = served_methods().get(name or DEFAULT_METHOD)
    if found is None:
        raise RequestError(
            422, "unknown_method", f"unknown method {str(name)[:100]!r}; GET /v1/methods lists the methods"
        )
    return found
