"""Progress of a study: a live view on a terminal, one line per unit elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ccrank.cli.screen import SLOW, counted, duration, err

if TYPE_CHECKING:
    from ccrank.models import Cost
    from ccrank.study.experiment.execute import Outcome
    from ccrank.study.experiment.runner import StudyWatcher
    from ccrank.study.experiment.units import Unit


class Pace:
    """The speed of a run and its remaining time."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.prompts = self.tokens = 0
        self.units = self.done = 0
        self.weight = self.done_weight = 0.0
        self._last = (0, 0)

    def spend(self, spent: Cost) -> None:
        """Update with the total cost of the current model, which restarts at 0 for a new model."""
        now = (spent.prompts, spent.computed_tokens)
        before = self._last if now >= self._last else (0, 0)
        self.prompts += now[0] - before[0]
        self.tokens += now[1] - before[1]
        self._last = now

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @property
    def left(self) -> str:
        """The remaining time by weight; unknown before the first unit."""
        if not self.done_weight:
            return "–"
        return clock(self.seconds * (self.weight - self.done_weight) / self.done_weight)

    @property
    def rates(self) -> str:
        return f"{self.prompts / self.seconds:,.0f} prompts/s, {self.tokens / self.seconds:,.0f} tokens/s"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss, or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def study_view() -> Iterator[StudyWatcher]:
    """A watcher of a study, live on a terminal."""
    # The watcher's class imports torch; the command has shown a status message for that by now.
    from ccrank.study.experiment.runner import StudyWatcher

    console = err()
    live = console.is_terminal
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(12),
        TextColumn("{task.fields[note]}", markup=False),
    )
    progress = Progress(*columns, console=console, transient=True, disable=not live)
    pace = Pace()

    class View(StudyWatcher):
        """Two bars on a terminal, the study and the current reading; elsewhere a line for each unit."""

        def __init__(self) -> None:
            self.whole: TaskID = progress.add_task("study", total=None, note="")
            self.part: TaskID = progress.add_task("unit", total=None, note="", visible=False)
            self.unit, self.read = "", 0

        def begin(self, units: int, done: int, weight: float) -> None:
            pace.units, pace.done, pace.weight = units, done, weight
            self.line(f"{counted(units, 'unit')}, {done} of them done before")
            progress.update(self.whole, total=weight or 1.0, completed=0.0 if weight else 1.0)
            self.advance(0.0)

        def say(self, words: str) -> None:
            if words.startswith(("loading", "looking")):
                progress.update(self.part, note=words, visible=True, total=None)
            else:
                self.line(words)

        def expect(self, model: str, units: int, seconds: float) -> None:
            if seconds > SLOW:
                self.line(f"{counted(units, 'unit')} on {model}: about {duration(seconds)} on this machine")

        def start(self, unit: Unit) -> None:
            self.unit, self.read = str(unit), 0
            progress.reset(self.part, total=None, visible=True, note=self.unit)

        def reading(self, tokens: int) -> None:
            self.read += tokens
            progress.update(self.part, note=f"{self.read:,} tokens · {self.unit}")

        def finish(self, unit: Unit, outcome: Outcome, seconds: float, weight: float, spent: Cost) -> None:
            pace.spend(spent)
            pace.done += 1
            pace.done_weight += weight
            self.advance(weight)
            if not live:
                self.line(describe(pace, unit, outcome, seconds))

        def advance(self, weight: float) -> None:
            note = f"{pace.done}/{pace.units} units · {pace.rates} · {pace.left} left"
            progress.update(self.whole, advance=weight, note=note)

        def line(self, words: str) -> None:
            if live:
                progress.console.print(words, markup=False, highlight=False)
            else:
                sys.stderr.write(f"ccrank: {words}\n")
                sys.stderr.flush()

    with progress:
        yield View()


def describe(pace: Pace, unit: Unit, outcome: Outcome, seconds: float) -> str:
    """The line of a unit: progress, result and speed."""
    failed = f", {counted(len(outcome.failures), 'task')} failed" if outcome.failures else ""
    return (
        f"[{pace.done}/{pace.units}] {unit}: {counted(len(outcome.rows), 'row')} in {seconds:.1f} s{failed} "
        f"({pace.rates}; {pace.left} left)"
    )
