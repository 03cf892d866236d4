"""Forward passes that requests share: equal answers, fair turns, cancellation, and failures that stay with their
request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from live_server import PATIENCE, HeldEngine, until
from tiny import scores_by_item, tiny_reader

import ccrank
from ccrank.models import Reader
from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points
from ccrank.models.tokenize.ragged import Ragged
from ccrank.server.work.scheduler import Job, Scheduler, SharedEngine
from ccrank.server.work.worker_pool import Cancelled, Ticket, TimedOut
from ccrank.util.cancellation import check


class EchoEngine:
    """Answers each point with a number made of its tokens; keeps a record of its passes, and can be held."""

    tree, backbone = True, None

    def __init__(self, budget: int = 100) -> None:
        self.budget = budget
        self.passes: list[list[Any]] = []
        self.open = threading.Event()
        self.open.set()
        self.poison: int | None = None
        """A token that makes its pass fail."""

    def run(
        self, inputs: Inputs, points: Points, layers: Sequence[int], progress: Any = None
    ) -> EngineOutput:
        sequences = [tuple(row.tolist()) for row in inputs.tokens]
        self.passes.append(sequences)
        assert self.open.wait(PATIENCE)
        if any(self.poison in sequence for sequence in sequences):
            raise ValueError("a poisoned sequence")
        output = EngineOutput.empty(points)
        read = [sequences[index] for index in points.sequence]
        sets = [points.token_sets[asked] for asked in points.asked]
        output.logits[:] = np.concatenate(list(map(echo, read, points.position, sets)))
        for index in np.flatnonzero(points.states):
            states = [[layer, read[index][0]] for layer in layers]
            output.store_states(np.array([index]), np.array([states], np.float32))
        output.computed = len(inputs.tokens.flat)
        return output


def echo(sequence: Any, position: int, token_ids: Sequence[int]) -> np.ndarray:
    return np.array([hash((sequence, int(position), one)) % 1000 for one in token_ids], np.float32)


def job_of(
    sequences: Sequence[Any], layers: Sequence[int] = (), token_ids: tuple[int, ...] = (1, 2)
) -> tuple[Inputs, Points, Sequence[int]]:
    """One point at the end of each sequence."""
    tokens = Ragged.of(sequences)
    points = Points.at(np.arange(len(tokens)), tokens.lengths - 1)
    states = points.states & bool(layers)
    return (
        Inputs(tokens),
        replace(points, asked=np.zeros(len(tokens), np.int64), token_sets=(token_ids,), states=states),
        layers,
    )


@pytest.fixture
def scheduled():
    """Makes schedulers that end with the test."""
    made: list[Scheduler] = []

    def make(engine: Any, **more: Any) -> Scheduler:
        made.append(Scheduler(engine, **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def waiting(scheduler: Scheduler) -> int:
    """The number of requests that wait for a pass."""
    return scheduler._new.qsize() + len(scheduler._jobs)


def hold_until_waiting(
    engine: EchoEngine, scheduler: Scheduler, calls: Sequence[Callable[[], Any]]
) -> list[Any]:
    """Start all calls at once, and let passes run when all of them wait; returns their futures."""
    engine.open.clear()
    pool = ThreadPoolExecutor(len(calls) + 1)
    first = pool.submit(scheduler.read, Ticket(PATIENCE), *job_of([(9,)]))
    until(lambda: len(engine.passes) > 0)
    futures = [pool.submit(call) for call in calls]
    until(lambda: waiting(scheduler) == len(calls))
    engine.open.set()
    first.result(PATIENCE)
    pool.shutdown(wait=False)
    return futures


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)


@settings(max_examples=40)
@given(
    st.lists(st.lists(tokens, min_size=1, max_size=12, unique=True), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_every_job_gets_what_it_asked_for(lists: list[list[Any]], budget: int):
    """Whatever jobs wait together and however small a pass is, each gets its own answers, in its own order, with the
    layers and tokens that it asked for."""
    engine = EchoEngine(budget)
    scheduler = Scheduler(engine)
    try:
        wishes = [(tuple(range(place % 3)), tuple(range(1, 2 + place))) for place in range(len(lists))]
        calls = [
            lambda own=own, wish=wish: scheduler.read(Ticket(PATIENCE), *job_of(own, *wish))
            for own, wish in zip(lists, wishes, strict=True)
        ]
        for own, (some, token_ids), future in zip(
            lists, wishes, hold_until_waiting(engine, scheduler, calls), strict=True
        ):
            output = future.result(PATIENCE)
            for index, sequence in enumerate(own):
                expected = echo(sequence, len(sequence) - 1, token_ids)
                assert np.array_equal(output.token_logits(np.array([index]))[0], expected)
                if some:
                    assert output.states[index].tolist() == [[layer, sequence[0]] for layer in some]
    finally:
        scheduler.stop()


def test_a_long_request_does_not_delay_a_short_one(scheduled):
    """A request of three sequences that comes after one of 4,000 is in the very next pass."""
    engine = EchoEngine(budget=400)
    scheduler = scheduled(engine)
    many = [(number // 64, number % 64, 7) for number in range(4000)]
    few = [(100 + number, 1, 2) for number in range(3)]
    long, short = hold_until_waiting(
        engine,
        scheduler,
        [
            lambda: scheduler.read(Ticket(PATIENCE), *job_of(many)),
            lambda: scheduler.read(Ticket(PATIENCE), *job_of(few)),
        ],
    )
    short.result(PATIENCE)
    assert set(few) <= set(engine.passes[1])
    assert len(engine.passes[1]) > len(few), "the rest of the pass belongs to the long request"
    long.result(PATIENCE)
    assert sum(map(len, engine.passes)) == 1 + len(many) + len(few)
    assert len(engine.passes) > 20


def test_a_shared_prefix_is_not_cut_into_single_sequences():
    """Sequences with a long common prefix are taken together until their new tokens are as many as the prefix, so that
    at most half of the work is repeated."""
    stem = tuple(range(1000))
    job = Job(Ticket(1), *job_of([(*stem, number) for number in range(3000)]))
    taken, size = job.take(64)
    assert len(taken) == 1000
    assert size == 2000


def test_a_cancelled_request_gets_no_further_pass(scheduled):
    """After its client is gone, a request's remaining sequences are not read, and its thread gets `Cancelled`."""
    engine = EchoEngine(budget=10)
    scheduler = scheduled(engine)
    ticket = Ticket(PATIENCE)
    engine.open.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(scheduler.read, ticket, *job_of([(number,) for number in range(1000)]))
        until(lambda: len(engine.passes) == 1)
        ticket.cancel()
        engine.open.set()
        with pytest.raises(Cancelled):
            future.result(PATIENCE)
    assert len(engine.passes) == 1
    until(lambda: waiting(scheduler) == 0)


