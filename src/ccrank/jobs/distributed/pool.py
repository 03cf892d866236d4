"""Workers of a Ray cluster, and work that survives the loss of some of them."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccrank.errors import CcrankError, install_line, needs_extra
from ccrank.jobs.distributed.worker import Worker
from ccrank.reader_options import ReaderOptions

IN_FLIGHT = 2
"""Blocks that a worker has at a time: one that it computes and one that waits, so that it never idles."""
MOST_ATTEMPTS = 4
"""A block is given up after this many worker deaths: it is likely to cause them."""

LOOPBACK = "127.0.0.1"
MIN_VERSION = (2, 52)
"""The first version of Ray with authentication by a token."""

CONNECT_SECONDS = 5.0
"""How long the head node of a cluster may take to accept a connection."""
CLIENT_PORT = "10001"
"""Where Ray's own client server listens, for addresses such as ray://10.0.0.1."""

Say = Callable[[str], None]


def _ray(local: bool) -> Any:
    """Ray, which reports nothing to anybody and asks for a token; on this machine alone it listens on loopback.

    It reads these variables when it is imported: a process that has imported it before has its own settings.
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
    say: Say = lambda _: None,
    *,
    cache: bool = False,
) -> Pool:
    """Connect to a cluster and start the workers."""
    ray = _ray(local=address is None)
    if not ray.is_initialized():
        say("connecting to the Ray cluster" if address else "starting Ray")
        if address:
            _check_listening(address, ray.util.get_node_ip_address)
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
        try:
            if address:
                ray.init(address=address, **common)
            else:
                # "local": without it, Ray would join whatever cluster was started on this machine before.
                ray.init(address="local", include_dashboard=False, _node_ip_address=LOOPBACK, **common)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise _no_cluster(address, str(error).splitlines()[0]) from None
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    count, resources, threads, own = worker_plan(nodes, workers, options)
    say(f"loading {model} on {count} workers")
    return Pool(ray, count, resources, (model, own, threads, cache)).started()


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
    own = not separator and host in ("127.0.0.1", "localhost")
    place = own_host() if own else host.strip("[]")
    try:
        socket.create_connection((place, int(port)), CONNECT_SECONDS).close()
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
    """How many workers there are, what each of them requests of the cluster, how many threads torch has in each (None
    leaves its default), and with which options each opens the model.
    """
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
    lost: int = 0
    """How many workers were lost so far."""
    lost_at_start: int = 0
    """How many were lost before their model was loaded."""

    def started(self) -> Pool:
        """Start the workers and wait for the first of them."""
        for _ in range(self.count):
            self._start()
        while self.starting and not self.ready:
            self._take_ready(self.ray.wait([*self.starting], num_returns=1)[0])
        if not self.ready:
            raise CcrankError("no worker could be started; see the logs of Ray")
        return self

    def _start(self) -> None:
        kind = self.ray.remote(max_restarts=0, scheduling_strategy="SPREAD", **self.resources)(Worker)
        worker = kind.remote(*self.arguments)
        self.starting[worker.open.remote()] = worker

    def _take_ready(self, references: Iterable[Any]) -> None:
        for reference in references:
            worker = self.starting.pop(reference)
            try:
                self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                self.close()  # the model cannot be loaded, here or elsewhere
                raise _cause(error) from None
            except self.ray.exceptions.RayActorError as error:
                # A node that was lost a moment ago may still be given workers.
                self.lost_at_start += 1
                if self.lost_at_start < MOST_ATTEMPTS:
                    self._start()
                elif not self.ready and not self.starting:
                    raise CcrankError(f"no worker could be started: {str(error).splitlines()[0]}") from None
            else:
                self.ready.append(worker)

    def run(self, method: str, blocks: Iterable[tuple[Any, tuple[Any, ...]]]) -> Iterator[tuple[Any, Any]]:
        """Call a method of the workers on every block: (key, arguments) → (key, result), in the order of completion.

        A block whose worker is lost is given to another one. Lost workers are replaced as soon as the cluster has room.
        """
        source, again = iter(blocks), list[tuple[Any, tuple[Any, ...], int]]()
        flying: dict[Any, tuple[Any, Any, tuple[Any, ...], int]] = {}
        exhausted = False
        while True:
            for worker in self._free(flying):
                if again:
                    key, arguments, attempt = again.pop(0)
                elif not exhausted and (block := next(source, None)) is not None:
                    (key, arguments), attempt = block, 1
                else:
                    exhausted = True
                    break
                reference = getattr(worker, method).remote(*arguments)
                flying[reference] = worker, key, arguments, attempt
            if not flying and exhausted and not again:
                return
            if not flying and not self.starting:
                raise CcrankError("all workers are lost, and the cluster has no room for new ones")
            done, _ = self.ray.wait([*flying, *self.starting], num_returns=1)
            self._take_ready(one for one in done if one in self.starting)
            for reference in (one for one in done if one in flying):
                worker, key, arguments, attempt = flying.pop(reference)
                try:
                    result = self.ray.get(reference)
                except self.ray.exceptions.RayTaskError as error:
                    raise _cause(error) from None
                except self.ray.exceptions.RayError:
                    if attempt == MOST_ATTEMPTS:
                        raise CcrankError(
                            f"{attempt} workers were lost on the same block; it may need more memory than they have"
                        ) from None
                    again.append((key, arguments, attempt + 1))
                    self._replace(worker)
                else:
                    yield key, result

    def _free(self, flying: dict[Any, tuple[Any, ...]]) -> list[Any]:
        """Workers that can take a block, the least busy first; twice where they can take two."""
        busy = [worker for worker, *_ in flying.values()]
        return [
            worker
            for load in range(IN_FLIGHT)
            for worker in self.ready
            if sum(worker is one for one in busy) <= load
        ]

    def _replace(self, worker: Any) -> None:
        """Several blocks of one worker report its loss; one new worker is started."""
        if any(worker is one for one in self.ready):
            self.ready = [one for one in self.ready if one is not worker]
            self.lost += 1
            self._start()

    def close(self) -> None:
        """End the workers."""
        for worker in [*self.ready, *self.starting.values()]:
            self.ray.kill(worker)
        self.ready.clear()
        self.starting.clear()


def _cause(error: Any) -> BaseException:
    """What was raised on the worker, without Ray's wrapping."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, CcrankError) else error
