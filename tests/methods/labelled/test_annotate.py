"""A chat model answers a session's questions: which answers become labels, and what they may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, log
from typing import Any

import pytest
from completion_server import KEY, StandIn, serving
from tiny import tiny_reader

from ccrank.api.asking import ask
from ccrank.errors import CcrankError
from ccrank.methods.labelled.annotate import Spent, annotate, expected_tokens
from ccrank.methods.labelled.session import Session
from ccrank.metrics.order import kendall_tau
from ccrank.models.remote.address import Address
from ccrank.models.remote.chat import ChatModel
from ccrank.models.remote.client import Client

SIZES = {"ant": 1, "cat": 2, "dog": 3, "pig": 4, "cow": 5, "elk": 6, "whale": 7}
TOKENS = 50
"""What the stand-in says that each call took."""


def reply(text: str | None, likely: dict[str, float] | None = None) -> tuple[int, Any]:
    """An answer of a chat API, with the log-probabilities of its first token."""
    choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
    if likely is not None:
        top = [{"token": token, "logprob": value} for token, value in likely.items()]
        first = max(likely, key=likely.__getitem__)
        choice["logprobs"] = {"content": [{"token": first, "logprob": likely[first], "top_logprobs": top}]}
    return 200, {"choices": [choice], "usage": {"total_tokens": TOKENS}}


def asked_about(body: Any) -> tuple[str, str]:
    """The items A and B of a question."""
    lines = body["messages"][0]["content"].splitlines()
    first, second = (line[3:] for line in lines if line[:3] in ("A: ", "B: "))
    return first, second


def knows(body: Any) -> tuple[int, Any]:
    """A model that knows the sizes and says so in words."""
    first, second = asked_about(body)
    return reply("The answer is A." if SIZES[first] > SIZES[second] else "B")


def prefers_a(body: Any) -> tuple[int, Any]:
    """A model that always says A; its log-probabilities are a little less sure of it where B is larger."""
    first, second = asked_about(body)
    return reply("A", {"A": log(0.9 if SIZES[first] > SIZES[second] else 0.8), " B": log(0.1)})


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(tiny_reader(), "ollama") as one:
        yield one


@pytest.fixture
def session() -> Session:
    return ask([*SIZES], "size", kind="pair", model=tiny_reader())


def chat_of(server: StandIn, chat: Callable[[Any], tuple[int, Any]], **settings: Any) -> ChatModel:
    server.chat = chat
    return ChatModel(Client(Address.parse(f"openai:{server.url}#tiny"), first_wait=0.01, **settings))


def right(session: Session) -> list[bool]:
    """Of each pair, whether its order is that of the sizes."""
    return [SIZES[high] > SIZES[low] for high, low in session.labels.everyone.pairs]


def test_a_model_that_knows_orders_the_list(server: StandIn, session: Session) -> None:
    """Answers in words, in both orders, are labels with the model's name; the order follows them."""
    spent = annotate(session, chat_of(server, knows), calls=60)
    assert all(right(session))
    assert len(right(session)) == spent.answers == spent.calls / 2
    assert spent.tokens == spent.calls * TOKENS
    assert {row[3] for row in session.rows} == {f"openai:{server.url}#tiny"}
    before, after = (
        kendall_tau(found.scores, [SIZES[item] for item in found.task.items])
        for found in (session.start, session.ranking)
    )
    assert after > before


def test_a_preference_for_a_place_is_removed(server: StandIn, session: Session) -> None:
    """A model that always says A is right in both orders by its log-probabilities, and half the time in one order."""
    annotate(session, chat_of(server, prefers_a), calls=20)
    assert all(right(session))
    other = ask([*SIZES], "size", kind="pair", model=tiny_reader())
    annotate(other, chat_of(server, prefers_a), calls=6, order="random")
    assert 0 < sum(right(other)) < 6


def test_contradictions_and_silence_are_no_labels(server: StandIn, session: Session) -> None:
    """Who says A in both orders, or something else, has not answered; the pairs are not asked about again."""
    for text in ("A", "Neither of them.", None):
        spent = annotate(session, chat_of(server, lambda body, text=text: reply(text)), calls=2)
        assert spent == Spent(2, 2 * TOKENS, 0)
    assert len(session.labels) == 0
    assert len({frozenset(pair) for pair in session.labels.everyone.unknown}) == 3


