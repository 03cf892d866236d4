"""The family of tests of README.md: every p-value of the page, corrected together with Holm's method.

One family, since the page is searched as a whole for what is significant: the paired tests and the common directions of
the study, and the tests of claims_prompting.py. Datasets with two tasks are not tested: the smallest p of
their paired tests is 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.metrics.tasks import detectable_difference, holm
from studies.reproduction.tables import LEVEL, TESTED, Data, label

COMMON = "common direction"
QUESTIONS = {
    "calibration": "calibration",
    "transitivity": "circular triads",
    "direction": "directed lists",
}
"""The tested questions of studies/reproduction/claims_prompting.py, and the claims that their tests belong to."""


@dataclass(frozen=True)
class Test:
    """One test of the page, and the record of the data that it stands in."""

    claim: str
    comparison: str
    dataset: str
    value: float
    """The difference, or the common direction's |mean τ|."""
    is_difference: bool
    record: dict[str, Any]
    prefix: str = ""
    """Of the record's names for p and for Holm's p."""

    @property
    def p(self) -> float:
        return float(self.record[f"{self.prefix}p"])

    @property
    def holm(self) -> float:
        return float(self.record[f"{self.prefix}holm"])


def family(data: Data) -> list[Test]:
    """All tests of the page."""
    return [*_paired(data), *_common(data), *_prompting(data)]


def adjust(data: Data) -> None:
    """Add Holm's p to the record of every test, and to paired tests the difference that would survive it.

    Untested datasets lose their p-values: no number of the page is outside the family.
    """
    for name, own in data.get("claims_prompting", {}).get("datasets", {}).items():
        if name not in TESTED:
            for row in _rows(own):
                row.pop("p", None)
    tests = family(data)
    for test, value in zip(tests, holm([test.p for test in tests]), strict=True):
        test.record[f"{test.prefix}holm"] = round(float(value), 4)
    for one in data["tests"]:
        # The smallest difference that would survive the correction as the page's only finding.
        found = detectable_difference(one["sd"], one["tasks"], LEVEL / len(tests))
        one["detectable_corrected"] = round(float(found), 4)


def _paired(data: Data) -> Iterator[Test]:
    for one in data["tests"]:
        comparison = f"{label(one['first'])} − {label(one['second'])}"
        yield Test(one["claim"], comparison, one["dataset"], one["difference"], True, one)


def _common(data: Data) -> Iterator[Test]:
    for row in data["rows"]:
        if "common_tau_p" in row and row["dataset"] in TESTED:
            unit = label(row["unit"])
            yield Test(COMMON, unit, row["dataset"], row["common_tau"], False, row, "common_tau_")


def _prompting(data: Data) -> Iterator[Test]:
    for dataset, own in data.get("claims_prompting", {}).get("datasets", {}).items():
        for question, claim in QUESTIONS.items():
            for variant, row in own.get(question, {}).items():
                if row.get("p") is not None and dataset in TESTED:
                    comparison, value = _compared(question, variant, own[question])
                    yield Test(claim, comparison, dataset, value, True, row)


def _compared(question: str, variant: str, rows: Mapping[str, Mapping[str, float]]) -> tuple[str, float]:
    """What a test about prompting compares, and the difference."""
    row = rows[variant]
    if question == "transitivity":
        return f"`{variant}`, share of circular triads − chance", row["share_net"] - row["by_chance"] / row[
            "triads"
        ]
    name, comma, rest = variant.partition(",")
    method = {"calibration": "prompt-pair", "direction": "prompt-list"}[question]
    difference = row["abs_tau"] - rows[f"none{comma}{rest}"]["abs_tau"]
    return f"`{method}`{comma}{rest}: {name} − none", difference


def _rows(own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of one dataset's tested questions."""
    for question in QUESTIONS:
        yield from own.get(question, {}).values()
