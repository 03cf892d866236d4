"""Tokenizing many causal prompts at once from the tokens of their words.

A prompt is cut around its items into segments, which many prompts share: the template's words, the context, an item.
Each distinct segment is tokenized once, from words that are tokenized once. The first prompt of each wording and every
64th short prompt are also tokenized whole; if any differs, all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ccrank.lm.ragged import Ragged, ranges, starts_of
from ccrank.lm.tokenized import Tails, TokenizedPrompts
from ccrank.lm.words import Tokens, WordTokens, split_words
from ccrank.prompts import Prompt

TRIAL_EVERY = 64
"""One in so many short prompts is also tokenized whole."""
MOST_ANSWERS = 8
"""The first prompt of each wording is tokenized whole with up to so many answers, if it is shorter than `LONG_TEXT`."""
LONG_TEXT = 400
LONG_CONTEXT = 64
"""Contexts with fewer characters are part of the first segment."""

CheckAnswers = Callable[[Prompt, Sequence[str], Tails], None]


@dataclass(slots=True, eq=False)
class _Cut:
    """P prompts, cut into segments."""

    numbers: dict[str, int] = field(default_factory=dict)
    """The distinct segments, numbered."""
    segments: list[int] = field(default_factory=list)
    """The segments of all prompts, one prompt after another."""
    counts: list[int] = field(default_factory=list)
    """How many segments each prompt has."""
    leads: list[str] = field(default_factory=list)
    """The blanks between each prompt and its answer."""
    wordings: list[tuple[int, int, int]] = field(default_factory=list)
    """What tells the wordings of prompts apart: the number of segments, the first and the last one, -1 for an item."""
    items: list[tuple[int, int, int, int]] = field(default_factory=list)
    """For each prompt the last item: which of the prompt's segments, its number, the characters' start and end."""


def splice(
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    words: WordTokens,
    bos: Sequence[int],
    items: bool,
    check: CheckAnswers,
) -> TokenizedPrompts | None:
    """Tokenize prompts from the tokens of their words; None if a trial shows that whole texts have other tokens.

    Parameters
    ----------
    prompts
        P prompts without special tokens in user text.
    candidates
        The answers to score for each prompt.
    words
        The tokens of words.
    bos
        Tokens that start every prompt.
    items
        Find the last token of each prompt's last item.
    check
        Called with each distinct list of answers and their tokens; raises an error where they cannot be scored.
    """
    cut = _cut(prompts)
    texts = list(cut.numbers)
    split = [split_words(text) for text in texts]
    known = words.learn(word for parts in split for word in parts)
    table = Ragged.of([[token for word in parts for token in known[word][0]] for parts in split])
    counts = np.array(cut.counts, np.int64)
    edges = starts_of(counts)
    segments = np.array(cut.segments, np.int64)
    if not counts.all() or not table.lengths.all():
        return None  # an empty prompt or segment: rare enough to be tokenized whole

    tails = _Tails(words, split, check)
    chosen, dropped = tails.of(prompts, candidates, cut, segments[edges[1:] - 1])
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
        before = starts_of(sizes)
        inside = [_last_overlap(split[number], start, end, known) for _, number, start, end in cut.items]
        place = edges[:-1] + np.array([one[0] for one in cut.items])
        found = np.array([-1 if one is None else one for one in inside])
        if (found < 0).any() or (found >= sizes[place]).any():
            return None  # no such item, or a candidate merges with it
        at = before[place] - before[edges[:-1]] + found + len(bos)
    spliced = TokenizedPrompts(Ragged(flat, starts), slots, at, chosen, tuple(tails.sets))
    return spliced if _trials_agree(spliced, prompts, candidates, cut, texts, words, len(bos)) else None


def _cut(prompts: Sequence[Prompt]) -> _Cut:
    """Cut each prompt before single blanks: around items, and before the last word of a long context."""
    cut = _Cut()
    numbers, segments = cut.numbers, cut.segments
    contexts: dict[str, tuple[str, str]] = {}
    for prompt in prompts:
        first = len(segments)
        pending, after_item = "", False
        mark = item = None
        own = False  # whether the pending segment has an item
        first_own = False
        for piece in prompt.pieces:
            role, text = piece.role, piece.text
            if role == "slot":
                break
            if role == "item":
                if (
                    pending[-1:] == " "
                    and text
                    and not (pending[-2:-1] or " ").isspace()
                    and not text[0].isspace()
                ):
                    number = numbers.setdefault(pending[:-1], len(numbers))
                    if mark:
                        item = (len(segments) - first, number, *mark)
                    first_own |= own and len(segments) == first
                    segments.append(number)
                    pending, mark = f" {text}", (1, len(text) + 1)
                else:
                    mark = (len(pending), len(pending) + len(text))
                    pending += text
                own = after_item = True
                continue
            if (
                after_item
                and len(text) > 1
                and text[0] == " "
                and not text[1].isspace()
                and not (pending[-1:] or " ").isspace()
            ):
                number = numbers.setdefault(pending, len(numbers))
                if mark:
                    item, mark = (len(segments) - first, number, *mark), None
                first_own |= own and len(segments) == first
                segments.append(number)
                pending, own = text, False
            elif role == "context" and len(text) > LONG_CONTEXT and not mark:
                if text not in contexts:
                    contexts[text] = _before_last_word(text)
                head, rest = contexts[text]
                if head:
                    segments.append(numbers.setdefault(pending + head if pending else head, len(numbers)))
                    pending = rest
                else:
                    pending += rest
            else:
                pending += text
            after_item = False
        text = pending.rstrip(" ")
        lead = pending[len(text) :]
        if prompt.answer is not None:
            text, lead = text + lead + prompt.answer, ""
        if text:
            number = numbers.setdefault(text, len(numbers))
            if mark:
                item = (len(segments) - first, number, *mark)
            segments.append(number)
        count = len(segments) - first
        cut.counts.append(count)
        cut.leads.append(lead)
        cut.items.append(item or (0, 0, 0, 0))
        head_number = -1 if first_own or (own and count == 1) or not count else segments[first]
        cut.wordings.append((count, head_number, -1 if own or not count else segments[-1]))
    return cut


def _before_last_word(text: str) -> tuple[str, str]:
    place = text.rstrip().rfind(" ")
    if place < 1 or text[place - 1].isspace():
        return "", text
    return text[:place], text[place:]


class _Tails:
    """The tokens of answers after prompts."""

    def __init__(self, words: WordTokens, split: Sequence[Sequence[str]], check: CheckAnswers) -> None:
        self.words, self.split, self.check = words, split, check
        self.sets: dict[Tails, int] = {}

    def of(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], cut: _Cut, last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each prompt which of `sets` its answers are, and how many tokens of the prompt merge with them."""
        cases: dict[tuple[int, str, int], int] = {}
        examples: list[tuple[Prompt, Sequence[str], str, int]] = []
        case_of = np.empty(len(prompts), np.int64)
        separate: dict[int, bool] = {}
        for index, (prompt, answers, lead, segment) in enumerate(
            zip(prompts, candidates, cut.leads, last.tolist(), strict=True)
        ):
            if prompt.answer is not None:
                answers = ()
            # Most prompts have the very same list of answers.
            which = id(answers)
            if which not in separate:
                separate[which] = all(not answer[0].isspace() for answer in answers)
            # A blank between prompt and answer is a cut: the answer's tokens are the same after every prompt.
            key = (-1 if not answers or (lead == " " and separate[which]) else segment, lead, which)
            case = cases.setdefault(key, len(cases))
            if case == len(examples):
                examples.append((prompt, answers, lead, key[0]))
            case_of[index] = case
        found = [self._resolved(*example) for example in examples]
        return (
            np.array([number for number, _ in found], np.int64)[case_of],
            np.array([merged for _, merged in found], np.int64)[case_of],
        )

    def _resolved(self, prompt: Prompt, answers: Sequence[str], lead: str, segment: int) -> tuple[int, int]:
        last = "" if segment < 0 else self.split[segment][-1]
        split = [split_words(last + lead + answer) for answer in answers]
        known = self.words.learn([*([last] if last else []), *(word for parts in split for word in parts)])
        own = known[last][0] if last else []
        full = [[token for word in parts for token in known[word][0]] for parts in split]
        stem = common_prefix([own, *full])
        tails = tuple(tuple(ids[stem:]) for ids in full)
        self.check(prompt, answers, tails)
        return self.sets.setdefault(tails, len(self.sets)), len(own) - stem


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all rows share.

    Parameters
    ----------
    rows
        At least one row of tokens.
    """
    first = list(rows[0])
    if all(list(row[: len(first)]) == first for row in rows):
        return len(first)  # the usual case: an answer changes no token of its prompt
    for count, column in enumerate(zip(*rows, strict=False)):
        if any(token != column[0] for token in column):
            return count
    return min(map(len, rows))


def _last_overlap(words: Sequence[str], start: int, end: int, known: dict[str, Tokens]) -> int | None:
    """The last token of a segment that overlaps these characters of it."""
    last, before, tokens = None, 0, 0
    for word in words:
        for index, (token_start, token_end) in enumerate(known[word][1]):
            if token_start + before < end and token_end + before > start and token_end > token_start:
                last = tokens + index
        before += len(word)
        tokens += len(known[word][0])
    return last


def _trials_agree(
    spliced: TokenizedPrompts,
    prompts: Sequence[Prompt],
    candidates: Sequence[Sequence[str]],
    cut: _Cut,
    texts: Sequence[str],
    words: WordTokens,
    bos: int,
) -> bool:
    """Whether some prompts have the same tokens as when they are tokenized whole with their answers."""
    first: dict[object, int] = {}
    for index, key in enumerate(zip(cut.wordings, cut.leads, strict=True)):
        first.setdefault(key, index)
    leaders = set(first.values())
    edges = starts_of(np.array(cut.counts))
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
        count = MOST_ANSWERS if len(text) < LONG_TEXT and index in leaders else 1
        for answer, tail in list(zip(candidates[index], tails, strict=True))[:count]:
            wholes.append(text + cut.leads[index] + answer)
            expected.append([*tokens, *tail])
    return [one.ids for one in words.encode(wholes)] == expected
