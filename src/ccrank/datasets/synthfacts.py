"""SynthFacts: two synthetic rankings of common knowledge, from the paper's appendix."""

from __future__ import annotations

from pathlib import Path

from ccrank.datasets.dataset import PAPER, Dataset, task_of_gold
from ccrank.task import Criterion, Task

_SENTIMENT = Criterion(
    "sentiment", comparative="more positive", poles=("negative", "positive"), category="adjective"
)
_CARDINALITY = Criterion("cardinality", comparative="larger", poles=("small", "large"), category="number")

# The paper's table lists the lowest first.
_ADJECTIVES = ("horrible", "bad", "okay", "good", "great", "awesome")
_NUMBERS = (1, 10, 100, 500, 1000, 10000)


def _read(data_dir: str | Path | None = None) -> list[Task]:
    return [
        task_of_gold(_SENTIMENT, _ADJECTIVES[::-1], "adjectives-by-sentiment"),
        task_of_gold(_CARDINALITY, {str(number): number for number in _NUMBERS}, "numbers-by-cardinality"),
    ]


DATASET = Dataset(
    name="synthfacts",
    kind="facts",
    summary="Adjectives by sentiment and numbers by cardinality: two rankings any model should know",
    licence="CC BY 4.0 (printed in the paper)",
    source=PAPER,
    paper_tasks=2,
    paper_items=6.0,
    departs="none: both tasks are the paper's",
    read=_read,
)
