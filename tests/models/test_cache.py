"""The cache of readings: it gives back what was put in, or nothing; it never gives a wrong number nor an error."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tiny import pair_prompts, tiny_model

from ccrank.errors import CcrankError
from ccrank.models import Reader, ReadingCache
from ccrank.models.cache import reading_keys
from ccrank.models.cache import store as cache_module
from ccrank.task import Criterion, Task

PATIENCE = 600
"""Seconds for other threads and processes: a busy machine is no fault."""
TASK = Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad", "Monaco"))


def key_of(number):
    return number.to_bytes(24, "little")


def vector_of(number, length=16):
    return np.random.default_rng(number).normal(size=length).astype(np.float32)


def entries(numbers, length=16):
    return {key_of(number): vector_of(number, length) for number in numbers}


def assert_holds(cache, numbers, length=16):
    found = cache.get(map(key_of, numbers))
    assert sorted(found) == sorted(map(key_of, numbers))
    for number in numbers:
        np.testing.assert_array_equal(found[key_of(number)], vector_of(number, length))


@pytest.fixture
def cache(tmp_path):
    cache = ReadingCache(tmp_path)
    yield cache
    cache.close()


def test_what_is_put_in_comes_out(cache, tmp_path):
    """Vectors come back bit for bit, from this object and from another on the same file; unknown keys do not."""
    cache.put(entries(range(1200)))  # more than one query's worth of keys
    assert_holds(cache, range(1200))
    assert_holds(ReadingCache(tmp_path), range(1200))
    assert cache.get([key_of(5000)]) == {}
    assert cache.info().entries == 1200
    assert cache.info().bytes > 1200 * 64


def test_special_floats_and_empty_vectors(cache):
    """NaN, infinities and vectors of no length are values like any other."""
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    cache.put({b"odd": odd, b"none": np.zeros(0, np.float32)})
    found = cache.get([b"odd", b"none"])
    assert found[b"odd"].tobytes() == odd.tobytes()
    assert found[b"none"].shape == (0,)


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_a_hit_is_bit_identical_and_computes_nothing(family, cache):
    """The second reading equals the first bit for bit and costs no computed token; a part of it costs a part."""
    loaded = tiny_model(family)
    reader = Reader(loaded, cache=cache)
    prompts = pair_prompts(TASK, loaded.form)
    wish = {"candidates": ["Yes", "No", "10"], "layers": "all", "items": True}
    first = reader.read(prompts[:8], **wish)
    assert first.cost.computed_tokens > 0
    again = Reader(loaded, cache=cache).read(prompts[:8], **wish)
    assert again.cost.computed_tokens == 0
    for name in ("logits", "states", "item_states"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
    more = reader.read(prompts, **wish)
    fresh = Reader(loaded).read(prompts, **wish)
    assert 0 < more.cost.computed_tokens < fresh.cost.computed_tokens
    np.testing.assert_allclose(more.logits, fresh.logits, atol=1e-4)
    np.testing.assert_allclose(more.states, fresh.states, atol=1e-4)
    np.testing.assert_allclose(more.item_states, fresh.item_states, atol=1e-4)


@pytest.mark.parametrize("seconds", [0.0, 1e9])
@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_what_was_read_before_an_interrupt_is_not_read_again(family, seconds, tmp_path, monkeypatch):
    """Whether readings are saved after each batch or at the interrupt alone, the second run computes only the rest
    and gives the numbers of a run without an interrupt; what is saved while reading is there for a kill too."""
    monkeypatch.setattr(reading_keys, "SECONDS_BETWEEN_SAVES", seconds)
    loaded = tiny_model(family)
    countries = *TASK.items, "Peru", "India", "Togo", "Fiji"
    prompts = pair_prompts(Task(TASK.criterion, countries), loaded.form)
    asked = {"candidates": ["Yes", "No"], "layers": [0, 1], "log_probabilities": True}
    whole = Reader(loaded, batch_tokens=100, cache=ReadingCache(tmp_path / "whole"))
    expected = whole.read(prompts, **asked)
    entries_of_all = whole.cache.info().entries
    cache = ReadingCache(tmp_path / "cut")
    seen = []

    def interrupt(tokens: int) -> None:
        seen.append(ReadingCache(tmp_path / "cut").info().entries)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reader(loaded, batch_tokens=100, cache=cache).read(prompts, progress=interrupt, **asked)
    assert (seen[-1] > 0) == (seconds == 0.0)
    assert 0 < cache.info().entries < entries_of_all
    second = Reader(loaded, batch_tokens=100, cache=cache)
    readings = second.read(prompts, **asked)
    assert 0 < second.spent.computed_tokens < whole.spent.computed_tokens
    assert cache.info().entries == entries_of_all
    np.testing.assert_allclose(readings.logits, expected.logits, atol=1e-4)
    np.testing.assert_allclose(readings.states, expected.states, atol=1e-4)


def test_a_cached_reader_does_not_touch_the_model(cache):
    """A hit runs no layer at all."""
    loaded = tiny_model("gpt2")
    Reader(loaded, cache=cache).read(pair_prompts(TASK), candidates=["Yes", "No"])
    reader = Reader(loaded, cache=cache)
    ran = []
    hook = reader.engine.backbone.module.register_forward_pre_hook(lambda *_: ran.append("layers"))
    try:
        reader.read(pair_prompts(TASK), candidates=["Yes", "No"])
    finally:
        hook.remove()
    assert ran == []


def test_different_questions_never_share_a_key(cache):
    """Whatever differs (weights, layer, candidates, position, normalising, prompt) has a key of its own."""
    prompts = pair_prompts(TASK)
    wishes = [
        {"candidates": ["Yes", "No"]},
        {"candidates": ["No", "Yes"]},
        {"candidates": ["Yes"]},
        {"candidates": ["Yes", "No"], "log_probabilities": True},
        {"layers": [0]},
        {"layers": [1]},
        {"layers": [2, 1]},
        {"layers": [1], "items": True},
    ]
    for family in ("llama", "bert", "t5"):
        for seed in (0, 1):
            loaded = tiny_model(family, seed)
            prompts = pair_prompts(TASK, loaded.form)
            for wish in wishes:
                cached = Reader(loaded, cache=cache).read(prompts, **wish)
                plain = Reader(loaded).read(prompts, **wish)
                for name in ("logits", "states", "item_states"):
                    ours, theirs = getattr(cached, name), getattr(plain, name)
                    assert (ours is None) == (theirs is None)
                    if ours is not None:
                        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def change_bytes(path, where, what):
    data = bytearray(path.read_bytes())
    data[where : where + len(what)] = what
    path.write_bytes(data)


def test_a_damaged_value_is_computed_again(cache, tmp_path, caplog):
    """After flipping bytes inside a value, the entry is dropped with a warning, the others remain, and it can be stored
    again."""
    cache.put(entries(range(10)))
    cache.close()
    with sqlite3.connect(tmp_path / "readings.sqlite") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / "readings.sqlite"
    where = path.read_bytes().index(vector_of(3).tobytes())
    change_bytes(path, where + 8, bytes(4))
    fresh = ReadingCache(tmp_path)
    assert sorted(fresh.get(map(key_of, range(10)))) == sorted(key_of(n) for n in range(10) if n != 3)
    assert "1 damaged readings" in caplog.text
    fresh.put(entries([3]))
    assert_holds(fresh, range(10))


def test_damage_anywhere_gives_no_error_and_no_wrong_number(tmp_path):
    """Random bytes changed at random places of the file: what comes back is right, or does not come back."""
    original = ReadingCache(tmp_path / "whole")
    original.put(entries(range(60)))
    original.close()
    whole = (tmp_path / "whole" / "readings.sqlite").read_bytes()
    generator = np.random.default_rng(0)
    came_back = 0
    for trial in range(40):
        data = bytearray(whole)
        # Every other time the first page, which says what is where: in it, the words of the schema at its end.
        places = (
            generator.integers(0, len(data), 40)
            if trial % 2
            else generator.integers(*((0, 120) if trial % 4 else (3900, 4096)), 3)
        )
        for place in places:
            data[place] = generator.integers(0, 256)
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / "readings.sqlite").write_bytes(data)
        cache = ReadingCache(folder)
        for key, vector in cache.get(map(key_of, range(60))).items():
            np.testing.assert_array_equal(vector, vector_of(int.from_bytes(key, "little")))
            came_back += 1
        cache.put(entries([7]))
        cache.close()
    assert 0 < came_back < 40 * 60


@pytest.mark.parametrize("changed", ["value = 'text'", "value = 7", "used = 'never'", "checksum = x'ff'"])
def test_fields_of_another_type_are_damage(cache, tmp_path, changed):
    """A field that turned into text or a number is damage too, not a crash."""
    cache.put(entries(range(3)))
    with sqlite3.connect(tmp_path / "readings.sqlite") as connection:
        connection.execute(f"UPDATE readings SET {changed} WHERE key = ?", (key_of(1),))
    assert sorted(cache.get(map(key_of, range(3)))) == sorted([key_of(0), key_of(2)])


@pytest.mark.parametrize("garbage", [b"not a database at all" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_a_garbage_file_is_begun_anew(tmp_path, garbage, caplog):
    """A file that is no database is replaced, with a warning, and works from then on."""
    (tmp_path / "readings.sqlite").write_bytes(garbage)
    cache = ReadingCache(tmp_path)
    assert cache.get([key_of(1)]) == {}
    cache.put(entries(range(5)))
    assert_holds(cache, range(5))
    assert "starting a new one" in caplog.text


WRITER = """
    import runpy, sys
    import numpy as np
    from pathlib import Path
    # By its path: the package around it would load torch first, which takes seconds.
    cache = runpy.run_path(sys.argv[4])["ReadingCache"](Path(sys.argv[1]))
    for start in range(int(sys.argv[2]), int(sys.argv[3]), 20):
        cache.put({
            number.to_bytes(24, "little"): np.random.default_rng(number).normal(size=16).astype(np.float32)
            for number in range(start, start + 20)
        })
        print(start, flush=True)
