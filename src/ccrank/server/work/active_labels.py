"""Labels one by one: the next question and the order that the answers so far give, without reading a list again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ccrank.api import ranking_of
from ccrank.criterion_phrase import resolved
from ccrank.inflection import comparative_of
from ccrank.labelfree.rankers import label_free_states
from ccrank.labelfree.with_labels import with_labels
from ccrank.labelled.kernel import States
from ccrank.labelled.session import Session
from ccrank.labels import Labels
from ccrank.lm import Reader
from ccrank.lm.reader import Progress
from ccrank.lm.watch import Watcher
from ccrank.methods import DEFAULT_METHOD, get_method
from ccrank.opposites import opposite_proposer
from ccrank.prompts import load_templates
from ccrank.ranking import Answer, Ranking, canonical
from ccrank.remote import OpenModel, RemoteReader
from ccrank.remote.reader import no_states
from ccrank.rows import Rows, rows_of_items
from ccrank.server.page_bodies import QuestionBody
from ccrank.server.ranking import RankWork, check_texts, task_by
from ccrank.server.replies import RequestError
from ccrank.server.settings import ServerSettings
from ccrank.task import Task, check_text, normal_form
from ccrank.understood import Understood

MOST_ITEMS = 3000
"""Of a longer list, the states take too much memory to be kept between answers."""
MOST_BYTES = 512 << 20
"""Of the states that are kept; the lists that were asked about least recently go first."""
AMOUNTS = {"low": "lower", "high": "higher", "few": "lower", "many": "higher"}
"""Poles that are said of the criterion and not of the items, with their comparatives."""


@dataclass
class ReadList:
    """A list as the model has read it: all that questions and labels need."""

    task: Task
    """With its criterion resolved, and the items as they were given."""
    order: list[int]
    """For each item of the canonical task, its index in `task`."""
    answer: Answer
    """Of `auto` without labels, about the canonical task."""
    states: States
    reader: Reader
    """It reads nothing more; its name and depth are needed."""
    lock: Lock = field(default_factory=Lock)
    session: Session | None = None

    @classmethod
    def read(cls, task: Task, reader: Reader, progress: Progress | None = None) -> ReadList:
        """Read a list.

        Parameters
        ----------
        task
            The list and its criterion.
        reader
            The request's reader.
        progress
            As in `rank_tasks`.
        """
        check_text(task)
        task = replace(task, criterion=resolved(task.criterion, opposite_proposer(reader)))
        ordered, order = canonical(task)
        answer, states = label_free_states(ordered, reader, load_templates(), progress)
        return cls(task, order, answer, states, reader)

    @property
    def size(self) -> int:
        """Bytes of the states."""
        return sum(one.nbytes for one in self.states)

    def ranking(self, labels: Labels) -> Ranking:
        """The ranking that `ccrank.rank` gives with these labels.

        Parameters
        ----------
        labels
            Any number of labels.
        """
        answer = self.answer
        if len(labels):
            labels.check(self.task.items)
            task = canonical(self.task)[0]
            given = ([task], self.reader, load_templates(), [labels], [answer], {0: self.states})
            [answer] = with_labels(*given)
        return ranking_of(self.task, self.order, answer, get_method(DEFAULT_METHOD), self.reader.name)

    def question(self, labels: Labels, skipped: Sequence[str]) -> tuple[str, str] | None:
        """The two items whose order would teach most; None if there are none left.

        Parameters
        ----------
        labels
            What is known.
        skipped
            Items that should not be asked about.
        """
        with self.lock:
            if self.session is None:
                task, _ = canonical(self.task)
                start = Ranking(task, self.answer.scores, DEFAULT_METHOD, self.reader.name, True)
                self.session = Session(start, self.states, "pair")
            self.session.resume(labels.rows, skipped)
            found = self.session.question()
        if found is None:
            return None
        own = {normal_form(item): item for item in self.task.items}
        first, second = (own[normal_form(item)] for item in found.items)
        return first, second


class ReadLists:
    """The lists that were asked about last; two requests for one list read it once."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._lists: OrderedDict[Hashable, ReadList] = OrderedDict()
        self._reading: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def get(self, key: Hashable, read: Callable[[], ReadList]) -> ReadList:
        """A list by its key, read if it is not at hand.

        Parameters
        ----------
        key
            The model, the items and the criterion.
        read
            Reads it.
        """
        with self._lock:
            turn = self._reading.setdefault(key, Lock())
        with turn:
            with self._lock:
                if key in self._lists:
                    self._lists.move_to_end(key)
                    return self._lists[key]
            try:
                found = read()
            except BaseException:
                with self._lock:
                    self._reading.pop(key, None)
                raise
            with self._lock:
                self._reading.pop(key, None)
                self._lists[key] = found
                while (
                    len(self._lists) > 1 and sum(one.size for one in self._lists.values()) > self.most_bytes
                ):
                    self._lists.popitem(last=False)
            return found

    def __len__(self) -> int:
        return len(self._lists)


