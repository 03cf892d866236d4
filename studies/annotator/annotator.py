"""A larger chat model answers the questions of a smaller model's session: signed τ by the number of calls.

    /tmp/llamacpp/bin/python benchmarks/llamacpp_server.py large.gguf --port 8080 --slots 1 &
    python -m studies.annotator.annotator ask FOLDER --annotator openai:http://127.0.0.1:8080/v1
    python -m studies.annotator.annotator tables FOLDER

`ask` orders every list in each of the ways below and writes FOLDER/taus.csv. An answer that FOLDER/answers.csv does not
have is asked for and stored there at once, so that an interrupted run goes on and a later one needs no server. Answers
are stored by the items' places in their lists, without their texts. A pair is asked about in both orders, two calls.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from math import exp, isfinite
from pathlib import Path

import numpy as np

from ccrank import Task, load_dataset
from ccrank.api import load
from ccrank.api.asking import ask
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks
from ccrank.labels import LabelRow
from ccrank.methods.labelled.annotate import LETTERS, annotate, wording
from ccrank.metrics.order import kendall_tau
from ccrank.metrics.tasks import mean_with_interval
from ccrank.models.remote import OpenModel
from ccrank.models.remote.chat import ChatModel, Choice
from ccrank.models.remote.completions import choices, positions
from studies.confidence.lists import TEXTS, pooled

NAMES, TEXT_LISTS, LONG = "names", "texts", "long"
EVERY, LISTS = 8, 6
"""Of `everyday` report: the step from list to list, and how many are taken."""
TEXT_FILES, LONGEST = 2, 200
"""Of texts, how many lists are taken, and how many texts of the first file make a long list."""
CALLS = (0, 8, 16, 24, 32, 48, 64, 96)
SHOWN = (0, 8, 24, 48, 96)
"""In the table."""
DRAWS = {NAMES: 5, TEXT_LISTS: 5, LONG: 1}
RANDOM_CALLS = {NAMES: 96, TEXT_LISTS: 96, LONG: 48}
"""Draws of random pairs, and the most calls of each: a long list's are asked for only here."""
WAYS = {
    "chosen": "chosen pairs",
    "random": "random pairs",
    "one order": "chosen pairs, one order",
    "random alone": "random pairs alone",
}
"""What is drawn over the calls. Alone: the sums of the annotator's log-odds, without the small model."""
ALL, RATINGS = "all pairs alone", "ratings alone"
SURE = 20.0
"""The log-odds of an answer of which only the text is known."""
Row = dict[str, str]


def names() -> Sequence[Task]:
    """Lists of names that no choice was made on."""
    return load_dataset("everyday", half="report")[::EVERY][:LISTS]


def lists(texts: Path) -> Iterator[tuple[str, Task]]:
    """All lists and their kinds; texts of others are read from a folder."""
    for task in names():
        yield NAMES, task
    files = [read_tasks(texts / f"{name}.jsonl") for name in TEXTS["report"][:TEXT_FILES]]
    yield LONG, pooled(files[0], LONGEST)
    for tasks in files:
        yield TEXT_LISTS, tasks[0]


class Annotator:
    """A chat model's answers about a list: stored ones, and others if a model is given."""

    name = "annotator"

    def __init__(self, task: Task, path: Path, chat: ChatModel | None) -> None:
        self.task, self.path, self.chat, self.client = task, path, chat, self
        rows = read_rows(path) if path.exists() else []
        self._known = {
            (row["first"], row["second"]): number(row["answer"]) for row in rows if row["list"] == task.id
        }
        places = {item: place for place, item in enumerate(task.items)}
        self._pairs = {
            wording(task.criterion, *pair): (str(places[pair[0]]), str(places[pair[1]]))
            for pair in permutations(task.items, 2)
        }

    def each(self, send: Callable[[str], Choice], texts: Sequence[str]) -> Iterator[tuple[int, Choice]]:
        """As the client of a server, one at a time."""
        return ((place, send(text)) for place, text in enumerate(texts))

    def choose(self, question: str, first: str, second: str) -> Choice:
        """The answer to a session's question."""
        return Choice(
            self._answer(self._pairs[question], lambda chat: chat.choose(question, first, second).odds), 0
        )

    def odds(self, first: int, second: int) -> float:
        """The log-odds of the first of two items, over both orders; 0 where there is no answer."""
        items = self.task.items[first], self.task.items[second]
        one, other = (
            self.choose(wording(self.task.criterion, *pair), *LETTERS).odds for pair in (items, items[::-1])
        )
        return 0.0 if one is None or other is None else clipped(one) - clipped(other)

    def rating(self, place: int) -> float:
        """The expected digit of an item from 1 to 9; the middle if there is none."""
        found = self._answer((str(place), ""), lambda chat: rating(chat, self.task, self.task.items[place]))
        return 5.0 if found is None else found

    def _answer(self, key: tuple[str, str], wanted: Callable[[ChatModel], float | None]) -> float | None:
        if key not in self._known:
            if self.chat is None:
                raise CcrankError(f"no answer about {self.task.id} {key} is stored: give --annotator")
            found = wanted(self.chat)
            # As it is read from the file, so that a second run equals the first.
            self._known[key] = found = None if found is None else round(found, 4)
            is_new = not self.path.exists()
            with self.path.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if is_new:
                    writer.writerow(("list", "first", "second", "answer"))
                writer.writerow((self.task.id, *key, "" if found is None else found))
        return self._known[key]


