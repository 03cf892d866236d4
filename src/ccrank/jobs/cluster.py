"""Reading and scoring on the workers of a Ray cluster, each with a copy of the model; lost workers are replaced.

Ray could restart a lost worker itself, but would keep the worker's blocks for it: after the loss of a node they would
wait until there is room for a new worker.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccrank.errors import CcrankError, install_line, needs_extra
from ccrank.jobs.passes import Blocks, Scored, uncached
from ccrank.models import Reader, ReadingCache, Readings, load_model
from ccrank.models.load.catalog import StatusCallback
from ccrank.models.reader import per_prompt
from ccrank.models.reading import Progress, joined
from ccrank.prompts import Prompt
from ccrank.ranking import ItemScores
from ccrank.reader_options import ReaderOptions
from ccrank.scale import Scale

IN_FLIGHT = 2
"""Blocks that a worker has at a time: one that it computes and one that waits, so that it never idles."""
MAX_ATTEMPTS = 4
"""A block is given up after this many worker deaths: it is likely to cause them."""
BLOCKS_PER_WORKER = 4
"""More blocks of prompts balance the load better; fewer share more prefixes."""
MIN_CHARACTERS = 20_000
"""A shorter block of prompts is not worth the message."""
MAX_PROMPTS = 4096
LOOPBACK = "127.0.0.1"
MIN_VERSION = (2, 52)
"""The first version of Ray with authentication by a token."""
CONNECT_SECONDS = 5.0
"""How long the head node of a cluster may take to accept a connection."""
CLIENT_PORT = "10001"
"""Where Ray's own client server listens, for addresses such as ray://10.0.0.1."""


def _ray(local: bool) -> Any:
    """The module ray, set to report nothing to anybody and to ask for a token; with `local`, to listen on loopback.

    Ray reads these variables when it is imported: a process that has imported it before has its own settings.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if local:
            # As on Windows and macOS. Elsewhere, Ray takes an address that other machines can reach for 127.0.0.1, and
            # listens on all interfaces unless it is given 127.0.0.1.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            if "RAY_AUTH_TOKEN_PATH" not in os.environ:
                # Else Ray writes one into a file that other users of this machine may read.
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with needs_extra("distributed", "--engine ray"):
        import ray
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < MIN_VERSION:
        raise CcrankError(
            f"--engine ray needs Ray {'.'.join(map(str, MIN_VERSION))} or later, which authenticates by a token; "
            f"this is {ray.__version__}: {install_line('distributed')}"
        )
    return ray


def connect(
    address: str | None,
    workers: int | None,
    model: str,
    options: ReaderOptions,
    say: StatusCallback = lambda _: None,
    *,
    cache: bool = False,
) -> Pool:
    """Connect to a cluster and start the workers."""
    ray = _ray(local=address is None)
    if not ray.is_initialized():
        say("connecting to the Ray cluster" if address else "starting Ray")
        if address:
            _check_listening(address, ray.util.get_node_ip_address)
        # "local": without it, Ray would join whatever cluster was started on this machine before.
        alone = {} if address else {"include_dashboard": False, "_node_ip_address": LOOPBACK}
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level="warning", **alone)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise _no_cluster(address, str(error).splitlines()[0]) from None
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    count, resources, threads, worker_options = worker_plan(nodes, workers, options)
    say(f"loading {model} on {count} workers")
    return Pool(ray, count, resources, (model, worker_options, threads, cache)).started()


def _check_listening(address: str, own_host: Callable[[], str]) -> None:
    """Refuse an address where nothing listens: Ray itself would try it for minutes."""
    scheme, separator, rest = address.rpartition("://")
    if address in ("auto", "local") or (separator and scheme != "ray"):
        return
    host, colon, port = rest.rpartition(":")
    if separator and not colon:
        host, port = rest, CLIENT_PORT
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise CcrankError(f"--address is HOST:PORT, such as 10.0.0.1:6379, or auto; got {address!r}")
    # Ray looks for this machine at the address that others have for it. Its client (ray://) does not, and may be given
    # a port of this machine that is forwarded to a cluster.
    this_machine = not separator and host in ("127.0.0.1", "localhost")
    try:
        socket.create_connection(
            (own_host() if this_machine else host.strip("[]"), int(port)), CONNECT_SECONDS
        ).close()
    except (OSError, UnicodeError) as error:
        raise _no_cluster(address, getattr(error, "strerror", None) or error) from None


def _no_cluster(address: str | None, reason: object) -> CcrankError:
    return CcrankError(
        f"there is no Ray cluster at {address or 'this machine'} ({reason}); start one with `RAY_AUTH_MODE=token ray "
        "start --head` and the token of `ray get-auth-token --generate`, which this machine needs too, or leave "
        "--address out"
    )


def worker_plan(
    nodes: Sequence[Mapping[str, float]], workers: int | None, options: ReaderOptions
) -> tuple[int, dict[str, float], int | None, ReaderOptions]:
    """The number of workers, the resources that each requests, its threads of torch (None leaves the default), and the
    options with which it opens the model."""
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if options.device.startswith("cuda") and not gpus:
        raise CcrankError(f"--device {options.device}: no node of the cluster has a GPU; use --device cpu")
    if gpus and options.device.startswith(("auto", "cuda")):
        count = workers or gpus
        # Ray shows a worker its own GPU alone, so that it is the first one there. More workers than GPUs share them.
        share = 1 / -(-count // gpus)
        return count, {"num_gpus": share, "num_cpus": 1}, None, replace(options, device="cuda")
    count = workers or len(nodes)
    # As many workers on each node as the cluster has for each, which share its cores.
    per_node = -(-count // len(nodes))
    threads = max(1, int(min(node.get("CPU", 1) for node in nodes)) // per_node)
    return count, {"num_cpus": threads}, threads, options


class Worker:
    """A copy of the model."""

    reader: Reader
    scale: Scale

    def __init__(self, model: str, options: ReaderOptions, threads: int | None, cache: bool) -> None:
        self.arguments = model, options, threads, cache
        self.fitted = b""

    def open(self) -> None:
        """Load the model: not in the constructor, where an error would be reported as the loss of a worker."""
        import torch

        model, options, threads, cache = self.arguments
        if threads is not None:
            torch.set_num_threads(threads)
        self.reader = Reader.open(model, options, cache=ReadingCache() if cache else None)

    def read(self, prompts: Sequence[Prompt], candidates: Any, options: Mapping[str, Any]) -> Readings:
        return self.reader.read(prompts, candidates, **options)

    def score(self, items: Sequence[str], content: bytes) -> ItemScores:
        """Scores of a block of a stream, on the scale of a file's content."""
        if content != self.fitted:
            self.scale, self.fitted = Scale.from_bytes(content, uncached(self.reader)), content
        return self.scale.scores_of(items)


