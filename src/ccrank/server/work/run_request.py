"""From the body of a request to a ranking or a question: bounded texts, options and work, and lists read once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from ccrank.criteria.meaning import comparison
from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.jury import Verdict, combined
from ccrank.labels import Labels
from ccrank.methods.labelfree.rankers import label_free_states
from ccrank.methods.labelled.lists import with_labels
from ccrank.methods.labelled.prior import States
from ccrank.methods.labelled.session import GOOD_ENOUGH, Session
from ccrank.methods.registry import METHODS, Method, get_method
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.models.reading import PartialProgress, Progress
from ccrank.models.remote import OpenModel
from ccrank.models.remote.remote_reader import no_states
from ccrank.ranking import Answer, Ranking
from ccrank.request import DEFAULT_METHOD, PreparedTask, RankRequest
from ccrank.server.responses import RequestError, too_large
from ccrank.server.schemas import QuestionBody, RankBody
from ccrank.server.settings import ServerSettings
from ccrank.task import Task, normal_form
from ccrank.util.cancellation import held

RANGES: dict[str, tuple[float, float]] = {
    "seeds": (1, 32),
    "epochs": (1, 2000),
    "shuffles": (1, 64),
    "window": (2, 100),
    "passage": (16, 8192),
    "pairs": (1, 1000),
    "seed": (0, 2**31 - 1),
    "ridge": (1e-6, 1e6),
    "learning_rate": (1e-6, 10),
    "margin": (1e-6, 1e3),
    "weight_decay": (0, 1e3),
}
"""The values that an option may have. Some multiply the work; others make numbers that are not finite."""
WORDS_OR_NUMBERS = ("pairs", "layer")
"""Options whose default is a word and that take a whole number too."""
MAX_TEXT = 200
"""Characters of an option that is a text."""
MAX_LIST = 3000
"""Items of a list that questions are asked about: the states of longer ones take too much memory to be kept."""
MAX_BYTES = 512 << 20
"""Memory for states; the lists that were used least recently are dropped first."""


def check_texts(settings: ServerSettings, items: Sequence[str], **others: str | None) -> None:
    """Refuse more, or longer, texts than the server takes."""
    if len(items) > settings.max_items:
        message = f"{len(items):,} items; this server takes up to {settings.max_items:,}"
        raise too_large("too_many_items", message)
    named = [(f"item {position}", "item_too_long", item) for position, item in enumerate(items, start=1)]
    for name, kind, text in [*named, *((name, "text_too_long", text) for name, text in others.items())]:
        if text is not None and len(text) > settings.max_characters:
            most = f"this server takes up to {settings.max_characters:,}"
            raise too_large(kind, f"{name} has {len(text):,} characters; {most}")


def request_of(body: RankBody | QuestionBody, settings: ServerSettings) -> RankRequest:
    """The request that a body makes, within the limits of the server."""
    given: dict[str, Any] = {
        name: value
        for name in RankRequest.__dataclass_fields__
        if name != "items" and (value := getattr(body, name, None)) is not None
    }
    low, high = body.poles or (None, None)
    texts = {name: value for name, value in given.items() if isinstance(value, str) and name != "method"}
    check_texts(settings, body.items, **texts, low=low, high=high)
    if body.poles is not None:
        given["poles"] = (low, high)
    if body.labels and (count := Labels.parse(body.labels).observations) > settings.max_labels:
        raise too_large(
            "too_many_labels",
            f"{count:,} labels (each best with each worst is one more); this server takes up to "
            f"{settings.max_labels:,}: a few hundred say nearly as much",
        )
    return RankRequest(items=rows_of_items(body.items), **given)


def check_options(method: Method, given: Mapping[str, Any]) -> None:
    """Raise an error for an option of a wrong type or with an extreme value."""
    if "labels" in given:
        raise CcrankError('labels are not an option; send them as "labels" beside the items')
    for name, value in given.items():
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise CcrankError(
                f"option {name[:40]!r} has {len(value):,} characters; it takes up to {MAX_TEXT}"
            )
    for name, value in method.parse_options(given).items():
        default = method.options[name]
        kinds: Any = {bool: bool, int: int, float: (int, float)}.get(type(default), (str, type(default)))
        if name in WORDS_OR_NUMBERS:
            kinds = (str, int)
        if not isinstance(value, kinds) or isinstance(value, bool) != isinstance(default, bool):
            raise CcrankError(f"{method.name}: {name} takes no {value!r:.40}; its default is {default!r}")
        number = value
        if isinstance(value, str) and name in WORDS_OR_NUMBERS and value.lstrip("-").isdecimal():
            number = int(value[:20])
        if isinstance(number, int | float) and not isinstance(number, bool):
            low, high = RANGES.get(name, (-1e6, 1e6))
            if not low <= number <= high:
                raise CcrankError(f"{method.name}: {name} is {number!r:.40}; it takes {low:g} to {high:g}")


def prompts_needed(method: Method, options: Mapping[str, Any], count: int) -> float:
    """About how many prompts a method reads for a list."""
    repeats = options.get(method.repeats_option or "", 1)
    pairs = str(options.get("pairs", "auto"))
    if pairs == "all":
        return float(count * (count - 1))
    if pairs.isdecimal():
        return float(2 * count * int(pairs))
    return float(method.prompts(count) * repeats)


def rank_request(body: RankBody, settings: ServerSettings) -> RankRequest:
    """The request that a body makes, if its method, its options and its work are within the limits of the server."""
    request = request_of(body, settings)
    if request.method not in METHODS:
        message = f"unknown method {request.method[:100]!r}; GET /v1/methods lists the methods"
        raise RequestError(422, "unknown_method", message)
    method = request.chosen
    check_options(method, request.options)
    count = len(request.task.items)
    if (prompts := prompts_needed(method, request.parsed_options, count)) > settings.max_prompts:
        raise too_large(
            "too_many_prompts",
            f"{method.name} needs about {prompts:,.0f} prompts for {count:,} items; this server takes up to "
            f"{settings.max_prompts:,}: send fewer items, or use method auto",
        )
    if method.objective is not None and count > settings.max_probe_items:
        raise too_large(
            "too_many_items",
            f"{method.name} fits a probe; this server does that for up to {settings.max_probe_items:,} items "
            f"and got {count:,}: use method auto",
        )
    return request


def ranking_of(
    request: RankRequest, readers: Sequence[OpenModel], progress: Progress | None = None
) -> Ranking:
    """The ranking of a request's one list by one model, or by several together."""
    [ranking] = combined([Verdict.of(request.run(reader, progress), reader) for reader in readers])
    return ranking


