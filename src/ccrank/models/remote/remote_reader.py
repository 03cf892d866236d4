"""A reader whose model is behind a server: candidate scores from log-probabilities, no hidden states."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm import Cost, Reader, ReadingCache, Readings
from ccrank.lm.answers import answer_tree
from ccrank.lm.chunks import in_tokens
from ccrank.lm.hub import Say
from ccrank.lm.reader import Progress, per_prompt
from ccrank.prompts import Form, Prompt
from ccrank.reader_options import ReaderOptions
from ccrank.remote.address import Address, is_remote
from ccrank.remote.client import Client
from ccrank.remote.completions import Token
from ccrank.remote.options import check_options
from ccrank.remote.scoring import Asked, Scored
from ccrank.remote.server import ChangedError, Server
from ccrank.remote.tokens import GuessedTokens

METHODS = (
    "poles",
    "likelihood",
    "prompt-pair",
    "prompt-point",
    "prompt-list",
    "query-likelihood",
    "frequency",
    "length",
    "first-stage",
)
"""The methods that need no hidden states."""
BLOCK = 1024
"""Texts that are sent before their readings are stored."""
_SPECIAL = re.compile(
    r"<\|[^<>|]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk|mask|(?:start|end)_of_turn)>|\[/?INST\]|<[｜|][^<>]{1,40}[｜|]>"
)
"""What special tokens of common models look like."""


@dataclass(frozen=True)
class RemoteModel:
    """What is known of the weights behind a server."""

    name: str
    identity: str
    window: int | None
    missing_head: tuple[str, ...] = ()

    @property
    def model(self) -> NoReturn:
        """It is not here, so this is an error."""
        raise no_states(self.name)


class RemoteReader:
    """Reads candidate scores from a server; a `ReaderLike` without states.

    Scores are log-probabilities whether they are asked for or not: servers give no logits.

    Parameters
    ----------
    server
        The model; `RemoteReader.open` asks for it.
    cache
        Where readings are stored on disk; None stores none.
    check_after
        Before readings are stored, the server is asked whether it has the same model still, if so many seconds have
        passed since the last time; None never asks.
    shown_as
        The model's name in results and messages; None takes its address.
    """

    form: Form = "causal"

    def __init__(
        self,
        server: Server,
        *,
        cache: ReadingCache | None = None,
        check_after: float | None = None,
        shown_as: str | None = None,
    ) -> None:
        self.server, self.cache, self.check_after, self.shown_as = server, cache, check_after, shown_as
        self.changed = False
        """Whether the server was found to have another model: nothing more is to be read."""
        self._checked = time.monotonic()
        self.loaded = RemoteModel(self.name, server.identity(cache), server.window)
        self.spent = Cost()
        """The total cost of all readings so far."""

    @classmethod
    def open(
        cls,
        name: str,
        options: ReaderOptions | None = None,
        *,
        cache: ReadingCache | None = None,
        check_after: float | None = None,
        say: Say = lambda _: None,
    ) -> RemoteReader:
        """Ask a server for a model.

        Parameters
        ----------
        name
            openai:URL#NAME
        options
            Must be the defaults: the server has loaded the model already.
        cache, check_after
            As of the class.
        say
            Called with a short status message before anything slow.
        """
        address = Address.parse(name)
        check_options([name], options or ReaderOptions())
        say(f"looking at {address.base}")
        return cls(Server.of(Client(address)), cache=cache, check_after=check_after)

    @property
    def name(self) -> str:
        """The address with the model's name, without secrets; or the name that it is to be shown as."""
        return self.shown_as or replace(self.server.client.address, model=self.server.model).name

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens; None if the server does not say."""
        return self.server.window

    @property
    def depth(self) -> int:
        """Servers give no hidden states, so this is an error."""
        raise no_states(self.name)

    @property
    def width(self) -> int:
        """Servers give no hidden states, so this is an error."""
        raise no_states(self.name)

    @property
    def prompt_tokenizer(self) -> RemoteReader:
        """The reader itself, which counts tokens."""
        return self

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text; a cautious guess where the server does not tokenize.

        Parameters
        ----------
        texts
            Any texts.
        """
        return self.server.tokens.count(texts)

    def encode(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool = False
    ) -> None:
        """Raise an error if a prompt does not fit the model's window.

        Parameters
        ----------
        prompts
            P prompts.
        candidates
            The answers to score for each prompt.
        items
            Has no effect.
        """
        if self.window is None:
            return
        longest = [
            one.text + max(one.answers, key=len, default="")
            for one in _asked(prompts, list(map(tuple, candidates)))
        ]
        for prompt, count in zip(prompts, self.count_tokens(longest), strict=True):
            if count > self.window:
                raise CcrankError(
                    f"task {prompt.task!r}: a prompt of about {count:,} tokens does not fit the model's window of "
                    f"{self.window:,}; shorten the context or the items"
                )

    def cost_of(
        self, prompts: Sequence[Prompt], candidates: Sequence[str] | Sequence[Sequence[str]] | None = None
    ) -> Cost:
        """About what reading these prompts costs, by their length; nothing is sent.

        Parameters
        ----------
        prompts
            The prompts.
        candidates
            The answers to score, as for `read`.
        """
        guessed = _guessed(_asked(prompts, per_prompt(candidates, len(prompts))))
        return Cost(len(prompts), guessed, guessed)

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        *,
        items: bool = False,
        log_probabilities: bool = False,
        per_token: bool = False,
        progress: Progress | None = None,
    ) -> Readings:
        """See `Reader.read`; the scores are log-probabilities in any case, and layers are an error.

        Parameters
        ----------
        prompts, candidates, layers, items, log_probabilities, per_token, progress
            As there.
        """
        answers = per_prompt(candidates, len(prompts))
        if candidates is None or items or (layers if isinstance(layers, str) else tuple(layers)):
            raise no_states(self.name)
        if any(prompt.answer is not None for prompt in prompts):
            raise no_states(self.name)  # nothing but states is read at an answer
        if per_token and any(len(own) != 1 for own in answers):
            raise CcrankError("per_token=True needs exactly one candidate for each prompt")
        rows: list[np.ndarray] = []
        cost = Cost()
        for block in _blocks(_asked(prompts, answers)):
            found, spent = self._read_block(block, per_token, progress)
            rows += found
            cost += spent
        self.spent += cost
        return _readings(rows, [len(own) for own in answers], cost)

    def reopened(self) -> RemoteReader:
        """A reader of whatever model the server has at this address now."""
        # In a thread, so that the work of this one can be stopped meanwhile.
        client = self.server.client
        [(_, server)] = client.each(Server.of, [client])
        return RemoteReader(
            server,
            cache=self.cache,
            check_after=self.check_after,
            shown_as=self.shown_as,
        )

    def about(self) -> dict[str, Any]:
        """The model's properties, for `ccrank models info`."""
        server = self.server
        return {
            "name": self.name,
            "served_by": server.facts.get("owned_by") or "unknown",
            "form": self.form,
            "window": self.window,
            "read_as": server.scoring.name,
            "tokens": "guessed" if isinstance(server.tokens, GuessedTokens) else "by the server",
            "prompts_in_a_request": server.batch,
            "requests_at_once": server.client.requests,
            "timeout": server.client.timeout,
            "methods": ", ".join(METHODS),
            "identity": self.loaded.identity,
        }

    def _read_block(
        self, asked: Sequence[Asked], per_token: bool, progress: Progress | None
    ) -> tuple[list[np.ndarray], Cost]:
        """For each prompt the number of tokens sent, the tokens of each answer, and the scores."""
        keys = [self._key(one, per_token) for one in asked]
        rows = {} if self.cache is None else self.cache.get(keys)
        missing = {key: one for key, one in zip(keys, asked, strict=True) if key not in rows}
        total = _guessed(asked)
        stored = 1 - _guessed(list(missing.values())) / max(1, total)
        report = in_tokens(progress, total)
        report(stored)
        fresh: dict[bytes, np.ndarray] = {}
        if missing:
            scored = self.server.scoring.score(
                list(missing.values()), lambda share: report(stored + (1 - stored) * share)
            )
            fresh = {key: _row(one, per_token) for key, one in zip(missing, scored, strict=True)}
            self._check()
        report(1.0)
        if self.cache is not None:
            self.cache.put(fresh)
        rows |= fresh
        sent = sum(int(row[0]) for row in fresh.values())
        read = sum(int(rows[key][0]) for key in keys)
        return [rows[key] for key in keys], Cost(len(asked), read, read, sent)

    def _check(self) -> None:
        if self.check_after is None or time.monotonic() - self._checked < self.check_after:
            return
        try:
            self.server.check()
        except ChangedError:
            self.changed = True
            raise
        self._checked = time.monotonic()

    def _key(self, asked: Asked, per_token: bool) -> bytes:
        text = json.dumps([self.loaded.identity, asked.text, asked.answers, per_token])
        return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=24).digest()


