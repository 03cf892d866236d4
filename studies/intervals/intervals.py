"""Fit the intervals of label-free rankings: how far a score may be off, from how far its signals are apart.

python -m studies.intervals.intervals read choose choose.jsonl FOLDER
python -m studies.intervals.intervals read report report.jsonl FOLDER
python -m studies.intervals.intervals fit choose.jsonl
python -m studies.intervals.intervals report report.jsonl

`read` ranks the lists of one half (`lists.py`) and keeps signals, scores and gold. `fit` chooses what predicts on
left-out criteria and writes `src/ccrank/methods/labelfree/intervals.toml`; `report` prints how many ranks the intervals
hold.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri

import ccrank
from ccrank import Reader, rank_tasks
from ccrank.confidence import Features
from ccrank.methods.labelfree.intervals import ScoreError, list_terms, spread_of, uncertainty_of
from ccrank.methods.labelfree.signals import wordings_of
from ccrank.models import ReadingCache
from ccrank.util.zscores import z_scores
from studies.confidence.confidence import KINDS, Memory
from studies.intervals.lists import lists

SHIPPED = Path(ccrank.__file__).parent / "methods/labelfree/intervals.toml"
PENALTY = 0.1
BOUNDS: dict[str, tuple[float | None, float | None]] = {"spread": (0, None), "agreement": (None, 0)}
"""Signals that are further apart never make an interval narrower."""
SIZES = ((4, 7), (8, 12), (13, 30), (31, 100), (101, 200))


class Both(Memory):
    """Readings in memory, and behind it those on disk."""

    def __init__(self) -> None:
        self.disk = ReadingCache()

    def get(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:  # type: ignore[override]
        keys = list(keys)
        found = super().get(keys)
        more = self.disk.get([key for key in keys if key not in found])
        self.update(more)
        return found | more


def read(half: str, out: Path, texts: Path, sources: list[str] | None = None) -> None:
    """Rank every list alone; one JSON line a list."""
    memory = Both()
    reader = Reader.open("default", cache=memory)
    with out.open("w", encoding="utf-8") as file:
        for source, members in itertools.groupby(lists(half, texts), key=lambda pair: pair[0]):
            if sources and source not in sources:
                continue
            memory.clear()
            for _, task in members:
                [ranking] = rank_tasks([task], reader)
                signals = ranking.details["signals"]
                row = {
                    "id": task.id,
                    "source": source,
                    "criterion": task.criterion.name,
                    "template": wordings_of(task)[0].template,
                    "poles": ranking.confidence.features.poles,
                    "category": task.criterion.category is not None,
                    "agreement": ranking.confidence.features.agreement,
                    "gold": task.values,
                    "scores": [round(float(score), 4) for score in ranking.scores],
                    "signals": {
                        name: [round(by_item[item], 4) for item in task.items]
                        for name, by_item in signals.items()
                    },
                }
                file.write(json.dumps(row) + "\n")
                file.flush()


@dataclass(frozen=True)
class Ranked:
    """A ranked list: what is known of it without gold, its scores, and gold ranks."""

    source: str
    criterion: str
    features: Features
    signals: list[np.ndarray]
    scores: np.ndarray
    gold: np.ndarray
    """(N,) ranks, 1 = highest."""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Ranked:
        scores = np.array(row["scores"])
        kind = KINDS[row["template"]]
        features = Features(len(scores), row["agreement"], 1.0, kind, row["poles"], row["category"])
        signals = [np.array(one) for one in row["signals"].values()]
        gold = np.argsort(np.argsort(-np.array(row["gold"]))) + 1
        return cls(row["source"], row["criterion"], features, signals, scores, gold)

    def held(self, model: Mapping[str, float] | None = None) -> np.ndarray:
        """Whether the interval of each item holds its gold rank, and how many ranks it has. (2, N)"""
        error = ScoreError.fit(self.scores, self.features, model)
        assert error is not None
        found = uncertainty_of(self.scores, error(self.signals))
        inside = (found.rank_low <= self.gold) & (self.gold <= found.rank_high)
        return np.stack([inside, found.rank_high - found.rank_low + 1])


def rows_of(paths: list[Path]) -> list[Ranked]:
    """The lists of files that `read` has written, but for those whose scores or signals are all equal."""
    lines = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [Ranked.of(line) for line in lines]
    return [row for row in rows if np.std(row.scores) > 0 and np.isfinite(row.features.agreement)]


def fit(paths: list[Path]) -> None:
    """Fit the coefficients on all lists and write them; print what they hold on criteria that were left out."""
    rows = rows_of(paths)
    print("left out, by source:")
    held: dict[int, np.ndarray] = {}
    for source in sorted({row.source for row in rows}):
        model = coefficients([row for row in rows if row.source != source])
        held |= {id(row): row.held(model) for row in rows if row.source == source}
    print(table(rows, held))
    model = coefficients(rows)
    lines = [
        "# log deviation of label-free scores; written by studies/intervals/intervals.py.",
        f"# Fitted on {len(rows)} lists of {sum(len(row.gold) for row in rows)} items.",
        "[coefficients]",
        *(f"{name} = {value:.4f}" for name, value in model.items()),
    ]
    SHIPPED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def coefficients(rows: Sequence[Ranked]) -> dict[str, float]:
    """The maximum of the likelihood g_i ~ N(ρ_i s_i, 1 − ρ_i²), ρ_i = 1 / √(1 + d_i²), of gold's normal scores g given
    Z-scores s, where each source and length of list weighs the same."""
    groups = Counter((row.source, size_of(row)) for row in rows)
    terms = [{**list_terms(row.features), "spread": spread_of(row.signals)} for row in rows]
    names = list(terms[0])
    counts = [len(row.gold) for row in rows]
    values = np.stack(
        [
            np.concatenate([np.broadcast_to(one[name], n) for one, n in zip(terms, counts, strict=True)])
            for name in names
        ],
        axis=1,
    )
    weights = np.concatenate(
        [np.full(n, 1 / n / groups[row.source, size_of(row)]) for row, n in zip(rows, counts, strict=True)]
    )
    scores = np.concatenate([z_scores(row.scores) for row in rows])
    gold = np.concatenate([z_scores(ndtri(1 - (row.gold - 0.5) / len(row.gold))) for row in rows])
    inner = np.array([name != "intercept" for name in names])

    def loss(found: np.ndarray) -> float:
        variance = np.exp(2 * np.clip(values @ found, -3, 3))
        share = 1 / (1 + variance)
        rest = variance * share
        likelihood = -0.5 * np.log(rest) - (gold - np.sqrt(share) * scores) ** 2 / (2 * rest)
        return float(
            -(weights @ likelihood) / weights.sum() + PENALTY / len(rows) * np.sum(found[inner] ** 2)
        )

    box = [BOUNDS.get(name, (None, None)) for name in names]
    found = minimize(loss, np.zeros(len(names)), method="L-BFGS-B", bounds=box).x
    return dict(zip(names, map(float, found), strict=True))


def size_of(row: Ranked) -> int:
    """The place in `SIZES` of a list's length."""
    return next(place for place, (_, most) in enumerate(SIZES) if len(row.gold) <= most)


