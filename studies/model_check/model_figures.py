"""Measures the figures that the check compares listed models with, as TOML:

python -m studies.model_check.model_figures smollm2-135m-q4 gemma-3-270m-q4 > src/ccrank/models/check/figures.toml
"""

from __future__ import annotations

import argparse

from ccrank.models import Reader
from ccrank.models.check.model_check import check_model
from ccrank.reader_options import ReaderOptions


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="short names of `ccrank models list`")
    lines = [
        "# Bits per character of the English sentences of check.toml, and of their words shuffled; float32, CPU.",
        "# Written by studies/model_check/model_figures.py.",
    ]
    for name in parser.parse_args().models:
        reader = Reader.open(name, ReaderOptions(device="cpu", dtype="float32"), check=False)
        sentences = [one for one in check_model(reader).sentences if one.language == "english"]
        lines += [
            "",
            f"[{reader.name}]",
            f"bits = [{', '.join(f'{one.bits:.4f}' for one in sentences)}]",
            f"shuffled_bits = [{', '.join(f'{one.shuffled_bits:.4f}' for one in sentences)}]",
        ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
