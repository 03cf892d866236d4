"""Tokenizing many texts that start with the same long context: the context once, then each continuation.

Concatenating the tokens of two parts is correct only if the tokenizer splits there anyway. This is verified on one
whole text of each context; where it does not hold, all texts of that context are tokenized whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ccrank.prompts import Piece

Tokenize = Callable[[list[str]], list[list[int]]]

WORTHWHILE = 200
"""Contexts with fewer characters are tokenized with each text."""


def context_cut(pieces: Sequence[Piece]) -> int:
    """The character position at which a prompt's text may be cut: before the last word of its context; 0 for a short or
    missing context."""
    end = 0
    for piece in pieces:
        if piece.role == "context":
            cut = end + piece.text.rstrip().rfind(" ")
            return cut if cut - end >= WORTHWHILE else 0
        end += len(piece.text)
    return 0


def prefix_shared_tokens(texts: Sequence[str], cuts: Sequence[int], tokenize: Tokenize) -> list[list[int]]:
    """The tokens of each text; `cuts[i]` is the position at which text i may be cut in two, 0 if it may not."""
    first_use: dict[str, int] = {}
    uses: Counter[str] = Counter()
    for index, (text, cut) in enumerate(zip(texts, cuts, strict=True)):
        if cut:
            first_use.setdefault(text[:cut], index)
            uses[text[:cut]] += 1
    heads = [
        head for head, count in uses.items() if count > 2
    ]  # with fewer uses, verifying costs more than it saves
    tokens_of = dict(zip(heads, tokenize(heads), strict=True))
    trials = [texts[first_use[head]] for head in heads]
    rests = [trial[len(head) :] for head, trial in zip(heads, trials, strict=True)]
    for head, whole, rest in zip(heads, tokenize(trials), tokenize(rests), strict=True):
        if tokens_of[head] + rest != whole:
            del tokens_of[head]
    parts = [
        text[cut:] if cut and text[:cut] in tokens_of else text for text, cut in zip(texts, cuts, strict=True)
    ]
    return [
        tokens_of.get(text[: len(text) - len(part)], []) + row if len(part) < len(text) else row
        for text, part, row in zip(texts, parts, tokenize(parts), strict=True)
    ]
