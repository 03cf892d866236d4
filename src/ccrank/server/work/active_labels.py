"""Labels one by one: the next question and the order that the answers so far give, without reading a list again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ccrank.criteria.comparison import comparison
from ccrank.labels import Labels
from ccrank.methods.labelfree.rankers import label_free_states
from ccrank.methods.labelled.lists import with_labels
from ccrank.methods.labelled.prior import States
from ccrank.methods.labelled.session import GOOD_ENOUGH, Session
from ccrank.methods.registry import get_method
from ccrank.models import Reader
from ccrank.models.reading import PartialProgress, Progress
from ccrank.models.remote import OpenModel
from ccrank.models.remote.remote_reader import no_states
from ccrank.prompts import load_templates
from ccrank.ranking import Answer, Ranking
from ccrank.request import DEFAULT_METHOD, PreparedTask
from ccrank.server.responses import RequestError
from ccrank.server.schemas import QuestionBody
from ccrank.server.settings import ServerSettings
from ccrank.server.work.run_request import RankWork, request_of
from ccrank.task import Task, normal_form
from ccrank.util.cancellation import held

MOST_ITEMS = 3000
"""Of a longer list, the states take too much memory to be kept between answers."""
MOST_BYTES = 512 << 20
"""Of the states that are kept; the lists that were asked about least recently go first."""


@dataclass
class ReadList:
    """A list as the model has read it: all that questions and labels need."""

    prepared: PreparedTask
    answer: Answer
    """Of `auto` without labels, about the canonical task."""
    states: States
    reader: Reader
    """It reads nothing more; its name and depth are needed."""
    lock: Lock = field(default_factory=Lock)
    session: Session | None = None

    @classmethod
    def read(cls, task: Task, reader: Reader, progress: Progress | None = None) -> ReadList:
        """Read a list."""
        prepared = PreparedTask.of(task, reader)
        answer, states = label_free_states(prepared.canonical, reader, load_templates(), progress)
        return cls(prepared, answer, states, reader)

    @property
    def task(self) -> Task:
        """The task, with its criterion resolved and its items as they were given."""
        return self.prepared.task

    @property
    def size(self) -> int:
        """Bytes of the states."""
        return sum(one.nbytes for one in self.states)

    def ranking(self, labels: Labels) -> Ranking:
        """The ranking that `ccrank.rank` gives with these labels."""
        answer = self.answer
        if len(labels):
            labels.check(self.task.items)
            [answer] = with_labels([self.prepared.canonical], [labels], [answer], {0: self.states})
        return self.prepared.ranking(answer, get_method(DEFAULT_METHOD), self.reader)

    def question(self, labels: Labels) -> tuple[str, str] | None:
        """The two items whose order would teach most; None if the answers settle the order of all."""
        with held(self.lock):
            if self.session is None:
                start = Ranking(
                    self.prepared.canonical, self.answer.scores, DEFAULT_METHOD, self.reader.name, True
                )
                self.session = Session(start, self.states, "pair")
            self.session.resume(labels.rows)
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
        """A list by its key, read if it is not at hand."""
        with self._lock:
            turn = self._reading.setdefault(key, Lock())
        with held(turn):
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


def watched(
    work: RankWork, reader: OpenModel, watcher: PartialProgress, model: str, lists: ReadLists
) -> Ranking:
    """A ranking whose reading is watched; where questions may follow, what was read is kept for them."""
    plain = work.method.name == DEFAULT_METHOD and work.options.keys() <= {"labels"}
    long = len(work.task.items) > MOST_ITEMS
    if not plain or work.task.query is not None or work.task.context or long:
        return work.run(reader, watcher)
    if not reader.gives_states:
        raise no_states(reader.name)
    key = (model, work.task.criterion, work.task.items)
    found = lists.get(key, lambda: ReadList.read(work.task, reader, watcher))
    return replace(found.ranking(Labels.parse(work.options.get("labels") or {})), rows=work.request.rows)


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
        self.request = request_of(body, settings)
        if len(body.items) > MOST_ITEMS:
            raise RequestError(
                413,
                "too_many_items",
                f"{len(body.items):,} items; questions are asked about lists of up to {MOST_ITEMS:,}",
            )
        self.task = self.request.task
        self.labels = Labels.parse(body.labels or {})
        self.labels.check(self.task.items)

    def run(self, reader: OpenModel, model: str, lists: ReadLists) -> Mapping[str, Any]:
        """The ranking with the labels so far, and the next question."""
        if not reader.gives_states:
            raise no_states(reader.name)
        key = (model, self.task.criterion, self.task.items)
        found = lists.get(key, lambda: ReadList.read(self.task, reader))
        pair = found.question(self.labels)
        ranking = replace(found.ranking(self.labels), rows=self.request.rows)
        asked = (
            None
            if pair is None
            else {"question": f"Which is {comparison(found.task.criterion)}?", "items": list(pair)}
        )
        share = ranking.details.get("labels", {}).get("right_pairs")
        return {
            "question": asked,
            "right_pairs": share,
            "good_enough": share is not None and share >= GOOD_ENOUGH,
            "ranking": ranking.to_json(),
        }
