"""From the body of a request to a ranking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ccrank.api import rank_tasks
from ccrank.criterion_phrase import criterion_of
from ccrank.errors import CcrankError
from ccrank.estimate import expected_tokens
from ccrank.lm import Reader
from ccrank.methods import DEFAULT_METHOD, METHODS, SAVED_PROBE, Method
from ccrank.prompts import load_templates
from ccrank.ranking import Ranking
from ccrank.rows import Rows, rows_of_items
from ccrank.server.bodies import RankBody
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
            comparative=body.comparative,
            category=body.category,
        )
        self.method = _method(body.method)
        self.options = self.method.parse_options(body.options or {})
        if body.labels is not None:
            self.options = self.method.parse_options({**self.options, "labels": body.labels})
        self.rows: Rows = rows_of_items(body.items)
        poles = None if body.poles is None else (body.poles[0], body.poles[1])
        criterion = criterion_of(body.by, comparative=body.comparative, poles=poles, category=body.category)
        self.task: Task = self.rows.task(criterion, body.context, id=f"ranking by {body.by.strip()}")
        if (prompts := self.method.prompts(len(self.task.items))) > settings.most_prompts:
            raise RequestError(
                413,
                "too_many_prompts",
                f"{self.method.name} needs about {prompts:,.0f} prompts for {len(self.task.items):,} items; this "
                f"server takes up to {settings.most_prompts:,}: send fewer items, or use method auto",
            )

    def run(self, reader: Reader, progress: Callable[[int], None] | None = None) -> Ranking:
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

    def tokens(self, reader: Reader) -> int | None:
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


def _method(name: str | None) -> Method:
    found = served_methods().get(name or DEFAULT_METHOD)
    if found is None:
        raise RequestError(
            422, "unknown_method", f"unknown method {str(name)[:100]!r}; GET /v1/methods lists the methods"
        )
    return found


def method_json(method: Method) -> Mapping[str, Any]:
    """What /v1/methods says of a method.

    Parameters
    ----------
    method
        The method.
    """
    return {
        "name": method.name,
        "summary": method.summary,
        "family": method.family,
        "directed": method.directed,
        "calls": method.calls,
        "options": dict(method.options),
    }
