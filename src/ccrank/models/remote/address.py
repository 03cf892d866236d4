"""`openai:URL#NAME`: the address of a model behind a server, without its secrets wherever it is shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from urllib.parse import unquote, urlsplit

from ccrank.errors import CcrankError
from ccrank.reader_options import SERVER_PREFIX, ReaderOptions

EXAMPLE = f"{SERVER_PREFIX}http://127.0.0.1:8000/v1#NAME"


def is_remote(model: str) -> bool:
    """Whether the name of a model is the address of a server."""
    return model.startswith(SERVER_PREFIX)


def shown_name(model: str) -> str:
    """The name of a model as it is shown and stored: an address without its user, password and query."""
    return Address.parse(model).name if is_remote(model) else model


@dataclass(frozen=True)
class Address:
    """Where a server is, and which of its models is meant."""

    base: str  # the URL before /completions, without user, password and query
    model: str | None = None  # None: the only one that the server has
    query: str = field(default="", repr=False)  # sent with every request; may hold a key: never shown
    credentials: str = field(default="", repr=False)  # header of a user and password in the URL: never shown

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address."""
        try:
            parts = urlsplit(text.removeprefix(SERVER_PREFIX))
            host, port = parts.hostname, parts.port
            (host or "").encode("idna")
        # The port is not a number or too large, a bracket is open, or two dots follow each other.
        except ValueError as error:
            raise CcrankError(
                f"a model behind a server has the form {EXAMPLE}; got an address that cannot be read: {error}"
            ) from None
        if not is_remote(text) or parts.scheme not in ("http", "https") or not host:
            raise CcrankError(
                f"a model behind a server has the form {EXAMPLE}, with an http or https address; got one with the "
                f"scheme {parts.scheme!r} and the host {host!r}"
            )
        where = f"[{host}]" if ":" in host else host
        authority = where if port is None else f"{where}:{port}"
        credentials = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            credentials = f"Basic {b64encode(pair.encode()).decode()}"
        return cls(
            f"{parts.scheme}://{authority}{parts.path.rstrip('/') or '/v1'}",
            parts.fragment or None,
            parts.query,
            credentials,
        )

    @property
    def name(self) -> str:
        """The address as a model's name, without secrets."""
        return f"{SERVER_PREFIX}{self.base}" + (f"#{self.model}" if self.model else "")

    @property
    def root(self) -> str:
        """The URL of the server itself, where routes outside the API are."""
        return self.base.removesuffix("/v1")

    @property
    def local(self) -> bool:
        """Whether the server is on this machine, so that no proxy leads to it."""
        return urlsplit(self.base).hostname in ("localhost", "127.0.0.1", "::1")


IN_PROMPTS = ("chat", "truncate")
"""Options that change what is read. The others are for loading, so they concern loaded models alone."""


def check_options(models: Sequence[str], options: ReaderOptions) -> None:
    """Refuse options that models behind servers do not take; those of loading may be for the other models."""
    remote = [shown_name(model) for model in models if is_remote(model)]
    others = len(remote) < len(models)
    for option in fields(ReaderOptions) if remote else ():
        value = getattr(options, option.name)
        if value != option.default and (option.name in IN_PROMPTS or not others):
            raise CcrankError(
                f"--{option.name.replace('_', '-')} ({option.name}={value!r}) is for models that ccrank loads itself, "
                f"and {remote[0]} is behind a server: remove it"
            )