def report(paths: list[Path]) -> None:
    """How many gold ranks the shipped intervals hold."""
    rows = rows_of(paths)
    print(table(rows, {id(row): row.held() for row in rows}))


def table(rows: Sequence[Ranked], held: Mapping[int, np.ndarray]) -> str:
    """The share of gold ranks in the intervals, and their mean width as a share of the list, by length and source."""
    parts = {
        f"{low} to {high} items": [row for row in rows if low <= len(row.gold) <= high] for low, high in SIZES
    }
    parts |= {
        source: [row for row in rows if row.source == source]
        for source in dict.fromkeys(row.source for row in rows)
    }
    lines = ["| lists | lists | ranks held | mean width |", "|---|---|---|---|"]
    for name, members in parts.items():
        if members:
            inside = np.mean([held[id(row)][0].mean() for row in members])
            width = np.mean([held[id(row)][1].mean() / len(row.gold) for row in members])
            lines.append(f"| {name} | {len(members)} | {inside:.1%} | {width:.0%} of the list |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    reading = commands.add_parser("read")
    reading.add_argument("half", choices=("choose", "report"))
    reading.add_argument("out", type=Path)
    reading.add_argument("texts", type=Path)
    reading.add_argument("--sources", nargs="*", help="these alone")
    reading.set_defaults(run=read)
    for name, run in (("fit", fit), ("report", report)):
        command = commands.add_parser(name)
        command.add_argument("paths", type=Path, nargs="+")
        command.set_defaults(run=run)
    options = vars(parser.parse_args())
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