def test_calls_and_tokens_are_bounded(server: StandIn, session: Session) -> None:
    """No question is begun that would exceed either; each one is reported when it is answered."""
    chat = chat_of(server, knows)
    seen: list[Spent] = []
    assert annotate(session, chat, calls=5, after=seen.append).calls == 4
    assert [one.calls for one in seen] == [2, 4]
    bound = 3 * TOKENS + 2 * expected_tokens(session)
    spent = annotate(session, chat, tokens=bound)
    assert spent.calls == 4
    assert spent.tokens <= bound
    assert sum(path == "/v1/chat/completions" for path, _ in server.asked) == 8


def test_a_session_is_continued(server: StandIn, session: Session) -> None:
    """The rows of a session that was interrupted start the next one, which asks about other pairs."""
    chat = chat_of(server, knows)
    annotate(session, chat, calls=6)
    later = ask([*SIZES], "size", kind="pair", answers=session.rows, model=tiny_reader())
    annotate(later, chat, calls=6)
    pairs = [frozenset(row[1:3]) for row in later.rows]
    assert len(set(pairs)) == len(pairs) == 6


@pytest.mark.parametrize(
    ("refused", "form"),
    [
        ({"logprobs"}, {"max_tokens", "temperature"}),
        ({"logprobs", "max_tokens", "temperature"}, {"max_completion_tokens"}),
        (set(), {"max_tokens", "temperature", "logprobs", "top_logprobs"}),
    ],
)
def test_the_form_that_a_server_takes_is_found(server: StandIn, refused: set[str], form: set[str]) -> None:
    """A server that refuses fields is asked without them, and with the form that it took from then on."""

    def strict(body: Any) -> tuple[int, Any]:
        if unknown := refused & body.keys():
            return 400, {"error": {"message": f"unknown fields {unknown}"}}
        return knows(body)

    chat = chat_of(server, strict)
    question = "Which?\n\nA: cow\n\nB: ant"
    assert [chat.choose(question, "A", "B").odds for _ in range(2)] == [inf, inf]
    bodies = [body for path, body in server.asked if path == "/v1/chat/completions"]
    assert bodies[-1].keys() - {"model", "messages"} == bodies[-2].keys() - {"model", "messages"} == form


@pytest.mark.parametrize(
    ("answer", "odds"),
    [
        (reply("<think>A or B? B is tempting.</think> A"), inf),
        (reply("x" * 3_000_000 + " A"), inf),  # in a time that is linear in its length
        (reply("Both A-level"), inf),
        (reply("BA"), None),
        (reply("B", {"B": log(0.6), "A": log(0.2), " A": log(0.1)}), log(0.5)),
        (reply("B", {"B": log(0.9), "x": log(0.01)}), log(0.01 / 0.9)),
        (reply("The", {"The": log(0.9), "A": log(0.1)}), None),
    ],
)
def test_how_an_answer_is_read(server: StandIn, answer: Any, odds: float | None) -> None:
    """By the log-probabilities of the first token that is a letter, however it is spelled, else by the text."""
    found = chat_of(server, lambda body: answer).choose("Which?", "A", "B").odds
    assert found == (None if odds is None else pytest.approx(odds))


def test_a_key_is_shown_nowhere(server: StandIn, session: Session) -> None:
    """The key is sent, and is neither in a label nor in the error of a server that repeats it."""
    server.key = KEY
    annotate(session, chat_of(server, knows, key=KEY), calls=2)
    assert KEY not in str(session.rows)
    server.key = "another"
    with pytest.raises(CcrankError, match="OPENAI_API_KEY") as error:
        annotate(session, chat_of(server, knows, key=KEY), calls=2)
    assert KEY not in str(error.value)


def test_what_cannot_be_annotated(server: StandIn) -> None:
    """Grades and unknown orders are refused before anything is asked."""
    chat = chat_of(server, knows)
    grades = ask([*SIZES], "size", kind="grade", model=tiny_reader())
    with pytest.raises(CcrankError, match="kind 'grade': use 'pair'"):
        annotate(grades, chat)
    pairs = ask([*SIZES], "size", kind="pair", model=tiny_reader())
    with pytest.raises(CcrankError, match="not 'sorted'"):
        annotate(pairs, chat, order="sorted")  # type: ignore[arg-type]
    assert all(path == "/v1/models" for path, _ in server.asked)
