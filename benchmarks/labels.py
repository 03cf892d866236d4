"""What a few labels are worth: learning curves on long lists, for `auto` with labels and for its rivals.

python benchmarks/labels.py read ARRAYS --half choose        # needs the models; one .npz for each list
python benchmarks/labels.py embed ARRAYS --half choose       # sentence embeddings, for a rival
python benchmarks/labels.py curves ARRAYS --half choose      # needs the arrays alone

The lists are whole datasets of one criterion, pooled: the text criteria of $CCRANK_DATA/textcriteria (half `choose` or
`report`), and in the half `choose` reviews by sentiment and adjectives by intensity. k items are drawn and labelled
with their gold values; τ is that of the other items.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression, RidgeCV

from ccrank.labelfree.anchored import smoothed
from ccrank.labelled.fit import Fitted, fit_products, rank_intervals
from ccrank.labelled.kernel import Kernel
from ccrank.labelled.observations import normal_scores, observe
from ccrank.labelled.questions import FIRST_GRADES, next_question, representative
from ccrank.labelled.settings import grid
from ccrank.metrics import tau_b
from ccrank.standardise import z_scores

TEXTS = {
    "choose": ("convincing", "difficulty", "headline-positive", "politeness"),
    "report": ("formality", "joke-funny", "offensive", "tweet-joy"),
}
MOST_ITEMS, FEWER_ITEMS = 250, 150
"""A longer dataset is cut to the latter."""
COUNTS = (0, 2, 5, 10, 20, 40, 80)


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


# ---- reading --------------------------------------------------------------------------------------------


def read(folder: Path, half: str, device: str, model: str, exemplars: bool = True) -> None:
    """Signals and states of every list of a half that is not in the folder yet."""
    from ccrank import Reader, ReaderOptions, Task
    from ccrank.exemplars import WRITTEN
    from ccrank.labelfree.combine import read_signals
    from ccrank.prompts import load_templates

    options = ReaderOptions(device=device, dtype="float32")
    reader = Reader.open(model, options)
    folder.mkdir(parents=True, exist_ok=True)
    for name, criterion, gold in pooled_lists(half):
        path = folder / f"{name}.npz"
        if path.exists():
            continue
        task = Task(criterion, tuple(gold), id=name)
        found = read_signals([task], reader, load_templates(), with_states=True, written=exemplars)
        slot, item = found.states[0]
        signals = found.signals[0]
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
    from ccrank.task import normal_form
    from ccrank.taskfiles import read_tasks

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


# ---- rivals and curves ----------------------------------------------------------------------------------


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


@dataclass
class Case:
    """One list, ready for fits: products of its states are computed once."""

    read: LongList

    def __post_init__(self) -> None:
        count = len(self.read.values)
        kernel = Kernel([(self.read.slot, self.read.item)])
        self.products = kernel.products(np.arange(count), 256, np.random.default_rng(0))
        self.gram = self.products.kernels.mean(axis=0).astype(float)
        self.sentence = z_scores(self.read.sentence.astype(float), axis=0)

    def fit(self, items: np.ndarray) -> Fitted:
        """The model on the gold values of some items."""
        items = np.sort(items)
        seen = observe([(int(item), float(self.read.values[item])) for item in items])
        return fit_products(self.read.auto, self.products.at(items), seen, grid(self.read.written))


def states_ridge(case: Case, items: np.ndarray) -> np.ndarray:
    """Plain ridge from all states to the labels' normal scores; the penalty is that of Z-scored states."""
    target = normal_scores(case.read.values[items])
    inner = case.gram[np.ix_(items, items)] + np.eye(len(items))
    return np.asarray(case.gram[:, items] @ np.linalg.solve(inner, target))


def sentence_ridge(case: Case, items: np.ndarray) -> np.ndarray:
    """Ridge on sentence embeddings, the penalty by leave-one-out: what one would do without ccrank."""
    if not case.sentence.size:
        return np.full(len(case.sentence), np.nan)
    target = normal_scores(case.read.values[items])
    found = RidgeCV(alphas=np.logspace(0, 5, 11)).fit(case.sentence[items], target)
    return np.asarray(found.predict(case.sentence))


