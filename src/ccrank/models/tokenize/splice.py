"""Tokenizing many causal prompts at once from the tokens of their words.

Nearly all tokenizers split a text before each blank that separates two words. The tokens of a text are then its
words' tokens, one after another, and most words of many prompts are the same. Whether this holds is decided from the
tokenizer itself: no token contains a blank behind another character, and a sample text has the tokens of its words.
The first prompt of each kind and every 64th short prompt are also tokenized whole; if any differs, all are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np

from ccrank.models.tokenize.by_form import TokenRow, check_answers, overlapping, token_rows
from ccrank.models.tokenize.ragged import Ragged, common_prefix, side_by_side, starts_of
from ccrank.models.tokenize.tokenized import Tails, TokenizedPrompts
from ccrank.prompts import Piece, Prompt

MAX_WORDS = 1 << 16  # words that are remembered; beyond that all are forgotten
LONG_CONTEXT = 64  # longer contexts are tokenized once for all prompts that start with them
TRIAL_EVERY = 64  # one in this many short prompts is also tokenized whole
MAX_ANSWERS = 8
"""Answers with which the first prompt of each kind is tokenized whole, if it is shorter than `LONG_TEXT`."""
LONG_TEXT = 400

_CUT = re.compile(r"(?<=\S) (?=\S)")
# A blank behind another character, in any of the ways white space is written in vocabularies.
_CROSSING = re.compile(r"[^\sĠ▁Ċĉč][ Ġ▁]")
_SAMPLE = "On a scale, the (size) of the 12 Old \"Towns\" isn't 3.5 – naïve? Yes\n\nNo: x_y/z A's"
_END, _NEXT = "\x01", "\x00"
"""Separate texts and words that are handled together; texts with these characters are split one by one."""
# A blank where no text is cut, other than at the start of a text.
_NOT_A_CUT = re.compile(rf" (?:(?=[\s{_END}])|(?<=\s ))")


def split_words(text: str) -> list[str]:
    """A text cut before each single blank between two other characters.

    >>> split_words("a  b c\\n d")
    ['a  b', ' c\\n d']
    """
    edges = [0, *(match.start() for match in _CUT.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def words_of(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The words of all texts and their number in each text; a text that starts with a blank has an empty first word."""
    joined = "".join(f"{_END}{text}" for text in texts) + _END
    plain = _NEXT not in joined and joined.count(_END) == len(texts) + 1
    if plain and not _NOT_A_CUT.search(joined):
        words = joined[:-1].replace(_END, _NEXT).replace(" ", f"{_NEXT} ").split(_NEXT)[1:]
        return words, [text.count(" ") + 1 for text in texts]
    split = list(map(split_words, texts))
    return list(chain.from_iterable(split)), list(map(len, split))


