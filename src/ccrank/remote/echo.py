"""Log-probabilities of prompts: the server repeats a prompt with an answer, and says how likely each token was.

vLLM and SGLang do so with `echo`. An answer costs a pass over its prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccrank.errors import CcrankError
from ccrank.remote.client import Client, RefusedError
from ccrank.remote.completions import Position, Token, choices, positions
from ccrank.remote.scoring import Asked, Report, Scored, batches, tails_of

PROBE = "The quick brown fox jumps over the lazy dog"
FORMS: tuple[Mapping[str, Any], ...] = (
    {"max_tokens": 0, "return_token_ids": True},
    {"max_tokens": 1, "return_token_ids": True},
    {"max_tokens": 0},
    {"max_tokens": 1},
)
"""Some servers must generate a token, some refuse fields that they do not know."""


@dataclass(frozen=True)
class EchoScoring:
    """Sends every prompt with every answer."""

    client: Client
    model: str
    form: Mapping[str, Any]
    """Fields of a request, one of `FORMS`."""
    generated: int = 0
    """How many tokens the server adds to the prompt."""
    batch: int = 1
    """Prompts in a request."""
    name: str = field(default="log-probabilities of prompts (echo)", init=False)

    @classmethod
    def found(cls, client: Client, model: str, batch: int) -> EchoScoring | None:
        """The way in which the server repeats prompts with log-probabilities; None if it does not.

        Parameters
        ----------
        client
            The server.
        model
            The name of the model.
        batch
            Prompts in a request.
        """
        for form in FORMS:
            one = cls(client, model, form, batch=batch)
            try:
                [read] = one.read([PROBE])
            except RefusedError as error:
                if error.concerns_address:
                    raise
                continue
            except CcrankError:
                return None  # some servers fail at a prompt that they should repeat
            for generated in (0, 1):
                own = read[: len(read) - generated]
                # Blanks may be lost or spelled, and a special token may come first.
                text = re.sub("[ Ġ▁]", "", "".join(position.text for position in own))
                known = [position.log_probability is not None for position in own[1:]]
                if text.endswith(PROBE.replace(" ", "")) and len(known) > 1 and all(known):
                    return cls(client, model, form, generated, batch)
        return None

    def score(self, asked: Sequence[Asked], report: Report) -> list[Scored]:
        """See `Scoring.score`.

        Parameters
        ----------
        asked, report
            As there.
        """
        texts = list(
            dict.fromkeys(
                text for one in asked for text in (one.text, *(one.text + end for end in one.answers))
            )
        )
        groups = list(batches(texts, self.batch))
        read: dict[str, list[Position]] = {}
        for done, (place, found) in enumerate(self.client.each(self.read, groups), start=1):
            read.update(zip(groups[place], found, strict=True))
            report(done / len(groups))
        return [self._scored(one, read) for one in asked]

    def read(self, texts: Sequence[str]) -> list[list[Position]]:
        """The tokens of texts.

        Parameters
        ----------
        texts
            As many as the server takes in a request.
        """
        body = {
            "model": self.model,
            "prompt": list(texts) if self.batch > 1 else texts[0],
            "echo": True,
            "logprobs": 1,
            "temperature": 0,
            **self.form,
        }
        found = []
        for choice in choices(self.client.post("/completions", body), len(texts)):
            read = positions(choice)
            read = read[: len(read) - self.generated]
            ids = choice.get("prompt_token_ids")
            if isinstance(ids, list) and len(ids) == len(read):
                read = [replace(one, token=token) for token, one in zip(ids, read, strict=True)]
            else:
                read = [_told_apart(one) for one in read]
            found.append(read)
        return found

    def _scored(self, asked: Asked, read: Mapping[str, list[Position]]) -> Scored:
        prompt: list[Token] = [one.token for one in read[asked.text]]
        whole = [read[asked.text + end] for end in asked.answers]
        tails = tails_of(asked, prompt, [[one.token for one in own] for own in whole])
        table: dict[tuple[Token, ...], float] = {}
        for tail, own in zip(tails, whole, strict=True):
            for length, position in enumerate(own[len(own) - len(tail) :], start=1):
                if position.log_probability is None:
                    raise CcrankError(
                        f"task {asked.task!r}: the server gave no log-probability for {position.text!r} in "
                        f"{asked.text[-40:]!r}"
                    )
                table[tail[:length]] = position.log_probability
        return Scored(tails, table, len(prompt) + sum(map(len, whole)))


def _told_apart(position: Position) -> Position:
    """The position with its log-probability in the name of its token, if the text does not tell which token it is.

    Parts of a character have no text of their own. The same token after the same tokens is as likely.
    """
    if position.text and "\ufffd" not in position.text:
        return position
    number = "" if position.log_probability is None else f"{position.log_probability:.2f}"
    return replace(position, token=f"{position.text}@{number}")
