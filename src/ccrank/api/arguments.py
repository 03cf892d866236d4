"""Arguments of the public functions: checks that name the parameter, and models by name or already open."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from ccrank.errors import CcrankError, check_kind
from ccrank.labels import Labels
from ccrank.models import ReadingCache
from ccrank.models.remote import OpenModel, open_model
from ccrank.prompts import Templates
from ccrank.reader_options import ReaderOptions
from ccrank.task import Criterion
from ccrank.util.text import did_you_mean

P = ParamSpec("P")
T = TypeVar("T")


@lru_cache(maxsize=1)
def _last_loaded(model: str, reader_options: ReaderOptions | None) -> OpenModel:
    """The model of the last call stays in memory, so that repeated calls do not load it again."""
    return open_model(model, reader_options, cache=ReadingCache())


def opened(model: str | OpenModel, reader_options: ReaderOptions | None = None) -> OpenModel:
    """A model by its name, or one that is open already."""
    if isinstance(model, str):
        return _last_loaded(model, reader_options)
    if not hasattr(model, "read"):
        raise CcrankError(f"model must be the name of a model, or an open reader, not {type(model).__name__}")
    if reader_options is not None:
        raise CcrankError(
            "reader_options are for loading a model by its name, and this one is open; leave them out"
        )
    return model


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tasks": ((Iterable,), "a list of tasks"),
    "by": ((str, Criterion, list, tuple), "a phrase, a Criterion, or a list of them"),
    "labels": ((Labels, Mapping, Sequence), "labels of items, or a list of orders"),
    "answers": ((list, tuple), "the rows of an earlier session"),
    "method": ((str,), "the name of a method"),
    "templates": ((Templates,), "Templates"),
    "options": ((Mapping,), "a mapping of names to values"),
    "reader_options": ((ReaderOptions,), "ReaderOptions"),
}
"""Parameter → what it may be, besides its default."""


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: errors for misspelled keywords name the nearest parameter, those for arguments of a wrong type the
    argument."""
    signature = inspect.signature(function)
    known = list(signature.parameters)

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        for name in keywords:
            if name not in known:
                hint = did_you_mean(name, known) or f"it has {', '.join(known)} "
                raise TypeError(
                    f"{function.__name__}() has no parameter {name!r}; {hint}(a method's own options go into "
                    "options={...})"
                )
        for name, value in signature.bind(*arguments, **keywords).arguments.items():
            if name in _KINDS and value is not signature.parameters[name].default:
                check_kind(name, value, *_KINDS[name])
        return function(*arguments, **keywords)

    return call
