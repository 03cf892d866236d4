"""A study as `ccrank bench` leaves it, made of random scores whose agreement with gold is set by method and dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccrank.metrics.order import evaluate
from ccrank.task import Criterion, Task

DATASETS = {  # kind, smallest and largest number of items
    "synth-facts": ("facts", 6, 6),
    "scalar-adj": ("facts", 4, 6),
    "wiki-lists": ("facts", 6, 10),
    "synth-context": ("context", 6, 6),
    "reviews": ("context", 5, 5),
    "ent-salience": ("context", 4, 10),
}
METHODS = {  # family, directed, how strongly scores follow gold, tokens per item
    "prompt-pair": ("prompting", True, 0.9, 160),
    "prompt-point": ("prompting", True, 0.5, 22),
    "prompt-list": ("prompting", True, 0.3, 70),
    "ccs-pair": ("probing", False, 0.7, 300),
    "ccs": ("probing", False, 0.5, 21),
    "margin": ("probing", False, 0.4, 21),
    "triplet": ("probing", False, 0.8, 21),
    "ordreg": ("probing", False, 0.45, 21),
    "sup-ccs": ("supervised", True, 3.0, 21),
    "sup-margin": ("supervised", True, 3.2, 21),
    "sup-triplet": ("supervised", True, 3.5, 21),
    "sup-ordreg": ("supervised", True, 2.5, 21),
    "random": ("baseline", False, 0.0, 21),
    "pca": ("baseline", False, 0.6, 21),
    "length": ("baseline", False, 0.1, 0),
}
NO_PAIRS = dict.fromkeys(("pair_accuracy", "free_pair_accuracy", "chance_free_pair_accuracy"), float("nan"))
"""The columns of single pairwise answers, of a method that has none."""
WORDS = [
    "amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper", "kelp", "lagoon",
    "meadow", "nickel", "opal",
]  # fmt: skip


def make_tasks(rng: np.random.Generator, per_dataset: int | dict[str, int] = 4) -> list[Task]:
    """Tasks of the six datasets, gold drawn at random."""
    tasks = []
    for dataset, (kind, low, high) in DATASETS.items():
        count = per_dataset if isinstance(per_dataset, int) else per_dataset[dataset]
        for number in range(count):
            n_items = int(rng.integers(low, high + 1))
            names = rng.choice(WORDS, size=n_items, replace=False)
            context = (
                f"Of the {n_items} we know: " + "they differ a lot. " * 20 if kind == "context" else None
            )
            tasks.append(
                Task(
                    Criterion("size", category="thing"),
                    tuple(f"{name} {number}" for name in names),
                    context,
                    tuple(float(value) for value in rng.permutation(n_items)),
                    f"{dataset}-{number}",
                    {"dataset": dataset},
                )
            )
    return tasks


def make_results(
    rng: np.random.Generator,
    tasks: list[Task],
    models: tuple[str, ...] = ("tiny-lm-135M", "small-lm-1B"),
    seeds: int = 5,
    layers: tuple[int, ...] = (4, 12, 20, 29),
    across: bool = True,
) -> pd.DataFrame:
    """One row per run and task; probes also by layer (first seed only) and across tasks."""
    rows: list[dict[str, Any]] = []
    for model_place, model in enumerate(models):
        for method, (family, directed, strength, tokens) in METHODS.items():
            probe = family in ("probing", "supervised") or method in ("random", "pca")
            main_split = "same-task" if family in ("probing", "supervised") else "none"
            runs = [(layers[-1] if probe else -1, seed, main_split) for seed in range(seeds)]
            if probe:
                runs += [(layer, 0, main_split) for layer in layers[:-1]]
            if probe and across:
                runs += [(layers[-1], seed, "across-tasks") for seed in range(seeds)]
            for layer, seed, split in runs:
                follow = strength * (1 + 0.4 * model_place) * (0.4 if split == "across-tasks" else 1.0)
                follow *= 1.0 if layer in (-1, layers[-1]) else 0.4 + layer / 40
                rows += [
                    _row(rng, task, model, method, layer, seed, split, follow, directed, family, tokens)
                    for task in tasks
                ]
    return pd.DataFrame(rows)


def _row(
    rng: np.random.Generator,
    task: Task,
    model: str,
    method: str,
    layer: int,
    seed: int,
    split: str,
    follow: float,
    directed: bool,
    family: str,
    tokens: int,
) -> dict[str, Any]:
    dataset = str(task.about["dataset"])
    kind = DATASETS[dataset][0] if dataset in DATASETS else "other"
    gold = np.asarray(task.values)
    scores = follow * (gold - gold.mean()) / gold.std() + rng.standard_normal(len(gold))
    if not directed and rng.random() < 0.5:
        scores = -scores
    one = evaluate(scores, gold)
    consistent = family in ("prompting", "probing")
    return {
        "dataset": dataset,
        "task": task.id,
        "n_items": len(gold),
        "model": model,
        "method": method,
        "layer": layer,
        "seed": seed,
        "split": split,
        "fold": -1,
        "tau": one.tau,
        "abs_tau": one.abs_tau,
        "accuracy": one.accuracy,
        "free_accuracy": one.free_accuracy,
        "chance_abs_tau": one.chance_abs_tau,
        "chance_free_accuracy": one.chance_free_accuracy,
        **NO_PAIRS,
        "consistency": float(np.clip(0.5 + 0.4 * one.abs_tau + 0.1 * rng.standard_normal(), 0, 1))
        if consistent
        else float("nan"),
        "distinct_tokens": tokens * len(gold),
        "seconds": 0.001 * tokens,
        "directed": directed,
        "kind": kind,
        "family": family,
        "scores": [float(score) for score in scores],
    }


def write_study(folder: Path, results: pd.DataFrame, tasks: list[Task]) -> Path:
    """The files of a study folder, with one failure."""
    folder.mkdir(parents=True, exist_ok=True)
    results.to_parquet(folder / "results.parquet")
    lines = (json.dumps(task.to_json(), ensure_ascii=False) for task in tasks)
    (folder / "tasks.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "config.toml").write_text('models = ["tiny-lm-135M"]\nseeds = 5\n', encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps({"python": "3.11", "packages": {"torch": "2.13"}}))
    failure = {
        "model": "tiny-lm-135M",
        "dataset": "reviews",
        "task": "reviews-0",
        "method": "prompt-list",
        "error": "too long",
    }
    (folder / "failures.jsonl").write_text(json.dumps(failure) + "\n")
    return folder