def rating(chat: ChatModel, task: Task, item: str) -> float | None:
    """What a model says an item is worth: the expected digit from 1 to 9, None if its answer has none."""
    low, high = task.criterion.poles or ("low", "high")
    text = (
        f"Rate the {task.criterion.name} of this {task.criterion.kind} from 1 ({low}) to 9 ({high}).\n\n{item}\n\n"
        "Answer with a digit from 1 to 9 alone."
    )
    body = {
        "model": chat.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 4,
        "temperature": 0,
    }
    [answer] = choices(
        chat.client.post("/chat/completions", {**body, "logprobs": True, "top_logprobs": 20}), 1
    )
    for position in positions(answer, by_text=True):
        likely = {str(token).strip(): value for token, value in position.top.items()}
        weights = {digit: exp(likely[str(digit)]) for digit in range(1, 10) if str(digit) in likely}
        if weights:
            return sum(digit * weight for digit, weight in weights.items()) / sum(weights.values())
    return None


def clipped(odds: float) -> float:
    return float(np.clip(odds, -SURE, SURE))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


def read_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def order_of(pairs: Sequence[tuple[int, int]], annotator: Annotator) -> np.ndarray:
    """(N,) sums of the annotator's log-odds, without a small model."""
    scores = np.zeros(len(annotator.task.items))
    for first, second in pairs:
        odds = annotator.odds(first, second)
        scores[[first, second]] += odds, -odds
    return scores


def row_of(pair: tuple[int, int], annotator: Annotator) -> LabelRow:
    """The answer about a pair as a row of labels."""
    first, second = (annotator.task.items[place] for place in pair)
    odds = annotator.odds(*pair)
    names = (second, first) if odds < 0 else (first, second)
    return ("pair" if odds else "unknown", *names, annotator.name)


