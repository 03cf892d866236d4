"""What a method asks a model with: a reader, templates in the form of its prompts, and a callback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ccrank.models.reader_like import ReaderLike
from ccrank.models.reading import Cost, PartialProgress, Progress, Readings, by_item
from ccrank.prompts import Prompt, Templates, load_templates
from ccrank.task import Task

Candidates = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Prompter:
    """Renders a method's prompts for a reader, and reads them."""

    reader: ReaderLike
    templates: Templates = field(default_factory=load_templates)
    progress: Progress | None = None

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Candidates | None = None,
        layers: Iterable[int] | str = (),
        **how: bool,
    ) -> Readings:
        """As `Reader.read`, which takes items, log_probabilities and per_token."""
        return self.reader.read(prompts, candidates, layers, progress=self.progress, **how)

    def logits(
        self, prompts: Sequence[Prompt], candidates: Candidates, **how: bool
    ) -> tuple[np.ndarray, Cost]:
        """The score of each candidate, (P, C), and what it costs to read them."""
        readings = self.read(prompts, candidates, (), **how)
        assert readings.logits is not None
        return readings.logits, readings.cost

    @property
    def shows_scores(self) -> bool:
        """Whether somebody watches the scores while a list is read."""
        return isinstance(self.progress, PartialProgress)

    def show(self, items: Sequence[str], scores: Iterable[float]) -> None:
        """Show scores so far, if somebody watches them."""
        if isinstance(self.progress, PartialProgress):
            self.progress.partial(by_item(items, scores))

    def check_fields(self, template: str, *needed: str) -> None:
        """Raise an error if a template lacks a field that makes its prompts differ between items."""
        self.templates[template].check_fields(self.reader.form, *needed)

    def single(self, task: Task, index: int, template: str = "single") -> Prompt:
        """See `Templates`, also for the prompts below."""
        return self.templates.single(task, index, self.reader.form, template)

    def singles(self, task: Task, template: str = "single") -> list[Prompt]:
        """The prompt of each item."""
        return [self.single(task, index, template) for index in range(len(task.items))]

    def exemplar(self, task: Task, text: str, template: str = "single") -> Prompt:
        return self.templates.exemplar(task, text, self.reader.form, template)

    def pair(self, task: Task, first: int, second: int, template: str = "pair") -> Prompt:
        return self.templates.pair(task, first, second, self.reader.form, template)

    def pole(self, task: Task, word: str, template: str) -> Prompt:
        return self.templates.pole(task, word, self.reader.form, template)

    def list(self, task: Task, shown: Sequence[int], chosen: Sequence[int], template: str) -> Prompt:
        return self.templates.list(task, shown, chosen, self.reader.form, template)
