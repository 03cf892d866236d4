"""Log-probabilities of answers from a server, in the way in which it gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccrank.errors import CcrankError
from ccrank.models.remote.client import LASTING_ERRORS, RefusedError
from ccrank.models.remote.completions import (
    AnswerRequest,
    AnswerScores,
    Completions,
    Position,
    Report,
    Token,
    positions,
    prompt_ids,
)

if TYPE_CHECKING:
    from ccrank.models.remote.server import ServerTokens

PROBE = "The quick brown fox jumps over the lazy dog"
FORMS: tuple[Mapping[str, Any], ...] = (
    {"max_tokens": 0, "return_token_ids": True},
    {"max_tokens": 1, "return_token_ids": True},
    {"max_tokens": 0},
    {"max_tokens": 1},
)
"""Some servers must generate a token, some refuse fields that they do not know."""
TOPS = (500, 20, 5)  # how many of the most likely tokens to ask for; servers have limits


@dataclass(frozen=True)
class EchoScoring:
    """Sends every prompt with every answer: the server repeats both, and says how likely each token was.

    vLLM and SGLang do so with `echo`. An answer costs a pass over its prompt.
    """

    completions: Completions
    form: Mapping[str, Any]  # fields of a request, one of `FORMS`
    generated: int = 0  # how many tokens the server adds to the prompt
    name = "log-probabilities of prompts (echo)"

    @classmethod
    def detect(cls, completions: Completions) -> EchoScoring | None:
        """The way in which the server repeats prompts with log-probabilities; None if it does not."""
        for form in FORMS:
            try:
                [read] = cls(completions, form).read([PROBE])
            except LASTING_ERRORS:
                raise
            except RefusedError:
                continue
            except CcrankError:
                return None  # some servers fail at a prompt that they should repeat
            for generated in (0, 1):
                repeated = read[: len(read) - generated]
                # Blanks may be lost or spelled, and a special token may come first.
                text = re.sub("[ Ġ▁]", "", "".join(position.text for position in repeated))
                known = [position.log_probability is not None for position in repeated[1:]]
                if text.endswith(PROBE.replace(" ", "")) and len(known) > 1 and all(known):
                    return cls(completions, form, generated)
        return None

    def score(self, asked: Sequence[AnswerRequest], report: Report) -> list[AnswerScores]:
        """The log-probabilities of all answers."""
        texts = list(dict.fromkeys(text for request in asked for text in request.texts))
        read = {text: tokens for _, text, tokens in self.completions.each(self.read, {(): texts}, report)}
        return [self._scored(request, [read[text] for text in request.texts]) for request in asked]

    def read(self, texts: Sequence[str]) -> list[list[Position]]:
        """The tokens of texts."""
        tokens_of_texts = []
        for choice in self.completions.ask(texts, echo=True, logprobs=1, **self.form):
            read = positions(choice)
            read = read[: len(read) - self.generated]
            ids: Sequence[Token] | None = prompt_ids(choice)
            if ids is None or len(ids) != len(read):
                ids = list(map(_distinct_name, read))
            read = [replace(position, token=token) for token, position in zip(ids, read, strict=True)]
            tokens_of_texts.append(read)
        return tokens_of_texts

    @staticmethod
    def _scored(asked: AnswerRequest, read: Sequence[Sequence[Position]]) -> AnswerScores:
        prompt, *whole = ([position.token for position in tokens] for tokens in read)
        tails = asked.tails(prompt, whole)
        values = []
        for tail, tokens in zip(tails, read[1:], strict=True):
            of_tail = tokens[len(tokens) - len(tail) :]
            values.append([position.log_probability for position in of_tail])
            if None in values[-1]:
                raise CcrankError(
                    f"task {asked.task!r}: the server gave no log-probability for "
                    f"{of_tail[values[-1].index(None)].text!r} in {asked.text[-40:]!r}"
                )
        return AnswerScores(tails, values, len(prompt) + sum(map(len, whole)))  # type: ignore[arg-type]


def _distinct_name(position: Position) -> Token:
    """The token, with its log-probability in its name if its text does not tell which token it is.

    Parts of a character have no text of their own. The same token after the same tokens is as likely.
    """
    if position.text and "\ufffd" not in position.text:
        return position.token
    number = "" if position.log_probability is None else f"{position.log_probability:.2f}"
    return f"{position.text}@{number}"


@dataclass(frozen=True)
class LikeliestScoring:
    """Sends every prompt with every beginning of an answer, as text: the server lists the most likely next tokens only.

    An answer is spelled token by token, each the longest listed token that continues it. An answer that is not on the
    lists has no score, which is an error.
    """

    completions: Completions
    top: int  # how many tokens the server lists
    name = "log-probabilities of the most likely next tokens only"

    @classmethod
    def detect(cls, completions: Completions) -> LikeliestScoring | None:
        """The way in which the server lists likely tokens; None if it does not."""
        for top in TOPS:
            try:
                [listed] = cls(completions, top).read([PROBE])
            except LASTING_ERRORS:
                raise
            except RefusedError:
                continue
            return cls(completions, top) if len(listed) > 1 else None
        return None

    def score(self, asked: Sequence[AnswerRequest], report: Report) -> list[AnswerScores]:
        """The log-probabilities of all answers."""
        spelled: dict[tuple[AnswerRequest, str], list[tuple[str, float]]] = {
            (request, answer): [] for request in asked for answer in request.answers
        }
        listed: dict[str, Mapping[Token, float]] = {}
        characters = max(1, sum(len(answer) for _, answer in spelled))
        while left := self._unfinished(spelled):
            texts = dict.fromkeys(request.text + done for (request, _), done in left.items())
            missing = [text for text in texts if text not in listed]
            listed |= {
                text: top for _, text, top in self.completions.each(self.read, {(): missing}, lambda _: None)
            }
            for (request, answer), done in left.items():
                likely = listed[request.text + done]
                token = self._continued(request.task, answer, done, likely)
                spelled[request, answer].append((token, likely[token]))
            report(sum(len(token) for tokens in spelled.values() for token, _ in tokens) / characters)
        scores = []
        for request in asked:
            answers = [spelled[request, answer] for answer in request.answers]
            tails = [tuple(token for token, _ in tokens) for tokens in answers]
            values = [[value for _, value in tokens] for tokens in answers]
            scores.append(AnswerScores(tails, values, sum(map(len, tails))))
        return scores

    def read(self, texts: Sequence[str]) -> list[Mapping[Token, float]]:
        """The most likely tokens after each text, as text."""
        answers = self.completions.ask(texts, max_tokens=1, logprobs=self.top)
        read = [next(iter(positions(answer, by_text=True)), None) for answer in answers]
        return [{} if position is None else position.top for position in read]

    @staticmethod
    def _unfinished(
        spelled: Mapping[tuple[AnswerRequest, str], Sequence[tuple[str, float]]],
    ) -> dict[tuple[AnswerRequest, str], str]:
        """What is spelled of each answer that goes on."""
        done = {wish: "".join(token for token, _ in tokens) for wish, tokens in spelled.items()}
        return {wish: text for wish, text in done.items() if text != wish[1]}

    def _continued(self, task: str, answer: str, done: str, likely: Mapping[Token, float]) -> str:
        """The longest likely token that continues an answer."""
        rest = answer[len(done) :]
        fitting = [token for token in likely if isinstance(token, str) and token and rest.startswith(token)]
        if not fitting:
            raise CcrankError(
                f"task {task!r}: the server lists the {self.top} most likely next tokens only, and none of them "
                f"continues the candidate {answer.strip()!r} at {rest!r}; use a server that gives log-probabilities of "
                "any token, such as vLLM or llama.cpp's, or load the model itself"
            )
        return max(fitting, key=len)


BIAS = 100  # the largest that the API allows
LONGER = 30
"""The further bias for each character of a token, so that the longer of two possible tokens is generated."""
SAME = 0.1  # two log-probabilities of one token differ less, unless one of them includes a bias
TRIED_TOKENS = 5  # listed tokens with which that is tried
WHOLE_VOCABULARY = 1 << 20  # more tokens than any vocabulary has
CONTINUED = (" Yes No", " the large negative", " through the improbable zebra crossing")
"""What the probe is made to go on with. A text of many short tokens may be generated as others, so there are three."""

Ids = tuple[int, ...]
Needed = dict[Ids, dict[int, None]]  # tokens before → the tokens whose log-probabilities are needed there
Spelled = dict[tuple[Ids, str], dict[Ids, None]]
"""(tokens of an answer, its text) → the distinct prompts that it follows."""
Known = dict[tuple[Ids, int], float]  # (tokens before, token) → log-probability


@dataclass(frozen=True)
class ForcedScoring:
    """Sends every prompt with every beginning of an answer, as tokens of the server's tokenizer.

    llama.cpp's server gives log-probabilities of generated tokens alone, but as they were before `logit_bias`. So a
    large bias generates the next token of an answer, which comes with its log-probability. The most likely other tokens
    come with it, so that several answers to a prompt often need one request.

    An answer of several tokens takes one request where the server takes a grammar, which allows the answer's text
    alone; the bias, which grows with the length of a token, makes it generate the tokens that the tokenizer gives.
    After a token that it does not give, the rest is forced token by token. A token that is part of a character is
    generated without a log-probability; it is found in a list of all tokens.
    """

    completions: Completions
    tokens: ServerTokens
    top: int  # how many of the most likely tokens the server gives
    grammar: bool = False  # whether the server takes a grammar

    @property
    def name(self) -> str:
        """In a few words, for users."""
        return f"log-probabilities of next tokens (logit_bias{' and grammar' if self.grammar else ''})"

    @classmethod
    def detect(cls, completions: Completions, tokens: ServerTokens) -> ForcedScoring | None:
        """The way in which the server generates given tokens with their log-probabilities; None if it does not."""
        prompt = tokens.encode(PROBE)
        for top in TOPS:
            scoring = cls(completions, tokens, top)
            try:
                [first] = scoring.next_tokens([prompt], prompt[-1], top)
                if first is None or first.token != prompt[-1] or not scoring._agrees(prompt, first.top):
                    return None
            except LASTING_ERRORS:
                raise
            except RefusedError:
                continue
            return replace(scoring, grammar=scoring._takes_grammar(prompt))
        return None

    def _agrees(self, prompt: Ids, listed: Mapping[Token, float]) -> bool:
        """Whether listed tokens have the same log-probabilities when they are forced themselves."""
        agreed = False
        for token in [token for token in listed if isinstance(token, int)][:TRIED_TOKENS]:
            [forced] = self.next_tokens([prompt], token, 1)
            if forced is None:
                continue  # a part of a character
            number = forced.log_probability
            if forced.token != token or number is None or abs(number - listed[token]) > SAME:
                return False
            agreed = True
        return agreed

    def _takes_grammar(self, prompt: Ids) -> bool:
        """Whether a text is generated as its tokens, with the log-probabilities that they have one by one."""
        for text in CONTINUED:
            tail = self.tokens.encode(PROBE + text)[len(prompt) :]
            try:
                [read] = self.spelled([prompt], tail, text)
                [last] = self.next_tokens([prompt + tail[:-1]], tail[-1], 1)
            except RefusedError:
                return False
            as_given = tuple(position.token for position in read) == tail
            if as_given and last is not None and last.log_probability is not None:
                return abs((read[-1].log_probability or 0.0) - last.log_probability) < SAME
        return False

    def score(self, asked: Sequence[AnswerRequest], report: Report) -> list[AnswerScores]:
        """The log-probabilities of all answers."""
        texts = [text for request in asked for text in request.texts]
        ids = dict(zip(texts, self.tokens.encode_all(texts), strict=True))
        tails_of_requests: list[tuple[Ids, list[Ids]]] = []
        needed: Needed = {}
        spelled: Spelled = {}
        for request in asked:
            prompt, *whole = (ids[text] for text in request.texts)
            size = len(whole[0]) - len(request.tails(prompt, whole)[0])
            stem = whole[0][:size]
            tails_of_requests.append((stem, [tokens[size:] for tokens in whole]))
            for answer, tokens in zip(request.answers, whole, strict=True):
                for length in range(size, len(tokens)):
                    needed.setdefault(tokens[:length], {})[tokens[length]] = None
                # An answer that merges with the prompt has another text than its tokens.
                if self.grammar and len(tokens) > size + 1 and size == len(prompt):
                    spelled.setdefault((tokens[size:], answer), {})[stem] = None
        known: Known = {}
        for (tail, _), stem, read in self.completions.each(self.spelled, spelled, _part(report, 0, 3)):
            self._take(read, stem, tail, known)
        self._read_rest(needed, known, _part(report, 1, 3))
        self._read_rest(needed, known, _part(report, 2, 3))
        return [
            AnswerScores(
                tails,
                [[known[stem + tail[:index], token] for index, token in enumerate(tail)] for tail in tails],
                len(stem) + sum(map(len, tails)),
            )
            for stem, tails in tails_of_requests
        ]

    def next_tokens(self, prompts: Sequence[Ids], token: int, top: int) -> list[Position | None]:
        """The next token after each prompt."""
        read = self._generate(prompts, max_tokens=1, logprobs=top, logit_bias={str(token): BIAS})
        return [next(iter(generated), None) for generated in read]

    def spelled(self, prompts: Sequence[Ids], tail: Ids, text: str) -> list[list[Position]]:
        """The tokens that the server generates where it may generate an answer's text alone."""
        # The literals of the grammar are those of JSON, but for two escapes.
        literal = json.dumps(text, ensure_ascii=False).replace("\\b", "\\x08").replace("\\f", "\\x0c")
        bias = {str(token): BIAS + LONGER * self.tokens.lengths.get(token, 0) for token in tail}
        grammar = f"root ::= {literal}"
        return self._generate(prompts, max_tokens=len(tail), logprobs=1, grammar=grammar, logit_bias=bias)

    def _generate(self, prompts: Sequence[Ids], **wish: Any) -> list[list[Position]]:
        answers = self.completions.ask(prompts, return_tokens_as_token_ids=True, **wish)
        return [positions(answer) for answer in answers]

    def _take(self, read: Sequence[Position], stem: Ids, tail: Ids, known: Known) -> None:
        """Store the log-probabilities of generated tokens for as long as they are the answer's."""
        left = iter(read)
        position = next(left, None)
        for index, token in enumerate(tail):
            if position is not None and position.token == token and position.log_probability is not None:
                known[stem + tail[:index], token] = position.log_probability
                position = next(left, None)
            elif token not in self.tokens.parts:
                return

    def _read_rest(self, needed: Needed, known: Known, report: Report) -> None:
        """Read what is not known yet: the first time one token after each prefix, with the most likely others; the
        second time those that were not among them."""
        wanted: dict[tuple[int, int], list[Ids]] = {}
        for before, tokens in needed.items():
            left = [token for token in tokens if (before, token) not in known]
            first_time = bool(left) and len(left) == len(tokens) > 1
            for token in left[:1] if first_time else left:
                wanted.setdefault((token, self.top if first_time else 1), []).append(before)
        parts: list[tuple[Ids, int]] = []
        for (token, _), before, position in self.completions.each(self.next_tokens, wanted, report):
            if position is None:
                parts.append((before, token))
                continue
            if position.token != token or position.log_probability is None:
                raise _not_generated(token)
            known[before, token] = position.log_probability
            for other in needed[before].keys() & position.top.keys():
                known.setdefault((before, other), position.top[other])
        self._read_parts(parts, known)
        report(1.0)

    def _read_parts(self, wanted: Sequence[tuple[Ids, int]], known: Known) -> None:
        """Read tokens that are parts of characters, from lists of all tokens beside one that is not."""
        if not wanted:
            return
        beside = self.tokens.encode(PROBE)[-1]
        prompts = list(dict.fromkeys(before for before, _ in wanted))
        listed = {
            prompts[index]: position.top
            for index, [position] in self.completions.client.each(
                lambda before: self.next_tokens([before], beside, WHOLE_VOCABULARY), prompts
            )
            if position is not None
        }
        for before, token in wanted:
            if token not in listed.get(before, {}):
                raise _not_generated(token)
            known[before, token] = listed[before][token]


def _part(report: Report, part: int, parts: int) -> Report:
    """Reports the progress of one of several parts of the work."""
    return lambda share: report((part + share) / parts)


def _not_generated(token: int) -> CcrankError:
    return CcrankError(
        f"the server did not generate token {token} with its log-probability when biased towards it; start it without "
        "constraints on what it generates"
    )


Scoring = EchoScoring | ForcedScoring | LikeliestScoring
