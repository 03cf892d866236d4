"""The command `ccrank`."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import warnings
from traceback import walk_tb

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a device that is full or fails."""
BAD_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of a name that no file can have."""
PRINTING = ("ccrank.cli", "rich", "typer", "click")
"""The modules that write to the standard output."""


def main() -> None:
    """Run the command. Exit codes: 0 done, 2 bad input or usage, 130 interrupted, 141 closed pipe."""
    # Disable the progress bars and warnings of hub libraries; ccrank reports its own status.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from ccrank.cli.screen import say, spelled_out
    from ccrank.errors import CcrankError, CcrankWarning, ModelWarning

    # On a terminal or pipe with another encoding, replace characters that it cannot represent instead of failing.
    codecs.register_error("ccrank", spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ccrank")

    # Commands show the warnings of rankings themselves, in whatever form they are asked for.
    warnings.simplefilter("ignore", CcrankWarning)
    warnings.simplefilter("always", ModelWarning)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    output_lost = False
    try:
        from ccrank.cli.commands import app

        _check_arguments(sys.argv[1:])
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except CcrankError as error:
        say(str(error))
        code = EXIT_BAD_INPUT
    except (KeyboardInterrupt, EOFError):
        code = EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as leaving:
        # The command parser and the console both convert a closed pipe into an exit.
        if not isinstance(leaving, BrokenPipeError) and not isinstance(leaving.__context__, BrokenPipeError):
            raise
        code, output_lost = EXIT_CLOSED_PIPE, True
    except OSError as error:
        if error.errno not in FULL + BAD_NAMES:
            raise
        say(f"{_failed_device(error)}: {error.strerror}")
        code, output_lost = EXIT_BAD_INPUT, error.errno in FULL
    except Exception as error:
        # Typer bundles its own parser since 0.2x and used click's before: same methods, different classes.
        if type(error).__name__ == "Abort":
            code = EXIT_INTERRUPTED
        elif hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            code = error.exit_code
        else:
            raise  # a bug, which keeps its traceback
    # The parser returns the code of an early exit, such as an interrupt, instead of exiting.
    if code == EXIT_INTERRUPTED:
        say("interrupted")
    if output_lost:
        # Python flushes stdout again at exit; redirect it to avoid another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(code, int) and code:
        sys.exit(code)


def _check_arguments(arguments: list[str]) -> None:
    """Refuse half characters, which Windows can pass: no file, server or model takes them."""
    from ccrank.errors import CcrankError

    for argument in arguments:
        try:
            os.fsencode(argument)
        except UnicodeEncodeError:
            raise CcrankError(f"not valid Unicode: {argument!r}; type this argument again") from None


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object
) -> None:
    from ccrank.cli.screen import say
    from ccrank.errors import CcrankWarning

    if issubclass(category, CcrankWarning):
        say(f"warning: {message}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _failed_device(error: OSError) -> str:
    """The file or device that cannot be written. Output files are checked where they are written; others are the
    standard output, downloaded models and temporary files."""
    from ccrank.util.text import shortened

    if error.filename is not None:
        return f"cannot read or write {shortened(str(error.filename), 200)}"
    *_, (innermost, _) = walk_tb(error.__traceback__)
    if str(innermost.f_globals.get("__name__")).startswith(PRINTING):
        return "cannot write to the standard output"
    return "cannot read or write a file"
