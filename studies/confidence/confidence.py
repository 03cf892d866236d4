"""Fit the confidence of `auto`: the probability that its order of a list is right (τ > 0.3 with gold).

pip install --no-deps -r studies/label_free/unseen-requirements.txt
python -m studies.confidence.confidence read choose choose.jsonl [--texts FOLDER]
python -m studies.confidence.confidence read report report.jsonl [--texts FOLDER]
python -m studies.confidence.confidence features choose.jsonl
python -m studies.confidence.confidence fit choose.jsonl
python -m studies.confidence.confidence report report.jsonl [--table TABLE.csv]
python -m studies.confidence.confidence report TABLE.csv

`read` ranks the lists of one half (`lists.py`) and keeps signals, scores and gold; it goes on where it was
stopped. `features` tells what each feature adds, and what others would. `fit` chooses the penalty and the thresholds by
cross-validation over criteria and writes `src/ccrank/confidence.toml`. `report` prints how well the shipped
coefficients predict lists that took no part, and writes their features to a table, from which the report can be made
again without a model.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import ccrank
from ccrank import Reader, ReaderOptions, rank_tasks
from ccrank.confidence import GIVEN, RIGHT, Features, confidence_of
from ccrank.criteria.exemplars import WRITTEN
from ccrank.methods.labelfree.combine import Signals
from ccrank.methods.labelfree.signals import wordings_of
from ccrank.metrics.order import kendall_tau, tau_b
from ccrank.ranking import Ranking
from studies.confidence import lists as confidence_lists
from studies.confidence.lists import Listed

SHIPPED = Path(ccrank.__file__).with_name("confidence.toml")
KINDS = {"such-as": "name", "list-of": "text", "that-are": "context"}
"""A task's first wording → the kind of its items."""
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "agreement": (0, None),
    "exemplars": (0, None),
    "no_category": (None, 0),
}
"""Signals that agree better never lower the confidence, nor do exemplars; less said about the items never raises it."""
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FOLDS = 10
DIVISIONS = 4
"""Divisions of the criteria into folds, whose predictions are averaged."""
GROUPS = 24
"""Criteria that are read together: one list of each, so that none is pooled with others of its criterion."""
LOW, HIGH = 0.43, 0.88
"""The shares of right orders that the thresholds are chosen for: a little better than what is promised."""
PROMISED = {"high": 0.85, "low": 0.45}


@dataclass(frozen=True)
class Row:
    """One ranked list: what is known of it without gold, and how right its order is."""

    source: str
    criterion: str
    detail: str
    features: Features
    tau: float
    list: str = ""
    """What it has in common with the same list with another detail."""
    exemplars_agree: float = 0.0
    """τ between exemplars and the other signals, 0 without exemplars."""

    @property
    def right(self) -> bool:
        return self.tau > RIGHT


# ---- reading --------------------------------------------------------------------------------------------


class Memory(dict[bytes, np.ndarray]):
    """Readings in memory: lists that share items share their readings."""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:  # type: ignore[override]
        return {key: self[key] for key in keys if key in self}

    def put(self, entries: dict[bytes, np.ndarray]) -> None:
        self.update(entries)


def mixed(lists: Iterable[Listed]) -> list[list[Listed]]:
    """The lists of each criterion, in random order, so that a part of the work is a sample of the whole."""
    groups: dict[Any, list[Listed]] = {}
    for listed in lists:
        groups.setdefault((listed.source, listed.task.criterion), []).append(listed)
    order = list(groups.values())
    random.Random(0).shuffle(order)
    return order


