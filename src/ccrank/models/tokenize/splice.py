"""Tokenizing many causal prompts at once from the tokens of their words.

A prompt is cut around its items into segments, which many prompts share: the template's words, the context, an item.
Each distinct segment is tokenized once, from words that are tokenized once. The first prompt of each wording and every
64th short prompt are also tokenized whole; if any differs, all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ccrank.models.tokenize.ragged import Ragged, ranges, starts_of
from ccrank.models.tokenize.segments import Cut, cut_prompts
from ccrank.models.tokenize.tokenized import Tails, TokenizedPrompts
from ccrank.models.tokenize.word_tokens import WordTokens, split_words
from ccrank.prompts import Prompt

TRIAL_EVERY = 64
"""One in this many short prompts is also tokenized whole."""
MAX_ANSWERS = 8
"""Answers with which the first prompt of each wording is tokenized whole, if it is shorter than `LONG_TEXT`."""
LONG_TEXT = 400

CheckAnswers = Callable[[Prompt, Sequence[str], Tails], None]


def splice(
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    words: WordTokens,
    bos: Sequence[int],
    items: bool,
    check: CheckAnswers,
) -> TokenizedPrompts | None:
    """Tokenize prompts from the tokens of their words; None if a trial shows that whole texts have other tokens."""
    cut = cut_prompts(prompts)
    texts = list(cut.numbers)
    table, ends = words.rows(texts)
    kind_of = np.array(cut.kind_of, np.int64)
    counts = np.array([kind.segments for kind in cut.kinds], np.int64)[kind_of]
    edges = starts_of(counts)
    segments = np.array(cut.segments, np.int64)
    if not counts.all() or not table.lengths.all():
        return None  # an empty prompt or segment: rare enough to be tokenized whole

    tails = _Tails(words, texts, check)
    chosen, dropped = tails.of(prompts, candidates, cut, kind_of, segments[edges[1:] - 1])
    sizes = table.lengths[segments]
    lengths = np.add.reduceat(sizes, edges[:-1]) - dropped
    starts = starts_of(lengths + len(bos))
    flat = np.empty(int(starts[-1]), np.int32)
    flat[(starts[:-1, None] + np.arange(len(bos))).ravel()] = np.tile(np.asarray(bos, np.int32), len(lengths))
    sizes[edges[1:] - 1] -= dropped
    if (sizes < 0).any() or (lengths + len(bos) < 1).any():
        return None
    flat[ranges(starts[:-1] + len(bos), lengths)] = table.flat[ranges(table.starts[segments], sizes)]
    slots = starts[1:] - starts[:-1] - 1
    at = np.full(len(prompts), -1, np.int64)
    if items:
        marks = np.array(cut.marks, np.int64)  # (P, 4)
        segment_of_item, last_token = edges[:-1] + marks[:, 0], _last_tokens(marks, texts, ends, words)
        if (last_token < 0).any() or (last_token >= sizes[segment_of_item]).any():
            return None  # no such item, or a candidate merges with it
        before = starts_of(sizes)
        at = before[segment_of_item] - before[edges[:-1]] + last_token + len(bos)
    spliced = TokenizedPrompts(Ragged(flat, starts), slots, at, chosen, tuple(tails.sets))
    return (
        spliced if _trials_agree(spliced, prompts, candidates, cut, kind_of, edges, words, len(bos)) else None
    )


class _Tails:
    """The tokens of answers after prompts."""

    def __init__(self, words: WordTokens, texts: Sequence[str], check: CheckAnswers) -> None:
        self.words, self.texts, self.check = words, texts, check
        self.sets: dict[Tails, int] = {}

    def of(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[Sequence[str]],
        cut: Cut,
        kind_of: np.ndarray,
        last: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each prompt which of `sets` its answers are, and how many tokens of the prompt merge with them."""
        # Most prompts have the very same list of answers.
        lists: dict[int, Sequence[str]] = {id(answers): answers for answers in candidates}
        list_number = dict(zip(lists, range(len(lists)), strict=True))
        list_of = np.zeros(len(prompts), np.int64)
        if len(lists) > 1:
            list_of = np.array([list_number[id(answers)] for answers in candidates], np.int64)
        none = np.array([not answers for answers in lists.values()], bool)
        separate: np.ndarray = np.array(
            [all(not answer[0].isspace() for answer in answers) for answers in lists.values()], bool
        )
        spaced = np.array([kind.lead == " " for kind in cut.kinds], bool)[kind_of]
        filled = np.array([kind.filled for kind in cut.kinds], bool)[kind_of]
        # A blank between prompt and answer is a cut: the answer's tokens are the same after every prompt.
        after = np.where(filled | none[list_of] | (spaced & separate[list_of]), -1, last)
        cases = (after + 1) * (len(lists) * len(cut.kinds)) + list_of * len(cut.kinds) + kind_of
        _, first, case_of = np.unique(cases, return_index=True, return_inverse=True)
        kinds = list(cut.kinds)
        resolved = [
            self._resolved(
                prompts[index],
                () if filled[index] else candidates[index],
                kinds[kind_of[index]].lead,
                int(after[index]),
            )
            for index in first.tolist()
        ]
        return (
            np.array([number for number, _ in resolved], np.int64)[case_of],
            np.array([merged for _, merged in resolved], np.int64)[case_of],
        )

    def _resolved(self, prompt: Prompt, answers: Sequence[str], lead: str, segment: int) -> tuple[int, int]:
        last = "" if segment < 0 or not answers else split_words(self.texts[segment])[-1]
        rows, _ = self.words.rows([last, *(f"{last}{lead}{answer}" for answer in answers)])
        word, *full = (row.tolist() for row in rows)
        stem = common_prefix([word, *full])
        tails = tuple(tuple(ids[stem:]) for ids in full)
        self.check(prompt, answers, tails)
        return self.sets.setdefault(tails, len(self.sets)), len(word) - stem


