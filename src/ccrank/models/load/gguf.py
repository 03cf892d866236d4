"""Verifying the tokenizer that `transformers` makes of a GGUF file, and rebuilding it where it is wrong.

A GGUF file stores a SentencePiece vocabulary without its merges: the token that comes first in the file is merged
first. Some versions of `transformers` (5.17 for Gemma) write another kind of model, and texts are split into single
characters. The weights are right then, and every answer is at chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError

SAMPLE = "The largest country in the world is Russia, and the capital of Germany is Berlin. 3 apples cost 12 dollars."
BLANK = "▁"
NORMAL, UNKNOWN, USER_DEFINED, BYTE = 1, 2, 4, 6
"""Types of tokens in a GGUF file. Those of type 3 (control) and 5 (unused) are never made by merging."""


def verify_tokenizer(fields: Mapping[str, Any], folder: Path) -> None:
    """Compare the tokenizer in a folder with the vocabulary of its GGUF file, and rebuild it if texts are split
    differently.

    Parameters
    ----------
    fields
        The fields of a `GGUFReader`. Only SentencePiece BPE ("llama") is checked: the other tokenizers state their
        merges.
    folder
        Where `transformers` saved the tokenizer.
    """
    kind = fields.get("tokenizer.ggml.model")
    if kind is None or kind.contents() != "llama" or "tokenizer.ggml.merges" in fields:
        return
    tokens = [_spelled(token) for token in fields["tokenizer.ggml.tokens"].contents()]
    types: Sequence[int] = fields["tokenizer.ggml.token_type"].contents()
    ranks = {
        token: rank
        for rank, (token, own) in enumerate(zip(tokens, types, strict=True))
        if own in (NORMAL, USER_DEFINED)
    }
    if _agrees(folder, ranks):
        return
    path = folder / "tokenizer.json"
    stored = json.loads(path.read_text())
    known = {added["content"] for added in stored["added_tokens"]}
    stored["added_tokens"] += [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": False,
        }
        for index, (token, own) in enumerate(zip(tokens, types, strict=True))
        if own == USER_DEFINED and token not in known
    ]
    stored["model"] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": _unknown(tokens, types),
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": BYTE in types,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": [list(pair) for pair in merges(ranks)],
    }
    path.write_text(json.dumps(stored, ensure_ascii=False))
    if not _agrees(folder, ranks):
        import transformers

        raise CcrankError(
            f"transformers {transformers.__version__} makes a wrong tokenizer of this GGUF file; install another "
            "version (5.22 works for Gemma 3), or convert the file on another machine and pass the folder as --model"
        )


def merges(ranks: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """The pairs of tokens that are merged, first ones first.

    Parameters
    ----------
    ranks
        Token → its rank in the vocabulary.
    """
    for token in sorted(ranks, key=ranks.__getitem__):
        for cut in range(1, len(token)):
            if token[:cut] in ranks and token[cut:] in ranks:
                yield token[:cut], token[cut:]


def merged(text: str, ranks: Mapping[str, int]) -> list[str]:
    """A text split as SentencePiece BPE does: of all adjacent pairs, the one with the lowest rank is merged first.

    Parameters
    ----------
    text
        A text, its blanks written as "▁".
    ranks
        Token → its rank in the vocabulary.

    >>> merged("abab", {"a": 0, "b": 1, "ab": 2, "ba": 3})
    ['ab', 'ab']
    """
    pieces = list(text)
    while True:
        pairs = [
            (ranks[left + right], place)
            for place, (left, right) in enumerate(pairwise(pieces))
            if left + right in ranks
        ]
        if not pairs:
            return pieces
        _, place = min(pairs)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


def _agrees(folder: Path, ranks: Mapping[str, int]) -> bool:
    """Whether the tokenizer, as `transformers` opens it, splits a sample text right, with or without a first blank."""
    from transformers import AutoTokenizer

    from ccrank.lm.hf_logging import quiet_transformers

    text = SAMPLE.replace(" ", BLANK)
    if not set(text) <= ranks.keys():
        return True  # a vocabulary without these letters is not checked
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    found = tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]
    return any(found == [ranks[piece] for piece in merged(own, ranks)] for own in (text, BLANK + text))


def _spelled(token: str) -> str:
    """Runs of blanks are stored as such, all other blanks as "▁"."""
    return BLANK * len(token) if " " in token and not token.strip(" ") else token


def _unknown(tokens: Sequence[str], types: Sequence[int]) -> str | None:
    return next((token for token, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None) or (
        "<unk>" if "<unk>" in tokens else None
    )
