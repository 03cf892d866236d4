"""A larger chat model answers the questions of a smaller model's session: τ by the number of calls.

    /tmp/llamacpp/bin/python benchmarks/llamacpp_server.py large.gguf --port 8080 --context 4096 &
    python -m studies.annotator.annotator ask openai:http://127.0.0.1:8080/v1 lists.jsonl --out answers.json
    python -m studies.annotator.annotator curve answers.json lists.jsonl [--model default]
    python -m studies.annotator.annotator lists lists.jsonl [--texts FOLDER]

`lists` writes the lists: every eighth of `everyday` report, and the first of each file of texts to report on. `ask`
puts every pair of a list to the annotator in both orders and asks for a rating of each item, once; answers are stored
list by list, and a second run goes on. `curve` replays them: the pairs that the session asks for, pairs at random, and
without the small model all pairs (the sum of an item's log-odds) and the ratings (the expected digit from 1 to 9).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import permutations
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from ccrank import Task, load_dataset
from ccrank.api import load
from ccrank.api.asking import ask
from ccrank.io.taskfiles import read_tasks, write_tasks
from ccrank.labels import LabelRow
from ccrank.methods.labelled.annotate import LETTERS, annotate, wording
from ccrank.methods.labelled.session import Session
from ccrank.metrics.order import kendall_tau
from ccrank.metrics.tasks import mean_with_interval
from ccrank.models.remote import OpenModel
from ccrank.models.remote.chat import ChatModel, Choice
from ccrank.models.remote.completions import choices, positions
from ccrank.util.files import write_atomically
from studies.confidence.lists import TEXTS

EVERY = 8
CALLS = (0, 8, 16, 24, 32, 48, 64)
DRAWS = 5
"""Draws of random pairs."""
Answers = dict[str, dict[str, Any]]
"""List → pairs: question → log-odds of the first item; ratings: item → number; tokens."""


def write_lists(path: Path, texts: Path | None) -> None:
    """Lists that no choice was made on."""
    tasks = load_dataset("everyday", half="report")[::EVERY]
    if texts is not None:
        tasks += [read_tasks(texts / f"{name}.jsonl")[0] for name in TEXTS["report"]]
    write_tasks(tasks, path)


def ask_all(address: str, tasks: Sequence[Task], path: Path) -> None:
    """Store the annotator's answers about every list that has none."""
    chat = ChatModel.open(address)
    known: Answers = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for task in tasks:
        if task.id in known:
            continue
        pairs, used = {}, 0
        for pair in permutations(task.items, 2):
            question = wording(task.criterion, *pair)
            found = chat.choose(question, *LETTERS)
            pairs[question], used = found.odds, used + found.tokens
        ratings = {item: rating(chat, task, item) for item in task.items}
        known[task.id] = {"pairs": pairs, "ratings": ratings, "tokens": used, "annotator": chat.model}
        write_atomically(path, json.dumps(known, indent=1).encode())
        print(f"{task.id}: {len(pairs)} pairs, {used:,} tokens", flush=True)


def rating(chat: ChatModel, task: Task, item: str) -> float | None:
    """The expected digit of an item from 1 to 9; None if the answer has none."""
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


class Replayed:
    """A chat model that gives stored answers."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.name, self.client, self._odds = "replayed", self, answers["pairs"]

    def each(self, send: Callable[[str], Choice], texts: Sequence[str]) -> list[tuple[int, Choice]]:
        """As the client of a server."""
        return [(place, send(text)) for place, text in enumerate(texts)]

    def choose(self, question: str, first: str, second: str) -> Choice:
        """The stored answer."""
        return Choice(self._odds[question], 0)


def score_pairs(task: Task, answers: dict[str, Any]) -> np.ndarray:
    """(N,) sums of the annotator's log-odds over both orders of all pairs, without a small model."""
    place = {item: at for at, item in enumerate(task.items)}
    scores = np.zeros(len(task.items))
    for first, second in permutations(task.items, 2):
        odds = answers["pairs"][wording(task.criterion, first, second)]
        sign = 0.0 if odds is None else float(np.clip(odds, -20, 20))
        scores[[place[first], place[second]]] += sign, -sign
    return scores