def no_states(name: str) -> CcrankError:
    """The error of what needs hidden states.

    Parameters
    ----------
    name
        The model's.
    """
    return CcrankError(
        f"{name} is behind a server, which gives log-probabilities and no hidden states; use --method poles "
        f"(method='poles'), or another of {', '.join(METHODS)}; auto, axis, probes and labels need the model "
        "itself: --model with a hub id, a folder or a .gguf file"
    )


OpenModel = Reader | RemoteReader
"""A model that was loaded here, or one behind a server."""


def open_model(
    name: str = "default",
    options: ReaderOptions | None = None,
    *,
    cache: ReadingCache | None = None,
    say: Say = lambda _: None,
) -> OpenModel:
    """Load a model, or ask a server for one.

    Parameters
    ----------
    name
        As in `Reader.open`, or openai:URL#NAME.
    options, cache, say
        As in `Reader.open`.
    """
    if is_remote(name):
        return RemoteReader.open(name, options, cache=cache, say=say)
    return Reader.open(name, options, cache=cache, say=say)


def _asked(prompts: Sequence[Prompt], answers: Sequence[tuple[str, ...]]) -> list[Asked]:
    """The prompts as text. A name of a special token in a user's text gets a blank, so that it stays text."""
    found = []
    for prompt, own in zip(prompts, answers, strict=True):
        for answer in own:
            if not answer.strip():
                raise CcrankError(f"task {prompt.task!r}: the answer {answer!r} is blank")
        text = "".join(
            piece.text if piece.role == "text" else _spelled_out(piece.text) for piece in prompt.before
        )
        stem = text.rstrip(" ")
        lead = text[len(stem) :]
        found.append(Asked(stem, tuple(lead + _spelled_out(answer) for answer in own), prompt.task))
    return found


