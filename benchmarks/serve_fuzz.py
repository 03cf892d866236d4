"""Bad requests at `ccrank serve`: none may give a server error or hang, and the server must be healthy afterwards.

    python benchmarks/serve_fuzz.py                 # 10,000 requests at the default model
    python benchmarks/serve_fuzz.py --requests 500 --model FOLDER --seed 3

A request is a good one with a few random mutations (other types, extreme numbers, odd texts, fields removed, added or
repeated), broken JSON, random bytes, an unknown path or method, or broken HTTP. Exits with 1 on any 5xx other than the
promised 503 and 504, any answer that is not JSON, and any request without an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx

from ccrank import fit
from ccrank.methods.registry import METHODS
from serve import Server

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("/v1/rank", {"items": ["Russia", "Chad", "Peru"], "by": "size", "category": "country"}),
    ("/v1/rank", {"items": ["a fox", "a dog"], "by": "speed", "labels": {"a fox": 2, "a dog": 1}}),
    ("/v1/rank", {"items": ["red", "blue"], "by": "warmth", "poles": ["cold", "warm"], "stream": True}),
    ("/v1/rank", {"items": ["one", "two"], "by": "size", "method": "prompt-pair", "options": {"pairs": 2}}),
    (
        "/v1/rank",
        {"items": ["one", "two"], "by": "size", "method": "ccs", "options": {"epochs": 2, "seeds": 1}},
    ),
    (
        "/v1/rank",
        {"items": ["one", "two"], "by": "size", "method": "prompt-list", "options": {"shuffles": 1}},
    ),
    (
        "/v1/rank",
        {"items": ["one", "two"], "by": "size", "method": "frequency", "options": {"lead": "This is"}},
    ),
    ("/v1/rank", {"items": ["A gale.", "A cake."], "query": "storms", "options": {}}),
    ("/v1/rerank", {"model": "default", "query": "storms", "documents": ["A gale.", {"text": "A cake."}]}),
    ("/v2/rerank", {"query": "storms", "documents": ["A gale."], "top_n": 1, "return_documents": True}),
    ("/v1/score", {"items": ["Russia", "a fox"], "scale": "size"}),
    ("/v1/score", {"items": ["Russia"]}),
]
OPTIONS = sorted({option for method in METHODS.values() for option in method.options} | {"file", "no_such"})
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 10**30, 10**400, -(10**18), 0.5, 1e308, float("nan"), float("inf"), "", " ", "a",
    "\x00", "\u202e", "\ud800", "é" * 50, "𝔘" * 9, "../../etc/passwd", "/dev/zero", "{item}", "{slot}", "{}", "%s%n",
    "<mask>", "<|im_end|>", "a\nb", "x" * 30_000, [], {}, [[]], [None], ["a"], ["a", "a"], ["a", "b"], {"a": 1},
    {"text": None}, [["a", "b"]],
    {"best": ["a"]}, {"ranks": {"a": 1}}, {"orders": [["a", "a"]]}, [1] * 300, ["a"] * 300,
]  # fmt: skip


def mutated(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """A body with one to three random changes."""
    found = json.loads(json.dumps(body))
    for _ in range(rng.randint(1, 3)):
        change = rng.randrange(6)
        if change == 0 and found:
            del found[rng.choice([*found])]
        elif change == 1:
            found[
                rng.choice(
                    [
                        "by",
                        "items",
                        "query",
                        "labels",
                        "poles",
                        "context",
                        "category",
                        "top_n",
                        "scale",
                        "extra",
                    ]
                )
            ] = deepcopy(rng.choice(ODD))
        elif change == 2 and found:
            found[rng.choice([*found])] = deepcopy(rng.choice(ODD))
        elif change == 3:
            options = found.get("options")
            own = options if isinstance(options, dict) else {}
            found["options"] = {**own, rng.choice(OPTIONS): deepcopy(rng.choice(ODD))}
        elif change == 4:
            found["method"] = rng.choice([*METHODS])
        else:
            lists = [name for name in ("items", "documents") if isinstance(found.get(name), list)]
            if lists:
                found[rng.choice(lists)].append(deepcopy(rng.choice(ODD)))
    return found


def make(rng: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """(method, path, body, headers) of a bad request."""
    path, good = rng.choice(GOOD)
    headers = {"content-type": "application/json"}
    kind = rng.random()
    body = json.dumps(mutated(rng, good)).encode()
    if kind < 0.7:
        return "POST", path, body, headers
    if kind < 0.8:  # broken JSON
        cut = rng.randrange(len(body))
        return (
            "POST",
            path,
            body[:cut] + rng.choice([b"", b"}", b'"', b"\xff", b"[" * 5000]) + body[cut + 1 :],
            headers,
        )
    if kind < 0.86:
        return "POST", path, rng.randbytes(rng.randrange(2000)), headers
    if kind < 0.9:
        types = (
            "text/plain",
            "application/xml",
            "multipart/form-data; boundary=x",
            "application/json; charset=x",
            "",
        )
        return "POST", path, body, {"content-type": rng.choice(types)}
    if kind < 0.95:
        paths = (
            "/",
            "/v1",
            "/v1/ranks",
            "/v1/rank/",
            "/../etc/passwd",
            "/v1/%00",
            "/%ff%fe",
            "/docs/x",
            "//",
            "/v3/rerank",
        )
        return (
            rng.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
            rng.choice(paths),
            body,
            headers,
        )
    odd = {
        "authorization": rng.choice(["Bearer", "Bearer \x7f", "x" * 5000]),
        "content-encoding": "gzip",
        "expect": "x",
    }
    return "POST", path, body, {**headers, **odd}


RAW = (
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x00\x01\x02\r\n\r\n",
    b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
    b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n",
    b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n\r\n",
    b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{",
    b"POST /v1/rank HTTP/1.1\r\n" + b"a: b\r\n" * 3000 + b"\r\n",
    b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
)


async def raw(url: str, content: bytes) -> str:
    """Send broken HTTP and leave; what counts is that the server survives."""
    host, port = url.removeprefix("http://").split(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(content)
        await writer.drain()
        first = await asyncio.wait_for(reader.read(100), 1)
        writer.close()
    except (OSError, asyncio.TimeoutError):
        return "broken HTTP: closed"
    return f"broken HTTP: {first[9:12].decode('latin-1') or 'closed'}"


async def fuzz(url: str, count: int, clients: int, seed: int) -> tuple[Counter[str], list[str]]:
    """(answers by status, what went wrong)"""
    rng = random.Random(seed)
    statuses: Counter[str] = Counter()
    wrong: list[str] = []
    left = iter(range(count))
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:

        async def one_client() -> None:
            for number in left:
                if rng.random() < 0.02:
                    statuses[await raw(url, rng.choice(RAW))] += 1
                    continue
                method, path, body, headers = make(rng)
                shown = f"#{number} {method} {path} {body[:300]!r}"
                try:
                    reply = await client.request(method, path, content=body, headers=headers)
                except (httpx.InvalidURL, httpx.LocalProtocolError):
                    statuses["not sent"] += 1
                    continue
                except httpx.HTTPError as error:
                    statuses[type(error).__name__] += 1
                    wrong.append(f"{type(error).__name__}: {shown}")
                    continue
                statuses[str(reply.status_code)] += 1
                if reply.status_code >= 500 and reply.status_code not in (503, 504):
                    wrong.append(f"{reply.status_code}: {shown}")
                if b'"status":500' in reply.content:
                    wrong.append(f"500 in a stream: {shown}")
                if reply.status_code >= 400 and "error" not in reply.json():
                    wrong.append(f"an error of another form: {shown}")

        await asyncio.gather(*(one_client() for _ in range(clients)))
    return statuses, wrong


def main() -> None:
    """Print statuses and what went wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    scale = Path(folder.name, "size.scale")
    fit(["Russia", "Chad", "Peru", "Cuba"], "size", model=given.model).save(scale)
    server = Server(given.model, ["--timeout", "100", "--max-items", "200", "--scale", f"size={scale}"])
    start = time.monotonic()
    try:
        check = {"items": ["Russia", "Chad", "Peru"], "by": "size"}

        def answer() -> Any:
            return httpx.post(f"{server.url}/v1/rank", json=check, timeout=120).json()["items"]

        before = answer()
        statuses, wrong = asyncio.run(fuzz(server.url, given.requests, given.clients, given.seed))
        health = httpx.get(f"{server.url}/healthz", timeout=60).status_code
        same = answer() == before
    finally:
        code = server.stop()
    print(f"{given.requests:,} requests in {time.monotonic() - start:.0f} s; seed {given.seed}")
    for status, count in sorted(statuses.items()):
        print(f"  {status:24} {count:6,}")
    print(f"healthy after: {health == 200}; same answer as before: {same}; exit code {code}")
    for one in wrong[:20]:
        print(f"  {one}")
    print(f"{len(wrong)} wrong")
    sys.exit(bool(wrong) or health != 200 or not same or code != 0)


if __name__ == "__main__":
    main()
