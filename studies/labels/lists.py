"""The long lists of `labels.py`: whole datasets of one criterion, pooled, read once and kept as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ccrank.methods.labelfree.anchored import smoothed
from ccrank.models.prompter import Prompter
from ccrank.util.zscores import z_scores

TEXTS = {
    "choose": ("convincing", "difficulty", "headline-positive", "politeness"),
    "report": ("formality", "joke-funny", "offensive", "tweet-joy"),
}
MOST_ITEMS, FEWER_ITEMS = 250, 150
"""A longer dataset is cut to the latter."""


@dataclass(frozen=True)
class LongList:
    """One long list, read."""

    name: str
    values: np.ndarray
    """(N,) gold."""
    auto: np.ndarray
    """(N,) the label-free score."""
    signals: np.ndarray
    """(R, N)"""
    written: bool
    """Whether exemplars are one of them."""
    slot: np.ndarray
    """(N, L, d)"""
    item: np.ndarray
    """(N, L, d)"""
    sentence: np.ndarray
    """(N, d') sentence embeddings."""


def read(folder: Path, half: str, device: str, model: str, exemplars: bool = True) -> None:
    """Signals and states of every list of a half that is not in the folder yet."""
    from ccrank import Reader, ReaderOptions, Task
    from ccrank.criteria.exemplars import WRITTEN
    from ccrank.methods.labelfree.signals import read_signals

    options = ReaderOptions(device=device, dtype="float32")
    reader = Reader.open(model, options)
    folder.mkdir(parents=True, exist_ok=True)
    for name, criterion, gold in pooled_lists(half):
        path = folder / f"{name}.npz"
        if path.exists():
            continue
        task = Task(criterion, tuple(gold), id=name)
        [raw], _ = read_signals([task], Prompter(reader), with_states=True, written=exemplars)
        item, slot = raw.states or ()
        signals = raw.signals
        np.savez(
            path,
            values=np.array([*gold.values()]),
            auto=smoothed(item, signals.total()),
            signals=np.stack([*signals.scores.values()]),
            written=np.array(WRITTEN in signals.scores),
            slot=slot.astype(np.float16),
            item=item.astype(np.float16),
        )
        print(f"{name}: {len(gold)} items", flush=True)


def pooled_lists(half: str) -> Iterator[tuple[str, object, dict[str, float]]]:
    """(name, criterion, item → value) of each dataset, its items in the order of their texts."""
    from ccrank import load_dataset
    from ccrank.io.taskfiles import read_tasks
    from ccrank.task import normal_form

    files = [
        (name, read_tasks(Path(os.environ["CCRANK_DATA"], "textcriteria") / f"{name}.jsonl"))
        for name in TEXTS[half]
    ]
    if half == "choose":
        files += [(name, load_dataset(name)) for name in ("reviews", "scalaradj")]
    for name, tasks in files:
        values: dict[str, tuple[str, float]] = {}
        for task in tasks:
            for item, value in zip(task.items, task.values or (), strict=True):
                values.setdefault(normal_form(item), (item, float(value)))
        rows = sorted(values.values())
        if len(rows) > MOST_ITEMS:
            kept = np.random.default_rng(0).permutation(len(rows))[:FEWER_ITEMS]
            rows = [rows[place] for place in sorted(kept)]
        yield name, tasks[0].criterion, dict(rows)


def embed(folder: Path, half: str, encoder: str) -> None:
    """Mean over tokens of the last layer's states, as sentence-transformers has it: (N, d') for each list."""
    import torch

    from ccrank import Reader

    loaded = Reader.open(encoder).loaded
    model = getattr(loaded.model, "base_model", loaded.model)
    for name, _, gold in pooled_lists(half):
        rows = []
        with torch.no_grad():
            for text in gold:
                tokens = loaded.tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
                rows.append(model(**tokens).last_hidden_state[0].mean(0).float().numpy())
        np.save(folder / f"{name}-sentence.npy", np.stack(rows))
        print(f"{name}: {len(rows)} items", flush=True)


def load(folder: Path, half: str) -> list[LongList]:
    """The lists of a half that were read; in `choose` all others that are in the folder too."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        name = path.stem
        if (name in TEXTS["report"]) != (half == "report"):
            continue
        arrays = np.load(path)
        sentence = folder / f"{name}-sentence.npy"
        found.append(
            LongList(
                name,
                arrays["values"],
                z_scores(arrays["auto"].astype(float)),
                arrays["signals"],
                bool(arrays["written"]),
                arrays["slot"].astype(np.float32),
                arrays["item"].astype(np.float32),
                np.load(sentence) if sentence.exists() else np.zeros((len(arrays["values"]), 0)),
            )
        )
    return found
