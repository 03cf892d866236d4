"""One rule for the verdicts of studies/reproduction/details.md, and what each claim is judged by.

Every claim is turned into findings: an effect whose positive sign is what the claim says, on one dataset, with its
interval, Holm's p and the difference that could have been found, where there is a test. `RULE` is the rule in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from studies.reproduction.tables import (
    FOUR,
    LEVEL,
    Data,
    chance_of,
    four_of,
    kinds_of,
    mean_of,
    rows_of,
    table,
    tests_of,
)

RELEVANT = 0.05
"""The smallest effect that a claim is about, in |τ|, in shares, or in the measure that the claim names."""
SIDES = ("support", "open", "excluded", "oppose")
RULE = f"""\
Each claim is split into findings: an effect on one dataset, positive if it is as claimed. A finding with a test
**supports** the claim if it is positive and survives Holm's correction, and **opposes** it if it is negative and
survives. It is **excluded** if it does neither, its interval is below {RELEVANT}, and the study could have found
{RELEVANT} at the corrected level. A finding without a test supports or opposes the claim if it is at least {RELEVANT}
on that side. All others are **open**.

- **holds**: all findings support the claim.
- **holds in part**: some support it.
- **contradicted**: none supports it, and some oppose it or all are excluded.
- **not shown**: anything else, where there are findings.
- **cannot be tested**: there are none."""


@dataclass(frozen=True)
class Finding:
    """One effect on one dataset; positive if it is as claimed."""

    effect: float
    holm: float | None = None
    """None without a test."""
    high: float | None = None
    """The upper end of the 95 % interval."""
    detectable: float | None = None
    """The difference that could have been found at the corrected level."""

    @property
    def side(self) -> str:
        """support, oppose, excluded or open; see `RULE`."""
        if self.holm is None:
            return "support" if self.effect >= RELEVANT else "oppose" if self.effect <= -RELEVANT else "open"
        if self.effect and self.holm < LEVEL:
            return "support" if self.effect > 0 else "oppose"
        small = self.high is not None and self.high < RELEVANT
        powerful = self.detectable is not None and self.detectable <= RELEVANT
        return "excluded" if small and powerful else "open"


Findings = list[Finding]


def verdict(findings: Findings) -> str:
    """The verdict on a claim; see `RULE`."""
    sides = {one.side for one in findings}
    if not sides:
        return "cannot be tested"
    if "support" in sides:
        return "holds" if sides == {"support"} else "holds in part"
    return "contradicted" if "oppose" in sides or sides == {"excluded"} else "not shown"


def differences(data: Data, claim: str, sign: int = 1, **wanted: str) -> Findings:
    """The paired tests of a claim on the four datasets; `sign` −1 if the claim says that the first is less."""
    return [
        Finding(
            sign * one["difference"],
            one["holm"],
            one["high"] if sign > 0 else -one["low"],
            one["detectable_corrected"],
        )
        for one in tests_of(data, claim)
        if one["dataset"] in FOUR and all(one[key] == value for key, value in wanted.items())
    ]


def prompting(data: Data, question: str) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """The rows of a question of claims_prompting.json, for each of the four datasets."""
    for name in four_of(data):
        found = data.get("claims_prompting", {}).get("datasets", {}).get(name, {}).get(question)
        if found:
            yield found


def gaps(data: Data) -> Findings:
    """Final orders against single answers, beyond what the same answers give against random gold."""
    rows = [one["prompt-pair"] for one in prompting(data, "pairs")]
    return [Finding(row["gap"] - row["gap_permuted"]) for row in rows]


def inconsistency(data: Data) -> Findings:
    """How far the share of pairs with the same winner in both orders is below that of coins."""
    rows = rows_of(data)
    found = [rows.get((name, "prompt-pair"), {}).get("consistency") for name in four_of(data)]
    return [Finding(0.5 - value) for value in found if value is not None]


def calibration(data: Data) -> Findings:
    """How much nearer to a half the share of Yes is with calibration, and the change of |τ|."""
    found = []
    for rows in prompting(data, "calibration"):
        none = rows["none"]
        for name in ("task", "dataset"):
            row = rows[name]
            found.append(Finding(abs(none["yes"] - 0.5) - abs(row["yes"] - 0.5)))
            found.append(Finding(row["abs_tau"] - none["abs_tau"], row["holm"]))
    return found


def circular(data: Data) -> Findings:
    """The share of circular triads, in single answers and in the net of both orders."""
    rows = [one["prompt-pair"] for one in prompting(data, "transitivity")]
    return [Finding(row[name]) for row in rows for name in ("share_single", "share_net")]


def volatility(data: Data) -> Findings:
    """How far a list's ranking follows the order in which its options happen to be shown."""
    return [Finding(one["prompt-list"]["labels"]) for one in prompting(data, "lists")]