def read(half: str, out: Path, texts: Path | None, model: str, dtype: str) -> None:
    """Rank every list as if alone; one JSON line a list."""
    done = {json.loads(line)["id"] for line in out.read_text().splitlines()} if out.exists() else set()
    memory = Memory()
    reader = Reader.open(model, ReaderOptions(dtype=dtype), cache=memory)  # type: ignore[arg-type]
    groups = mixed(confidence_lists.lists(half, texts))
    with out.open("a", encoding="utf-8") as file:
        for start in range(0, len(groups), GROUPS):
            memory.clear()
            for listed in zip_longest(*groups[start : start + GROUPS]):
                new = [one for one in listed if one is not None and name_of(one) not in done]
                rankings = rank_tasks([one.task for one in new], reader) if new else []
                for one, ranking in zip(new, rankings, strict=True):
                    file.write(json.dumps(_row_of(one, ranking)) + "\n")
                file.flush()


def name_of(listed: Listed) -> str:
    return f"{listed.source} {listed.task.id} {listed.detail}"


def _row_of(listed: Listed, ranking: Ranking) -> dict[str, Any]:
    task = listed.task
    assert ranking.confidence is not None
    return {
        "id": name_of(listed),
        "source": listed.source,
        "criterion": task.criterion.name,
        "detail": listed.detail,
        "category": task.criterion.category is not None,
        "poles": "fallback" if listed.detail == "unknown" else ranking.confidence.features.poles,
        "template": wordings_of(task)[0].template,
        "gold": task.values,
        "scores": [round(float(score), 4) for score in ranking.scores],
        "signals": {k: [v[item] for item in task.items] for k, v in ranking.details["signals"].items()},
        "bits": round(ranking.confidence.features.bits, 4),
    }


def rows_of(path: Path) -> list[Row]:
    """The lists of a file that `read` or `report` has written."""
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".csv":
            return [_from_table(one) for one in csv.DictReader(file)]
        return [_from_ranking(json.loads(line)) for line in file]


def _from_ranking(one: dict[str, Any]) -> Row:
    signals = Signals({name: np.array(scores) for name, scores in one["signals"].items()})
    agreement, p_value = signals.agreement()
    features = Features(
        len(one["gold"]),
        round(agreement, 4),
        float(f"{p_value:.4g}"),
        KINDS[one["template"]],  # type: ignore[arg-type]
        one["poles"],
        one["category"],
        WRITTEN in signals.scores,
        one["bits"],
    )
    written = signals.scores.get(WRITTEN)
    agree = 0.0 if written is None else tau_b(written, np.mean(signals.others, axis=0))
    tau = round(kendall_tau(one["scores"], one["gold"]), 4)
    name = one["id"].removesuffix(f" {one['detail']}")
    return Row(one["source"], one["criterion"], one["detail"], features, tau, name, agree)


COLUMNS = ("n_items", "agreement", "p_value", "kind", "poles", "category", "exemplars", "bits")


def _from_table(one: dict[str, str]) -> Row:
    features = Features(
        int(one["n_items"]),
        float(one["agreement"]),
        float(one["p_value"]),
        one["kind"],  # type: ignore[arg-type]
        one["poles"],
        one["category"] == "True",
        one["exemplars"] == "True",
        float(one["bits"]),
    )
    return Row(one["source"], one["criterion"], one["detail"], features, float(one["tau"]))


def write_table(rows: Sequence[Row], path: Path) -> None:
    """The features, τ and predicted probability of each list."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "criterion", "detail", *COLUMNS, "tau", "probability", "level"])
        for row in rows:
            found = confidence_of(row.features)
            assert found is not None
            own = [getattr(row.features, name) for name in COLUMNS]
            predicted = [f"{found.probability:.4f}", found.level]
            writer.writerow([row.source, row.criterion, row.detail, *own, row.tau, *predicted])


# ---- fitting --------------------------------------------------------------------------------------------


def table_of(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Features (M, K), whether each list is right (M,), its weight (M,) and its group, the criterion.

    A criterion with m lists has the weight √m: its lists are alike, but not the same.
    """
    values = np.array([list(row.features.values().values()) for row in rows])
    groups = [f"{row.source}: {row.criterion}" for row in rows]
    counts = {group: groups.count(group) for group in set(groups)}
    weights = np.array([counts[group] ** -0.5 for group in groups])
    return values, np.array([row.right for row in rows]), weights / weights.mean(), groups