"""


def writer(folder, start, end):
    source = Path(cache_module.__file__)
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(folder), str(start), str(end), str(source)],
        env={**os.environ, "PYTHONPATH": str(source.parents[3])},
        stdout=subprocess.PIPE,
    )


def test_processes_that_write_at_once_lose_nothing_and_a_killed_one_does_no_harm(tmp_path):
    """Three processes write side by side; one is killed in the middle. All that was reported written is there."""
    victim = writer(tmp_path, 100_000, 10_000_000)
    others = [writer(tmp_path, 0, 600), writer(tmp_path, 600, 1200)]
    for _ in range(5):
        victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    rest = victim.stdout.read()
    victim.stdout.close()
    for process in others:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    cache = ReadingCache(tmp_path)
    assert_holds(cache, range(1200))
    reported = 5 + rest.count(b"\n")
    assert_holds(cache, range(100_000, 100_000 + 20 * reported))
    cache.put(entries([50_000]))
    assert_holds(cache, [50_000])


def test_a_file_that_another_process_is_making_is_waited_for(tmp_path, monkeypatch):
    """A cache that is opened while another process writes its first page stores what it is given."""
    other = sqlite3.connect(tmp_path / "readings.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE begun (x)")
    other.execute("BEGIN IMMEDIATE")
    cache, tried = ReadingCache(tmp_path), threading.Event()
    opened = ReadingCache._open
    monkeypatch.setattr(ReadingCache, "_open", lambda self: tried.set() or opened(self))
    thread = threading.Thread(target=cache.put, args=(entries(range(3)),))
    thread.start()
    assert tried.wait(PATIENCE)
    time.sleep(0.3)  # a cache that did not wait would have given up
    other.execute("ROLLBACK")
    thread.join(PATIENCE)
    assert_holds(cache, range(3))
    other.close()


def test_threads_share_a_cache(cache):
    """Eight threads that write and read at once see their own entries and raise nothing."""
    failures = []

    def work(start):
        try:
            for number in range(start, start + 40, 4):
                cache.put(entries(range(number, number + 4)))
                assert_holds(cache, range(number, number + 4))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1000 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert cache.info().entries == 320


def test_the_size_bound_holds_and_the_least_recently_used_go_first(tmp_path, monkeypatch):
    """Past its limit the file shrinks; what was used longest ago is gone, what was just used is there."""
    limit = 1 << 20
    cache = ReadingCache(tmp_path, limit=limit)
    now = [time.time()]
    monkeypatch.setattr(cache_module.time, "time", lambda: now[0])
    for batch in range(40):
        now[0] += 4000
        cache.put(entries(range(20 * batch, 20 * batch + 20), length=1000))  # 80 kB each
        assert_holds(cache, [0], length=1000)  # used all the time, though written first
        assert cache.path.stat().st_size <= limit
        assert cache.info().entries >= min(20 * (batch + 1), 120)  # no more goes than must
        assert cache.info().bytes <= limit + (5 << 20)  # the log is emptied every 1,000 pages
    kept = {int.from_bytes(key, "little") for key in cache.get(map(key_of, range(800)))}
    assert 0 in kept
    assert set(range(780, 800)) <= kept
    assert not kept & set(range(1, 400))
    oldest = min(kept - {0})
    assert set(range(oldest, 800)) <= kept
    assert len(kept) * 4000 >= 0.5 * limit


def test_one_put_larger_than_the_limit_leaves_a_usable_cache(tmp_path):
    """After storing more than the limit at once, the file is within its limit."""
    cache = ReadingCache(tmp_path, limit=1 << 18)
    cache.put(entries(range(300), length=1000))
    assert cache.info().bytes <= 1 << 18
    cache.put(entries([5000]))
    assert_holds(cache, [5000])


def test_clear_gives_the_space_back(cache):
    """After clear there is nothing left, and the space is free."""
    cache.put(entries(range(200), length=1000))
    assert cache.clear() > 500_000
    assert cache.info().entries == 0
    assert cache.info().bytes < 50_000
    assert cache.get([key_of(1)]) == {}


def test_a_folder_that_cannot_be_made_costs_the_cache_alone(tmp_path, caplog):
    """If the folder cannot be created, reading continues without a cache, with one warning."""
    (tmp_path / "file").write_text("in the way")
    cache = ReadingCache(tmp_path / "file" / "below")
    reader = Reader(tiny_model("gpt2"), cache=cache)
    plain = Reader(tiny_model("gpt2")).read(pair_prompts(TASK), candidates=["Yes", "No"])
    for _ in range(2):
        readings = reader.read(pair_prompts(TASK), candidates=["Yes", "No"])
        np.testing.assert_array_equal(readings.logits, plain.logits)
        assert readings.cost.computed_tokens > 0
    assert caplog.text.count("continuing without it") == 1


def in_a_child_without_rights(work):
    """Run `work` in a fork that is not root, whom no folder is closed to; returns whether it succeeded."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("filled", [False, True])
