"""A reader whose model is behind a server: candidate scores from log-probabilities, no hidden states."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

import numpy as np

from ccrank.errors import CcrankError
from ccrank.models import Cost, Reader, ReadingCache, Readings
from ccrank.models.answers import answer_tree
from ccrank.models.engine.plan import Wish, in_tokens, no_readings
from ccrank.models.load.catalog import StatusCallback
from ccrank.models.reader import per_prompt
from ccrank.models.reading import Progress, joined
from ccrank.models.remote.address import Address, check_options, is_remote
from ccrank.models.remote.client import Client
from ccrank.models.remote.completions import AnswerRequest, AnswerScores, Token
from ccrank.models.remote.server import ChangedError, ModelServer, guess_token_counts
from ccrank.models.tokenize.prompt_tokenizer import refuse_blanks
from ccrank.prompts import Form, Prompt, broken_up, plain_answers, plain_prompts
from ccrank.reader_options import ReaderOptions

MAX_BLOCK = 1024  # texts that are sent before their readings are stored
_SPECIAL = re.compile(
    r"<\|[^<>|]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk|mask|(?:start|end)_of_turn)>|\[/?INST\]|<[｜|][^<>]{1,40}[｜|]>"
)
"""What special tokens of common models look like."""


class RemoteReader:
    """Reads candidate scores from a server; a `ReaderLike` without states.

    Scores are log-probabilities whether they are asked for or not: servers give no logits. Before readings are stored,
    the server is asked whether it has the same model still, if `check_after` seconds have passed since the last time.
    """

    form: Form = "causal"
    gives_states: Literal[False] = False
    behind_server: Literal[True] = True
    missing_head: tuple[str, ...] = ()

    def __init__(
        self,
        server: ModelServer,
        *,
        cache: ReadingCache | None = None,
        check_after: float | None = None,
        shown_as: str | None = None,
    ) -> None:
        self.server, self.cache, self.check_after, self.shown_as = server, cache, check_after, shown_as
        self.changed = False  # whether the server was found to have another model: nothing more is to be read
        self._checked = time.monotonic()
        self.identity = server.identity(cache)
        self.spent = Cost()  # the total cost of all readings so far

    @classmethod
    def open(
        cls,
        name: str,
        options: ReaderOptions | None = None,
        *,
        cache: ReadingCache | None = None,
        check_after: float | None = None,
        say: StatusCallback = lambda _: None,
    ) -> RemoteReader:
        """Ask a server for a model."""
        address = Address.parse(name)
        check_options([name], options or ReaderOptions())
        say(f"looking at {address.base}")
        return cls(ModelServer.of(Client(address)), cache=cache, check_after=check_after)

    @property
    def name(self) -> str:
        """The address with the model's name, without secrets; or the name that it is to be shown as."""
        return self.shown_as or replace(self.server.client.address, model=self.server.model).name

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens; None if the server does not say."""
        return self.server.window

    @property
    def weights(self) -> dict[str, str]:
        """What is known of the weights: servers do not state their files."""
        return {"name": self.name, "source": "server"}

    @property
    def depth(self) -> NoReturn:
        """Servers give no hidden states, so this is an error."""
        raise no_states(self.name)

    width = model = depth

    @property
    def loaded(self) -> RemoteReader:
        """The reader itself, which knows what there is to know of the model, and counts tokens."""
        return self

    prompt_tokenizer = loaded

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text; a cautious guess where the server does not tokenize."""
        return self.server.count_tokens([_break_up(text) for text in texts])

    def encode(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool = False
    ) -> None:
        """Raise an error if a prompt does not fit the model's window."""
        if self.window is None:
            return
        longest = [
            request.text + max(request.answers, key=len, default="")
            for request in _asked(prompts, list(map(tuple, candidates)))
        ]
        for prompt, count in zip(prompts, self.count_tokens(longest), strict=True):
            if count > self.window:
                raise CcrankError(
                    f"task {prompt.task!r}: a prompt of about {count:,} tokens does not fit the model's window of "
                    f"{self.window:,}; shorten the context or the items"
                )

    def cost_of(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        **others: object,
    ) -> Cost:
        """About what reading these prompts costs, by their length; nothing is sent."""
        guessed = _guessed(_asked(prompts, per_prompt(candidates, len(prompts))))
        return Cost(len(prompts), guessed, guessed, guessed)

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
        """See `Reader.read`; the scores are log-probabilities in any case, and layers are an error."""
        answers = per_prompt(candidates, len(prompts))
        filled = any(prompt.answer is not None for prompt in prompts)  # only states are read at an answer
        if candidates is None or items or filled or (layers if isinstance(layers, str) else tuple(layers)):
            raise no_states(self.name)
        if per_token and any(len(texts) != 1 for texts in answers):
            raise CcrankError("per_token=True needs exactly one candidate for each prompt")
        if not prompts:
            return no_readings(Wish(), 0)
        asked = _asked(prompts, answers)
        size = max(1, MAX_BLOCK // (1 + max(map(len, answers))))
        blocks = [asked[start : start + size] for start in range(0, len(asked), size)]
        readings = joined([self._read_block(block, per_token, progress) for block in blocks])
        self.spent += readings.cost
        return readings

    def reopened(self) -> RemoteReader:
        """A reader of whatever model the server has at this address now."""
        server = ModelServer.of(self.server.client)
        return RemoteReader(server, cache=self.cache, check_after=self.check_after, shown_as=self.shown_as)

    def about(self) -> dict[str, Any]:
        """The model's properties, for `ccrank models info`."""
        server = self.server
        return {
            "name": self.name,
            "served_by": server.facts.get("owned_by") or "unknown",
            "form": self.form,
            "window": self.window,
            "read_as": server.scoring.name,
            "tokens": "guessed" if server.tokens is None else "by the server",
            "prompts_in_a_request": server.batch,
            "requests_at_once": server.client.requests,
            "timeout": server.client.timeout,
            "identity": self.identity,
        }

    def _read_block(
        self, asked: Sequence[AnswerRequest], per_token: bool, progress: Progress | None
    ) -> Readings:
        keys = [self._key(request, per_token) for request in asked]
        rows = {} if self.cache is None else self.cache.get(keys)
        missing = {key: request for key, request in zip(keys, asked, strict=True) if key not in rows}
        left, total = list(missing.values()), _guessed(asked)
        stored = 1 - _guessed(left) / max(1, total)
        report = in_tokens(progress, total)
        report(stored)
        fresh: dict[bytes, np.ndarray] = {}
        if missing:
            scored = self.server.scoring.score(left, lambda share: report(stored + (1 - stored) * share))
            fresh = {key: _row(scores, per_token) for key, scores in zip(missing, scored, strict=True)}
            self._check()
        report(1.0)
        if self.cache is not None:
            self.cache.put(fresh)
        rows |= fresh
        sent = sum(int(row[0]) for row in fresh.values())
        read = [(rows[key], 1 + len(request.answers)) for key, request in zip(keys, asked, strict=True)]
        tokens = sum(int(row[0]) for row, _ in read)
        logits = _padded([row[end:] for row, end in read], np.nan)
        lengths = _padded([row[1:end] for row, end in read], 0).astype(int)
        return Readings(logits, None, None, (), Cost(len(asked), tokens, tokens, sent), lengths)

    def _check(self) -> None:
        if self.check_after is None or time.monotonic() - self._checked < self.check_after:
            return
        try:
            self.server.check()
        except ChangedError:
            self.changed = True
            raise
        self._checked = time.monotonic()

    def _key(self, asked: AnswerRequest, per_token: bool) -> bytes:
        text = json.dumps([self.identity, asked.text, asked.answers, per_token])
        return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=24).digest()