def logistic(
    values: np.ndarray,
    right: np.ndarray,
    weights: np.ndarray,
    penalty: float,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
) -> np.ndarray:
    """argmin Σ w log(1 + exp(−±(b + cᵀx))) + penalty/2 · Σ (c_k σ_k)², c within bounds: (b, c)."""
    table = np.column_stack([np.ones(len(values)), values])
    ridge = np.array([0.0, *(penalty * values.var(axis=0))])
    signs = np.where(right, 1.0, -1.0)

    def loss(found: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signs * (table @ found)
        slope = -table.T @ (weights * signs * expit(-margins)) + ridge * found
        return float(weights @ np.logaddexp(0, -margins) + ridge @ found**2 / 2), slope

    box = [(None, None), *(bounds or [(None, None)] * values.shape[1])]
    options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8}
    start = np.zeros(table.shape[1])
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=box, options=options).x)


def left_out(
    values: np.ndarray,
    right: np.ndarray,
    weights: np.ndarray,
    groups: Sequence[str],
    penalty: float,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
) -> np.ndarray:
    """(M,) the probability of each list by fits on the criteria of other folds: the mean over `DIVISIONS`."""
    probabilities = np.zeros(len(right))
    for division in range(DIVISIONS):
        names = sorted(set(groups))
        random.Random(division).shuffle(names)
        fold = np.array([names.index(group) % FOLDS for group in groups])
        for number in range(FOLDS):
            seen, new = fold != number, fold == number
            found = logistic(values[seen], right[seen], weights[seen], penalty, bounds)
            probabilities[new] += expit(found[0] + values[new] @ found[1:]) / DIVISIONS
    return probabilities


def bounds_of(rows: Sequence[Row]) -> list[tuple[float | None, float | None]]:
    return [BOUNDS.get(name, (None, None)) for name in rows[0].features.values()]


def best_of(
    values: np.ndarray, right: np.ndarray, weights: np.ndarray, groups: Sequence[str], *bounds: Any
) -> tuple[float, float, np.ndarray]:
    """The lowest log loss on left-out criteria over penalties, its penalty, and the probabilities."""
    found = [(one, left_out(values, right, weights, groups, one, *bounds)) for one in PENALTIES]
    return min(((log_loss(own, right, weights), one, own) for one, own in found), key=itemgetter(0))


CANDIDATES: dict[str, Callable[[Row], float]] = {
    "text": lambda row: row.features.kind == "text",
    "context": lambda row: row.features.kind == "context",
    "poles not given": lambda row: row.features.poles not in GIVEN,
    "poles unknown": lambda row: not row.features.poles_known,
    "careless poles (not known to a model)": lambda row: row.detail == "careless",
    "-log10 p, at most 6": lambda row: min(-math.log10(max(row.features.p_value, 1e-6)), 6),
    "agreement of exemplars": lambda row: row.exemplars_agree,
    "agreement with exemplars": lambda row: row.features.exemplars * row.features.agreement,
    "length beyond 16, to 200": lambda row: math.log(max(row.features.n_items, 16) / 16),
    "length of texts": lambda row: (row.features.kind == "text") * math.log(row.features.n_items / 8),
}
"""Features that the model does not have."""


