"""A chat model answers the questions of a session: labels like any others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Literal, get_args
from zlib import crc32

from ccrank.criteria.meaning import comparison
from ccrank.errors import CcrankError
from ccrank.methods.labelled.session import Session
from ccrank.models.remote.chat import ChatModel
from ccrank.models.remote.server import guess_token_counts
from ccrank.task import Criterion
from ccrank.util.cancellation import check

Presented = Literal["both", "random"]
LETTERS = ("A", "B")
ANSWER_TOKENS = 30
"""The answer, and the tokens of the chat's form."""


@dataclass(frozen=True)
class Spent:
    """What an annotator was asked."""

    calls: int = 0
    tokens: int = 0
    answers: int = 0
    """Questions that it answered; the others are kept as unknown, and are not asked again."""


def annotate(
    session: Session,
    annotator: str | ChatModel,
    *,
    calls: int = 100,
    tokens: int | None = None,
    order: Presented = "both",
    after: Callable[[Spent], None] = lambda spent: None,
) -> Spent:
    """Let a chat model answer questions about pairs, until the calls or tokens are used or no question is left.

    Parameters
    ----------
    session
        A session of the kind "pair", as `ccrank.ask(..., kind="pair")` gives it.
    annotator
        openai:URL#NAME: a model behind a server with an OpenAI-compatible chat API. Its key is taken from the variable
        OPENAI_API_KEY, and is stored nowhere.
    calls
        The most calls.
    tokens
        The most tokens, read and written; None for no bound. A question is not begun that may exceed it.
    order
        both: each pair is asked about in both orders, which removes a preference for the first or the second place;
        random: once, in an order drawn at random.
    after
        Called after each question; `session.rows` has the answers so far.

    Returns
    -------
    Spent
        The calls, the tokens and the answered questions.
    """
    if session.kind != "pair":
        raise CcrankError(
            f"a model is asked about pairs, and this session has the kind {session.kind!r}: use 'pair'"
        )
    if order not in get_args(Presented):
        raise CcrankError(
            f"pairs are presented in both orders ('both') or in one at random ('random'), not {order!r}"
        )
    chat = ChatModel.open(annotator) if isinstance(annotator, str) else annotator
    session.annotator = session.annotator or chat.name
    criterion = session.start.task.criterion
    wanted = 2 if order == "both" else 1
    spent = Spent()
    while spent.calls + wanted <= calls and (question := session.question()) is not None:
        check()
        needed = wanted * _tokens(wording(criterion, *question.items))
        if tokens is not None and spent.tokens + needed > tokens:
            break
        pair = question.items
        pairs = [pair, pair[::-1]] if order == "both" else [pair[:: _sign(pair)]]
        texts = [wording(criterion, *shown) for shown in pairs]
        replies = dict(chat.client.each(lambda text: chat.choose(text, *LETTERS), texts))
        odds = [(replies[number].odds, 1 if shown == pair else -1) for number, shown in enumerate(pairs)]
        # Orders that contradict each other, or of which one has no answer, leave it open.
        total = sum(nan if value is None else value * sign for value, sign in odds)
        question.answer("first" if total > 0 else "second" if total < 0 else "unknown")
        tokens_read = sum(reply.tokens for reply in replies.values())
        answered = total > 0 or total < 0
        spent = Spent(spent.calls + wanted, spent.tokens + tokens_read, spent.answers + answered)
        after(spent)
    return spent


def expected_tokens(session: Session) -> int:
    """About how many tokens a call takes, a cautious guess."""
    items = session.items
    length = round(sum(map(len, items)) / len(items))
    return _tokens(wording(session.start.task.criterion, "x" * length, "x" * length))


def wording(criterion: Criterion, first: str, second: str) -> str:
    """The question that the model is asked.

    >>> print(wording(Criterion("size", "larger", category="country"), "Chad", "Peru"))
    Which country is larger?
    <BLANKLINE>
    A: Chad
    <BLANKLINE>
    B: Peru
    <BLANKLINE>
    Answer with the letter A or B alone.
    """
    asked = f"Which {criterion.kind} is {comparison(criterion)}?"
    return f"{asked}\n\nA: {first}\n\nB: {second}\n\nAnswer with the letter A or B alone."


def _tokens(text: str) -> int:
    return guess_token_counts([text])[0] + ANSWER_TOKENS


def _sign(pair: tuple[str, ...]) -> int:
    """1 or −1, by chance, but always the same for a pair."""
    return 1 if crc32("\0".join(sorted(pair)).encode("utf-8", "replace")) % 2 else -1
