"""Stand-ins on 127.0.0.1 for servers of language models, each with what it gives and what it lacks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from ccrank.models import Reader
from ccrank.prompts import Piece, Prompt

KEY = "sk-a-key-that-nobody-may-see"
PATIENCE = 120.0


def prompt(*texts: str) -> Prompt:
    """A prompt whose second text is an item, with the slot at its end."""
    pieces = [Piece(text, "item" if place == 1 else "text") for place, text in enumerate(texts)]
    return Prompt((*pieces, Piece("", "slot")))


PROMPTS = [
    prompt("Is ", "Russia", " larger than Canada? "),
    prompt("The size of ", "Brazil", " is "),
    prompt("The tower is larg"),  # without a blank: "er" and "e" merge with what is before the slot
    prompt("Größe: ", "日本 😀", " 😀😀 "),
]
CANDIDATES = [
    ["Yes", "No", "Yes and No"],  # one is the beginning of another
    ["1", "10", "100", "seventy-one"],
    ["er", "e", "est of all", " for"],
    ["😀", "😁", "größer"],  # characters of several tokens
]


@dataclass(frozen=True)
class Kind:
    """What a kind of server does."""

    owner: str
    echo: bool = False
    """Repeats prompts, with log-probabilities."""
    echo_fails: bool = False
    """Fails at every prompt that it should repeat."""
    most_listed: int | None = None
    """The largest `logprobs`; None is no limit."""
    chat_form: bool = False
    """Log-probabilities in the form of the chat API, with ids of tokens."""
    tokenize: str | None = None
    """The field of /tokenize with the text."""
    bias: str = "before"
    """Log-probabilities are those before logit_bias, after it, or it is ignored ("none")."""
    lists: bool = True
    """Takes several prompts in a request."""
    log_probabilities: bool = True
    must_generate: bool = False
    """Refuses max_tokens=0."""
    strict: bool = False
    """Refuses fields that it does not know."""
    whole_characters: bool = False
    """Leaves out generated tokens that are parts of characters."""
    grammar: bool = False
    """Generates what a grammar of one literal allows."""
    ids: bool = False
    """Gives the ids of a prompt's tokens on request."""
    shown_bos: bool = False
    """A special token comes first."""


KINDS = {
    "vllm": Kind("vllm", echo=True, most_listed=20, tokenize="prompt", ids=True),
    "old-vllm": Kind("vllm", echo=True, most_listed=20, must_generate=True, strict=True),
    "sglang": Kind("sglang", echo=True, most_listed=20, must_generate=True, shown_bos=True),
    "llamacpp": Kind("llamacpp", chat_form=True, tokenize="content", grammar=True, whole_characters=True),
    "vllm-without-echo": Kind("vllm", most_listed=20, tokenize="prompt"),
    "biased": Kind("other", chat_form=True, tokenize="content", bias="after"),
    "listing": Kind("other", most_listed=5, bias="none", lists=False),
    "listing-all": Kind("other", bias="none", lists=False),
    "ollama": Kind("library", log_probabilities=False, lists=False),
}
KNOWN = {"model", "prompt", "echo", "logprobs", "max_tokens", "temperature", "logit_bias"}