def direction(data: Data) -> Findings:
    """The gain of naming a direction, and whether the choices follow it (τ between both directions)."""
    found = []
    for rows in prompting(data, "direction"):
        for name in ("descending", "ascending"):
            row = rows[name]
            found.append(Finding(row["abs_tau"] - rows["none"]["abs_tau"], row["holm"]))
        found.append(Finding(rows["both"]["agree"]))
    return found


def seeds(data: Data) -> Findings:
    """How far two seeds of a probe agree, less 0.9: nearly the same ranking."""
    rows = rows_of(data)
    units = [f"{name}:same-task" for name in ("ccs-pair", "ccs", "margin", "triplet", "ordreg")]
    found = [rows.get((name, unit), {}).get("consistency") for name in four_of(data) for unit in units]
    return [Finding(value - 0.9) for value in found if value is not None]


def ceilings(data: Data) -> Findings:
    """|τ| of supervised probes on their own task, above that of the probes without labels."""
    rows, found = rows_of(data), []
    for name in four_of(data):
        for probe in ("ccs-pair", "ccs", "margin", "triplet", "ordreg"):
            pair = [rows.get((name, f"{one}:same-task")) for one in (f"sup-{probe}", probe)]
            if pair[0] and pair[1]:
                found.append(Finding(pair[0]["abs_tau"] - pair[1]["abs_tau"]))
    return found


def common(data: Data) -> Findings:
    """|mean τ| of a fold above its chance level, for probes with and without labels."""
    probes = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")
    units = [f"{kind}{name}:across-tasks" for kind in ("", "sup-") for name in probes]
    rows = rows_of(data)
    found = [rows.get((name, unit), {}) for name in four_of(data) for unit in units]
    return [
        Finding(row["common_tau"] - row["common_tau_chance"], row["common_tau_holm"])
        for row in found
        if "common_tau" in row
    ]


def context(data: Data) -> Findings:
    """|τ| above chance on facts, less that on contexts, for prompts and probes."""
    chance, groups, found = chance_of(data), kinds_of(data), []
    if {"facts", "context"} <= {*groups}:
        by_kind = {kind: fmean(chance[name] for name in groups[kind]) for kind in ("facts", "context")}
        for unit in (
            *("prompt-pair", "prompt-point", "prompt-list"),
            *(f"{name}:same-task" for name in ("ccs-pair", "ccs", "margin", "triplet", "ordreg")),
        ):
            means = {kind: mean_of(data, unit, datasets=groups[kind]) for kind in by_kind}
            if None not in means.values():
                above = {kind: (means[kind] or 0.0) - by_kind[kind] for kind in by_kind}
                found.append(Finding(above["facts"] - above["context"]))
    return found


def cost(data: Data) -> Findings:
    """Tokens of `prompt-pair` for each token of `prompt-point`, less 1."""
    rows, found = rows_of(data), []
    for name in four_of(data):
        pair, point = (rows.get((name, unit)) for unit in ("prompt-pair", "prompt-point"))
        if pair and point:
            found.append(Finding(pair["distinct_tokens"] / point["distinct_tokens"] - 1))
    return found


