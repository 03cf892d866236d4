"""Cutting prompts into segments that many of them share: the template's words, a context, an item.

Most prompts differ from the one before them in their items alone. Where a prompt of a wording is cut is therefore found
once, with placeholders for its items, and other prompts of the wording get their segments by inserting their items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from ccrank.prompts import Piece, Prompt

LONG_CONTEXT = 64
"""Contexts with fewer characters are part of the first segment."""
_PLACEHOLDERS = "\ue000"
"""The first of the private-use characters that stand for items."""


class PromptShape(NamedTuple):
    """What prompts with the same words around their items have in common."""

    segments: int
    """The number of segments."""
    first: int
    """The first segment, -1 if it has an item."""
    last: int
    """The last segment, -1 if it has an item."""
    lead: str
    """The blanks between the prompt and its answer."""
    filled: bool
    """Whether the answer is part of the prompt."""


Mark = tuple[int, int, int, int]
"""Where the last item of a prompt is: which of the prompt's segments, the segment's number, and the item's characters
in it (start, end)."""
NO_ITEM: Mark = (0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class Cut:
    """P prompts, cut into segments."""

    numbers: dict[str, int] = field(default_factory=dict)
    """The distinct segments, numbered."""
    segments: list[int] = field(default_factory=list)
    """The segments of all prompts, one prompt after another."""
    kind_of: list[int] = field(default_factory=list)
    """(P,) the kind of each prompt."""
    kinds: dict[PromptShape, int] = field(default_factory=dict)
    """The distinct kinds, numbered."""
    marks: list[Mark] = field(default_factory=list)
    """(P,) the last item of each prompt."""


@dataclass(slots=True, eq=False)
class _Wording:
    """Prompts that differ in their items alone."""

    length: int
    """The number of pieces."""
    pick: Callable[[Sequence[Piece]], Any]
    """Takes the pieces other than items."""
    fixed: Any
    """What `pick` gives for each of the prompts."""
    row: list[int]
    """The numbers of the segments; those with an item are replaced."""
    slots: list[tuple[int, int, str, str]]
    """For each item: which piece, which segment, the text before and after the item in its segment."""
    kind: int


def cut_prompts(prompts: Sequence[Prompt]) -> Cut:
    """Cut each prompt before single blanks: around items, and before the last word of a long context."""
    cut = Cut()
    numbers, segments, kind_of, marks = cut.numbers, cut.segments, cut.kind_of, cut.marks
    wordings: dict[str | None, _Wording] = {}  # the last one for each answer that fills a slot
    misses = 0
    for prompt in prompts:
        pieces = prompt.pieces
        wording = wordings.get(prompt.answer)
        if wording is not None and wording.length == len(pieces) and wording.pick(pieces) == wording.fixed:
            row, mark = wording.row[:], NO_ITEM
            for index, slot, before, after in wording.slots:
                piece = pieces[index]
                text = piece.text
                if not text or text.strip() != text or piece.role != "item":
                    break
                segment = f"{before}{text}{after}"
                number = numbers.get(segment)
                if number is None:
                    number = numbers[segment] = len(numbers)
                row[slot] = number
                mark = slot, number, len(before), len(before) + len(text)
            else:
                segments += row
                kind_of.append(wording.kind)
                marks.append(mark)
                continue
        row, kind, mark = _cut(prompt, numbers)
        segments += row
        marks.append(mark)
        kind_of.append(cut.kinds.setdefault(kind, len(cut.kinds)))
        misses += 1
        # Prompts that are all different are not worth the trouble.
        if misses < 8 + len(marks) // 4 and (wording := _wording(prompt, row, kind_of[-1])) is not None:
            wordings[prompt.answer] = wording
    return cut


def _wording(prompt: Prompt, row: list[int], kind: int) -> _Wording | None:
    """What a prompt, which has these segments, shares with those that differ in their items alone; None if its items
    are not in segments of their own."""
    pieces = prompt.pieces
    places = [index for index, piece in enumerate(pieces) if piece.role == "item"]
    others = [index for index, piece in enumerate(pieces) if piece.role != "item"]
    signs = [chr(ord(_PLACEHOLDERS) + number) for number in range(len(places))]
    filled = list(pieces)
    for index, sign in zip(places, signs, strict=True):
        filled[index] = Piece(sign, "item")
    numbers: dict[str, int] = {}
    own_segments, _, _ = _cut(Prompt(tuple(filled), prompt.answer), numbers)
    texts = list(numbers)
    slots: list[tuple[int, int, str, str]] = []
    for index, sign in zip(places, signs, strict=True):
        inside = [slot for slot, number in enumerate(own_segments) if sign in texts[number]]
        if len(inside) != 1 or any(inside[0] == slot for _, slot, _, _ in slots):
            return None
        before, _, after = texts[own_segments[inside[0]]].partition(sign)
        slots.append((index, inside[0], before, after))
    usual = all(pieces[index].text and pieces[index].text.strip() == pieces[index].text for index in places)
    if not usual or len(own_segments) != len(row):
        return None
    pick = itemgetter(*others)
    return _Wording(len(pieces), pick, pick(pieces), row, slots, kind)


def _cut(prompt: Prompt, numbers: dict[str, int]) -> tuple[list[int], PromptShape, Mark]:
    """The segments of one prompt, its kind and its last item."""
    segments: list[int] = []
    pending, after_item = "", False
    mark: tuple[int, int] | None = None
    item = NO_ITEM
    has_item = first_has_item = (
        False  # whether the pending segment has an item, and whether the first one has
    )

    def add(text: str) -> None:
        nonlocal mark, item, has_item, first_has_item
        number = numbers.setdefault(text, len(numbers))
        if mark:
            item = (len(segments), number, *mark)
        first_has_item |= has_item and not segments
        segments.append(number)
        mark, has_item = None, False

    for piece in prompt.pieces:
        role, text = piece.role, piece.text
        if role == "slot":
            break
        if role == "item":
            cuts = pending[-1:] == " " and not (pending[-2:-1] or " ").isspace()
            if cuts and text and not text[0].isspace():
                add(pending[:-1])
                pending = " "
            mark = (len(pending), len(pending) + len(text))
            pending += text
            has_item = after_item = True
            continue
        blank = len(text) > 1 and text[0] == " " and not text[1].isspace()
        if after_item and blank and not (pending[-1:] or " ").isspace():
            add(pending)
            pending = text
        elif role == "context" and len(text) > LONG_CONTEXT and not mark:
            head, rest = _before_last_word(text)
            if head:
                add(pending + head)
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
    last_has_item = has_item
    if text:
        add(text)
    if not segments:
        return segments, PromptShape(0, -1, -1, lead, prompt.answer is not None), item
    ends = (-1 if first_has_item else segments[0], -1 if last_has_item else segments[-1])
    return segments, PromptShape(len(segments), *ends, lead, prompt.answer is not None), item


def _before_last_word(text: str) -> tuple[str, str]:
    blank = text.rstrip().rfind(" ")
    if blank < 1 or text[blank - 1].isspace():
        return "", text
    return text[:blank], text[blank:]