def no_states(name: str) -> CcrankError:
    """The error of what needs hidden states."""
    return CcrankError(
        f"{name} is behind a server, which gives log-probabilities and no hidden states; use --method poles "
        "(method='poles'), likelihood, prompt-pair or another that reads none; auto, axis, probes and labels need the "
        "model itself: --model with a hub id, a folder or a .gguf file"
    )


OpenModel = Reader | RemoteReader  # a model that was loaded here, or one behind a server


def open_model(
    name: str = "default",
    options: ReaderOptions | None = None,
    *,
    cache: ReadingCache | None = None,
    say: StatusCallback = lambda _: None,
) -> OpenModel:
    """Load a model, or ask a server for one."""
    if is_remote(name):
        return RemoteReader.open(name, options, cache=cache, say=say)
    return Reader.open(name, options, cache=cache, say=say)


def _asked(prompts: Sequence[Prompt], answers: Sequence[tuple[str, ...]]) -> list[AnswerRequest]:
    """The prompts and their answers as text, with names of control tokens in user text broken up."""
    requests = []
    plain = plain_answers(answers, _break_up)
    for prompt, texts in zip(plain_prompts(prompts, _break_up), plain, strict=True):
        refuse_blanks(prompt, texts)
        text = "".join(piece.text for piece in prompt.before)
        stem = text.rstrip(" ")
        lead = text[len(stem) :]
        requests.append(AnswerRequest(stem, tuple(lead + answer for answer in texts), prompt.task))
    return requests


def _break_up(text: str) -> str:
    """User text without what looks like a special token; the server does not list its own."""
    return _SPECIAL.sub(lambda match: broken_up(match[0]), text)


def _guessed(asked: Sequence[AnswerRequest]) -> int:
    """About how many tokens the prompts and their answers have."""
    return sum(guess_token_counts([text for request in asked for text in (request.text, *request.answers)]))


def _row(scored: AnswerScores, per_token: bool) -> np.ndarray:
    """The number of tokens sent, the number of tokens of each answer, and the scores."""
    if per_token:
        scores = np.array(scored.log_probabilities[0], np.float32)
    else:
        numbers: dict[Token, int] = {}
        tails = [tuple(numbers.setdefault(token, len(numbers)) for token in tail) for tail in scored.tails]
        table = {
            tail[: index + 1]: value
            for tail, values in zip(tails, scored.log_probabilities, strict=True)
            for index, value in enumerate(values)
        }
        tree = answer_tree(tuple(tails))
        values = [table[(*prefix, token)] for prefix, tokens in tree.steps.items() for token in tokens]
        scores = tree.scores(np.array(values), np.zeros(len(tree.steps)), log_probabilities=True)
    lengths = list(map(len, scored.tails))
    return np.concatenate([[scored.tokens], lengths, scores]).astype(np.float32)


def _padded(rows: Sequence[np.ndarray], fill: float) -> np.ndarray:
    """(rows, longest) float32."""
    table = np.full((len(rows), max(map(len, rows), default=0)), fill, np.float32)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table