def test_a_read_only_folder_raises_nothing(tmp_path, filled):
    """In a folder that may only be read the cache gives nothing wrong and raises nothing."""
    folder = tmp_path / "closed"
    folder.mkdir()
    if filled:
        cache = ReadingCache(folder)
        cache.put(entries(range(3)))
        cache.close()
    folder.chmod(0o555)
    for parent in [folder, *folder.parents[:3]]:
        if parent != folder and parent.stat().st_uid == os.getuid():
            parent.chmod(0o755)

    def work():
        closed = ReadingCache(folder)
        found = closed.get(map(key_of, range(3)))
        closed.put(entries([9]))
        return all(
            np.array_equal(vector, vector_of(int.from_bytes(key, "little"))) for key, vector in found.items()
        ) and not closed.get([key_of(9)])

    assert in_a_child_without_rights(work)
    folder.chmod(0o755)


def test_the_limit_comes_from_the_environment(tmp_path, monkeypatch):
    """CCRANK_CACHE_LIMIT is in GiB; anything else is refused by name."""
    monkeypatch.setenv("CCRANK_CACHE_LIMIT", "0.5")
    assert ReadingCache(tmp_path).limit == 1 << 29
    monkeypatch.setenv("CCRANK_CACHE_LIMIT", "a lot")
    with pytest.raises(CcrankError, match="'a lot'"):
        ReadingCache(tmp_path)
    for nonsense in ("-1", "nan", "inf"):
        monkeypatch.setenv("CCRANK_CACHE_LIMIT", nonsense)
        with pytest.raises(CcrankError, match="CCRANK_CACHE_LIMIT"):
            ReadingCache(tmp_path)


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    """CCRANK_CACHE names the folder; looking at an absent cache makes no file."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "there"))
    info = ReadingCache().info()
    assert info.path == tmp_path / "there" / "readings" / "readings.sqlite"
    assert (info.entries, info.bytes) == (0, 0)
    assert ReadingCache().clear() == 0
    assert not (tmp_path / "there").exists()
