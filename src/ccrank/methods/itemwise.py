"""Scoring items by methods whose score of an item depends on that item alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods.registry import get_method
from ccrank.models import ReaderLike
from ccrank.models.reading import Progress, Request
from ccrank.prompts import Form, Templates
from ccrank.ranking import ItemScores
from ccrank.task import Task


@dataclass(frozen=True)
class ItemwiseScorer:
    """Runs a method on new items."""

    method: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        method = get_method(self.method)
        method.parse_options(self.options)
        if not method.itemwise:
            raise CcrankError(f"{self.method} scores no item by itself")

    def score(
        self, task: Task, reader: ReaderLike, templates: Templates, progress: Progress | None = None
    ) -> ItemScores:
        """The method's own scores."""
        [answer] = get_method(self.method).run([task], reader, templates, progress=progress, **self.options)
        return ItemScores(answer.scores, cost=answer.cost)

    def requests(self, task: Task, form: Form, templates: Templates) -> list[Request]:
        """The prompts that are read, to count their tokens."""
        return get_method(self.method).requests(task, form, templates)
