"""From the body of a request to a ranking: texts and options of bounded size, and not too much work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.methods.registry import METHODS, Method
from ccrank.models.remote import OpenModel
from ccrank.ranking import Ranking
from ccrank.request import RankRequest
from ccrank.server.responses import RequestError
from ccrank.server.schemas import QuestionBody, RankBody
from ccrank.server.settings import ServerSettings
from ccrank.task import is_finite_number


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


RANGES: dict[str, tuple[float, float]] = {
    "seeds": (1, 32),
    "epochs": (1, 2000),
    "shuffles": (1, 64),
    "window": (2, 100),
    "passage": (16, 8192),
    "pairs": (1, 1000),
    "seed": (0, 2**31 - 1),
    "ridge": (1e-6, 1e6),
    "learning_rate": (1e-6, 10),
    "margin": (1e-6, 1e3),
    "weight_decay": (0, 1e3),
}
"""The values that an option may have. Some multiply the work; others make numbers that are not finite."""
WORDS_OR_NUMBERS = ("pairs", "layer")
"""Options whose default is a word and that take a whole number too."""
MAX_TEXT = 200
"""Characters of an option that is a text."""


def checked_options(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, parsed; an error for a wrong type or an extreme value."""
    if "labels" in given:
        raise CcrankError('labels are not an option; send them as "labels" beside the items')
    for name, value in given.items():
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise CcrankError(
                f"option {name[:40]!r} has {len(value):,} characters; it takes up to {MAX_TEXT}"
            )
    parsed = method.parse_options(given)
    for name, value in parsed.items():
        _check_type(f"{method.name}: {name}", name, value, method.options[name])
        number = value
        if isinstance(value, str) and name in WORDS_OR_NUMBERS and value.lstrip("-").isdecimal():
            number = int(value[:20])
        if isinstance(number, int | float) and not isinstance(number, bool):
            low, high = RANGES.get(name, (-1e6, 1e6))
            if not low <= number <= high:
                raise CcrankError(f"{method.name}: {name} is {number!r:.40}; it takes {low:g} to {high:g}")
    return parsed


def _check_type(where: str, name: str, value: Any, default: Any) -> None:
    if isinstance(value, bool) or isinstance(default, bool):
        fits = isinstance(value, bool) and isinstance(default, bool)
    elif isinstance(default, int):
        fits = isinstance(value, int)
    elif isinstance(default, float):
        fits = is_finite_number(value)
    elif name in WORDS_OR_NUMBERS:
        fits = isinstance(value, str | int)
    else:
        fits = isinstance(value, str) or (value is None and default is None)
    if not fits:
        raise CcrankError(f"{where} takes no {value!r:.40}; its default is {default!r}")


def prompts_needed(method: Method, options: Mapping[str, Any], count: int) -> float:
    """About how many prompts a method reads for a list."""
    repeats = options.get(method.repeats_option or "", 1)
    pairs = str(options.get("pairs", "auto"))
    if pairs == "all":
        return float(count * (count - 1))
    if pairs.isdecimal():
        return float(2 * count * int(pairs))
    return float(method.prompts(count) * repeats)


class RankWork:
    """A checked request to rank, ready to run."""

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
    method = METHODS.get(name)
    if method is None:
        raise RequestError(
            422, "unknown_method", f"unknown method {name[:100]!r}; GET /v1/methods lists the methods"
        )
    return method