class WordTokens:
    """Remembers the tokens of words by a tokenizer of `transformers`."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._known: dict[str, TokenRow] = {}

    @cached_property
    def separable(self) -> bool:
        """Whether the tokens of any text are the concatenated tokens of its words."""
        if not getattr(self.tokenizer, "is_fast", False):
            return False
        added = self.tokenizer.added_tokens_decoder.values()
        # Such a token takes the blanks behind it, which belong to the next word.
        if any(token.rstrip or " " in token.content.strip() for token in added):
            return False
        vocabulary = {*self.tokenizer.backend_tokenizer.get_vocab()} - {str(token) for token in added}
        if any(map(_CROSSING.search, vocabulary)):
            return False
        [whole] = token_rows(self.tokenizer, [_SAMPLE], special=False, offsets=False)
        return list(self.rows([_SAMPLE])[0]) == whole.ids

    def rows(self, texts: Sequence[str]) -> Ragged:
        """The tokens of each text."""
        words, counts = words_of(texts)
        by_word = Ragged.of([row.ids for row in self.look_up(words)])
        return Ragged(by_word.flat, by_word.starts[starts_of(np.array(counts, np.int64))])

    def look_up(self, words: Sequence[str]) -> list[TokenRow]:
        """The tokens of each word."""
        known = self._known
        try:
            return list(map(known.__getitem__, words))
        except KeyError:
            if len(known) > MAX_WORDS:
                known = self._known = {}  # another thread may be reading the old one
            missing = [word for word in dict.fromkeys(words) if word not in known]
            rows = token_rows(self.tokenizer, missing, special=False, offsets=True)
            known.update(zip(missing, rows, strict=True))
            return list(map(known.__getitem__, words))


@dataclass(slots=True, eq=False)
class _Cut:
    """P prompts, cut into words."""

    heads: dict[str, int]  # the distinct heads, numbered: long contexts up to their last word
    head_of: list[int]  # (P,) the head of each prompt
    rests: list[str]  # (P,) the text after the head, up to the slot or with the answer that fills it
    leads: list[str]  # (P,) the blanks between the text and its candidates
    words: list[str]  # the words of all rests
    edges: np.ndarray  # (P + 1,) where the words of each rest start


def splice(
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    words: WordTokens,
    bos: Sequence[int],
    items: bool,
) -> TokenizedPrompts | None:
    """Tokenize prompts from the tokens of their words; None if a trial shows that whole texts have other tokens."""
    cut = _cut(prompts)
    known = words.look_up(cut.words)
    tails, tails_of, merged, leaders = _tails(prompts, candidates, cut, words)
    ids = [row.ids for row in known]
    for index in np.flatnonzero(merged).tolist():
        last = cut.edges[index + 1] - 1
        ids[last] = ids[last][: -merged[index]]
    by_word = Ragged.of(ids)
    heads = Ragged.of([[*bos, *row.tolist()] for row in words.rows(list(cut.heads))])
    rest = Ragged(by_word.flat, by_word.starts[cut.edges])
    tokens = side_by_side((heads, np.array(cut.head_of, np.int64)), (rest, np.arange(len(rest))))
    slots, item_positions = tokens.lengths - 1, np.full(len(prompts), -1, np.int64)
    if (slots < 0).any():
        return None
    if items:
        with_item, word, last_token = _last_tokens(prompts, cut, known)
        if ((last_token < 0) | (last_token >= by_word.lengths[word])).any():
            return None  # not found, or a candidate merges with it
        item_positions[with_item] = (
            (slots + 1)[with_item] - rest.starts[1:][with_item] + by_word.starts[word] + last_token
        )
    spliced = TokenizedPrompts(tokens, slots, item_positions, tails_of, tails)
    return spliced if _trials_agree(spliced, candidates, cut, leaders, words, len(bos)) else None


def _cut(prompts: Sequence[Prompt]) -> _Cut:
    heads: dict[str, int] = {}
    head_of, rests, leads = [], [], []
    for prompt in prompts:
        pieces = prompt.pieces[:-1] if prompt.pieces[-1].role == "slot" else prompt.before
        text = "".join([piece.text for piece in pieces])
        stem = text.rstrip(" ") if prompt.answer is None else text + prompt.answer
        length = _head_length(pieces)
        head_of.append(heads.setdefault(stem[:length], len(heads)))
        rests.append(stem[length:])
        leads.append(text[len(stem) :])
    words, counts = words_of(rests)
    return _Cut(heads, head_of, rests, leads, words, starts_of(np.array(counts, np.int64)))


def _head_length(pieces: Sequence[Piece]) -> int:
    """The number of characters up to the last word of a long context; 0 without one."""
    start = 0
    for piece in pieces:
        if piece.role == "item":
            break
        text = piece.text
        if piece.role == "context" and len(text) > LONG_CONTEXT:
            blank = text.rstrip().rfind(" ")
            return start + blank if blank > 0 and _CUT.match(text, blank) else 0
        start += len(text)
    return 0


def _tails(
    prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], cut: _Cut, words: WordTokens
) -> tuple[tuple[Tails, ...], np.ndarray, np.ndarray, set[int]]:
    """The distinct lists of answers as tokens; for each prompt which of them it has, and how many tokens of the prompt
    merge with them; and the first prompt of each kind."""
    # Most prompts have the very same list of answers.
    lists = {id(answers): answers for answers in candidates}
    separate = {
        number: all(not answer[0].isspace() for answer in answers) for number, answers in lists.items()
    }
    sets: dict[Tails, int] = {}
    kinds: dict[tuple[object, ...], tuple[int, int]] = {}
    of_prompts, leaders = [], set()
    for index, last in enumerate((cut.edges[1:] - 1).tolist()):
        answers = candidates[index]
        lead = cut.leads[index]
        # A single blank before an answer is a cut: its tokens are the same after every word.
        word = "" if not answers or (lead == " " and separate[id(answers)]) else cut.words[last]
        key = cut.head_of[index], id(answers), lead, word
        if key not in kinds:
            before, *full = (
                row.tolist() for row in words.rows([word, *(f"{word}{lead}{answer}" for answer in answers)])
            )
            stem = common_prefix([before, *full])
            tails = tuple(tuple(ids[stem:]) for ids in full)
            check_answers(prompts[index].task, answers, tails, words.tokenizer.unk_token_id)
            kinds[key] = sets.setdefault(tails, len(sets)), len(before) - stem
            leaders.add(index)
        of_prompts.append(kinds[key])
    tails_of, merged = np.array(of_prompts, np.int64).reshape(-1, 2).T
    return tuple(sets), tails_of, merged, leaders


def _last_tokens(
    prompts: Sequence[Prompt], cut: _Cut, known: Sequence[TokenRow]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The prompts with an item (n,), the word in which it ends, and its last token in that word, or -1."""
    heads = list(map(len, cut.heads))
    spans: np.ndarray = np.array(
        [
            (start - heads[head], min(end - heads[head], len(rest)))
            for (start, end), head, rest in zip(map(_last_item, prompts), cut.head_of, cut.rests, strict=True)
        ],
        np.int64,
    )
    with_item = np.flatnonzero(spans[:, 1] > 0)
    characters = starts_of(np.fromiter(map(len, cut.words), np.int64, len(cut.words)))
    first = characters[cut.edges[with_item]]
    start, end = (first + column for column in spans[with_item].T)
    word = np.searchsorted(characters, end - 1, side="right") - 1
    in_words = np.stack([word, start - characters[word], end - characters[word]], axis=1).tolist()
    tokens = [
        max(overlapping(known[index].offsets, start, end), default=-1) for index, start, end in in_words
    ]
    return with_item, word, np.array(tokens, np.int64)