def baseline(data: Data) -> Findings:
    """How far random orders are above the baselines of 0 (|τ|) and a half (accuracy), as the claim denies."""
    levels = chance_of(data), chance_of(data, "chance_free_accuracy")
    return [
        Finding(-(level[name] - base))
        for name in four_of(data)
        for level, base in zip(levels, (0.0, 0.5), strict=True)
    ]


def settings(data: Data) -> Findings:
    """The gain in |τ| of the best value of a setting over the paper's, for each probe, mean over the datasets."""
    stored, found = data.get("sensitivity"), []
    paper = {"epochs": 200.0, "learning_rate": 1e-3, "margin": 0.2, "initial": 0.0}
    for probe in dict.fromkeys(point["probe"] for point in (stored or {}).get("points", [])):
        for setting, default in paper.items():
            own: dict[float, list[float]] = {}
            for point in stored["points"] if stored else []:
                if (point["probe"], point["setting"]) == (probe, setting):
                    own.setdefault(point["value"], []).append(point["abs_tau"])
            if default in own and len(own) > 1:
                found.append(Finding(max(map(fmean, own.values())) - fmean(own[default])))
    return found


def wordings(data: Data) -> Findings:
    """How much less the |τ| of `triplet` varies over wordings than that of a prompt."""
    rows = [one for one in prompting(data, "wordings") if "triplet" in one]
    return [
        Finding(row[name]["sd"] - row["triplet"]["sd"])
        for row in rows
        for name in ("prompt-pair", "prompt-point", "prompt-list")
    ]


def no_findings(data: Data) -> Findings:
    """Nothing here bears on the claim."""
    return []


CLAIMS: dict[str, Callable[[Data], Findings]] = {
    "Probing beats prompting for small models": lambda data: differences(data, "probing and prompting"),
    "TripletCCR is the best probe": lambda data: differences(data, "the best probe"),
    "*not in the paper*: probes beat baselines": lambda data: differences(data, "baselines"),
    "Listwise prompting is inferior to pairwise and pointwise": lambda data: differences(
        data, "listwise prompting", -1
    ),
    "Pairwise methods show a larger gap between pairwise accuracy and τ": gaps,
    "Prompting is not self-consistent, even calibrated": inconsistency,
    "Calibration is needed": calibration,
    "Pairwise answers may be circular": circular,
    "Listwise prompting is more volatile": volatility,
    "Omitting the direction hurts listwise prompting": direction,
    "Probes are more reliable: their predictions are deterministic": seeds,
    "Supervised probes on the same task are a ceiling": ceilings,
    "Probes find ranking properties that hold across tasks, most of all on ScalarAdj and Reviews": common,
    "Across tasks, unsupervised probes do not fall far behind supervised ones": lambda data: differences(
        data, "supervised across tasks"
    ),
    "… especially with few tasks": no_findings,
    "Context-based tasks are harder than fact-based ones": context,
    "Pairwise methods cost more": cost,
    "Accuracy is at least 50 %, τ = 0 is the baseline": baseline,
    'Tuning margin, learning rate, sub-batching or initialisation improves probes ("initial prototyping")': settings,
    "Probing is less sensitive to the prompt": wordings,
    "Prompting catches up in a larger model (MPT-7B)": no_findings,
    "The drop on context is larger for the encoder (DeBERTa)": no_findings,
}
"""The claims of the page's first table, by their text there → what they are judged by."""


def verdicts(data: Data) -> str:
    """The rule, and for each claim its verdict and the number of findings on each side."""
    lines = []
    for claim, judged_by in CLAIMS.items():
        findings = judged_by(data)
        sides = [one.side for one in findings]
        untested = sum(one.holm is None for one in findings)
        note = "–" if not sides else "no" if untested == len(sides) else "yes" if not untested else "in part"
        counts = [str(sides.count(side)) for side in SIDES]
        lines.append([claim, verdict(findings), *counts, note])
    return f"{RULE}\n\n" + table(["claim", "verdict", *SIDES, "with tests"], lines)
