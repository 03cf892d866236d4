"""The settings of a server, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from ccrank.reader_options import ReaderOptions


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What `ccrank serve` takes; the defaults suit one machine."""

    models: tuple[str, ...] = ("default",)
    """The models that requests may name, the first by default: a short name, a hub id, a folder, a .gguf file or
    openai:URL#NAME for a model behind another server; ALIAS=MODEL serves a model under another name."""
    scales: tuple[str, ...] = ()
    """NAME=FILE of the scales that requests may score items on, the first by default."""
    reader: ReaderOptions = field(default_factory=ReaderOptions)
    """How models are loaded and read."""
    cache: bool = True
    """Keep readings on disk, so that no prompt is computed twice."""
    keys: tuple[str, ...] = ()
    """API keys; a request must have one of them as its bearer token. Empty: requests need no key."""
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    """Names that requests may have in their Host header, lower case and without a port; "*" allows all, IP all IP
    addresses. Pages under any other name cannot be made to reach the server, as by DNS rebinding."""
    origins: tuple[str, ...] = ()
    """Names whose pages may send requests when a proxy has changed the Host header."""
    max_body_bytes: int = 8 << 20
    max_held_bytes: int = 256 << 20
    """Bytes of the bodies of all requests together; beyond it large ones are refused."""
    max_items: int = 10_000
    """Items of one request."""
    max_characters: int = 20_000
    """Characters of one item, of the context and of the query."""
    max_labels: int = 1000
    """Labels of one request, repeated pairs once: the time of a fit grows with their third power."""
    max_prompts: int = 50_000
    """Prompts that a method may need for one request: bounds methods that compare all pairs."""
    max_probe_items: int = 500
    """Items of one request for methods that fit a probe."""
    concurrency: int = 64
    """Requests that are worked on at the same time, sharing forward passes."""
    queue: int = 256
    """Further requests that wait; more are refused with 429."""
    timeout: float = 300.0
    """Seconds after which a request ends with 504 and its work stops."""
    body_timeout: float = 30.0
    """Seconds in which a request's body must arrive."""
    head_timeout: float = 10.0
    """Seconds in which a request's head must arrive."""
    write_timeout: float = 60.0
    """Seconds in which a client must take some of its answer."""
    max_connections: int = 1000
    """Maximum open connections; fewer where the limit on open files requires it."""
    drain: float = 30.0
    """Seconds that requests in progress have after SIGTERM."""
    threads: int | None = None
    """Threads of a forward pass; None takes torch's default."""
    reports: str | None = None
    """A folder of studies whose reports (.html) are shown under /reports/."""
    log_items: bool = False
    """Whether texts of requests may appear in logs."""
