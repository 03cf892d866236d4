"""The benchmark of reading: its baseline is plain `transformers`, and gives what the reader gives."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import load_benchmark

from ccrank import Criterion, Reader, Task
from ccrank.prompts import load_templates


@pytest.mark.real
def test_the_baseline_gives_the_readers_logits() -> None:
    """Padded batches of the default model, loaded anew by `transformers`, against the reader's own way."""
    task = Task(Criterion("size", comparative="larger"), ("Russia", "Chad", "the Vatican City"))
    templates = load_templates()
    prompts = [
        templates.pair(task, first, second) for first in range(3) for second in range(3) if first != second
    ]
    reader = Reader.open("default")
    ours = reader.read(prompts, ["Yes", "No"]).logits
    benchmark = load_benchmark("reading")
    with benchmark.matmul_precision("medium"):
        plain, tokens, passes = benchmark.plain_transformers(str(reader.loaded.folder), prompts)()
    assert ours is not None
    assert np.abs(ours - plain).max() < 1e-3
    assert passes == 1
    assert tokens >= sum(reader.count_tokens([prompt.text for prompt in prompts])) - len(prompts)
