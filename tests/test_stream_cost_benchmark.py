"""The cost model of a stream, against what a run measures."""

from __future__ import annotations

import pytest
from scripts import load_benchmark
from tiny import tiny_reader

from ccrank import fit
from ccrank.jobs import StreamOptions, run_job
from ccrank.jobs.job_folder import JobFolder
from ccrank.models import Cost
from ccrank.request import RankRequest
from ccrank.task import Criterion, Task

COST = load_benchmark("job_cost")
SIZE = Criterion("size", poles=("small", "large"))
ITEMS = [
    f"{one} {other} {number}"
    for one in ("old", "new", "tall")
    for other in ("fox", "dog")
    for number in range(150)
]


class Measure:
    """What the pass over the rows read and stored, without the sample."""

    def __init__(self, reader, folder: JobFolder) -> None:
        self.reader, self.folder = reader, folder
        self.before, self.stored = Cost(), 0

    def __call__(self, step: str, done: int, total: int) -> None:
        if step == "scoring" and not done:
            self.before = self.reader.spent
        elif step == "putting rows in order":
            self.read = self.reader.spent.distinct_tokens - self.before.distinct_tokens
            self.stored = sum(path.stat().st_size for path in self.folder.path.rglob("*.parquet"))


@pytest.mark.parametrize("method", ["auto", "poles"])
def test_predicted_tokens_are_those_that_are_read(method, tmp_path, monkeypatch):
    """From a sample of items the number of tokens of a whole pass is predicted within 10 %."""
    reader = tiny_reader("llama")
    path, out = tmp_path / "items.txt", tmp_path / "out.parquet"
    path.write_text("\n".join(ITEMS))
    sample = Task(SIZE, tuple(ITEMS[::4]))
    scorer = fit(sample, model=reader, method=method).scorer
    cost = COST.StreamCost(len(ITEMS), COST.tokens_per_item(sample, reader, scorer), 1, 0.0)
    # The engine reads through a copy without a cache, whose costs are not those of the reader.
    monkeypatch.setattr("ccrank.jobs.passes.uncached", lambda reader: reader)
    measure = Measure(reader, JobFolder(out))
    run_job(
        path, out, RankRequest(by=SIZE, method=method), reader, stream=StreamOptions(sample=2), watch=measure
    )  # fmt: skip
    assert measure.read == pytest.approx(cost.tokens, rel=0.1)
    assert 0 < measure.stored < cost.disk_bytes + 20_000


def test_operations_and_hours():
    """Two operations for each token and parameter; a rate of operations gives hours."""
    cost = COST.StreamCost(1000, 12.0, 500, 100.0)
    assert cost.operations == 1000 * 12 * 500 * 2
    assert cost.hours(1e6) == pytest.approx(12 / 3600)
    assert cost.disk_bytes > 3 * 1000 * 100
    model = tiny_reader("llama").loaded.model
    assert COST.multiplied_parameters(model) == sum(one.numel() for one in model.parameters()) - 420 * 32
