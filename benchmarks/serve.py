"""Load on `ccrank serve`: many clients at once against one request at a time, on the same server in the same run.

Each request ranks 10 items that occur in no other request. First every request is sent alone; its answer is the
reference. Then the clients send the same requests at once, again and again, and each answer is compared with its
reference. The server runs without a cache of readings, so that nothing but sharing passes makes it faster. Processor
time per request compares both even on a machine that is busy with other work.

    python benchmarks/serve.py                      # 64 clients for 5 minutes on the default model
    python benchmarks/serve.py --seconds 60 --requests 96
    python benchmarks/serve.py --offered 0.5,0.8,1.2,1.6 --seconds 60

The last form offers load as users do, who do not wait for each other: requests arrive at random times (a Poisson
process) at these multiples of the rate at which they are answered one at a time. Seconds are counted from arrival. It
is run with passes that requests share and, with `--concurrency 1`, without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import httpx
import numpy as np

SYLLABLES = [*map("".join, product("bdgklmnrst", "aeiou", ["", "l", "n", "r"]))]
KINDS = {
    "town": ("size", "age", "wealth"),
    "hotel": ("price", "comfort", "noise"),
    "film": ("length", "humour", "violence"),
    "company": ("profit", "fame", "age"),
}
TAILS = {
    "town": ("Bay", "Hill", "Creek", "Falls"),
    "hotel": ("Inn", "Palace", "Hostel", "Lodge"),
    "film": ("Rising", "Returns", "in Love", "at Night"),
    "company": ("Ltd", "Brothers", "Motors", "Foods"),
}
TOLERANCE = 1e-4
ALONE = 24
"""Requests that are sent one at a time to know the rate that loads are relative to."""


def make_requests(count: int, items: int, criteria: int, seed: int = 0) -> list[dict[str, Any]]:
    """Requests whose items are made-up names, all different."""
    rng = random.Random(seed)
    asked = [(by, category) for category, names in KINDS.items() for by in names][:criteria]
    seen: set[str] = set()
    requests = []
    for index in range(count):
        by, category = asked[index % len(asked)]
        own: list[str] = []
        while len(own) < items:
            name = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4))).capitalize()
            if name not in seen:
                seen.add(name)
                own.append(f"{name} {rng.choice(TAILS[category])}")
        requests.append({"items": own, "by": by, "category": category})
    return requests


class Server:
    """`ccrank serve` as a process of its own."""

    def __init__(self, model: str, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "ccrank", "serve", "--port", "0", "--no-cache", "--model", model]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"listening on (\S+)", line):
                self.url = found[1]
                break
        else:
            raise SystemExit("the server did not start")

    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1000

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=120)


async def metric(client: httpx.AsyncClient, name: str) -> float:
    """The sum of a metric over its labels."""
    text = (await client.get("/metrics")).text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[float, dict[str, Any] | None, str]:
    """(seconds, answer or None, what went wrong)"""
    start = time.perf_counter()
    try:
        reply = await client.post("/v1/rank", json=body)
    except httpx.HTTPError as error:
        return time.perf_counter() - start, None, type(error).__name__
    seconds = time.perf_counter() - start
    return (seconds, reply.json(), "") if reply.status_code == 200 else (seconds, None, reply.text[:200])


def difference(found: dict[str, Any], expected: dict[str, Any]) -> tuple[float, bool]:
    """The largest difference of a score, and whether the items are the same in the same order; items whose scores are
    equal within the tolerance may swap."""
    own = {one["item"]: one["score"] for one in found["items"]}
    reference = {one["item"]: one["score"] for one in expected["items"]}
    if own.keys() != reference.keys():
        return float("inf"), False
    order = [reference[one["item"]] for one in found["items"]]
    same = all(first >= second - TOLERANCE for first, second in pairwise(order))
    return max(abs(own[item] - reference[item]) for item in own), same


async def measure(
    server: Server, requests: list[dict[str, Any]], clients: int, seconds: float
) -> dict[str, Any]:
    """The whole comparison."""
    limits = httpx.Limits(max_connections=clients + 4, max_keepalive_connections=clients + 4)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        for _ in range(100):
            try:
                await client.get("/healthz")
                break
            except httpx.HTTPError:
                await asyncio.sleep(0.2)
        warm = make_requests(3, 10, 3, seed=99)
        for body in warm:
            await ask(client, body)
        start, start_cpu = time.perf_counter(), server.cpu()
        alone_seconds, references = [], []
        for body in requests:
            took, answer, wrong = await ask(client, body)
            if answer is None:
                raise SystemExit(f"a request alone failed: {wrong}")
            alone_seconds.append(took)
            references.append(answer)
        alone = len(requests) / (time.perf_counter() - start)
        alone_cpu = (server.cpu() - start_cpu) / len(requests)
        alone_tokens = await metric(client, "ccrank_tokens_total")
        passes = await metric(client, "ccrank_passes_total")
        latencies: list[float] = []
        errors: list[str] = []
        largest, mixed = 0.0, 0
        memory = [server.memory()]
        stop = time.perf_counter() + seconds
        position = 0

        async def one_client() -> None:
            nonlocal position, largest, mixed
            while time.perf_counter() < stop:
                index, position = position % len(requests), position + 1
                took, answer, wrong = await ask(client, requests[index])
                latencies.append(took)
                if answer is None:
                    errors.append(wrong)
                    continue
                gap, same = difference(answer, references[index])
                largest = max(largest, gap)
                mixed += not same or gap > TOLERANCE

        async def watch_memory() -> None:
            while time.perf_counter() < stop:
                await asyncio.sleep(min(10.0, seconds / 10))
                memory.append(server.memory())

        start, start_cpu = time.perf_counter(), server.cpu()
        await asyncio.gather(watch_memory(), *(one_client() for _ in range(clients)))
        spent, spent_cpu = time.perf_counter() - start, server.cpu() - start_cpu
        done = len(latencies) - len(errors)
        more_passes = await metric(client, "ccrank_passes_total") - passes
        shared = (await metric(client, "ccrank_pass_requests_sum") - passes) / max(1.0, more_passes)
        tokens = await metric(client, "ccrank_tokens_total") - alone_tokens
    half = memory[len(memory) // 2 :]
    return {
        "clients": clients,
        "seconds": round(spent, 1),
        "requests": len(latencies),
        "errors": len(errors),
        "first_errors": errors[:3],
        "mixed_answers": mixed,
        "largest_score_difference": largest,
        "alone_per_second": round(alone, 3),
        "alone_p50_seconds": round(float(np.percentile(alone_seconds, 50)), 3),
        "alone_p95_seconds": round(float(np.percentile(alone_seconds, 95)), 3),
        "loaded_per_second": round(done / spent, 3),
        "ratio": round(done / spent / alone, 2),
        "cpu_seconds_per_request_alone": round(alone_cpu, 3),
        "cpu_seconds_per_request_loaded": round(spent_cpu / max(1, done), 3),
        "p50_seconds": round(float(np.percentile(latencies, 50)), 2),
        "p95_seconds": round(float(np.percentile(latencies, 95)), 2),
        "requests_per_pass": round(shared, 1),
        "tokens_per_request_alone": round(alone_tokens / (len(requests) + len(warm))),
        "tokens_per_request_loaded": round(tokens / max(1, len(latencies))),
        "memory_mb": [round(memory[0]), round(max(memory)), round(memory[-1])],
        "memory_growth_in_second_half_mb": round(half[-1] - half[0], 1),
    }


async def offer(
    server: Server, requests: list[dict[str, Any]], loads: list[float], seconds: float
) -> list[dict[str, Any]]:
    """Latencies of requests that arrive at random, for each load relative to one request at a time."""
    limits = httpx.Limits(max_connections=None)
    rng, rows = random.Random(0), []
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        for body in make_requests(3, 10, 3, seed=99):  # the first passes allocate memory
            await ask(client, body)
        start = time.perf_counter()
        for body in requests[:ALONE]:
            await ask(client, body)
        alone = len(requests[:ALONE]) / (time.perf_counter() - start)
        for load in loads:
            replies, due, cpu = [], time.perf_counter(), server.cpu()
            start, end = due, due + seconds
            while (due := due + rng.expovariate(alone * load)) < end:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                body = requests[len(replies) % len(requests)]
                replies.append(asyncio.create_task(arrived(client, body, due)))
            done = await asyncio.gather(*replies)
            spent = time.perf_counter() - start
            latencies = [took for took, wrong in done if not wrong] or [float("nan")]
            p50, p95, p99 = np.percentile(latencies, [50, 95, 99])
            errors = sum(bool(wrong) for _, wrong in done)
            rows.append({
                "offered_load": load,
                "offered_per_second": round(len(done) / seconds, 2),
                "answered_per_second": round((len(done) - errors) / spent, 2),
                "errors": errors,
                "p50_seconds": round(float(p50), 2),
                "p95_seconds": round(float(p95), 2),
                "p99_seconds": round(float(p99), 2),
                "cpu_seconds_per_request": round((server.cpu() - cpu) / max(1, len(done)), 3),
            })  # fmt: skip
            print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    return rows


async def arrived(client: httpx.AsyncClient, body: dict[str, Any], due: float) -> tuple[float, str]:
    """Seconds from when a request was due to its answer, and what went wrong."""
    _, _, wrong = await ask(client, body)
    return time.perf_counter() - due, wrong


def main() -> None:
    """Print the comparison as a table and as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--requests", type=int, default=192, help="different requests, more than clients")
    parser.add_argument("--items", type=int, default=10)
    parser.add_argument(
        "--criteria", type=int, default=12, help="different criteria among the requests, 1 to 12"
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file as well")
    parser.add_argument("serve", nargs="*", help="further arguments of ccrank serve, after --")
    parser.add_argument(
        "--offered", help="offered loads, relative to one request at a time, such as 0.5,1,1.5"
    )
    given = parser.parse_args()
    if given.offered:
        requests = make_requests(given.requests, given.items, given.criteria)
        loads = [float(load) for load in given.offered.split(",")]
        by_sharing = {}
        for sharing, arguments in (("shared passes", []), ("one request at a time", ["--concurrency", "1"])):
            print(sharing)
            server = Server(given.model, [*given.serve, *arguments])
            try:
                by_sharing[sharing] = asyncio.run(offer(server, requests, loads, given.seconds))
            finally:
                server.stop()
        if given.json:
            given.json.write_text(json.dumps(by_sharing, indent=2) + "\n")
        return
    server = Server(given.model, given.serve)
    try:
        found = asyncio.run(
            measure(
                server,
                make_requests(given.requests, given.items, given.criteria),
                given.clients,
                given.seconds,
            )
        )
    finally:
        code = server.stop()
    found["exit_code"] = code
    found["load_average"] = [round(one, 1) for one in os.getloadavg()]
    for name, value in found.items():
        print(f"{name.replace('_', ' '):34} {value}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
