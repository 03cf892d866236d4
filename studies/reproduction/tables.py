"""Tables of studies/reproduction/details.md: cells and rows from the numbers of a data file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ccrank.util.text import p_text

Data = Mapping[str, Any]
PAPER = ("synthfacts", "scalaradj", "wikilists", "synthcontext", "reviews", "entsalience")
FOUR = ("scalaradj", "wikilists", "reviews", "entsalience")
TESTED = (*FOUR, "reviews-letters")
"""Those that tests are made on: the paper's with more than two tasks, and the reviews in the paper's form."""
SPLITS = {"same-task": "same", "leave-one-out": "l-o-o", "across-tasks": "across", "single": "single runs"}
LEVEL = 0.05


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def label(unit: str) -> str:
    """A method with its split, for a table: `triplet` · same."""
    method, _, split = unit.partition(":")
    return f"`{method}`" + (f" · {SPLITS[split]}" if split else "")


def number(value: float | None, digits: int = 2) -> str:
    """Without a sign; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """With a sign, and a minus that is not a hyphen."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if float(f"{value:.{digits}f}") == 0 else text


def holm_text(test: Mapping[str, Any], name: str = "holm") -> str:
    """Holm's p of a test; bold if it survives the correction."""
    text = p_text(test[name])
    return f"**{text}**" if test[name] < LEVEL else text


def names_of(data: Data) -> list[str]:
    """The datasets, in order."""
    return [one["dataset"] for one in data["datasets"]]


def kinds_of(data: Data) -> dict[str, list[str]]:
    """The paper's datasets that the study has, by kind."""
    found: dict[str, list[str]] = {}
    for one in data["datasets"]:
        if one["dataset"] in PAPER:
            found.setdefault(one["kind"], []).append(one["dataset"])
    return found


def four_of(data: Data) -> list[str]:
    """Those of the four that the study has."""
    return [name for name in FOUR if name in names_of(data)]


def tested_of(data: Data) -> list[str]:
    """The datasets of the tables: the four, and the reviews in the paper's form."""
    return [name for name in TESTED if name in names_of(data)]


def rows_of(data: Data) -> dict[tuple[str, str], Mapping[str, Any]]:
    """(dataset, unit) → row."""
    return {(row["dataset"], row["unit"]): row for row in data["rows"]}


def units_of(data: Data) -> list[str]:
    """All units, in the order of the study."""
    return list(dict.fromkeys(row["unit"] for row in data["rows"]))


def mean_of(
    data: Data, unit: str, value: str = "abs_tau", datasets: Sequence[str] | None = None
) -> float | None:
    """The mean over datasets (the four without an argument); None if one lacks it."""
    rows = rows_of(data)
    found = [rows.get((name, unit), {}).get(value) for name in datasets or four_of(data)]
    return None if not found or any(one is None for one in found) else fmean(found)


def chance_of(data: Data, value: str = "chance_abs_tau") -> dict[str, float]:
    """Dataset → chance level."""
    return {one["dataset"]: one[value] for one in data["datasets"]}


def free_table(data: Data, units: Sequence[str]) -> str:
    """|τ| ± deviation over seeds of some methods on each dataset, and the mean over the four."""
    tested, rows, chance = tested_of(data), rows_of(data), chance_of(data)
    mean = fmean(chance[name] for name in four_of(data)) if four_of(data) else None
    lines = [["*chance*", *(number(chance[name], 3) for name in tested), number(mean, 3)]]
    for unit in units:
        if any((name, unit) in rows for name in tested):
            cells = [spread_cell(rows.get((name, unit)), "abs_tau", number) for name in tested]
            lines.append([label(unit), *cells, number(mean_of(data, unit), 3)])
    return table(["\\|τ\\|", *tested, "mean of the four"], lines)


def spread_cell(row: Mapping[str, Any] | None, value: str, form: Callable[..., str]) -> str:
    """A mean with its deviation over seeds, where there are seeds."""
    if row is None:
        return "–"
    deviation = row.get(f"{value}_sd")
    return form(row.get(value), 3) + ("" if deviation is None else f" ± {deviation:.3f}")


def tests_of(data: Data, claim: str) -> list[Mapping[str, Any]]:
    """The tests of one claim."""
    return [test for test in data["tests"] if test["claim"] == claim]


def difference_table(data: Data, claim: str) -> str:
    """The differences in |τ| of a claim's comparisons on each dataset, with p and Holm's p."""
    tested, lines = tested_of(data), []
    tests = {(test["first"], test["second"], test["dataset"]): test for test in tests_of(data, claim)}
    for first, second in dict.fromkeys((first, second) for first, second, _ in tests):
        cells = [difference_cell(tests.get((first, second, name))) for name in tested]
        lines.append([f"{label(first)} − {label(second)}", *cells])
    return table(["difference (p; Holm)", *tested], lines) if lines else "Not in this study.\n"


def difference_cell(test: Mapping[str, Any] | None) -> str:
    """A difference with both p-values; bold if it survives the correction."""
    if test is None:
        return "–"
    text = f"{signed(test['difference'], 3)} ({p_text(test['p'])}; {p_text(test['holm'])})"
    return f"**{text}**" if test["holm"] < LEVEL else text
