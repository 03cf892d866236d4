"""Are several models together better than the best of them? From a study of each model, list by list.

    ccrank bench --models MODEL --dtype bfloat16 --methods auto --datasets everyday,unseen.jsonl,… --out FOLDER
    python -m studies.jury.jury FOLDER FOLDER…

A jury's scores are the mean of its members' Z-scores with the weights of a rule: equal; a power of the number of
parameters; a power of a member's mean τ with the others on the list; a power of the agreement of its own signals there;
or the product of the powers of size and signals. The power of each rule, and the jury and the rule that are tested, are
chosen on the `choose` halves; the `report` halves are read once. Texts: `convincing`, `difficulty`, `headline-positive`
and `politeness` to choose on, the others to report.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from ccrank.jury import SIZE_POWER
from ccrank.metrics.order import kendall_tau, tau_b
from ccrank.metrics.tasks import holm, paired_test
from ccrank.study.results.load import load_environment, load_results, load_tasks
from ccrank.util.zscores import z_scores
from studies.confidence.lists import TEXTS

CHOOSE, REPORT = "choose", "report"
HALVES = {"first": CHOOSE, "second": REPORT} | {name: half for half, names in TEXTS.items() for name in names}
RULES = ("equal", "size", "others", "signals", "size and signals")
POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)
LEAST = 0.01
"""An agreement below this weighs as much as this."""
RIGHT = 0.3


@dataclass(frozen=True)
class JuryList:
    """What every member said of one list."""

    group: str
    """everyday, unseen or texts"""
    half: str
    values: tuple[float, ...]
    table: np.ndarray
    """(M, N) Z-scores"""
    signals: np.ndarray
    """(M,) mean τ between the signals of a member"""
    parameters: np.ndarray
    """(M,)"""

    def agreement(self, members: Sequence[int]) -> float:
        """Mean τ between members."""
        return float(np.mean([tau_b(*self.table[list(pair)]) for pair in combinations(members, 2)]))

    def weights(self, members: Sequence[int], rule: str, power: float) -> np.ndarray:
        """(members,) by a rule."""
        chosen = list(members)
        size = self.parameters[chosen] ** power
        signals = np.maximum(np.nan_to_num(self.signals[chosen]), LEAST) ** power
        if rule == "others":
            table = self.table[chosen]
            taus = np.array([[tau_b(one, other) for other in table] for one in table])
            others = (taus.sum(axis=1) - 1) / max(1, len(chosen) - 1)
            return np.asarray(np.maximum(others, LEAST) ** power)
        return {
            "equal": np.ones(len(chosen)),
            "size": size,
            "signals": signals,
            "size and signals": size * signals,
        }[rule]

    def tau(self, members: Sequence[int], rule: str = "equal", power: float = 1.0) -> float:
        """τ of a jury, or of one member, with gold."""
        scores = self.weights(members, rule, power) @ self.table[list(members)]
        return kendall_tau(scores, self.values)


def lists_of(folders: Sequence[str]) -> tuple[list[str], list[JuryList]]:
    """The models, and the lists that all studies have with `auto`."""
    tasks = load_tasks(folders[0])
    frames = [load_results(folder) for folder in folders]
    frames = [frame[frame["method"] == "auto"] for frame in frames]
    names = [str(frame["model"].iloc[0]) for frame in frames]
    facts = [load_environment(folder)["models"] for folder in folders]
    sizes = [one[name]["parameters"] for one, name in zip(facts, names, strict=True)]
    models = [name.rpartition("/")[2].removesuffix(".gguf") for name in names]
    rows = [{(row.dataset, row.task): row for row in frame.itertuples()} for frame in frames]
    found = []
    for key in rows[0]:
        if not all(key in one for one in rows):
            continue
        task, half = tasks[key], tasks[key].about.get("half", key[0])
        assert task.values is not None
        own = [one[key] for one in rows]
        table = np.stack([z_scores(np.asarray(row.scores, float)) for row in own])
        signals = np.array([row.consistency for row in own])
        group = "texts" if key[0] in HALVES else key[0]
        found.append(
            JuryList(group, HALVES.get(half, half), task.values, table, signals, np.array(sizes, float))
        )
    return models, found


@dataclass(frozen=True)
class Choice:
    """A jury and how its members are weighed."""

    members: tuple[int, ...]
    rule: str = "equal"
    power: float = 1.0

    def taus(self, lists: Sequence[JuryList]) -> np.ndarray:
        """(lists,)"""
        return np.array([one.tau(self.members, self.rule, self.power) for one in lists])


def best_power(lists: Sequence[JuryList], members: tuple[int, ...], rule: str) -> Choice:
    """The power of a rule with the highest mean τ."""
    choices = [Choice(members, rule, power) for power in (POWERS if rule != "equal" else (1.0,))]
    return max(choices, key=lambda one: group_mean(lists, one.taus(lists)))


def group_mean(lists: Sequence[JuryList], taus: np.ndarray) -> float:
    """The mean over groups, each of which counts alike."""
    frame = pd.DataFrame({"group": [one.group for one in lists], "tau": taus})
    return float(frame.groupby("group")["tau"].mean().mean())


def juries(count: int) -> list[tuple[int, ...]]:
    """Every jury of two or more."""
    return [some for size in range(2, count + 1) for some in combinations(range(count), size)]


def choose_table(models: Sequence[str], lists: Sequence[JuryList]) -> tuple[str, Choice]:
    """Markdown: mean τ of each jury by each rule on the choose half; and the best of them."""
    lines = ["| jury | " + " | ".join(RULES) + " |", "|---" * (1 + len(RULES)) + "|"]
    lines += [
        f"| {model} alone | {group_mean(lists, Choice((at,)).taus(lists)):.3f} |" + " |" * (len(RULES) - 1)
        for at, model in enumerate(models)
    ]
    best, most = Choice((0,)), -np.inf
    for members in juries(len(models)):
        cells = []
        for rule in RULES:
            choice = best_power(lists, members, rule)
            mean = group_mean(lists, choice.taus(lists))
            cells.append(f"{mean:.3f}" + ("" if rule == "equal" else f" ({choice.power:g})"))
            if mean > most:
                best, most = choice, mean
        lines.append(f"| {named(models, members)} | {' | '.join(cells)} |")
    return "\n".join(lines), best


def named(models: Sequence[str], members: Sequence[int]) -> str:
    """The members by name."""
    return " + ".join(models[at] for at in members)


def report_table(models: Sequence[str], lists: Sequence[JuryList], choices: Sequence[Choice]) -> str:
    """Markdown: τ of each choice by group beside the best of its members there, with the paired difference.

    Holm's p is over the groups of one choice.
    """
    lines = [
        "| jury and weights | lists | best member | together | difference | p (Holm) |",
        "|---" * 6 + "|",
    ]
    groups = list(dict.fromkeys(one.group for one in lists))
    for choice in choices:
        tests, cells = [], []
        for group in (*groups, "all"):
            own = [one for one in lists if group in (one.group, "all")]
            alone = {at: Choice((at,)).taus(own) for at in choice.members}
            best = max(alone, key=lambda at: alone[at].mean())
            together = choice.taus(own)
            tests.append(paired_test(together, alone[best], np.random.default_rng(0)))
            cells.append(
                f"{group}, {len(own)} | {models[best]} {alone[best].mean():.3f} | {together.mean():.3f}"
            )
        corrected = [*holm([test.p_value for test in tests[:-1]]), tests[-1].p_value]
        for place, (test, cell, p) in enumerate(zip(tests, cells, corrected, strict=True)):
            weights = choice.rule + ("" if choice.rule == "equal" else f", power {choice.power:g}")
            name = f"{named(models, choice.members)}, {weights}" if place == 0 else ""
            one = test.difference
            lines.append(f"| {name} | {cell} | {one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}] | {p:.3f} |")
    return "\n".join(lines)


def area(sign: np.ndarray, right: np.ndarray) -> float:
    """The share of pairs of a right and a wrong list in which the right one has the higher sign."""
    difference = sign[right][:, None] - sign[~right]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def right_table(lists: Sequence[JuryList], juries: Sequence[tuple[int, ...]]) -> str:
    """Markdown: which agreement predicts whether an order is right, and the share that is, by quarters; means over
    juries of equal weights."""
    lines = [
        "| agreement of | area | " + " | ".join(f"quarter {at}" for at in range(1, 5)) + " |",
        "|---" * 6 + "|",
    ]
    found: dict[str, list[list[float]]] = {}
    for members in juries:
        right = Choice(members).taus(lists) > RIGHT
        between = np.array([one.agreement(members) for one in lists])
        within = np.array([np.nanmean(one.signals[list(members)]) for one in lists])
        signs = {
            "the models": between,
            "the signals": within,
            "both, the lesser": np.minimum(between, within),
            "both, the mean": between + within,
        }
        for name, sign in signs.items():
            quarter = pd.qcut(pd.Series(sign).rank(method="first"), 4, labels=False)
            shares = pd.Series(right).groupby(quarter).mean().tolist()
            found.setdefault(name, []).append([area(sign, right), *shares])
    for name, rows in found.items():
        one, *shares = np.mean(rows, axis=0)
        lines.append(f"| {name} | {one:.3f} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", help="the study of each model")
    models, lists = lists_of(parser.parse_args().folders)
    choose, report = ([one for one in lists if one.half == half] for half in (CHOOSE, REPORT))
    table, best = choose_table(models, choose)
    print(f"choose, {len(choose)} lists, mean over groups (power)\n\n{table}\n\nreport\n")
    every = juries(len(models))
    shown = [choice for one in every for choice in (Choice(one), Choice(one, "size", SIZE_POWER))]
    print(report_table(models, report, [best, *shown]))
    for name, half in ((CHOOSE, choose), (REPORT, report)):
        print(f"\nright orders (τ > {RIGHT}), {name}\n\n{right_table(half, every)}")


if __name__ == "__main__":
    main()
