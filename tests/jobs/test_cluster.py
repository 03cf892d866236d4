"""Reading and scoring on a Ray cluster of two local nodes, against one process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pyarrow import parquet
from tiny import pair_prompts, save_model, tiny_model, tiny_reader

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import write_tasks
from ccrank.jobs import StreamOptions, run_job
from ccrank.jobs import cluster as cluster_module
from ccrank.jobs.cluster import (
    MAX_PROMPTS,
    MIN_CHARACTERS,
    ClusterReader,
    Pool,
    cluster_engine,
    connect,
    cuts,
    worker_plan,
)
from ccrank.models import Reader
from ccrank.models.reading import joined
from ccrank.reader_options import ReaderOptions
from ccrank.request import RankRequest
from ccrank.study.results.load import load_results
from ccrank.task import Criterion, Task

SIZE = Criterion("size", "larger", poles=("small", "large"))
WORDS = ("old", "new", "tall", "red", "stone", "glass", "quick", "lazy", "brown", "blue")
SMALL = {"num_cpus": 1, "object_store_memory": 100_000_000, "node_ip_address": "127.0.0.2"}
ITEMS = [f"{first} {second}" for first in WORDS for second in WORDS if first != second]


def test_blocks_have_about_the_same_length():
    """Every prompt is in one block, in order; a block is at most one prompt longer than its share."""
    generator = np.random.default_rng(0)
    lengths = [int(one) for one in generator.integers(10, 4000, 3000)]
    found = cuts(lengths, 5)
    assert [place for start, stop in found for place in range(start, stop)] == list(range(3000))
    sizes = [sum(lengths[start:stop]) for start, stop in found]
    share = sum(lengths) / 20
    assert all(share <= size < share + 4000 for size in sizes[:-1])
    assert cuts([10] * 100, 5) == [(0, 100)]
    assert cuts([MIN_CHARACTERS] * 3, 1) == [(0, 1), (1, 2), (2, 3)]
    assert max(stop - start for start, stop in cuts([1] * 10_000, 1)) <= MAX_PROMPTS


def test_readings_of_blocks_are_joined():
    """Readings of parts of a list of prompts, joined, are those of the list, also with different numbers of
    candidates."""
    reader = tiny_reader("llama")
    prompts = pair_prompts(Task(SIZE, ("Russia", "Chad", "Peru")))
    candidates = [["Yes", "No"], ["Yes"], ["Yes", "No", "Peru"], ["No"], ["No", "Yes"], ["Chad"]]
    wanted = {"layers": [1, 3], "items": True, "log_probabilities": True}
    whole = reader.read(prompts, candidates, **wanted)
    parts = [
        reader.read(prompts[at], candidates[at], **wanted) for at in (slice(0, 2), slice(2, 5), slice(5, 6))
    ]
    together = joined(parts)
    for name in ("logits", "states", "item_states", "answer_tokens"):
        np.testing.assert_allclose(getattr(together, name), getattr(whole, name), rtol=1e-5, atol=1e-5)
    assert together.layers == whole.layers
    assert together.cost.prompts == 6
    assert joined([reader.read(prompts, layers=[1])]).logits is None


def test_without_ray_the_error_says_how_to_install_it(monkeypatch):
    """The package is optional."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CcrankError, match=r"pip install '\.\[distributed\]'"):
        connect(None, None, "default", ReaderOptions())