def test_a_deadline_ends_a_request_between_passes(scheduled):
    """When the time is up, no further pass is run for the request; one whose time was up before is not even begun."""
    engine = EchoEngine(budget=10)
    scheduler = scheduled(engine)
    with pytest.raises(TimedOut):
        scheduler.read(Ticket(-1), *job_of([(1,)]))
    assert engine.passes == []
    ticket = Ticket(PATIENCE)
    engine.open.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(scheduler.read, ticket, *job_of([(number,) for number in range(1000)]))
        until(lambda: len(engine.passes) == 1)
        ticket.deadline = time.monotonic() - 1
        engine.open.set()
        with pytest.raises(TimedOut):
            future.result(PATIENCE)
    assert len(engine.passes) == 1


def test_a_failure_stays_with_its_request(scheduled):
    """If a pass fails because of one request, that one gets the error and the others their answers."""
    engine = EchoEngine()
    engine.poison = 666
    scheduler = scheduled(engine)
    good, bad, other = hold_until_waiting(
        engine,
        scheduler,
        [
            lambda: scheduler.read(Ticket(PATIENCE), *job_of([(1, 2), (3,)])),
            lambda: scheduler.read(Ticket(PATIENCE), *job_of([(5, 666)])),
            lambda: scheduler.read(Ticket(PATIENCE), *job_of([(4,)])),
        ],
    )
    assert len(good.result(PATIENCE).logits) == 2 * 2
    assert len(other.result(PATIENCE).logits) == 2
    with pytest.raises(ValueError, match="poisoned"):
        bad.result(PATIENCE)
    assert scheduler.alive