def random_rows(task: Task, answers: dict[str, Any], pairs: int, rng: np.random.Generator) -> list[LabelRow]:
    """Rows of labels: pairs at random, each in both orders."""
    every = [(a, b) for at, a in enumerate(task.items) for b in task.items[at + 1 :]]
    rows: list[LabelRow] = []
    for place in rng.permutation(len(every))[:pairs]:
        pair = every[place]
        odds = [answers["pairs"][wording(task.criterion, *one)] for one in (pair, pair[::-1])]
        if None not in odds and odds[0] != odds[1]:
            rows.append(("pair", *(pair if odds[0] > odds[1] else pair[::-1])))
    return rows


def curves(tasks: Sequence[Task], answers: Answers, reader: OpenModel) -> dict[str, np.ndarray]:
    """(lists, CALLS) τ of the session's and of random pairs, and (lists, 1) of the annotator alone."""
    found: dict[str, list[list[float]]] = {
        "session": [],
        "random": [],
        "all pairs alone": [],
        "ratings alone": [],
    }
    for task in tasks:
        own = answers[task.id]
        session = ask(task.items, task.criterion, kind="pair", model=reader)

        def tau(session: Session = session, task: Task = task) -> float:
            score = dict(zip(session.items, session.ranking.scores, strict=True))
            return tau_of([score[item] for item in task.items], task)

        taus, chat, asked = [tau()], Replayed(own), 0
        for calls in CALLS[1:]:
            annotate(session, chat, calls=calls - asked)  # type: ignore[arg-type]
            asked = calls
            taus.append(tau())
        found["session"].append(taus)
        drawn = []
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            rows = random_rows(task, own, max(CALLS) // 2, rng)
            drawn.append([])
            for calls in CALLS:
                session.resume(rows[: calls // 2])
                drawn[-1].append(tau())
        found["random"].append(np.mean(drawn, axis=0).tolist())
        found["all pairs alone"].append([tau_of(score_pairs(task, own), task)])
        ratings = [own["ratings"][item] for item in task.items]
        found["ratings alone"].append([tau_of([5.0 if one is None else one for one in ratings], task)])
        print(f"{task.id}: {taus[0]:+.2f} → {taus[-1]:+.2f}", flush=True)
    return {name: np.array(rows) for name, rows in found.items()}


def tau_of(scores: Any, task: Task) -> float:
    """τ with the gold of a task."""
    assert task.values is not None
    return kendall_tau(np.asarray(scores, float), task.values)


def table(found: dict[str, np.ndarray], tasks: Sequence[Task]) -> str:
    """Markdown: τ by calls, with intervals over lists."""
    rng = np.random.default_rng(0)

    def cell(taus: np.ndarray) -> str:
        one = mean_with_interval(taus, rng)
        return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"

    lines = ["| calls | the session's pairs | random pairs |", "|---|---|---|"]
    for at, calls in enumerate(CALLS):
        lines.append(f"| {calls} | {cell(found['session'][:, at])} | {cell(found['random'][:, at])} |")
    pairs = np.mean([len(task.items) * (len(task.items) - 1) for task in tasks])
    items = np.mean([len(task.items) for task in tasks])
    lines += [
        f"| the annotator alone, all pairs: {pairs:.0f} | {cell(found['all pairs alone'][:, 0])} | |",
        f"| the annotator alone, ratings: {items:.0f} | {cell(found['ratings alone'][:, 0])} | |",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    lists = steps.add_parser("lists")
    lists.add_argument("out", type=Path)
    lists.add_argument("--texts", type=Path, default=None)
    asking = steps.add_parser("ask")
    asking.add_argument("address")
    asking.add_argument("lists", type=Path)
    asking.add_argument("--out", type=Path, required=True)
    drawing = steps.add_parser("curve")
    drawing.add_argument("answers", type=Path)
    drawing.add_argument("lists", type=Path)
    drawing.add_argument("--model", default="default")
    given = parser.parse_args()
    if given.step == "lists":
        write_lists(given.out, given.texts)
    elif given.step == "ask":
        ask_all(given.address, read_tasks(given.lists), given.out)
    else:
        answers: Answers = json.loads(given.answers.read_text(encoding="utf-8"))
        tasks = [task for task in read_tasks(given.lists) if task.id in answers]
        print(table(curves(tasks, answers, load(given.model).reader), tasks))


if __name__ == "__main__":
    main()