def test_an_older_ray_is_refused(monkeypatch):
    """One that cannot authenticate would let everybody run programs who reaches its ports."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.51.2"))
    with pytest.raises(CcrankError, match=r"needs Ray 2\.52 or later.*this is 2\.51\.2: pip install"):
        connect(None, None, "default", ReaderOptions())


GPU_NODES = [{"CPU": 32.0, "GPU": 4.0}, {"CPU": 32.0, "GPU": 4.0}, {"CPU": 8.0}]


@pytest.mark.parametrize(
    ("nodes", "workers", "device", "expected"),
    [
        (GPU_NODES, None, "auto", (8, {"num_gpus": 1.0, "num_cpus": 1}, None, "cuda")),
        (GPU_NODES, 2, "cuda:3", (2, {"num_gpus": 1.0, "num_cpus": 1}, None, "cuda")),
        (GPU_NODES, 12, "cuda", (12, {"num_gpus": 0.5, "num_cpus": 1}, None, "cuda")),
        (GPU_NODES, None, "cpu", (3, {"num_cpus": 8}, 8, "cpu")),
        (GPU_NODES[2:], 3, "auto", (3, {"num_cpus": 2}, 2, "auto")),
    ],
)
def test_workers_request_gpus_where_the_cluster_has_them(nodes, workers, device, expected):
    """One worker for each GPU, which it opens as the first one that it sees; more workers share GPUs; without GPUs, or
    if the command says so, workers share the cores."""
    *plan, options = worker_plan(nodes, workers, ReaderOptions(device=device, dtype="float16"))
    assert (*plan, options.device) == expected
    assert options.dtype == "float16"


def test_a_cluster_without_gpus_cannot_be_asked_for_them():
    """The error names the flag, before any worker waits for a GPU for ever."""
    with pytest.raises(CcrankError, match="--device cuda:1: no node of the cluster has a GPU"):
        worker_plan(GPU_NODES[2:], None, ReaderOptions(device="cuda:1"))


class FakeRay:
    """A cluster whose workers are objects of this process."""

    exceptions = SimpleNamespace(RayTaskError=KeyError, RayActorError=OSError, RayError=OSError)

    def __init__(self, nodes) -> None:
        self.resources, self.requests = nodes, []

    def is_initialized(self):
        return True

    def nodes(self):
        return [{"Alive": True, "Resources": node} for node in self.resources]

    def remote(self, **options):
        self.requests.append(options)
        return lambda kind: SimpleNamespace(remote=lambda *arguments: self.actor(kind(*arguments)))

    def actor(self, worker):
        return SimpleNamespace(open=SimpleNamespace(remote=lambda: worker.open), worker=worker)

    def wait(self, references, num_returns):
        return references[:1], references[1:]

    def get(self, reference):
        return reference()


def take_all(pool: Pool) -> None:
    """Wait for all workers that are starting."""
    while pool.starting:
        pool._take_ready(pool.ray.wait([*pool.starting], num_returns=1)[0][0])


def test_workers_open_the_model_on_their_gpu(monkeypatch):
    """What is requested of the cluster for each worker, and the device on which each worker opens the model."""
    ray = FakeRay(GPU_NODES)
    opened = []
    monkeypatch.setattr(cluster_module, "_ray", lambda local: ray)
    reader = SimpleNamespace(loaded=SimpleNamespace(identity="weights"))
    monkeypatch.setattr(
        Reader, "open", lambda name, options, cache: opened.append((name, options.device)) or reader
    )
    pool = connect("somewhere:6379", 3, "a model", ReaderOptions())
    take_all(pool)
    assert [request["num_gpus"] for request in ray.requests] == [1, 1, 1]
    assert opened == [("a model", "cuda")] * 3


class Head(FakeRay):
    """A Ray that is not connected yet, and records where it is asked to connect to."""

    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

    def __init__(self) -> None:
        super().__init__([])
        self.asked = []

    def is_initialized(self):
        return False

    def init(self, address, **_):
        self.asked.append(address)
        raise ConnectionError("not a cluster\nwith further lines")


def free_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:{port}", "there is no Ray cluster at .* refused.*RAY_AUTH_MODE=token ray start --head"),
        ("localhost:{port}", "there is no Ray cluster at .* refused"),
        ("ray://[::1]:{port}", "there is no Ray cluster at ray://"),
        ("two..dots:{port}", "there is no Ray cluster at two..dots"),
        ("10.0.0.1", "--address is HOST:PORT, such as 10.0.0.1:6379, or auto; got '10.0.0.1'"),
        ("host:99999", "--address is HOST:PORT"),
        (":6379", "--address is HOST:PORT"),
    ],
)
def test_an_address_where_nothing_listens_is_refused_at_once(address, message, monkeypatch):
    """Ray, which would try it for minutes, is not called."""
    ray = Head()
    monkeypatch.setattr(cluster_module, "_ray", lambda local: ray)
    with pytest.raises(CcrankError, match=message):
        connect(address.format(port=free_port()), None, "a model", ReaderOptions())
    assert ray.asked == []


def test_ray_is_asked_for_an_address_where_something_listens(monkeypatch):
    """What it says about it is the error's reason; its own names for clusters are left to it."""
    ray = Head()
    monkeypatch.setattr(cluster_module, "_ray", lambda local: ray)
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = [
            "auto",
            f"127.0.0.1:{server.getsockname()[1]}",
            f"ray://127.0.0.1:{server.getsockname()[1]}",
        ]
        for address in wanted:
            with pytest.raises(CcrankError, match=r"there is no Ray cluster at .* \(not a cluster\)"):
                connect(address, None, "a model", ReaderOptions())
    assert ray.asked == wanted


