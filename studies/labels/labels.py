"""What a few labels are worth: learning curves on long lists, for `auto` with labels and for its rivals.

python -m studies.labels.labels read ARRAYS --half choose        # needs the models; one .npz for each list
python -m studies.labels.labels embed ARRAYS --half choose       # sentence embeddings, for a rival
python -m studies.labels.labels curves ARRAYS --half choose      # needs the arrays alone
python -m studies.labels.labels asked ARRAYS --ask pair          # questions that are chosen, against random ones
python -m studies.labels.labels asked ARRAYS --variant drawn     # the same with gold that is drawn from the model
python -m studies.labels.labels ceiling ARRAYS --half choose     # what more labels or better settings would give

The lists are whole datasets of one criterion, pooled: the text criteria of $CCRANK_DATA/textcriteria (half `choose` or
`report`), and in the half `choose` reviews by sentiment and adjectives by intensity. k items are drawn and labelled
with their gold values; τ is that of the other items.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression, RidgeCV

from ccrank.labels import Labels
from ccrank.methods.labelfree.anchored import smoothed
from ccrank.methods.labelled.fit import Fitted, fit, rank_intervals
from ccrank.methods.labelled.observations import normal_scores, observations_of
from ccrank.methods.labelled.prior import Kernel, Setting, grid
from ccrank.metrics.order import tau_b
from ccrank.util.zscores import z_scores
from studies.labels.asked import print_asked, varied
from studies.labels.lists import TEXTS, LongList, embed, load, read

COUNTS = (0, 2, 5, 10, 20, 40, 80)


@dataclass
class Case:
    """One list, ready for fits: products of its states are computed once."""

    read: LongList

    def __post_init__(self) -> None:
        count = len(self.read.values)
        kernel = Kernel([(self.read.slot, self.read.item)])
        self.products = kernel.products(np.arange(count), 256)
        self.gram = self.products.kernels.mean(axis=0).astype(float)
        self.sentence = z_scores(self.read.sentence.astype(float), axis=0)

    def fit(self, items: np.ndarray, settings: tuple[Setting, ...] | None = None) -> Fitted:
        """The model on the gold values of some items; among these settings, or all."""
        values = tuple((str(item), float(self.read.values[item])) for item in items)
        names = [str(item) for item in range(len(self.read.values))]
        seen = observations_of([Labels(values)], [names])
        settings = settings or grid(self.read.written)
        return fit(self.read.auto, self.products, seen, settings)

    def tau_of_rest(self, scores: np.ndarray, items: np.ndarray) -> float:
        """τ of the items that have no label."""
        rest = np.setdiff1d(np.arange(len(scores)), items)
        return tau_b(scores[rest], self.read.values[rest])


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


def curves(folder: Path, half: str, draws: int) -> None:
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


def ceiling(folder: Path, half: str, draws: int, folds: int = 5) -> None:
    """Print τ with four fifths of a list labelled, and τ of the one setting per list that gold itself picks."""
    cases = [Case(one) for one in load(folder, half)]
    rows = []
    for case in cases:
        count = len(case.read.values)
        taus = []
        for draw in range(draws):
            order = np.random.default_rng(draw).permutation(count)
            for fold in range(folds):
                items = np.setdiff1d(order, order[fold::folds])
                fitted = case.fit(items).mean
                taus.append([case.tau_of_rest(scores, items) for scores in (case.read.auto, fitted)])
        rows.append(np.mean(taus, axis=0))
        print(
            f"{case.read.name}, {count - count // folds} labels: auto {rows[-1][0]:.3f} → {rows[-1][1]:.3f}"
        )
    before, after = np.mean(rows, axis=0)
    print(f"mean: auto {before:.3f} → {after:.3f} ({after - before:+.3f})")
    for labels in (10, 20, 40):
        rows = []
        for case in cases:
            count, settings = len(case.read.values), grid(case.read.written)
            taus = []
            for draw in range(draws):
                items = np.random.default_rng([draw, labels]).permutation(count)[:labels]
                scores = [case.read.auto, case.fit(items).mean]
                scores += [case.fit(items, (one,)).mean for one in settings]
                taus.append([case.tau_of_rest(one, items) for one in scores])
            auto, averaged, *single = np.mean(taus, axis=0)
            rows.append((auto, averaged, max(single)))
        auto, averaged, best = np.mean(rows, axis=0)
        print(
            f"{labels} labels: auto {auto:.3f}, averaged settings {averaged:.3f}, best setting of a list {best:.3f}"
        )


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("read", "embed", "curves", "asked", "ceiling"))
    parser.add_argument("arrays", type=Path, help="folder of the lists' arrays")
    parser.add_argument("--half", choices=tuple(TEXTS), default="choose")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="default")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--no-exemplars", action="store_true", help="read `auto` without exemplars")
    parser.add_argument("--draws", type=int, default=10, help="random draws of labels")
    parser.add_argument("--ask", choices=("grade", "pair", "both"), default="pair", help="what is asked")
    parser.add_argument(
        "--variant", choices=("read", "unrelated", "drawn"), default="read",
        help="of `asked`: lists as read, with a label-free score unrelated to the gold, or with drawn gold",
    )  # fmt: skip
    options = parser.parse_args()
    if options.stage == "read":
        read(options.arrays, options.half, options.device, options.model, not options.no_exemplars)
    elif options.stage == "embed":
        embed(options.arrays, options.half, options.encoder)
    elif options.stage == "ceiling":
        ceiling(options.arrays, options.half, options.draws)
    elif options.stage == "asked":
        lists = load(options.arrays, options.half)
        if options.variant != "read":
            lists = varied(lists, options.variant)
        print_asked(lists, options.ask, options.draws)
    else:
        curves(options.arrays, options.half, options.draws)


if __name__ == "__main__":
    main()
