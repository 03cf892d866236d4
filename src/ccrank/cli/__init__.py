"""The command `ccrank`."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import warnings
from traceback import walk_tb
from typing import NoReturn, TextIO

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a device that takes no more."""
BAD_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of a name that no file can have."""
PRINTING = ("ccrank.cli", "rich", "typer", "click")
"""The modules that write to the standard output."""


def main() -> None:
    """Run the command. Exit codes: 0 done, 2 bad input or usage, 130 interrupted, 141 closed pipe."""
    # Disable the progress bars and warnings of hub libraries; ccrank reports its own status.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from ccrank.cli.screen import spelled_out
    from ccrank.errors import CcrankError, CcrankWarning, ModelWarning

    # On a terminal or pipe with another encoding, replace characters that it cannot represent instead of failing.
    codecs.register_error("ccrank", spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ccrank")

    # Commands show the warnings of rankings themselves, in whatever form they are asked for.
    warnings.simplefilter("ignore", CcrankWarning)
    warnings.simplefilter("always", ModelWarning)
    warnings.showwarning = _show_warning
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
        # The command parser and the console both convert a closed pipe into an exit.
        if isinstance(leaving.__context__, BrokenPipeError):
            _leave_quietly()
        raise
    except OSError as error:
        if error.errno not in FULL + BAD_NAMES:
            raise
        _say(f"ccrank: {_failed_device(error)}: {error.strerror}")
        if error.errno in FULL:
            _close_stdout()
        sys.exit(EXIT_BAD_INPUT)
    except Exception as error:
        _usage_or_raise(error)
    # The parser returns the code of an early exit, such as an interrupt, instead of exiting.
    if code == EXIT_INTERRUPTED:
        _say("ccrank: interrupted")
    if isinstance(code, int) and code:
        sys.exit(code)


def _usage_or_raise(error: Exception) -> NoReturn:
    """Show usage errors of the command parser with their usage line; anything else is a bug and keeps its traceback."""
    import typer

    if isinstance(error, typer.Exit):
        sys.exit(error.exit_code)
    if isinstance(error, typer.Abort):
        _say("ccrank: interrupted")
        sys.exit(EXIT_INTERRUPTED)
    # Typer bundles its own parser since 0.2x and used click's before: same methods, different classes.
    if hasattr(error, "show") and hasattr(error, "exit_code"):
        error.show()
        sys.exit(error.exit_code)
    raise error


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from ccrank.errors import CcrankWarning

    if issubclass(category, CcrankWarning):
        _say(f"ccrank: warning: {message}")
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno, line))


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _failed_device(error: OSError) -> str:
    """Which device takes no more. Output files are checked where they are written; there are also the standard output,
    downloaded models and temporary files."""
    from ccrank.util.text import shortened

    if error.filename is not None:
        return f"cannot read or write {shortened(str(error.filename), 200)}"
    *_, (innermost, _) = walk_tb(error.__traceback__)
    if str(innermost.f_globals.get("__name__")).startswith(PRINTING):
        return "cannot write to the standard output"
    return "cannot read or write a file"


def _leave_quietly() -> NoReturn:
    _close_stdout()
    sys.exit(EXIT_CLOSED_PIPE)


def _close_stdout() -> None:
    # Python flushes stdout again at exit; redirect it to avoid another error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
