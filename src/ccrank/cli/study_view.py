"""Progress of a study: two bars on a terminal, the study and the current reading; one line per unit elsewhere."""

from __future__ import annotations

import time

from rich.progress import BarColumn, Progress, TextColumn

from ccrank.cli.screen import SLOW, counted, duration, err, say
from ccrank.models import Cost
from ccrank.study.experiment.execute import Outcome
from ccrank.study.experiment.runner import StudyWatcher
from ccrank.study.experiment.units import Unit


class StudyView(StudyWatcher):
    """Shows a study within `with view.progress`."""

    def __init__(self) -> None:
        console = err()
        self.live = console.is_terminal
        name, note = (
            TextColumn(f"{{task.{text}}}", markup=False) for text in ("description", "fields[note]")
        )
        columns = (name, BarColumn(12), note)
        self.progress = Progress(*columns, console=console, transient=True, disable=not self.live)
        self.whole = self.progress.add_task("study", total=None, note="")
        self.part = self.progress.add_task("unit", total=None, note="", visible=False)
        self.started = time.perf_counter()
        self.units = self.done = self.read = 0
        self.weight = self.done_weight = 0.0
        self.unit = ""
        self.spent: dict[str, Cost] = {}
        """Of each model so far."""

    def begin(self, units: int, done: int, weight: float) -> None:
        self.units, self.done, self.weight = units, done, weight
        self.line(f"{counted(units, 'unit')}, {done} of them done before")
        self.progress.update(self.whole, total=weight or 1.0, completed=0.0 if weight else 1.0)
        self.advance(0.0)

    def say(self, words: str) -> None:
        if words.startswith(("loading", "looking")):
            self.progress.update(self.part, note=words, visible=True, total=None)
        else:
            self.line(words)

    def expect(self, model: str, units: int, seconds: float) -> None:
        if seconds > SLOW:
            self.line(f"{counted(units, 'unit')} on {model}: about {duration(seconds)} on this machine")

    def start(self, unit: Unit) -> None:
        self.unit, self.read = str(unit), 0
        self.progress.reset(self.part, total=None, visible=True, note=self.unit)

    def reading(self, tokens: int) -> None:
        self.read += tokens
        self.progress.update(self.part, note=f"{self.read:,} tokens · {self.unit}")

    def finish(self, unit: Unit, outcome: Outcome, seconds: float, weight: float, spent: Cost) -> None:
        self.spent[unit.model] = spent
        self.done += 1
        self.done_weight += weight
        self.advance(weight)
        if not self.live:
            failed = f", {counted(len(outcome.failures), 'task')} failed" if outcome.failures else ""
            self.line(
                f"[{self.done}/{self.units}] {unit}: {counted(len(outcome.rows), 'row')} in {seconds:.1f} s{failed} "
                f"({self.pace('; ')})"
            )

    def advance(self, weight: float) -> None:
        """Advance the bar of the study."""
        note = f"{self.done}/{self.units} units · {self.pace(' · ')}"
        self.progress.update(self.whole, advance=weight, note=note)

    def pace(self, between: str) -> str:
        """The speed so far and, by weight, the remaining time, which is unknown before the first unit."""
        seconds = time.perf_counter() - self.started
        total = sum(self.spent.values(), Cost())
        left = "–"
        if self.done_weight:
            left = clock(seconds * (self.weight - self.done_weight) / self.done_weight)
        rates = f"{total.prompts / seconds:,.0f} prompts/s, {total.computed_tokens / seconds:,.0f} tokens/s"
        return f"{rates}{between}{left} left"

    def line(self, text: str) -> None:
        """Print a line above the bars, or on stderr."""
        if self.live:
            self.progress.console.print(text, markup=False, highlight=False)
        else:
            say(text)


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss, or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