def watched(work: RankWork, reader: OpenModel, watcher: Watcher, model: str, lists: ReadLists) -> Ranking:
    """A ranking whose reading is watched; where questions may follow, what was read is kept for them.

    Parameters
    ----------
    work
        The request to rank.
    reader
        The request's reader.
    watcher
        Given the progress and the scores so far.
    model
        The name of the model in requests.
    lists
        What was read earlier.
    """
    plain = work.method.name == DEFAULT_METHOD and work.options.keys() <= {"labels"}
    long = len(work.task.items) > MOST_ITEMS
    if not plain or work.task.query is not None or work.task.context or long:
        return work.run(reader, watcher)
    if isinstance(reader, RemoteReader):
        raise no_states(reader.name)
    key = (model, work.task.criterion, work.task.items)
    found = lists.get(key, lambda: ReadList.read(work.task, reader, watcher))
    return replace(found.ranking(Labels.parse(work.options.get("labels") or {})), rows=work.rows)


class TeachWork:
    """A checked request for a question, ready to run.

    Parameters
    ----------
    body
        The request.
    settings
        The limits.
    """

    def __init__(self, body: QuestionBody, settings: ServerSettings) -> None:
        check_texts(settings, body.items, by=body.by, comparative=body.comparative, category=body.category)
        if len(body.items) > MOST_ITEMS:
            raise RequestError(
                413,
                "too_many_items",
                f"{len(body.items):,} items; questions are asked about lists of up to {MOST_ITEMS:,}",
            )
        self.rows: Rows = rows_of_items(body.items)
        self.task: Task = task_by(body.by, body, self.rows)
        self.labels = Labels.parse(body.labels or {})
        self.labels.check(self.task.items)
        self.skipped = body.skipped or []

    def run(self, reader: OpenModel, model: str, lists: ReadLists) -> Mapping[str, Any]:
        """The ranking with the labels so far, and the next question.

        Parameters
        ----------
        reader
            The request's reader.
        model
            The name of the model in requests.
        lists
            What was read earlier.
        """
        if isinstance(reader, RemoteReader):
            raise no_states(reader.name)
        key = (model, self.task.criterion, self.task.items)
        found = lists.get(key, lambda: ReadList.read(self.task, reader))
        pair = found.question(self.labels, self.skipped)
        ranking = replace(found.ranking(self.labels), rows=self.rows)
        asked = None if pair is None else {"question": question_about(found.task), "items": list(pair)}
        return {"question": asked, "ranking": ranking.to_json()}


def question_about(task: Task) -> str:
    """The question about two items, in words: "Which is larger?".

    Parameters
    ----------
    task
        A task whose criterion is resolved.
    """
    understood = task.criterion.understood
    assert understood is not None
    return f"Which is {comparison(understood)}?"


def comparison(understood: Understood) -> str:
    """How the higher of two items compares with the other.

    Parameters
    ----------
    understood
        What the criterion means.
    """
    high = understood.poles[1]
    if not understood.comparative.startswith("more in terms of"):
        return understood.comparative
    if high in AMOUNTS:
        return f"{AMOUNTS[high]} in {understood.name}"
    return comparative_of(high)