def curves(
    kind: str, task: Task, annotator: Annotator, reader: OpenModel
) -> Iterator[tuple[str, int, float]]:
    """(way, calls, τ) of one list."""
    assert task.values is not None
    gold, count = task.values, len(task.items)
    every = list(combinations(range(count), 2))
    if kind != LONG:  # thousands of calls
        yield ALL, 2 * len(every), kendall_tau(order_of(every, annotator), gold)
    session = ask(task.items, task.criterion, kind="pair", model=reader)

    def tau() -> float:
        score = dict(zip(session.items, session.ranking.scores, strict=True))
        return kendall_tau([score[item] for item in task.items], gold)

    for way, order in (("chosen", "both"), ("one order", "random")):
        if kind == LONG and order == "random":
            continue
        session.resume([])
        for before, calls in zip((0, *CALLS), CALLS, strict=False):
            annotate(session, annotator, calls=calls - before, order=order)  # type: ignore[arg-type]
            yield way, calls, tau()
    few = [calls for calls in CALLS if calls <= RANDOM_CALLS[kind]]
    found = []
    for seed in range(DRAWS[kind]):
        drawn = [every[at] for at in np.random.default_rng(seed).permutation(len(every))[: few[-1] // 2]]
        for calls in few:
            some = drawn[: calls // 2]
            session.resume([row_of(pair, annotator) for pair in some])
            found.append((tau(), kendall_tau(order_of(some, annotator), gold)))
    means = np.reshape(found, (DRAWS[kind], len(few), 2)).mean(axis=0)
    for column, way in enumerate(("random", "random alone")):
        yield from ((way, calls, means[at, column]) for at, calls in enumerate(few))
    if kind == LONG:
        return
    ratings = [annotator.rating(place) for place in range(count)]
    yield RATINGS, count, kendall_tau(ratings, gold)


def write_taus(folder: Path, texts: Path, address: str | None, model: str) -> None:
    """Order all lists in all ways."""
    chat = None if address is None else ChatModel.open(address)
    reader, rows = load(model).reader, []
    for kind, task in lists(texts):
        annotator = Annotator(task, folder / "answers.csv", chat)
        for way, calls, tau in curves(kind, task, annotator, reader):
            rows.append((kind, task.id, way, calls, f"{tau:.4f}"))
            print(*rows[-1], flush=True)
        with (folder / "taus.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([("kind", "list", "way", "calls", "tau"), *rows])


def taus_of(rows: Sequence[Row], kind: str, way: str, calls: int | None = None) -> np.ndarray:
    """(lists,) τ; without calls, those of a way that has one number for each list."""
    chosen = [row for row in rows if (row["kind"], row["way"]) == (kind, way)]
    return np.array([float(row["tau"]) for row in chosen if calls is None or int(row["calls"]) == calls])


def cell(taus: np.ndarray, sign: str = "") -> str:
    """A mean over lists with its 95 % interval; empty if there is none."""
    if not len(taus):
        return ""
    found = mean_with_interval(taus, np.random.default_rng(0))
    text = f"{found.mean:{sign}.2f}"
    if isfinite(found.low):
        text += f" [{found.low:{sign}.2f}, {found.high:{sign}.2f}]"
    return text.replace("-", "−")


def table(rows: Sequence[Row]) -> str:
    """Markdown: τ by calls."""
    columns = [(NAMES, way) for way in WAYS] + [(LONG, "chosen"), (LONG, "random")]
    titles = [f"{kind}: {WAYS[way]}" for kind, way in columns]
    lines = [f"| calls | {' | '.join(titles)} |", "|---" * (len(columns) + 1) + "|"]
    for calls in SHOWN:
        cells = [cell(taus_of(rows, *column, calls)) for column in columns]
        lines.append(f"| {calls} | {' | '.join(cells)} |")
    return "\n".join(lines)


def facts(rows: Sequence[Row]) -> dict[str, str]:
    """What the page says beside its table."""
    found = {f"names, {way}": cell(taus_of(rows, NAMES, way)) for way in (ALL, RATINGS)}
    before = taus_of(rows, NAMES, "chosen", 0)
    for way in ("chosen", "one order"):
        found[f"names, {way}, 24 calls less none"] = cell(taus_of(rows, NAMES, way, 24) - before, "+")
    for way, calls in (("chosen", 0), ("chosen", 24), ("one order", 24), (ALL, None), (RATINGS, None)):
        taus = taus_of(rows, TEXT_LISTS, way, calls)
        found[f"texts, {way}, {calls}"] = " and ".join(f"{tau:+.2f}" for tau in taus).replace("-", "−")
    return found


def right_answers(folder: Path) -> dict[str, str]:
    """How often the annotator is right about pairs of names: in one order, in both, and by how sure it is."""
    one, both, sure = [], [], []
    for task in names():
        annotator = Annotator(task, folder / "answers.csv", None)
        assert task.values is not None
        for first, second in combinations(range(len(task.items)), 2):
            sign = np.sign(task.values[first] - task.values[second])
            items = task.items[first], task.items[second]
            for pair, side in ((items, 1), (items[::-1], -1)):
                odds = annotator.choose(wording(task.criterion, *pair), *LETTERS).odds
                one.append(odds is not None and odds * side * sign > 0)
            odds = annotator.odds(first, second)
            both.append(odds * sign > 0)
            sure.append(abs(odds))
    is_sure = np.array(sure) > np.median(sure)
    shares = {
        "in one order": one,
        "in both": both,
        "surer half": np.array(both)[is_sure],
        "less sure half": np.array(both)[~is_sure],
    }
    return {name: f"{100 * np.mean(share):.0f} %" for name, share in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    asking = steps.add_parser("ask")
    asking.add_argument("folder", type=Path)
    asking.add_argument("--annotator", help="openai:URL#NAME, for answers that are not stored")
    asking.add_argument(
        "--texts", type=Path, default=Path(os.environ.get("CCRANK_DATA", "."), "textcriteria")
    )
    asking.add_argument("--model", default="default")
    printing = steps.add_parser("tables")
    printing.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.step == "ask":
        write_taus(given.folder, given.texts, given.annotator, given.model)
    else:
        rows = read_rows(given.folder / "taus.csv")
        said = facts(rows) | right_answers(given.folder)
        print(table(rows), *(f"{name}: {value}" for name, value in said.items()), sep="\n")


if __name__ == "__main__":
    main()
