"""The table of phrases and its judge. `python tests/support/phrase_table.py` prints the rates."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ccrank.criteria import understand
from ccrank.errors import CcrankError
from ccrank.util.files import parse_toml

TABLE = parse_toml(Path(__file__).with_name("phrases.toml"))
PARTS = ("choose", "report", "fresh", "kept")


@dataclass(frozen=True)
class Verdict:
    """How one phrase of the table came out."""

    right: bool
    """Both poles are accepted words, in the right direction; or it is refused as it should be."""
    silent: bool
    """Right at neither pole, without a warning: a silent reversal, or another scale."""


def judged(phrase: str, expected: str) -> Verdict:
    """Compare what is understood with what the table says: "+price", "-price" or "refuse"."""
    try:
        found = understand(phrase)
    except CcrankError:
        return Verdict(expected == "refuse", silent=False)
    if expected == "refuse":
        return Verdict(right=False, silent=found.certain)
    low, high = (set(words.split()) for words in TABLE["scales"][expected[1:]])
    if expected[0] == "-":
        low, high = high, low
    own_low, own_high = (pole.replace("not ", "not-") for pole in found.poles)
    return Verdict(
        right=own_low in low and own_high in high,
        silent=found.certain and own_low not in low and own_high not in high,
    )


def main() -> None:
    for part in PARTS:
        verdicts = {phrase: judged(phrase, expected) for phrase, expected in TABLE[part]["phrases"]}
        right = sum(verdict.right for verdict in verdicts.values())
        silent = sum(verdict.silent for verdict in verdicts.values())
        sys.stdout.write(
            f"{part}: {right} of {len(verdicts)} right ({right / len(verdicts):.1%}), {silent} silent\n"
        )
        wrong = [phrase for phrase, verdict in verdicts.items() if not verdict.right]
        sys.stdout.write(f"  not right: {', '.join(wrong)}\n")


if __name__ == "__main__":
    main()
