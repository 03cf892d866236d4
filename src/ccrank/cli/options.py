"""Options that several commands share, and the reader that they describe."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccrank.cli.screen import spinner
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.lm import Reader

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="A short name (see `ccrank models list`), a hub id, a folder or a .gguf file."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps …")]
Precision = Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")]
BatchTokens = Annotated[
    str,
    typer.Option(help="Tokens per forward pass; auto finds what fits and halves it when memory runs out."),
]
Chat = Annotated[bool, typer.Option("--chat", help="Put prompts into the model's chat template.")]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut contexts that exceed the model's window from their middle.")
]
AllowPickle = Annotated[
    bool,
    typer.Option("--allow-pickle", help="Open pickled weights, which can run any code: trust their source."),
]
AllowNewHead = Annotated[
    bool, typer.Option("--allow-new-head", help="Prompt a model although its language-model head is random.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither use nor keep readings on disk.")]
TemplateFile = Annotated[
    Path | None, typer.Option("--templates", help="A TOML file of templates laid over the shipped ones.")
]
TemplateChange = Annotated[
    list[str] | None,
    typer.Option("--template", help="One template, as NAME=TEXT, such as 'single=I find {item} {slot}'."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_reader(
    model: str,
    device: str,
    dtype: str,
    batch_tokens: str,
    chat: bool,
    truncate: bool,
    allow_pickle: bool,
    allow_new_head: bool,
    no_cache: bool,
) -> Reader:
    """The reader that the shared options describe, with a word on what it is waiting for."""
    with spinner("starting") as say:
        from ccrank.lm import Reader, ReadingCache

        return Reader.open(
            model,
            device=device,
            dtype=dtype,
            batch_tokens=batch_tokens,
            chat=chat,
            truncate=truncate,
            allow_pickle=allow_pickle,
            allow_new_head=allow_new_head,
            cache=None if no_cache else ReadingCache(),
            say=say,
        )


def parse_pairs(pairs: Iterable[str] | None) -> dict[str, str]:
    """NAME=VALUE options to a dictionary."""
    parsed = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CcrankError(f"an option is given as NAME=VALUE, such as calibration=none, got {pair!r}")
        parsed[name.strip()] = value.strip()
    return parsed