def features(lists: Path) -> None:
    """What each feature adds on left-out criteria, what others would, and how poles change τ."""
    rows = rows_of(lists)
    values, right, weights, groups = table_of(rows)
    names = list(rows[0].features.values())
    print("| features | log loss | area |\n|---|---|---|")

    def show(name: str, table: np.ndarray) -> None:
        loss, _, probabilities = best_of(table, right, weights, groups)
        print(f"| {name} | {loss:.4f} | {area(probabilities, right):.3f} |")

    show("all", values)
    for place, name in enumerate(names):
        show(f"without {name}", np.delete(values, place, axis=1))
    for name, value in CANDIDATES.items():
        show(f"with {name}", np.column_stack([values, [float(value(row)) for row in rows]]))
    taus = {(row.list, row.detail): row for row in rows}
    for one, other in (("full", "category"), ("careless", "category"), ("category", "name")):
        for known in (True, False):
            both = [
                taus[row.list, one].tau - row.tau
                for row in rows
                if row.detail == other and (row.list, one) in taus and row.features.poles_known == known
            ]
            error = np.std(both) / len(both) ** 0.5
            of = f"{len(both)} lists whose name the lexicon {'knows' if known else 'does not know'}"
            print(f"τ of {one} less τ of {other}: {np.mean(both):+.3f} ± {error:.3f} on {of}")


def log_loss(probabilities: np.ndarray, right: np.ndarray, weights: np.ndarray) -> float:
    return float(-np.average(np.log(np.where(right, probabilities, 1 - probabilities)), weights=weights))