@dataclass
class Pool:
    """Workers, some of which may be lost at any time."""

    ray: Any
    """The module."""
    count: int
    """The wanted number of workers."""
    resources: dict[str, Any]
    """Of each worker."""
    arguments: tuple[Any, ...]
    """Of `Worker`."""
    ready: list[Any] = field(default_factory=list)
    """Workers whose model is loaded."""
    starting: dict[Any, Any] = field(default_factory=dict)
    """The reference that says when a worker is ready → the worker."""
    lost_at_start: int = 0
    """How many were lost before their model was loaded."""

    def started(self) -> Pool:
        """Start the workers and wait for the first of them."""
        for _ in range(self.count):
            self._start()
        while not self.ready:
            self._take_ready(self.ray.wait([*self.starting], num_returns=1)[0][0])
        return self

    def _start(self) -> None:
        kind = self.ray.remote(max_restarts=0, scheduling_strategy="SPREAD", **self.resources)(Worker)
        worker = kind.remote(*self.arguments)
        self.starting[worker.open.remote()] = worker

    def _take_ready(self, reference: Any) -> None:
        worker = self.starting.pop(reference)
        try:
            self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            self.close()  # the model cannot be loaded, here or elsewhere
            raise _cause(error) from None
        except self.ray.exceptions.RayActorError as error:
            # A node that was lost a moment ago may still be given workers.
            self.lost_at_start += 1
            if self.lost_at_start < MAX_ATTEMPTS:
                self._start()
            elif not self.ready and not self.starting:
                raise CcrankError(f"no worker could be started: {str(error).splitlines()[0]}") from None
        else:
            self.ready.append(worker)

    def run(self, method: str, blocks: Iterable[tuple[Any, tuple[Any, ...]]]) -> Iterator[tuple[Any, Any]]:
        """Call a method of the workers on every block: (key, arguments) → (key, result), in the order of completion.

        A block whose worker is lost is given to another worker. Lost workers are replaced when the cluster has room.
        """
        source = ((block, 1) for block in blocks)
        lost: list[tuple[tuple[Any, tuple[Any, ...]], int]] = []
        running: dict[Any, tuple[Any, tuple[Any, tuple[Any, ...]], int]] = {}
        while True:
            for worker in self._free(running):
                if (taken := lost.pop() if lost else next(source, None)) is None:
                    break
                running[getattr(worker, method).remote(*taken[0][1])] = worker, *taken
            if not running and not lost and self.ready:
                return
            if not running and not self.starting:
                raise CcrankError("all workers are lost, and the cluster has no room for new ones")
            [reference] = self.ray.wait([*running, *self.starting], num_returns=1)[0]
            if reference in self.starting:
                self._take_ready(reference)
                continue
            worker, block, attempt = running.pop(reference)
            try:
                result = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except self.ray.exceptions.RayError:
                if attempt == MAX_ATTEMPTS:
                    raise CcrankError(
                        f"{attempt} workers were lost on the same block; it may need more memory than they have"
                    ) from None
                lost.append((block, attempt + 1))
                if worker in self.ready:  # several blocks of one worker report its loss
                    self.ready.remove(worker)
                    self._start()
            else:
                yield block[0], result

    def _free(self, running: dict[Any, tuple[Any, ...]]) -> list[Any]:
        """Workers that can take a block, the least busy first; a worker that can take two is listed twice."""
        busy = [worker for worker, *_ in running.values()]
        return [worker for load in range(IN_FLIGHT) for worker in self.ready if busy.count(worker) <= load]

    def close(self) -> None:
        """End the workers."""
        for worker in [*self.ready, *self.starting.values()]:
            self.ray.kill(worker)
        self.ready.clear()
        self.starting.clear()