def test_a_killed_scheduler_leaves_nobody_waiting(monkeypatch):
    """If the scheduler's thread dies, waiting requests and later ones end with an error instead of waiting for ever."""
    engine = EchoEngine(budget=4)

    def die(self: Scheduler, shares: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(Scheduler, "_run", die)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    scheduler = Scheduler(engine)
    with pytest.raises(Cancelled):
        scheduler.read(Ticket(PATIENCE), *job_of([(number,) for number in range(99)]))
    until(lambda: not scheduler.alive)
    with pytest.raises(Cancelled):
        scheduler.read(Ticket(PATIENCE), *job_of([(1,)]))


CASES = [
    {"items": ["Russia", "Canada", "Brazil", "Chad"], "by": "size", "category": "country"},
    {"items": ["gold", "silver", "tin"], "by": "price", "labels": {"gold": 3, "tin": 1}},
    {
        "items": ["red", "blue", "green", "black", "white"],
        "by": "brightness",
        "context": "Colours and light.",
    },
    {"items": [f"number {one}" for one in range(30)], "by": "least risky"},
    {"items": ["a fox", "a dog", "a cow"], "by": "speed", "method": "prompt-pair"},
    {"items": ["tower", "bridge", "house"], "by": "height", "method": "prompt-list"},
    {"items": ["tower", "bridge"], "by": "height", "method": "ccs", "options": {"epochs": 5, "seeds": 1}},
    {"items": ["Is it warm?", "A cold day.", "The fox."], "query": "warm weather"},
]


IN_FEW_WORDS = [
    {"items": ["Russia", "Canada", "Brazil", "Chad"], "by": "size", "poles": ("small", "large")},
    {"items": ["red", "blue", "old"], "by": "size", "poles": ("small", "large"), "context": "Red and blue."},
    {"items": ["fox", "dog", "new"], "by": "size", "poles": ("low", "high"), "method": "prompt-pair"},
]
"""For tokenizers that know few words."""


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mpt", "bert", "t5"])
def test_concurrent_answers_equal_those_alone(scheduled, family: str):
    """Different requests that share passes get the scores of the same request alone, within 1e-4, in the same order."""
    reader = tiny_reader(family)
    shares: list[int] = []
    engine = HeldEngine(reader.engine)
    scheduler = scheduled(engine, report=lambda requests, tokens, seconds: shares.append(requests))
    begun: list[Any] = []
    read = scheduler.read
    scheduler.read = lambda *given: (begun.append(given), read(*given))[1]
    cases = CASES if family == "llama" else IN_FEW_WORDS

    def rank(case: dict[str, Any], own: Reader) -> ccrank.Ranking:
        return ccrank.rank(**case, model=own)

    expected = [rank(case, reader) for case in cases]
    engine.open.clear()
    with ThreadPoolExecutor(len(cases)) as pool:
        shared = [reader.with_engine(SharedEngine(scheduler, Ticket(PATIENCE))) for _ in cases]
        futures = [pool.submit(rank, case, own) for case, own in zip(cases, shared, strict=True)]
        until(lambda: len(begun) >= len(cases))
        engine.open.set()
        found = [future.result(PATIENCE) for future in futures]
    assert max(shares) > 1
    for one, alone in zip(found, expected, strict=True):
        assert one.items == alone.items
        assert scores_by_item(one) == pytest.approx(scores_by_item(alone), abs=1e-4)


@pytest.mark.real
def test_concurrent_answers_of_the_default_model_equal_those_alone(scheduled, default_reader: Reader):
    """The default model gives the same order, and scores within 1e-4, to requests that share passes."""
    scheduler = scheduled(default_reader.engine)
    cases = [CASES[0], CASES[1], CASES[7]]
    expected = [ccrank.rank(**case, model=default_reader) for case in cases]
    with ThreadPoolExecutor(len(cases)) as pool:
        shared = [default_reader.with_engine(SharedEngine(scheduler, Ticket(PATIENCE * 5))) for _ in cases]
        found = list(pool.map(lambda case, own: ccrank.rank(**case, model=own), cases, shared))
    for one, alone in zip(found, expected, strict=True):
        assert one.items == alone.items
        assert scores_by_item(one) == pytest.approx(scores_by_item(alone), abs=1e-4)


def test_computing_stops_at_its_next_check():
    """Work that reads nothing, such as a long fit, is stopped in its thread when the ticket ends; the thread is then
    free for other work."""
    ticket = Ticket(PATIENCE)
    started = threading.Event()

    def busy() -> None:
        started.set()
        while True:
            check()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ticket.run, busy)
        assert started.wait(PATIENCE)
        ticket.cancel()
        with pytest.raises(Cancelled):
            future.result(PATIENCE)
        assert pool.submit(Ticket(PATIENCE).run, lambda: 42).result(PATIENCE) == 42


def test_a_pass_is_reported_before_its_requests_know(scheduled):
    """Whoever has the answer to a request finds the passes of that request in the metrics."""
    reported: list[int] = []

    def report(requests: int, tokens: int, seconds: float) -> None:
        time.sleep(0.05)  # long enough for the request to come first, were it told already
        reported.append(requests)

    scheduler = scheduled(EchoEngine(), report=report)
    scheduler.read(Ticket(PATIENCE), *job_of([(1, 2)]))
    assert reported == [1]


def test_workers_do_not_take_the_threads_of_a_pass(scheduled):
    """A pass runs with the threads that the scheduler was given, although each worker sets its own number to one."""
    before = torch.get_num_threads()
    seen: list[int] = []

    class Watched(EchoEngine):
        def run(self, *arguments: Any, **more: Any) -> EngineOutput:
            seen.append(torch.get_num_threads())
            return super().run(*arguments, **more)

    try:
        scheduler = scheduled(Watched(), threads=3)
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            pool.submit(scheduler.read, Ticket(PATIENCE), *job_of([(1, 2)])).result(PATIENCE)
            assert pool.submit(torch.get_num_threads).result(PATIENCE) == 1
    finally:
        torch.set_num_threads(before)
    assert seen == [3]
