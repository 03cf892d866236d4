"""How often the model's own opposite of an adjective is right: asked for adjectives whose opposites the lexicon lists.

    python -m studies.label_free.opposites --words 60 --seed 2

prints how many of the adjectives get a proposal and how many of these stand at the other pole of a scale.
"""

from __future__ import annotations

import argparse
import random
import sys

from ccrank.criteria.lexicon import known_adjectives, scale_between
from ccrank.methods.adjectives import SHOTS, propose_opposite
from ccrank.models import Reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--model", default="default")
    options = parser.parse_args()
    shown = {word for pair in SHOTS for word in pair}
    reader = Reader.open(options.model)
    words = random.Random(options.seed).sample(sorted(known_adjectives() - shown), options.words)
    proposed: dict[str, str] = {}
    for word in words:
        other = propose_opposite(word, reader)
        if other is not None:
            proposed[word] = other
            note = "" if scale_between(word, other) else " (not on one scale)"
            sys.stdout.write(f"{word}: {other}{note}\n")
            sys.stdout.flush()
    right = sum(scale_between(word, other) is not None for word, other in proposed.items())
    sys.stdout.write(f"{len(words)} adjectives, {len(proposed)} proposals, {right} right\n")


if __name__ == "__main__":
    main()