def sentence_logistic(case: Case, items: np.ndarray) -> np.ndarray:
    """Logistic regression on sentence embeddings: the labels above their median against the rest."""
    values = case.read.values[items]
    high = values > np.median(values)
    if not case.sentence.size or high.all() or not high.any():
        return np.full(len(case.sentence), np.nan)
    found = LogisticRegression(C=0.01, max_iter=1000).fit(case.sentence[items], high)
    return np.asarray(found.decision_function(case.sentence))


def reweighted(case: Case, items: np.ndarray) -> np.ndarray:
    """What `auto` did with labels before: logistic regression of the signals' weights on the labelled pairs, shrunk
    towards equal weights, u = argmin T · mean log(1 + exp(−Δs/σ)) + 0.75 · mean (u − 1)²; then smoothing."""
    signals, values = case.read.signals, case.read.values
    pairs = [(high, low) for high in items for low in items if values[high] > values[low]]
    if not pairs:
        return case.read.auto
    high, low = np.array(pairs).T
    count = len(signals)
    differences = (signals[:, high] - signals[:, low]).T / count
    differences /= max(
        float(signals.mean(axis=0).std()), float(np.sqrt(np.mean(differences.sum(axis=1) ** 2) / 2)), 1e-9
    )

    def loss(factors: np.ndarray) -> tuple[float, np.ndarray]:
        margins = differences @ factors
        value = (len(items) - 1) * np.logaddexp(0, -margins).mean() + 0.75 * ((factors - 1) ** 2).mean()
        slope = -(len(items) - 1) * (expit(-margins) @ differences) / len(pairs) + 1.5 * (factors - 1) / count
        return float(value), slope

    factors = minimize(loss, np.ones(count), jac=True, method="BFGS", options={"gtol": 1e-6}).x
    return smoothed(case.read.item, factors @ signals / count)


OURS = "labels (this model)"
RIVALS: dict[str, Callable[[Case, np.ndarray], np.ndarray]] = {
    "ridge on states": states_ridge,
    "reweighted signals (before)": reweighted,
    "ridge on sentence embeddings": sentence_ridge,
    "logistic on sentence embeddings": sentence_logistic,
}

METHODS = (OURS, *RIVALS)


def curves(folder: Path, half: str, draws: int, asked_draws: int) -> None:
    """Print the mean τ over lists of every method at every number of labels."""
    cases = [Case(one) for one in load(folder, half)]
    rng = np.random.default_rng(0)
    table: dict[tuple[str, int, str], float] = {}
    held: dict[tuple[int, str], list[float]] = {}
    for case in cases:
        values, count = case.read.values, len(case.read.values)
        for labels in COUNTS:
            if labels > 0.6 * count:
                continue
            rows: dict[str, list[float]] = {}
            for draw in range(draws):
                items = np.sort(np.random.default_rng([draw, labels]).permutation(count)[:labels])
                rest = np.setdiff1d(np.arange(count), items)
                rows.setdefault("auto", []).append(tau_b(case.read.auto[rest], values[rest]))
                if not labels:
                    continue
                fitted = case.fit(items)
                rows.setdefault(OURS, []).append(tau_b(fitted.mean[rest], values[rest]))
                inside = coverage(fitted, values, rng)[rest]
                held.setdefault((labels, case.read.name), []).append(float(inside.mean()))
                for name, method in RIVALS.items():
                    rows.setdefault(name, []).append(tau(method(case, items)[rest], values[rest]))
            table |= {(name, labels, case.read.name): float(np.nanmean(taus)) for name, taus in rows.items()}
    names = [case.read.name for case in cases]
    print(
        f"{len(cases)} lists: {', '.join(names)}; {draws} draws of labels; mean τ of the other items, chance 0"
    )
    print(
        "| labels | "
        + " | ".join(["lists", "auto", *METHODS, "gain over auto", "80 % intervals hold"])
        + " |"
    )
    print("|---" * (5 + len(METHODS)) + "|")
    for labels in COUNTS:
        own = [name for name in names if ("auto", labels, name) in table]
        if not own:
            continue
        cells = [f"{np.mean([table['auto', labels, name] for name in own]):.3f}"]
        gain = cover = ""
        if labels:
            cells += [
                f"{np.nanmean([table[method, labels, name] for name in own]):.3f}" for method in METHODS
            ]
            gains = np.array([table[OURS, labels, n] - table["auto", labels, n] for n in own])
            gain = f"{gains.mean():+.3f}{interval(gains)}"
            cover = f"{np.mean([np.mean(held[labels, name]) for name in own]):.3f}"
        else:
            cells += [cells[0]] + [""] * (len(METHODS) - 1)
        print("| " + " | ".join([str(labels), str(len(own)), *cells, gain, cover]) + " |")
    for labels in (10, 20, 40):
        strong = [n for n in names if table.get(("auto", labels, n), 0) > 0.5]
        if strong:
            change = [table[OURS, labels, n] - table["auto", labels, n] for n in strong]
            print(f"{labels} labels, the {len(strong)} lists where auto is above 0.5: {np.mean(change):+.3f}")
    for name in names:
        line = [f"{labels}: {table['auto', labels, name]:.3f} → {table[OURS, labels, name]:.3f}"
                for labels in COUNTS[1:] if ("auto", labels, name) in table]  # fmt: skip
        print(f"{name}: {', '.join(line)}")
    if asked_draws:
        print_asked(cases, asked_draws)


