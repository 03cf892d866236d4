"""Options of loaded models beside models behind servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from ccrank.errors import CcrankError
from ccrank.reader_options import ReaderOptions
from ccrank.remote.address import is_remote, shown_name

IN_PROMPTS = ("chat", "truncate")
"""Options that change what is read. The others are for loading, so they concern loaded models alone."""


def check_options(models: Sequence[str], options: ReaderOptions) -> None:
    """Refuse options that models behind servers do not take.

    Options of loading are for the other models; if there are none, they are a mistake.

    Parameters
    ----------
    models
        The models that are opened with these options.
    options
        The options.
    """
    remote = [shown_name(model) for model in models if is_remote(model)]
    others = len(remote) < len(models)
    for one in fields(ReaderOptions) if remote else ():
        value = getattr(options, one.name)
        if value != one.default and (one.name in IN_PROMPTS or not others):
            raise CcrankError(
                f"--{one.name.replace('_', '-')} ({one.name}={value!r}) is for models that ccrank loads itself, and "
                f"{remote[0]} is behind a server: remove it"
            )
