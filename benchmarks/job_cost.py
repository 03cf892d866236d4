"""What ranking a file will cost: tokens, floating-point operations, hours and bytes; see `stream_cost.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ccrank.methods.estimate import CountingReader
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.ranking import Scorer
from ccrank.scale import AT_A_TIME
from ccrank.task import Task


@dataclass(frozen=True)
class StreamCost:
    """The cost of one pass over N items."""

    items: int
    """N."""
    tokens_per_item: float
    """Distinct tokens that are read for an item; see `tokens_per_item`."""
    parameters: int
    """Parameters of the model that are multiplied, without its embedding table; see `multiplied_parameters`."""
    row_bytes: float
    """Bytes of a row of the input, as it is stored there."""

    @property
    def tokens(self) -> float:
        """Tokens that are read."""
        return self.items * self.tokens_per_item

    @property
    def operations(self) -> float:
        """Floating-point operations: two for each token and parameter; attention within short prompts adds little."""
        return 2 * self.parameters * self.tokens

    def hours(self, rate: float) -> float:
        """Hours on one device."""
        return self.operations / rate / 3600

    @property
    def disk_bytes(self) -> float:
        """Bytes beside the input while the rows are put in order: stored blocks, sorted scores, buckets and output."""
        stored = self.row_bytes + 8  # a score is a float64
        return self.items * (3 * stored + 8 + 16)


def tokens_per_item(task: Task, reader: Reader, scorer: Scorer) -> float:
    """Distinct tokens that are read for an item of a stream, from some items, without running the model."""
    few = task.unchecked(task.items[:AT_A_TIME], task.context)
    counting: Any = CountingReader(reader, reader.width)
    scorer.score(few, Prompter(counting))
    return float(counting.cost.distinct_tokens / len(few.items))


def multiplied_parameters(model: Any) -> int:
    """Parameters without those of embedding tables, which are looked up."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    return sum(one.numel() for one in model.parameters() if id(one) not in tables)