def tau(scores: np.ndarray, values: np.ndarray) -> float:
    """τ, or NaN where a method gives no scores."""
    return tau_b(scores, values) if np.isfinite(scores).all() else float("nan")


def interval(gains: np.ndarray) -> str:
    """A 95 % bootstrap interval of the mean over lists."""
    if len(gains) < 3:
        return ""
    means = np.random.default_rng(0).choice(gains, (10_000, len(gains))).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f" [{low:+.3f}, {high:+.3f}]"


def coverage(fitted: Fitted, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whether each item's 80 % interval holds its true rank; of tied items the mean rank."""
    low, high = rank_intervals(fitted.draws(rng))
    rank = len(values) + 1 - rankdata(values)
    return np.asarray((low <= rank) & (rank <= high))


def print_asked(cases: list[Case], draws: int, most: int = 40) -> None:
    """τ of all items by asked and by random labels, and how many asked ones reach the τ of random ones."""
    asked, random = np.zeros((len(cases), most + 1)), np.zeros((len(cases), most + 1))
    for place, case in enumerate(cases):
        count = len(case.read.values)
        for draw in range(draws):
            rng = np.random.default_rng(draw)
            order = rng.permutation(count)
            items = order[:1].tolist()  # draws differ in the first item alone
            while len(items) < 2:
                items.append(
                    representative(case.gram, case.read.auto, items, np.delete(np.arange(count), items))
                )
            for labels in range(2, most + 1):
                fitted = case.fit(np.array(items))
                asked[place, labels] += tau_b(fitted.mean, case.read.values) / draws
                fit = case.fit(np.random.default_rng([draw, 1]).permutation(count)[:labels])
                random[place, labels] += tau_b(fit.mean, case.read.values) / draws
                rest = np.setdiff1d(np.arange(count), items)
                if labels < FIRST_GRADES:
                    items.append(representative(case.gram, case.read.auto, items, rest))
                else:
                    choice = next_question(fitted.draws(rng), fitted.noise, "grade", rest, rng)
                    items.append(choice.items[0])
    ours, theirs = asked.mean(axis=0), random.mean(axis=0)
    print("mean τ of all items, labelled ones too, by asked and by random labels:")
    for labels in (5, 10, 20, 30, 40):
        needed = np.flatnonzero(ours[2:] >= theirs[labels])
        share = f"{(needed[0] + 2) / labels:.0%}" if len(needed) else "more than all"
        print(
            f"{labels} labels: asked {ours[labels]:.3f}, random {theirs[labels]:.3f}; {share} as many asked ones do"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("read", "embed", "curves"))
    parser.add_argument("arrays", type=Path, help="folder of the lists' arrays")
    parser.add_argument("--half", choices=tuple(TEXTS), default="choose")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="default")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--no-exemplars", action="store_true", help="read `auto` without exemplars")
    parser.add_argument("--draws", type=int, default=10, help="random draws of labels")
    parser.add_argument("--asked", type=int, default=0, help="draws of the first labels of asked questions")
    options = parser.parse_args()
    if options.stage == "read":
        read(options.arrays, options.half, options.device, options.model, not options.no_exemplars)
    elif options.stage == "embed":
        embed(options.arrays, options.half, options.encoder)
    else:
        curves(options.arrays, options.half, options.draws, options.asked)


if __name__ == "__main__":
    main()
