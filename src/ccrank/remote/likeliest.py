"""Log-probabilities of the most likely next tokens only, found by their text.

Some servers give a short list of likely next tokens and no more: neither those of the prompt, nor of a given token, nor
a tokenizer. An answer is then spelled out token by token, each the longest listed one that continues it. An answer that
is not on the lists has no score, which is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ccrank.errors import CcrankError
from ccrank.remote.client import Client, RefusedError
from ccrank.remote.completions import Position, choices, positions
from ccrank.remote.echo import PROBE
from ccrank.remote.scoring import Asked, Report, Scored, Tail, batches

TOPS = (500, 20, 5)
"""How many tokens to ask for; servers have limits."""


@dataclass(frozen=True)
class LikeliestScoring:
    """Sends every prompt with every beginning of an answer, as text."""

    client: Client
    model: str
    top: int
    """How many tokens the server lists."""
    batch: int = 1
    """Prompts in a request."""
    name: str = field(default="log-probabilities of the most likely next tokens only", init=False)

    @classmethod
    def found(cls, client: Client, model: str, batch: int) -> LikeliestScoring | None:
        """The way in which the server lists likely tokens; None if it does not.

        Parameters
        ----------
        client
            The server.
        model
            The name of the model.
        batch
            Prompts in a request.
        """
        for top in TOPS:
            try:
                [read] = cls(client, model, top, batch).read([PROBE])
            except RefusedError as error:
                if error.concerns_address:
                    raise
                continue
            return None if read is None or len(read.top) < 2 else cls(client, model, top, batch)
        return None

    def score(self, asked: Sequence[Asked], report: Report) -> list[Scored]:
        """See `Scoring.score`.

        Parameters
        ----------
        asked, report
            As there.
        """
        listed: dict[str, dict[str, float]] = {}
        spelled: list[list[list[str]]] = [[[] for _ in one.answers] for one in asked]
        while left := self._next_texts(asked, spelled):
            groups = list(batches([text for text in left if text not in listed], self.batch))
            for place, found in self.client.each(self.read, groups):
                for text, position in zip(groups[place], found, strict=True):
                    top = {} if position is None else position.top
                    listed[text] = {token: value for token, value in top.items() if isinstance(token, str)}
            for one, own in zip(asked, spelled, strict=True):
                for answer, tokens in zip(one.answers, own, strict=True):
                    done = "".join(tokens)
                    if done != answer:
                        tokens.append(self._continued(one, answer, done, listed[one.text + done]))
            report(_share(asked, spelled))
        return [self._scored(one, own, listed) for one, own in zip(asked, spelled, strict=True)]

    def read(self, texts: Sequence[str]) -> list[Position | None]:
        """The next token after each text.

        Parameters
        ----------
        texts
            As many as the server takes in a request.
        """
        body = {
            "model": self.model,
            "prompt": list(texts) if self.batch > 1 else texts[0],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": self.top,
        }
        reply = self.client.post("/completions", body)
        return [next(iter(positions(choice, by_text=True)), None) for choice in choices(reply, len(texts))]

    @staticmethod
    def _next_texts(asked: Sequence[Asked], spelled: Sequence[Sequence[Sequence[str]]]) -> list[str]:
        """The distinct texts after which an answer goes on."""
        texts = {
            one.text + "".join(tokens): None
            for one, own in zip(asked, spelled, strict=True)
            for answer, tokens in zip(one.answers, own, strict=True)
            if "".join(tokens) != answer
        }
        return list(texts)

    def _continued(self, asked: Asked, answer: str, done: str, listed: dict[str, float]) -> str:
        rest = answer[len(done) :]
        fitting = [token for token in listed if token and rest.startswith(token)]
        if not fitting:
            raise CcrankError(
                f"task {asked.task!r}: the server lists the {self.top} most likely next tokens only, and none of them "
                f"continues the candidate {answer.strip()!r} at {rest!r}; use a server that gives log-probabilities of "
                "any token, such as vLLM or llama.cpp's, or load the model itself"
            )
        return max(fitting, key=len)

    @staticmethod
    def _scored(
        asked: Asked, spelled: Sequence[Sequence[str]], listed: dict[str, dict[str, float]]
    ) -> Scored:
        tails = tuple(tuple(tokens) for tokens in spelled)
        table: dict[Tail, float] = {}
        for tail in tails:
            for place in range(len(tail)):
                before = asked.text + "".join(tail[:place])
                table[tail[: place + 1]] = listed[before][tail[place]]
        return Scored(tails, table, sum(map(len, tails)))


def _share(asked: Sequence[Asked], spelled: Sequence[Sequence[Sequence[str]]]) -> float:
    done = sum(len(token) for own in spelled for tokens in own for token in tokens)
    return done / max(1, sum(len(answer) for one in asked for answer in one.answers))
