"""Write what the examples of the README and of the docs print into the pages: `make examples`.

    PYTHONPATH=tests/support python tests/write_examples.py [PAGE ...]

Every console block with an output gets that of the default model; a command without one stays without.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from ccrank.methods.registry import METHODS
from ccrank.models import Reader
from examples import Step, output_to_show, pages, run_step, steps


def replaced(text: str, step: Step, lines: list[str]) -> str:
    """The page with the output of one command replaced."""
    old = "\n".join(["$ " + step.text, *step.shown])
    if old not in text:
        raise SystemExit(f"a command with an output stands in one line: {step.text}")
    return text.replace(old, "\n".join(["$ " + step.text, *lines]), 1)


def main() -> None:
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    reader = Reader.open("default")
    methods = dict(METHODS)
    for page in chosen:
        METHODS.clear()
        METHODS.update(methods)  # some pages register one
        text = page.read_text(encoding="utf-8")
        names: dict[str, object] = {}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path("docs", "images").mkdir(parents=True)
            for step in list(steps(text)):
                out, err = run_step(step, reader, names)
                if step.kind == "command" and step.shown:
                    text = replaced(text, step, output_to_show(out, err))
            os.chdir(page.parent)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