def test_a_forwarded_port_of_this_machine_is_looked_at_here(monkeypatch):
    """Ray's client connects to the host that it is given, not to the address that others have for this machine."""
    ray = Head()
    ray.util = SimpleNamespace(get_node_ip_address=lambda: "nowhere.invalid")
    monkeypatch.setattr(cluster_module, "_ray", lambda local: ray)
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = [f"ray://{host}:{server.getsockname()[1]}" for host in ("127.0.0.1", "localhost")]
        for address in wanted:
            with pytest.raises(CcrankError, match=r"\(not a cluster\)"):
                connect(address, None, "a model", ReaderOptions())
    assert ray.asked == wanted


@pytest.mark.parametrize(("losses", "started"), [(2, True), (4, False)])
def test_workers_that_are_lost_while_they_start_are_replaced(losses, started, monkeypatch):
    """A cluster may place workers on a node that is just lost; it is an error only if it happens again and again."""
    ray = FakeRay(GPU_NODES[2:])
    opened = []

    def open_model(name, options, cache):
        opened.append(name)
        if len(opened) <= losses:
            raise OSError("the actor died")
        return SimpleNamespace(loaded=SimpleNamespace(identity="weights"))

    monkeypatch.setattr(cluster_module, "_ray", lambda local: ray)
    monkeypatch.setattr(Reader, "open", open_model)
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    if started:
        assert len(connect(None, None, "a model", ReaderOptions()).ready) == 1
    else:
        with pytest.raises(CcrankError, match="no worker could be started: the actor died"):
            connect(None, None, "a model", ReaderOptions())
    assert len(opened) == min(losses + 1, 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes as separate processes on loopback, with one core each."""
    if find_spec("ray") is None:  # not imported yet: it reads its variables then
        pytest.skip("the extra `distributed` is not installed")
    changed = ("CCRANK_CACHE", "OMP_NUM_THREADS", "PYTHONPATH", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
    previous = {name: os.environ.get(name) for name in changed}
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    }
    from ray.cluster_utils import Cluster

    os.environ["CCRANK_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["OMP_NUM_THREADS"] = "1"
    source = str(Path(sys.modules["ccrank"].__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, previous["PYTHONPATH"]]))
    nodes = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    yield nodes
    import ray

    ray.shutdown()
    nodes.shutdown()
    for name, value in previous.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model in a folder."""
    return str(save_model(tiny_model("llama", max_position_embeddings=512), tmp_path_factory.mktemp("model")))


def kill(cluster, node, blocks: int):
    """Kills a node after some blocks."""
    calls = count()  # the first one is before any block

    def watch(step: str, done: int, total: int) -> None:
        if step == "scoring" and next(calls) == blocks:
            cluster.remove_node(node, allow_graceful=False)

    return watch


@pytest.mark.slow
def test_a_cluster_gives_the_numbers_of_one_process_even_if_a_node_is_killed(
    cluster, model, tmp_path, monkeypatch
):
    """A stream is scored on two nodes, one of which is killed in the middle: its blocks are scored by the other one,
    and the output equals that of one process to the last bit. Rankings of tasks and readings agree up to rounding."""
    node = cluster.add_node(**SMALL)
    cluster.wait_for_nodes(timeout=600)
    one = Reader.open(model)
    pool = connect(cluster.address, None, model, ReaderOptions())
    assert pool.count == 2
    many = ClusterReader.open(pool, model)
    take_all(pool)  # both workers take part
    started = []
    monkeypatch.setattr(Pool, "_start", lambda self, start=Pool._start: started.append(start(self)))

    prompts = pair_prompts(Task(SIZE, tuple(ITEMS[:40])))
    read = {"candidates": ["Yes", "No"], "layers": "all", "items": True}
    expected, found = one.read(prompts, **read), many.read(prompts, **read)
    for name in ("logits", "states", "item_states"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-4)

    tasks = [Task(SIZE, tuple(ITEMS[place : place + 9]), id=f"t{place}") for place in range(0, 45, 9)]
    for method in ("auto", "prompt-pair", "margin"):
        for alone, together in zip(
            rank_tasks(tasks, one, method), rank_tasks(tasks, many, method), strict=True
        ):
            np.testing.assert_allclose(together.scores, alone.scores, atol=1e-3)

    path = tmp_path / "items.jsonl"
    lines = [{"text": f"{item} {number}", "n": number} for number in range(8) for item in ITEMS]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = StreamOptions(column="text", sample=40, block_rows=12)
    run_job(path, tmp_path / "one.parquet", RankRequest(by=SIZE), one, stream=options)
    result = run_job(
        path,
        tmp_path / "many.parquet",
        RankRequest(by=SIZE),
        many,
        stream=options,
        engine=cluster_engine,
        watch=kill(cluster, node, 5),
    )
    assert result.blocks == 60
    assert len(started) == 1, "the lost worker was replaced"
    assert parquet.read_table(tmp_path / "many.parquet").equals(parquet.read_table(tmp_path / "one.parquet"))
    pool.close()


@pytest.mark.slow
def test_errors_of_workers_are_errors_of_the_command(cluster, model):
    """What a worker refuses is refused with the worker's message, and a model that does not exist too."""
    with pytest.raises(CcrankError, match="no model"):
        connect(cluster.address, 1, "no-such-model", ReaderOptions())
    pool = connect(cluster.address, 1, model, ReaderOptions())
    reader = ClusterReader.open(pool, model)
    long = Task(SIZE, ("word " * 2000, "Chad"))
    with pytest.raises(CcrankError, match="does not fit the model's window"):
        reader.read(pair_prompts(long), ["Yes", "No"])
    pool.close()


def ccrank(*arguments):
    """The command in a process of its own, whose workers end with it."""
    command = [sys.executable, "-m", "ccrank", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_commands_give_the_numbers_of_one_process(cluster, model, tmp_path):
    """`rank --tasks` and `bench` on two workers: scores are those of one process up to rounding, and so are orders and
    measures but for items that are nearly tied."""
    node = cluster.add_node(**SMALL)
    cluster.wait_for_nodes(timeout=600)
    on_two = ("--engine", "ray", "--address", cluster.address, "--workers", "2")
    tasks = [
        Task(
            SIZE,
            tuple(ITEMS[place : place + 9]),
            id=f"t{place}",
            values=tuple(float(one) for one in range(9)),
        )
        for place in range(0, 81, 9)
    ]
    write_tasks(tasks, tmp_path / "tasks.jsonl")

    rank = ("rank", "--tasks", tmp_path / "tasks.jsonl", "--model", model, "--json", "--no-cache")
    alone, together = (
        [json.loads(line) for line in ccrank(*rank, *more).splitlines()] for more in ((), on_two)
    )
    assert len(alone) == len(tasks)
    for one, two in zip(alone, together, strict=True):
        scores = [{row["item"]: row["score"] for row in ranking["items"]} for ranking in (one, two)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)

    bench = (
        "bench",
        "--models",
        model,
        "--datasets",
        tmp_path / "tasks.jsonl",
        "--seeds",
        "2",
        "--no-report",
    )
    bench += ("--methods", "prompt-pair,poles,pca,margin", "-o", "margin.epochs=20", "--out")
    ccrank(*bench, tmp_path / "one")
    ccrank(*bench, tmp_path / "two", *on_two)
    alone, together = (load_results(tmp_path / name) for name in ("one", "two"))
    keys = ["method", "task", "seed", "layer", "split"]
    alone, together = (frame.sort_values(keys).reset_index(drop=True) for frame in (alone, together))
    assert len(alone) > 4 * len(tasks)
    assert alone[keys].equals(together[keys])
    np.testing.assert_allclose(np.stack(together["scores"]), np.stack(alone["scores"]), atol=2e-3)
    np.testing.assert_allclose(together["tau"], alone["tau"], atol=0.06)  # one pair of 36
    cluster.remove_node(node)


LISTENING = """
import os, subprocess, sys
from ccrank.jobs.cluster import connect
from ccrank.reader_options import ReaderOptions

pool = connect(None, 1, sys.argv[1], ReaderOptions())
import psutil  # Ray brings it

own = psutil.Process()
for process in [own, *own.children(recursive=True)]:
    for one in process.net_connections(kind="inet"):
        if one.status == "LISTEN":
            print("listening", one.laddr.ip, process.name())
without = dict(os.environ, RAY_AUTH_MODE="disabled")
without.pop("RAY_AUTH_TOKEN")
code = "import ray; from ray._raylet import GcsClient; print(len(GcsClient(address='%s').get_all_node_info()))"
command = [sys.executable, "-c", code % pool.ray.get_runtime_context().gcs_address]
print("without a token", subprocess.run(command, env=without, capture_output=True).returncode)
print("with it", subprocess.run(command, capture_output=True).returncode)
"""


@pytest.mark.slow
def test_on_one_machine_ray_listens_on_loopback_and_wants_a_token(model, tmp_path):
    """No process of it can be reached from another machine, nor by another user of this one, who has no token."""
    pytest.importorskip("ray", reason="the extra `distributed` is not installed")
    command = [sys.executable, "-c", LISTENING, model]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env = {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(Path(cluster_module.__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    lines = done.stdout.splitlines()
    addresses = {line.split()[1] for line in lines if line.startswith("listening")}
    assert addresses, done.stderr
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, done.stdout
    assert "with it 0" in lines
    assert "without a token 0" not in lines
    assert not [*tmp_path.rglob("auth_token")]
