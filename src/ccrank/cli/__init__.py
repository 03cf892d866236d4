"""The command `ccrank`."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import NoReturn

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141


def main() -> None:
    """Run the command. Exit codes: 0 done, 2 bad input or usage, 130 interrupted, 141 the reader of the output left."""
    # Hub libraries draw their own bars and warn in their own words; ccrank says what matters itself.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from ccrank.cli.screen import spelled_out
    from ccrank.errors import CcrankError

    # A terminal or pipe of another encoding shows what it cannot write in other characters instead of failing on it.
    codecs.register_error("ccrank", spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ccrank")

    try:
        from ccrank.cli.app import app

        code = app(standalone_mode=False)
        sys.stdout.flush()
    except CcrankError as error:
        _say(f"ccrank: {error}")
        sys.exit(EXIT_BAD_INPUT)
    except BrokenPipeError:
        _leave_quietly()
    except (KeyboardInterrupt, EOFError):
        code = EXIT_INTERRUPTED
    except SystemExit as leaving:
        # The command parser and the console both turn a closed pipe into an exit of their own.
        if isinstance(leaving.__context__, BrokenPipeError):
            _leave_quietly()
        raise
    except Exception as error:
        _usage_or_raise(error)
    # The parser hands the code of an early exit back instead of leaving, an interrupt's among them.
    if code == EXIT_INTERRUPTED:
        _say("ccrank: interrupted")
    if isinstance(code, int) and code:
        sys.exit(code)


def _usage_or_raise(error: Exception) -> NoReturn:
    """The command parser's own errors show their usage line; anything else is a bug and keeps its traceback."""
    import typer

    if isinstance(error, typer.Exit):
        sys.exit(error.exit_code)
    if isinstance(error, typer.Abort):
        _say("ccrank: interrupted")
        sys.exit(EXIT_INTERRUPTED)
    # Typer has carried a parser of its own since 0.2x, and click's before: the same methods, other classes.
    if hasattr(error, "show") and hasattr(error, "exit_code"):
        error.show()
        sys.exit(error.exit_code)
    raise error


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _leave_quietly() -> NoReturn:
    # Python flushes stdout once more at exit; give it somewhere to go.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(EXIT_CLOSED_PIPE)
