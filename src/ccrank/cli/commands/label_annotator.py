"""`ccrank label --annotator NAME`: who answers; with openai:URL#NAME a chat model in place of a person."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ccrank.cli.options import flag
from ccrank.cli.screen import counted, err, out

if TYPE_CHECKING:
    from ccrank.methods.labelled.annotate import Spent
    from ccrank.methods.labelled.session import Session
    from ccrank.models.remote.chat import ChatModel


@dataclass(frozen=True)
class AnnotatorFlags:
    """Who answers, and what a model that answers may be asked."""

    panel: ClassVar = "Who answers"
    annotator: str | None = flag(
        "Your name, kept with each answer, where several people label a list. openai:URL#NAME: a chat model behind a "
        "server answers in place of you, about pairs. Its key is taken from OPENAI_API_KEY."
    )
    calls: int = flag("Of a chat model: the most calls.", default=100, min=1)
    max_tokens: int | None = flag("Of a chat model: the most tokens, read and written.", min=1)
    present: str = flag(
        "Of a chat model: each pair in both orders (both), or once in one of them (random).", default="both"
    )

    def open(self) -> ChatModel | None:
        """The model that answers; None if a person does."""
        if self.annotator is None or not self.annotator.startswith("openai:"):
            return None
        from ccrank.models.remote.chat import ChatModel

        return ChatModel.open(self.annotator)


def answer_all(session: Session, chat: ChatModel, flags: AnnotatorFlags, path: Path) -> None:
    """Say what the answers may cost, and store each before the next question is asked."""
    from ccrank.io.labelfiles import write_labels
    from ccrank.methods.labelled.annotate import annotate, expected_tokens

    each = expected_tokens(session)
    bound = "" if flags.max_tokens is None else f", at most {flags.max_tokens:,}"
    err().print(
        f"ccrank: asking {chat.name}: up to {counted(flags.calls, 'call')} of about {each:,} tokens, "
        f"together {flags.calls * each:,}{bound}",
        soft_wrap=True,
        highlight=False,
    )
    with err().status("asking") as status:

        def stored(spent: Spent) -> None:
            write_labels(session.rows, path)
            status.update(f"{counted(spent.answers, 'answer')}, {spent.calls} of {flags.calls} calls")

        spent = annotate(
            session,
            chat,
            calls=flags.calls,
            tokens=flags.max_tokens,
            order=flags.present,  # type: ignore[arg-type]  # checked there
            after=stored,
        )
    out().print(
        f"{counted(spent.calls, 'call')}, {spent.tokens:,} tokens: {counted(spent.answers, 'answer')} "
        f"in {path}, which now has {counted(len(session.rows), 'row')}"
    )