def expected_tokens(request: RankRequest, readers: Sequence[OpenModel]) -> int | None:
    """About how many tokens will be read; None if that cannot be said."""
    return sum(request.expected_reading(reader).distinct_tokens for reader in readers) or None


@dataclass
class ReadList:
    """What a model has read of a list, for questions and labels."""

    prepared: PreparedTask
    answer: Answer
    """Of `auto` without labels, about the canonical task."""
    states: States
    reader: Reader
    """For its name and depth; nothing more is read."""
    lock: Lock = field(default_factory=Lock)
    session: Session | None = None

    @classmethod
    def read(cls, task: Task, reader: Reader, progress: Progress | None = None) -> ReadList:
        prepared = PreparedTask.of(task, reader)
        answer, states = label_free_states(prepared.canonical, Prompter(reader, progress=progress))
        return cls(prepared, answer, states, reader)

    @property
    def size(self) -> int:
        """Bytes of the states."""
        return sum(states.nbytes for states in self.states)

    def ranking(self, labels: Labels, request: RankRequest) -> Ranking:
        """The ranking of the request's rows that `ccrank.rank` gives with these labels."""
        answer = self.answer
        if len(labels):
            labels.check(self.prepared.task.items)
            [answer] = with_labels([self.prepared.canonical], [labels], [answer], {0: self.states})
        ranking = self.prepared.ranking(answer, get_method(DEFAULT_METHOD), self.reader)
        return replace(ranking, rows=request.rows)

    def question(self, labels: Labels) -> list[str] | None:
        """The most informative pair of items; None if the answers settle the whole order."""
        canonical = self.prepared.canonical
        with held(self.lock):
            if self.session is None:
                start = Ranking(canonical, self.answer.scores, DEFAULT_METHOD, self.reader.name, True)
                self.session = Session(start, self.states, "pair")
            self.session.resume(labels.rows)
            question = self.session.question()
        as_given = {normal_form(item): item for item in self.prepared.task.items}
        return None if question is None else [as_given[normal_form(item)] for item in question.items]


