"""The effect of the wording: signed τ of single wordings of `poles` and `likelihood`, on lists without context.

python -m studies.label_free.wordings [--datasets everyday,wikilists,lists.jsonl] [--limit N] [--device DEVICE]

A dataset whose tasks have halves (`everyday`, or the file that `unseen.py` writes) gets a column for each half. To try
another wording, add a line to POLES or LIKELIHOOD.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from ccrank import Reader, ReaderOptions, Task, load_dataset
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.labelfree.rankers import likelihood, poles
from ccrank.metrics.order import kendall_tau
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates

COMPARED = "Compared to other {categories} in terms of {name}, {item} is"
POLES = (
    "The {name} of {item} is",
    "{item} is very",
    "In terms of {name}, {item} is very",
    "When it comes to {name}, {item} is very",
    "Compared to other {categories}, {item} is very",
    "For a {category}, {item} is very",
    "Some {categories} are very {low} and some are very {high}. {item} is very",
    COMPARED,
    f"{COMPARED} quite",
    f"{COMPARED} very",
    f"{COMPARED} extremely",
    f"{COMPARED} considered very",
    f"{COMPARED} considered extremely",
    "Compared to other {categories}, the {name} of {item} is considered extremely",
    "In terms of {name}, {categories} such as {item} are considered extremely",
)
LIKELIHOOD = (
    "This is a very {pole} {category}:",
    "Question: Name a very {pole} {category}.\\nAnswer:",
    "Examples of very {pole} {categories} are",
    "Here is a list of very {pole} {categories}:",
    "Here is a list of {categories} that are very {pole}:",
    "Here is a list of {categories} with a very {pole} {name}:",
    "There are many very {pole} {categories}, such as",
    "When it comes to {name}, there are many very {pole} {categories}, such as",
    "In terms of {name}, there are many very {pole} {categories}, such as",
    "In terms of {name}, there are many {categories} considered very {pole}, such as",
    "In terms of {name}, a very {pole} {category} is",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", default="everyday,worldlists,wikilists,scalaradj,reviews")
    parser.add_argument("--model", default="default")
    parser.add_argument("--limit", type=int, default=None, help="tasks per column; all without it")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    sets = {
        name: part[: options.limit]
        for given in options.datasets.split(",")
        for name, part in columns(given).items()
    }
    reader = Reader.open(options.model, ReaderOptions(dtype="float32", device=options.device))
    print(f"| signed τ, chance 0 | {' | '.join(f'{name} ({len(part)})' for name, part in sets.items())} |")
    print("|---" * (len(sets) + 1) + "|")
    for method, name, wordings in ((poles, "poles", POLES), (likelihood, "list-of", LIKELIHOOD)):
        for wording in wordings:
            changed = wording.replace("\\n", "\n")
            templates = load_templates(changes=[f"{name}={changed} {{slot}}"])
            cells = [
                np.mean(
                    [
                        kendall_tau(answer.scores, task.values)
                        for answer, task in zip(
                            method(part, Prompter(reader, templates), template=name), part, strict=True
                        )
                    ]
                )
                for part in sets.values()
            ]
            print(f"| {wording} … | {' | '.join(f'{cell:+.3f}' for cell in cells)} |", flush=True)


def columns(name: str) -> dict[str, Sequence[Task]]:
    """A dataset or a task file, as its halves where it has them."""
    tasks = list(read_tasks(name) if name.endswith(".jsonl") else load_dataset(name))
    halves = dict.fromkeys(task.about.get("half", "") for task in tasks)
    return {
        f"{name.rpartition('/')[2].removesuffix('.jsonl')} {half}".strip(): [
            task for task in tasks if task.about.get("half", "") == half
        ]
        for half in halves
    }


if __name__ == "__main__":
    main()