def _cause(error: Any) -> BaseException:
    """The error that was raised on the worker, without Ray's wrapper."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, CcrankError) else error


class ClusterReader(Reader):
    """Reads prompts in blocks on the workers of a pool. It has the model itself too, for its tokenizer and its form."""

    pool: Pool

    @classmethod
    def open(  # type: ignore[override]
        cls, pool: Pool, name: str, options: ReaderOptions, *, say: StatusCallback = lambda _: None
    ) -> ClusterReader:
        """Open the model of a pool's workers."""
        # Prompts are read elsewhere.
        loaded = load_model(name, replace(options, device="cpu", quantize="no", device_map="no"), say=say)
        reader = cls(loaded, batch_tokens=options.batch_tokens, chat=options.chat, truncate=options.truncate)
        reader.pool = pool
        return reader

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
        """See `Reader.read`; the numbers are the same up to rounding."""
        if not prompts:
            return super().read(prompts, candidates, layers, items=items, log_probabilities=log_probabilities)
        options = {
            "layers": layers if isinstance(layers, str) else tuple(layers),
            "items": items,
            "log_probabilities": log_probabilities,
            "per_token": per_token,
        }
        lengths = [sum(len(piece.text) for piece in prompt.pieces) for prompt in prompts]
        answers = per_prompt(candidates, len(prompts))
        blocks = (
            (start, (prompts[start:stop], None if candidates is None else answers[start:stop], options))
            for start, stop in cuts(lengths, self.pool.count)
        )
        read: dict[int, Readings] = {}
        for start, block in self.pool.run("read", blocks):
            read[start] = block
            if progress is not None:
                progress(block.cost.distinct_tokens)
        readings = joined([read[start] for start in sorted(read)])
        self.spent += readings.cost
        return readings


def cuts(lengths: Sequence[int], workers: int) -> list[tuple[int, int]]:
    """(start, stop) of blocks of about the same length in characters, which is nearly proportional to tokens."""
    total = sum(lengths)
    target = max(MIN_CHARACTERS, total / (BLOCKS_PER_WORKER * workers))
    blocks, start, size = [], 0, 0
    for stop, length in enumerate(lengths, start=1):
        size += length
        if size >= target or stop - start == MAX_PROMPTS or stop == len(lengths):
            blocks.append((start, stop))
            start, size = stop, 0
    return blocks


def cluster_engine(scale: Scale, reader: Reader, blocks: Blocks) -> Scored:
    """Scores blocks on the workers of a `ClusterReader`, each read as in one process, so that scores are the same."""
    if not isinstance(reader, ClusterReader):
        raise CcrankError(
            "a cluster's engine needs a ClusterReader; open one with `ccrank.jobs.cluster.connect`"
        )
    content = reader.pool.ray.put(scale.to_bytes())
    yield from reader.pool.run("score", ((number, (items, content)) for number, items in blocks))
