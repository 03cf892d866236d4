"""From the body of a request to a ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ccrank.io import rows_of_items
from ccrank.methods.registry import METHODS, SAVED_PROBE, Method
from ccrank.models.remote import OpenModel
from ccrank.ranking import Ranking
from ccrank.request import RankRequest
from ccrank.server.method_options import checked_options, prompts_needed
from ccrank.server.page_schemas import QuestionBody
from ccrank.server.responses import RequestError
from ccrank.server.schemas import RankBody
from ccrank.server.settings import ServerSettings


def served_methods() -> dict[str, Method]:
    """The methods that requests may use: all but the one that opens a file of the server."""
    return {name: method for name, method in METHODS.items() if name != SAVED_PROBE}


def check_texts(settings: ServerSettings, items: Sequence[str], **others: str | None) -> None:
    """Refuse more, or longer, texts than the server takes."""
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


def request_of(body: RankBody | QuestionBody, settings: ServerSettings) -> RankRequest:
    """The request that a body makes, within the limits of the server."""
    given: dict[str, Any] = {
        name: value
        for name in RankRequest.__dataclass_fields__
        if name != "items" and (value := getattr(body, name, None)) is not None
    }
    low, high = body.poles or (None, None)
    texts = {name: value for name, value in given.items() if isinstance(value, str) and name != "method"}
    check_texts(settings, body.items, **texts, low=low, high=high)
    if body.poles is not None:
        given["poles"] = (low, high)
    return RankRequest(items=rows_of_items(body.items), **given)


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
        self.request = request_of(body, settings)
        self.method = method = method_of(self.request.method)
        checked_options(method, self.request.options)
        self.options = self.request.parsed_options
        self.task = self.request.task
        count = len(self.task.items)
        if (prompts := prompts_needed(method, self.options, count)) > settings.most_prompts:
            raise RequestError(
                413,
                "too_many_prompts",
                f"{method.name} needs about {prompts:,.0f} prompts for {count:,} items; this server takes up to "
                f"{settings.most_prompts:,}: send fewer items, or use method auto",
            )
        if method.objective is not None and count > settings.most_probe_items:
            raise RequestError(
                413,
                "too_many_items",
                f"{method.name} fits a probe; this server does that for up to {settings.most_probe_items:,} items "
                f"and got {count:,}: use method auto",
            )

    def run(self, reader: OpenModel, progress: Callable[[int], None] | None = None) -> Ranking:
        """The ranking."""
        [ranking] = self.request.run(reader, progress)
        return ranking

    def tokens(self, reader: OpenModel) -> int | None:
        """About how many tokens will be read; None if that cannot be said."""
        return self.request.expected_tokens(reader)


def method_of(name: str) -> Method:
    """A method that requests may use, by its name."""
    method = served_methods().get(name)
    if method is None:
        raise RequestError(
            422, "unknown_method", f"unknown method {name[:100]!r}; GET /v1/methods lists the methods"
        )
    return method
