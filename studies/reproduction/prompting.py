"""The generated sections of studies/reproduction/details.md about prompting: the tables of claims_prompting.py and of
pair_answers.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.reproduction.tables import Data, holm_text, number, p_text, signed, table

PROMPTING = {
    "pairs": "Accuracy of single pairwise answers and of the final order",
    "lists": "Listwise: the joined ranking and single runs",
    "calibration": "Calibration of `prompt-pair`",
    "transitivity": "Circular triads per task",
    "wordings": "Wordings: mean \\|τ\\| and its deviation over wordings",
    "direction": "Directed listwise prompts",
}


TESTS = {"p": lambda row: p_text(row["p"]), "holm": holm_text}
"""The columns of p-values, which come last."""


def prompting(data: Data) -> str:
    """The tables of studies/reproduction/claims_prompting.py, with the columns that its file has."""
    stored = data.get("claims_prompting")
    if stored is None:
        return "Not measured yet: run `studies/reproduction/claims_prompting.py`.\n"
    parts = []
    for question, head in PROMPTING.items():
        found = [
            (dataset, variant, row)
            for dataset, own in stored["datasets"].items()
            for variant, row in own.get(question, {}).items()
        ]
        if not found:
            continue
        known = dict.fromkeys(name for *_, row in found for name, value in row.items() if not _empty(value))
        columns = [*(name for name in known if name not in TESTS), *(name for name in TESTS if name in known)]
        lines = [
            [dataset, f"`{variant}`", *(cell(row, name) for name in columns)]
            for dataset, variant, row in found
        ]
        parts.append(f"**{head}**\n\n" + table(["dataset", "", *(head_of(name) for name in columns)], lines))
    return "\n".join(parts)


def cell(row: Mapping[str, Any], name: str) -> str:
    """A number of a row as the tables show it; a dash where there is none."""
    if _empty(row.get(name)):
        return "–"
    return TESTS[name](row) if name in TESTS else number(row[name], 3)


def head_of(name: str) -> str:
    """The head of a column: a measure's name in the notation of the page."""
    if name == "holm":
        return "Holm"
    return name.replace("abs_tau", "\\|τ\\|").replace("tau", "τ").replace("_", " ")


def _empty(value: Any) -> bool:
    return not isinstance(value, int | float) or value != value


def pair_answers(data: Data) -> str:
    """The coefficients of studies/reproduction/pair_answers.py."""
    stored = data.get("pair_answers")
    if stored is None:
        return "Not measured yet: run `studies/reproduction/pair_answers.py`.\n"
    lines = []
    for row in stored["rows"]:
        slots = [
            f"{signed(row[name])} [{signed(row[f'{name}_low'])}, {signed(row[f'{name}_high'])}]"
            for name in ("first", "second", "first_less_second")
        ]
        ends = [signed(row["tau"]), signed(row.get("correlation"))]
        lines.append([f"{row['dataset']} ({row['lists']})", row["comparative"], *slots, *ends])
    head = ["dataset (lists)", "question", "first item", "second item", "first − second"]
    return table([*head, "τ", "correlation"], lines)