def thresholds(probabilities: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """The highest probability below which at most the share `LOW` of the orders is right, and the lowest above which at
    least `HIGH` is."""
    grid = np.arange(0.3, 0.96, 0.01).round(2)
    below = [one for one in grid if (member := probabilities < one).any() and right[member].mean() <= LOW]
    above = [one for one in grid if (member := probabilities >= one).any() and right[member].mean() >= HIGH]
    if not below or not above:
        raise SystemExit(f"no thresholds leave {LOW:.0%} and {HIGH:.0%} of the orders right")
    return float(max(below)), float(min(above))


def fit(lists: Path, out: Path) -> None:
    """Choose the penalty and the thresholds on left-out criteria, fit on all lists, write the coefficients."""
    rows = rows_of(lists)
    values, right, weights, groups = table_of(rows)
    loss, penalty, probabilities = best_of(values, right, weights, groups, bounds_of(rows))
    low, high = thresholds(probabilities, right)
    found = logistic(values, right, weights, penalty, bounds_of(rows))
    names = rows[0].features.values()
    lines = [
        "# P(τ > 0.3) of a ranking by several signals; written by studies/confidence/confidence.py.",
        f"# Fitted on {len(rows)} lists of {len(set(groups))} criteria, {right.mean():.0%} of them right; "
        f"log loss {loss:.3f} on left-out criteria.",
        f"intercept = {found[0]:.4f}",
        "",
        "[coefficients]",
        *(f"{name} = {one:.4f}" for name, one in zip(names, found[1:], strict=True)),
        "",
        "[thresholds]",
        f"low = {low}",
        f"high = {high}",
    ]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    print(f"penalty {penalty}")
    print(reliability(probabilities, right))


# ---- reporting ------------------------------------------------------------------------------------------


def report(lists: Path, table: Path | None) -> None:
    """How often the order is right, by predicted probability, by level, and by level for each part of the lists."""
    rows = rows_of(lists)
    if table is not None:
        write_table(rows, table)
    found = [confidence_of(row.features) for row in rows]
    probabilities = np.array([one.probability for one in found if one is not None])
    levels = np.array([one.level for one in found if one is not None])
    right = np.array([row.right for row in rows])
    print(reliability(probabilities, right))
    print("\n| lists | low | medium | high |\n|---|---|---|---|")
    parts: dict[str, list[bool]] = {"all": [True] * len(rows)}
    for field in ("source", "detail"):
        for name in dict.fromkeys(getattr(row, field) for row in rows):
            parts[f"{field} {name}"] = [getattr(row, field) == name for row in rows]
    for name in ("name", "text", "context"):
        parts[f"kind {name}"] = [row.features.kind == name for row in rows]
    for known in (True, False):
        parts[f"exemplars {known}"] = [row.features.exemplars == known for row in rows]
        parts[f"language known {known}"] = [row.features.language_known == known for row in rows]
    for least, most in ((4, 7), (8, 12), (13, 30), (31, 200)):
        parts[f"{least} to {most} items"] = [least <= row.features.n_items <= most for row in rows]
    for name, member in parts.items():
        cells = [share(right[np.array(member) & (levels == level)]) for level in ("low", "medium", "high")]
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nlog loss {log_loss(probabilities, right, np.ones(len(right))):.3f}", end=", ")
    print(
        f"of the base rate {log_loss(np.full(len(right), right.mean()), right, np.ones(len(right))):.3f}; ",
        end="",
    )
    print(f"area under the ROC curve {area(probabilities, right):.3f}")
    print(f"marked medium: {np.mean(levels == 'medium'):.1%}")
    for level, promised in PROMISED.items():
        observed = right[levels == level].mean()
        kept = observed >= promised if level == "high" else observed <= promised
        low, high = interval(rows, levels == level)
        print(
            f"{level}: {observed:.1%} right (95 % interval over criteria {low:.0%} to {high:.0%}), "
            f"promised {promised:.0%}: {'kept' if kept else 'NOT KEPT'}"
        )


def interval(rows: Sequence[Row], member: np.ndarray) -> tuple[float, float]:
    """95 % of the shares of right orders among the members, criteria drawn with replacement."""
    groups: dict[tuple[str, str], list[bool]] = {}
    for row, own in zip(rows, member, strict=True):
        if own:
            groups.setdefault((row.source, row.criterion), []).append(row.right)
    counts = np.array([[sum(right), len(right)] for right in groups.values()])
    drawn = np.random.default_rng(0).integers(len(counts), size=(2000, len(counts)))
    right, total = counts[drawn].sum(axis=1).T
    low, high = np.quantile(right / total, [0.025, 0.975])
    return float(low), float(high)


def reliability(probabilities: np.ndarray, right: np.ndarray) -> str:
    """Bins of predicted probability: mean prediction, observed share of right orders, number of lists."""
    lines = ["| predicted | mean | right | lists |", "|---|---|---|---|"]
    edges = np.arange(0, 1.01, 0.1)
    for low, high in itertools.pairwise(edges):
        member = (probabilities >= low) & (probabilities < high)
        if member.any():
            lines.append(
                f"| {low:.1f} to {high:.1f} | {probabilities[member].mean():.2f} | {right[member].mean():.2f} "
                f"| {member.sum()} |"
            )
    return "\n".join(lines)


def share(right: np.ndarray) -> str:
    return f"{right.mean():.0%} of {len(right)}" if len(right) else "none"


def area(probabilities: np.ndarray, right: np.ndarray) -> float:
    """P(a right order has a higher probability than a wrong one)."""
    gaps = probabilities[right][:, None] - probabilities[~right][None, :]
    return float(np.mean((gaps > 0) + 0.5 * (gaps == 0)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    reading = commands.add_parser("read")
    reading.add_argument("half", choices=confidence_lists.HALVES)
    reading.add_argument("out", type=Path)
    reading.add_argument("--texts", type=Path, help="the folder of the task files with ratings of texts")
    reading.add_argument("--model", default="default")
    reading.add_argument("--dtype", default="auto")
    reading.set_defaults(run=read)
    trying = commands.add_parser("features")
    trying.add_argument("lists", type=Path)
    trying.set_defaults(run=features)
    fitting = commands.add_parser("fit")
    fitting.add_argument("lists", type=Path)
    fitting.add_argument("--out", type=Path, default=SHIPPED)
    fitting.set_defaults(run=fit)
    reporting = commands.add_parser("report")
    reporting.add_argument("lists", type=Path)
    reporting.add_argument("--table", type=Path)
    reporting.set_defaults(run=report)
    options = vars(parser.parse_args())
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