class ReadLists:
    """The lists that were used last; concurrent requests for one list read it once."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._lists: dict[Hashable, ReadList] = {}
        """In the order of their last use."""
        self._reading: WeakValueDictionary[Hashable, Lock] = WeakValueDictionary()
        """Held while a list is read; dropped when no thread waits for it."""
        self._lock = Lock()

    def read(self, model: str, task: Task, reader: OpenModel, progress: Progress | None = None) -> ReadList:
        """What a model has read of a task, from memory where it is there."""
        if not reader.gives_states:
            raise no_states(reader.name)
        key = (model, task.criterion, task.items)
        return self.get(key, lambda: ReadList.read(task, reader, progress))

    def get(self, key: Hashable, read: Callable[[], ReadList]) -> ReadList:
        """A list by its key, read if it is not in memory."""
        with self._lock:
            turn = self._reading.setdefault(key, Lock())
        with held(turn):
            with self._lock:
                read_list = self._lists.pop(key, None)
            if read_list is None:
                read_list = read()
            with self._lock:
                self._lists[key] = read_list
                while (
                    len(self._lists) > 1 and sum(kept.size for kept in self._lists.values()) > self.max_bytes
                ):
                    del self._lists[next(iter(self._lists))]
        return read_list


def ranking_kept(
    request: RankRequest, reader: OpenModel, watch: PartialProgress, model: str, lists: ReadLists
) -> Ranking:
    """A ranking with scores while it is read; the readings are kept where questions may follow."""
    task, labels = request.task, request.parsed_options.get("labels") or {}
    plain = request.method == DEFAULT_METHOD and request.parsed_options.keys() <= {"labels"}
    if not plain or task.query is not None or task.context or len(task.items) > MAX_LIST:
        return ranking_of(request, [reader], watch)
    return lists.read(model, task, reader, watch).ranking(Labels.parse(labels), request)


def question_request(body: QuestionBody, settings: ServerSettings) -> RankRequest:
    """The request that a body makes, if questions are asked about such a list."""
    request = request_of(body, settings)
    if len(body.items) > MAX_LIST:
        message = f"{len(body.items):,} items; questions are asked about lists of up to {MAX_LIST:,}"
        raise too_large("too_many_items", message)
    Labels.parse(body.labels or {}).check(request.task.items)
    return request


def next_question(request: RankRequest, reader: OpenModel, model: str, lists: ReadLists) -> Mapping[str, Any]:
    """The ranking with the labels so far, and the most informative question."""
    labels = Labels.parse(request.labels or {})
    read_list = lists.read(model, request.task, reader)
    pair = read_list.question(labels)
    ranking = read_list.ranking(labels, request)
    phrase = f"Which is {comparison(read_list.prepared.task.criterion)}?"
    share = ranking.details.get("labels", {}).get("right_pairs")
    return {
        "question": None if pair is None else {"question": phrase, "items": pair},
        "right_pairs": share,
        "good_enough": share is not None and share >= GOOD_ENOUGH,
        "ranking": ranking.to_json(),
    }