def common_prefix(rows: Sequence[Sequence[object]]) -> int:
    """How many leading tokens all rows share."""
    first = list(rows[0])
    if all(list(row[: len(first)]) == first for row in rows):
        return len(first)  # the usual case: an answer changes no token of its prompt
    for count, column in enumerate(zip(*rows, strict=False)):
        if any(token != column[0] for token in column):
            return count
    return min(map(len, rows))


def _last_tokens(marks: np.ndarray, texts: Sequence[str], ends: np.ndarray, words: WordTokens) -> np.ndarray:
    """(P,) the last token of each prompt's item, counted from the start of its segment; -1 where it is not found.

    Shapes: marks (P, 4).
    """
    segment, end = marks[:, 1], marks[:, 3]
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    last = np.where(end == 0, -1, ends[segment])
    # Where text follows the item in its segment, or the last token is not the item's, offsets tell.
    inside = np.flatnonzero((end > 0) & ((end < sizes[segment]) | (last < 0)))
    cases, which = np.unique(marks[inside, 1:], axis=0, return_inverse=True)
    encoded = words.encode([texts[number] for number in cases[:, 0].tolist()])
    overlaps = [
        _last_overlap(row.offsets, start, stop)
        for row, (_, start, stop) in zip(encoded, cases.tolist(), strict=True)
    ]
    last[inside] = np.array(overlaps, np.int64)[which.ravel()]
    return last


def _last_overlap(offsets: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """The last token that overlaps these characters; -1 if none does."""
    for index in range(len(offsets) - 1, -1, -1):
        token_start, token_end = offsets[index]
        if token_start < end and token_end > start and token_end > token_start:
            return index
    return -1


def _trials_agree(
    spliced: TokenizedPrompts,
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    cut: Cut,
    kind_of: np.ndarray,
    edges: np.ndarray,
    words: WordTokens,
    bos: int,
) -> bool:
    """Whether some prompts have the same tokens as when they are tokenized whole with their answers."""
    texts, kinds = list(cut.numbers), list(cut.kinds)
    leaders = set(np.unique(kind_of, return_index=True)[1].tolist())
    wholes, expected = [], []
    for index in sorted({*leaders, *range(0, len(prompts), TRIAL_EVERY)}):
        text = "".join(texts[number] for number in cut.segments[edges[index] : edges[index + 1]])
        if len(text) >= LONG_TEXT and index not in leaders:
            continue
        tokens = spliced.tokens[index].tolist()[bos:]
        tails = spliced.tail_sets[spliced.tails_of[index]]
        if not tails:
            wholes.append(text)
            expected.append(tokens)
            continue
        # A long text with one answer shows as much as with all.
        count = MAX_ANSWERS if len(text) < LONG_TEXT and index in leaders else 1
        for answer, tail in list(zip(candidates[index], tails, strict=True))[:count]:
            wholes.append(text + kinds[kind_of[index]].lead + answer)
            expected.append([*tokens, *tail])
    return [row.ids for row in words.encode(wholes)] == expected