@dataclass
class StandIn:
    """A server of a tiny model."""

    reader: Reader
    kind: Kind
    url: str = ""
    name: str = "tiny"
    created: int = 1
    window: int = 512
    key: str | None = None
    """Required, if given."""
    twist: Callable[[str, Any], Any] = lambda path, found: found
    """Path and answer → the answer that is sent, which may be bytes."""
    chat: Callable[[Any], tuple[int, Any]] | None = None
    """What it answers to the body of a request for a chat."""
    dripping: str | None = None
    """Requests to paths that begin so get one byte after the other, without end."""
    drips: int = 0
    """Connections that drip now."""
    dripped: list[str] = field(default_factory=list)
    """The paths of all that did."""
    faults: list[str] = field(default_factory=list)
    """What goes wrong with the next requests for completions, one each."""
    running: int = 0
    most_running: int = 0
    """Requests for completions that were under way at once."""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def completions(self) -> list[Any]:
        """The bodies of all requests for completions."""
        return [body for path, body in self.asked if path == "/v1/completions"]

    def encode(self, text: str) -> list[int]:
        ids = self.reader.loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*self.bos, *ids]

    @property
    def bos(self) -> list[int]:
        return [self.reader.loaded.tokenizer.bos_token_id] if self.kind.shown_bos else []

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON for a request."""
        if path == "/v1/models":
            entry = {"id": self.name, "object": "model", "created": self.created, "owned_by": self.kind.owner}
            return 200, {"object": "list", "data": [{**entry, "max_model_len": self.window}]}
        if path == "/tokenize" and self.kind.tokenize:
            ids = self.encode(body[self.kind.tokenize])
            if not body.get("with_pieces") or not self.kind.grammar:
                return 200, {"tokens": ids}
            return 200, {"tokens": [{"id": token, "piece": self.piece(token)} for token in ids]}
        if path == "/v1/completions":
            return self.complete(body)
        if path == "/v1/chat/completions" and self.chat is not None:
            return self.chat(body)
        return 404, {"error": {"message": f"no route {path}"}}

    def piece(self, token: int) -> str | list[int]:
        """The text of a token, or its bytes if they are no text."""
        try:
            return self.bytes_of[token].decode()
        except UnicodeDecodeError:
            return list(self.bytes_of[token])

    def complete(self, body: Any) -> tuple[int, Any]:
        kind, prompt = self.kind, body["prompt"]
        several = isinstance(prompt, list) and not isinstance(prompt[0], int)
        if several and not kind.lists:
            return 400, {"error": {"message": "cannot unmarshal array into a string"}}
        if kind.strict and (unknown := set(body) - KNOWN):
            return 400, {"error": {"message": f"unknown fields {unknown}"}}
        if kind.must_generate and body["max_tokens"] < 1:
            return 400, {"error": {"message": "max_tokens must be at least 1"}}
        if kind.echo_fails and body.get("echo"):
            return 500, {"error": {"message": "internal error"}}
        listed = body.get("logprobs", 0)
        if kind.most_listed is not None and listed > kind.most_listed:
            return 400, {"error": {"message": f"logprobs must be at most {kind.most_listed}"}}
        prompts = prompt if several else [prompt]
        if any(len(self.encode(one) if isinstance(one, str) else one) > self.window for one in prompts):
            return 400, {"error": {"message": f"the prompt exceeds the context of {self.window} tokens"}}
        found = [self.choice(one, body) for one in prompts]
        # The order of answers is not that of prompts; their indices tell.
        numbered = [{"index": place, **one} for place, one in enumerate(found)]
        return 200, {"object": "text_completion", "model": body["model"], "choices": numbered[::-1]}

    def choice(self, prompt: str | list[int], body: Any) -> dict[str, Any]:
        kind, tokenizer = self.kind, self.reader.loaded.tokenizer
        ids = self.encode(prompt) if isinstance(prompt, str) else list(prompt)
        given = self.log_probabilities(ids)
        rows = [(ids[place], given[place - 1] if place else None) for place in range(len(ids))]
        echoed = rows if kind.echo and body.get("echo") else []
        made = self.generated(ids, body) if not echoed or body["max_tokens"] else []
        chosen = made[0][0] if made else ids[-1]
        if kind.whole_characters:
            made = [one for one in made if "\ufffd" not in tokenizer.decode([one[0]])]
        spell = self.spelled(body.get("return_tokens_as_token_ids", False) and not kind.chat_form)
        answer: dict[str, Any] = {"text": tokenizer.decode([chosen]), "logprobs": None}
        if kind.log_probabilities:
            form = self.chat_form if kind.chat_form else self.legacy_form
            answer["logprobs"] = form([*echoed, *made], body["logprobs"], spell)
        if kind.ids and body.get("return_token_ids"):
            answer["prompt_token_ids"] = ids
        return answer

    def log_probabilities(self, ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.reader.loaded.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)

    def generated(self, ids: list[int], body: Any) -> list[tuple[int, torch.Tensor]]:
        """The most likely tokens, with the bias and the grammar of the request; at least one."""
        left = None
        if self.kind.grammar and "grammar" in body:
            left = json.loads(body["grammar"].removeprefix("root ::= ")).encode()
        found: list[tuple[int, torch.Tensor]] = []
        while len(found) < max(1, body["max_tokens"]) and left != b"":
            given = self.log_probabilities([*ids, *(token for token, _ in found)])[-1]
            biased = given.clone()
            if self.kind.bias != "none":
                for token, bias in (body.get("logit_bias") or {}).items():
                    biased[int(token)] += bias
            allowed = [
                token for token in range(len(given)) if left is None or left.startswith(self.bytes_of[token])
            ]
            chosen = max(allowed, key=lambda token: float(biased[token]))
            left = None if left is None else left[len(self.bytes_of[chosen]) :]
            found.append((chosen, biased.log_softmax(-1) if self.kind.bias == "after" else given))
        return found

    @cached_property
    def bytes_of(self) -> list[bytes]:
        """What each token stands for; special tokens stand for what no text has."""
        tokenizer = self.reader.loaded.tokenizer
        # Byte-level tokenizers write printable bytes as they are, the others as the characters from 256 on.
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in plain]
        back = {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}
        names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        return [
            b"\xff" if name in tokenizer.all_special_tokens else bytes(back[one] for one in name)
            for name in names
        ]

    def spelled(self, as_ids: bool) -> Any:
        tokenizer = self.reader.loaded.tokenizer
        return lambda token: f"token_id:{token}" if as_ids else tokenizer.decode([token])

    @staticmethod
    def legacy_form(rows: Sequence[tuple[int, Any]], count: int, spell: Any) -> dict[str, Any]:
        tops = [None if row is None else torch.topk(row, min(count, len(row))) for _, row in rows]
        return {
            "tokens": [spell(token) for token, _ in rows],
            "token_logprobs": [None if row is None else float(row[token]) for token, row in rows],
            "top_logprobs": [
                top
                and {
                    spell(int(token)): float(value)
                    for token, value in zip(top.indices, top.values, strict=True)
                }
                for top in tops
            ],
            "text_offset": [-1 for _ in rows],
        }

    @staticmethod
    def chat_form(rows: Sequence[tuple[int, Any]], count: int, spell: Any) -> dict[str, Any]:
        def one(token: int, row: Any) -> dict[str, Any]:
            return {"id": token, "token": spell(token), "logprob": float(row[token])}

        return {
            "content": [
                {
                    **one(token, row),
                    "top_logprobs": [
                        one(int(other), row) for other in torch.topk(row, min(count, len(row))).indices
                    ],
                }
                for token, row in rows
            ]
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.reply(None)

    def do_POST(self) -> None:
        self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def reply(self, body: Any) -> None:
        one: StandIn = self.server.stand_in
        path = self.path.partition("?")[0]
        if one.dripping and path.startswith(one.dripping):
            self.drip(one)
            return
        with one.lock:
            one.asked.append((path, body))
            one.headers.append({name.lower(): value for name, value in self.headers.items()})
            completes = path == "/v1/completions"
            fault = one.faults.pop(0) if one.faults and completes else ""
            one.running += completes
            one.most_running = max(one.most_running, one.running)
        try:
            found = self.made(one, path, body, fault)
        finally:
            # Before the first byte leaves: a client that has its answer may send its next request at once.
            with one.lock:
                one.running -= completes
        if found is None:
            self.close_connection = True
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # the client gave up
            self.send(*found, half=fault == "half")

    def made(
        self, one: StandIn, path: str, body: Any, fault: str
    ) -> tuple[int, dict[str, str], bytes] | None:
        """Status, headers and body of an answer; None for a connection that breaks off."""
        headers = {"Content-Type": "application/json"}
        if one.key is not None and self.headers.get("Authorization") != f"Bearer {one.key}":
            status, found = 401, {"error": {"message": f"{self.headers.get('Authorization')} is no key"}}
        elif fault.isdigit():
            status, found = int(fault), {"error": {"message": "please come again"}}
            headers |= {"Retry-After": "0"} if fault == "429" else {}
            headers |= {"Location": "http://127.0.0.1:9/elsewhere"} if fault == "307" else {}
        elif fault == "drop":
            return None
        elif fault == "slow":
            one.closing.wait(PATIENCE)
            return None
        else:
            status, found = one.answer(path, body)
            found = one.twist(path, found)
        if fault == "no JSON":
            found = b"<html>a gateway</html>"
        return status, headers, found if isinstance(found, bytes) else json.dumps(found).encode()

    def drip(self, one: StandIn) -> None:
        """Send headers and blanks, which may precede JSON, until the client or the test gives up."""
        with one.lock:
            one.drips += 1
            one.dripped.append(self.path)
        self.close_connection = True
        with suppress(OSError):
            self.send_response(200)
            self.end_headers()
            while not one.closing.wait(0.02):
                self.wfile.write(b" ")
        with one.lock:
            one.drips -= 1

    def send(self, status: int, headers: dict[str, str], data: bytes, *, half: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if half else data)
        self.close_connection = self.close_connection or half


@contextmanager
def serving(reader: Reader, kind: str | Kind) -> Iterator[StandIn]:
    """A stand-in on a free port, for as long as the block lasts."""
    one = StandIn(reader, KINDS[kind] if isinstance(kind, str) else kind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = False  # closing waits for them: a model that runs while Python exits aborts it
    server.stand_in = one  # type: ignore[attr-defined]
    one.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