def _spelled_out(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def _guessed(asked: Sequence[Asked]) -> int:
    """About how many tokens are read: those of each prompt, and of each answer."""
    return sum(GuessedTokens().count([text for one in asked for text in (one.text, *one.answers)]))


def _blocks(asked: Sequence[Asked]) -> Iterator[list[Asked]]:
    block: list[Asked] = []
    size = 0
    for one in asked:
        block.append(one)
        size += 1 + len(one.answers)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _row(scored: Scored, per_token: bool) -> np.ndarray:
    """The number of tokens sent, the number of tokens of each answer, and the scores."""
    numbers: dict[Token, int] = {}
    tails = [tuple(numbers.setdefault(token, len(numbers)) for token in tail) for tail in scored.tails]
    table = {
        tuple(numbers[token] for token in tail): value for tail, value in scored.log_probabilities.items()
    }
    if per_token:
        [tail] = tails
        scores = np.array([table[tail[: length + 1]] for length in range(len(tail))], np.float32)
    else:
        tree = answer_tree(tuple(tails))
        found = [table[(*prefix, token)] for prefix, tokens in tree.steps.items() for token in tokens]
        scores = tree.scores(np.array(found), np.zeros(len(tree.steps)), log_probabilities=True)
    return np.concatenate([[scored.tokens], [len(tail) for tail in tails], scores]).astype(np.float32)


def _readings(rows: Sequence[np.ndarray], counts: Sequence[int], cost: Cost) -> Readings:
    scores = [row[1 + count :] for row, count in zip(rows, counts, strict=True)]
    logits = np.full((len(rows), max(map(len, scores), default=0)), np.nan, np.float32)
    lengths = np.zeros((len(rows), max(counts, default=0)), int)
    for place, (row, own, count) in enumerate(zip(rows, scores, counts, strict=True)):
        logits[place, : len(own)] = own
        lengths[place, :count] = row[1 : 1 + count]
    return Readings(logits, None, None, (), cost, lengths)
