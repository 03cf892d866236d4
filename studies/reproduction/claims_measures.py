"""Measures of `claims_prompting.py`: pure functions on margins and scores, each with its chance level.

Margins are (N, N) log-odds as in `ccrank.metrics.aggregation`; runs are (R, N) scores of one task: seeds of a probe,
shuffles of a list, or a single row. Gold is (N,) values. Means are over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from ccrank.metrics.aggregation import circular_triads, wins_margins
from ccrank.metrics.chance import chance_abs_tau, chance_free_accuracy, chance_pair_accuracy, chance_tau_sd
from ccrank.metrics.order import evaluate, kendall_tau, pair_accuracy, tau_b
from ccrank.metrics.tasks import paired_test

Row = dict[str, float]
Golds = Sequence[ArrayLike]

DRAWS = 1_000_000
"""Random signs of a paired test, as in studies/reproduction/numbers.py."""
PERMUTATIONS = 500
"""Random orders of gold per task, for the chance level of answers that depend on each other."""


def mean(values: Sequence[float]) -> float:
    """The mean as a plain number."""
    return float(np.mean(values))


def accuracy_of_answers(
    margins: Sequence[Sequence[np.ndarray]], runs: Sequence[np.ndarray], golds: Golds
) -> Row:
    """Direction-free accuracy of single answers and of the final order, each with its chance level.

    Of single answers there are two: `coins`, if every answer were an independent coin, and `permuted`, if the answers
    were as they are and gold a random order. Answers that follow one scale are not independent: they have the latter.

    Parameters
    ----------
    margins
        Per task the answers of each run.
    runs
        Per task the scores of the final order of each run.
    golds
        Per task the gold values.
    """
    generator = np.random.default_rng(0)
    single, coins, permuted, final, chance = [], [], [], [], []
    for answers, scores, gold in zip(margins, runs, golds, strict=True):
        for one, row in zip(answers, scores, strict=True):
            right = pair_accuracy(one, gold)
            single.append(max(right, 1 - right))
            coins.append(chance_pair_accuracy(int(np.isfinite(one).sum())))
            permuted.append(permuted_accuracy(one, generator))
            final.append(evaluate(row, gold).free_accuracy)
            chance.append(chance_free_accuracy(len(row)))
    return {
        "single": mean(single),
        "single_coins": mean(coins),
        "single_permuted": mean(permuted),
        "final": mean(final),
        "final_chance": mean(chance),
        "gap": mean(final) - mean(single),
        "gap_permuted": mean(chance) - mean(permuted),
    }


def permuted_accuracy(margins: np.ndarray, generator: np.random.Generator) -> float:
    """E max(a, 1 − a) over random orders of gold, a the accuracy of these answers: sampled."""
    count = len(margins)
    ranks = generator.permuted(np.tile(np.arange(count), (PERMUTATIONS, 1)), axis=1)
    signs = np.sign(np.nan_to_num(margins))
    agreement = np.einsum("ij,pij->p", signs, np.sign(ranks[:, :, None] - ranks[:, None, :]))
    return mean((1 + np.abs(agreement) / np.isfinite(margins).sum()) / 2)


def calibrations(margins: Sequence[np.ndarray], golds: Golds) -> dict[str, Row]:
    """The share of Yes, and τ of the wins, without calibration and with the mean of the task or of the dataset.

    A margin is the logit of Yes less that of No, so that the mean calibration subtracts the mean margin. `one_answer`
    is the share of tasks in which all answers are the same. `p` is that of the difference in |τ| from no calibration.
    """
    everywhere = float(np.nanmean(np.concatenate([one.ravel() for one in margins])))
    shifts = {
        "none": [0.0] * len(margins),
        "task": [float(np.nanmean(one)) for one in margins],
        "dataset": [everywhere] * len(margins),
    }
    found: dict[str, Row] = {}
    sizes: dict[str, list[float]] = {}
    for name, shift in shifts.items():
        calibrated = [one - by for one, by in zip(margins, shift, strict=True)]
        yes = [float((one > 0).sum() / np.isfinite(one).sum()) for one in calibrated]
        taus = [kendall_tau(wins_margins(one), gold) for one, gold in zip(calibrated, golds, strict=True)]
        sizes[name] = [abs(tau) for tau in taus]
        found[name] = {
            "yes": mean(yes),
            "one_answer": mean([share in (0.0, 1.0) for share in yes]),
            "tau": mean(taus),
            "abs_tau": mean(sizes[name]),
            "p": math.nan if name == "none" else p_of(sizes[name], sizes["none"]),
        }
    return found


def most_circular_triads(n_items: int) -> float:
    """The largest number of circular triads of N items: (N³ − N) / 24 for odd N, (N³ − 4N) / 24 for even N."""
    return (n_items**3 - (1 if n_items % 2 else 4) * n_items) / 24


def consistency_coefficient(observed: float, triads: int, n_items: int) -> float:
    """Kendall & Babington Smith's ζ = 1 − circular triads / their maximum: 1 for a ranking. NaN if pairs are missing,
    or N < 3."""
    complete = n_items > 2 and triads == math.comb(n_items, 3)
    return 1 - observed / most_circular_triads(n_items) if complete else math.nan


def transitivity(margins: Sequence[Sequence[np.ndarray]]) -> Row:
    """Circular triads in single answers and in the net of both orders, per task, and the number for random answers.

    A single answer to each pair, in a random order of presentation, is expected to give the triads of the signs. Of
    random tournaments the mean is C(N, 3)/4 and the variance 3 C(N, 3)/16: z is the surplus over all tasks in
    deviations. Several runs of a task are averaged first, for which that variance is an upper bound.

    Parameters
    ----------
    margins
        Per task the answers of each run.
    """
    net = [[circular_triads(one) for one in runs] for runs in margins]
    single = [mean([circular_triads(np.sign(one))[0] for one in runs]) for runs in margins]
    observed = [mean([circular for circular, _ in runs]) for runs in net]
    expected = [runs[0][1] / 4 for runs in net]
    triads = sum(runs[0][1] for runs in net)
    sizes = [len(runs[0]) for runs in margins]
    most = [most_circular_triads(size) for size in sizes]
    z = (sum(observed) - sum(expected)) / math.sqrt(3 / 16 * triads) if triads else math.nan
    return {
        "triads": triads / len(net),
        "by_chance": mean(expected),
        "single": mean(single),
        "net": mean(observed),
        "share_single": sum(single) / triads if triads else math.nan,
        "share_net": sum(observed) / triads if triads else math.nan,
        "coefficient": mean(
            [
                consistency_coefficient(*one, size)
                for runs, size in zip(net, sizes, strict=True)
                for one in runs
            ]
        ),
        "coefficient_by_chance": mean([1 - one / top for one, top in zip(expected, most, strict=True)]),
        "z": z,
        "p": float(2 * norm.sf(abs(z))),
    }


def listwise(
    joined: Sequence[np.ndarray], runs: Sequence[np.ndarray], labels: Sequence[float], golds: Golds
) -> Row:
    """The joined ranking, single runs with their spread, and how far the runs of a task agree.

    `single_sd` is the deviation over runs of the mean over tasks; `within` the mean over tasks of the deviation of τ
    over runs, beside that of random orders. `agree` is the mean τ between the runs of a task, `labels` that with the
    order of the labels: both 0 by chance.
    """
    taus = np.array([[kendall_tau(row, gold) for row in own] for own, gold in zip(runs, golds, strict=True)])
    by_run = np.abs(taus).mean(axis=0)
    return {
        "joined_tau": mean([kendall_tau(row, gold) for row, gold in zip(joined, golds, strict=True)]),
        "joined_abs_tau": mean(
            [evaluate(row, gold).abs_tau for row, gold in zip(joined, golds, strict=True)]
        ),
        "single_tau": mean(taus.mean(axis=1)),
        "single_abs_tau": mean(by_run),
        "single_sd": deviation(by_run),
        "chance": mean([chance_abs_tau(own.shape[1]) for own in runs]),
        "within": mean([deviation(own) for own in taus]),
        "within_by_chance": mean([chance_tau_sd(own.shape[1]) for own in runs]),
        "agree": mean([tau_b(a, b) for own in runs for a, b in combinations(own, 2)]),
        "labels": mean(labels),
    }


def sensitivity(runs: Sequence[Sequence[np.ndarray]], golds: Golds) -> Row:
    """How far a method depends on the wording.

    `sd` is the deviation over wordings of the mean |τ| over tasks, of each run, then the mean over runs: runs must not
    be averaged first, which would lessen the deviation of methods with several. `sd_by_chance` is that of random
    orders.
    `between` is the mean |τ| between the rankings of the same list by two wordings (and the same run).

    Parameters
    ----------
    runs
        Per wording, per task (R, N).
    golds
        Per task the gold values.
    """
    by_wording = abs_tau_by_wording(runs, golds)
    counts = [own.shape[1] for own in runs[0]]
    variances = [chance_tau_sd(count) ** 2 - chance_abs_tau(count) ** 2 for count in counts]
    return {
        "mean": mean(by_wording),
        "sd": mean([deviation(column) for column in by_wording.T]),
        "sd_by_chance": math.sqrt(sum(variances)) / len(counts),
        "between": mean(
            [
                abs(tau_b(a, b))
                for first, second in combinations(runs, 2)
                for own, other in zip(first, second, strict=True)
                for a, b in zip(own, other, strict=True)
            ]
        ),
        "chance": mean([chance_abs_tau(count) for count in counts]),
    }


def abs_tau_by_wording(runs: Sequence[Sequence[np.ndarray]], golds: Golds) -> np.ndarray:
    """The mean |τ| over tasks of each wording and run. (wordings, R)"""
    return np.array(
        [
            np.mean(
                [
                    [evaluate(row, gold).abs_tau for row in own]
                    for own, gold in zip(tasks, golds, strict=True)
                ],
                axis=0,
            )
            for tasks in runs
        ]
    )


def directions(joined: Mapping[str, Sequence[np.ndarray]], golds: Golds) -> dict[str, Row]:
    """τ and |τ| by what the prompt says about the direction, and p of the difference in |τ| from "none".

    Under "both" is the mean τ between the rankings of the two directions: 1 for a model that follows them, −1 for one
    whose choices do not depend on them.
    """
    sizes = {
        name: [evaluate(row, gold).abs_tau for row, gold in zip(rows, golds, strict=True)]
        for name, rows in joined.items()
    }
    found: dict[str, Row] = {
        name: {
            "tau": mean([kendall_tau(row, gold) for row, gold in zip(rows, golds, strict=True)]),
            "abs_tau": mean(sizes[name]),
            "p": math.nan if name == "none" else p_of(sizes[name], sizes["none"]),
        }
        for name, rows in joined.items()
    }
    pairs = zip(joined["descending"], joined["ascending"], strict=True)
    return found | {"both": {"agree": mean([tau_b(down, up) for down, up in pairs])}}


def deviation(values: ArrayLike) -> float:
    """The standard deviation of a sample; NaN of one value."""
    array = np.asarray(values, dtype=float)
    return float(array.std(ddof=1)) if len(array) > 1 else math.nan


def p_of(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of a difference over tasks, by flipping signs."""
    return paired_test(first, second, np.random.default_rng(0), flips=DRAWS).p_value