def _last_item(prompt: Prompt) -> tuple[int, int]:
    """The characters (start, end) of the last item before the slot; (0, 0) without one."""
    item, start = (0, 0), 0
    for piece in prompt.pieces:
        if piece.role == "slot":
            break
        end = start + len(piece.text)
        if piece.role == "item":
            item = start, end
        start = end
    return item


def _trials_agree(
    spliced: TokenizedPrompts,
    candidates: Sequence[Sequence[str]],
    cut: _Cut,
    leaders: set[int],
    words: WordTokens,
    bos: int,
) -> bool:
    """Whether some prompts have the same tokens as when they are tokenized whole with their answers."""
    heads = list(cut.heads)
    wholes, expected = [], []
    for index in sorted({*leaders, *range(0, len(cut.rests), TRIAL_EVERY)}):
        text = heads[cut.head_of[index]] + cut.rests[index]
        if len(text) >= LONG_TEXT and index not in leaders:
            continue
        tokens = spliced.tokens[index].tolist()[bos:]
        tails = spliced.tail_sets[spliced.tails_of[index]]
        # A long text with one answer shows as much as with all.
        count = MAX_ANSWERS if len(text) < LONG_TEXT and index in leaders else 1
        wholes += (
            [f"{text}{cut.leads[index]}{answer}" for answer in candidates[index][:count]] if tails else [text]
        )
        expected += [[*tokens, *tail] for tail in (tails or ((),))[:count]]
    rows = token_rows(words.tokenizer, wholes, special=False, offsets=False)
    return [row.ids for row in rows] == expected
