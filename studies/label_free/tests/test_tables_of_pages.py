"""The tables of results in README.md and docs/reference/methods.md have the numbers of the stored studies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from studies.label_free import label_free as script

ROOT = Path(__file__).parents[3]

COLUMNS = {
    "reviews": "reviews",
    "adjectives": "scalaradj",
    "world facts (WikiLists)": "wikilists",
    "entities in articles": "entsalience",
    "124 everyday criteria": "everyday",
    "62 everyday criteria": ("everyday", "report"),
    "49 hard criteria": ("unseen", "second"),
}


@pytest.fixture(scope="module")
def values() -> pd.DataFrame:
    """Every task's τ of the default model."""
    found = pd.read_csv(script.table_path(script.DATA), keep_default_na=False, na_values=[""])
    return found[found["model"] == script.FIRST]


@pytest.fixture(scope="module")
def reproduction() -> dict[tuple[str, str], dict[str, float]]:
    """(dataset, method) → row of the study of the paper, each probe trained on the task itself."""
    rows = json.loads(
        (ROOT / "studies" / "reproduction" / "data" / "reproduction.json").read_text(encoding="utf-8")
    )["rows"]
    plain = ((row, *row["unit"].partition(":")[::2]) for row in rows)
    return {(row["dataset"], method): row for row, method, split in plain if split in ("", "same-task")}


@pytest.fixture(scope="module")
def with_exemplars() -> dict[str, pd.Series]:
    """Dataset → `auto` of the default model with exemplars, in the study of sizes."""
    found = pd.read_csv(ROOT / "studies" / "sizes" / "sizes.csv", keep_default_na=False)
    found = found[(found["model"] == "SmolLM2-135M") & (found["method"] == "auto")]
    return {row["dataset"]: row for _, row in found.iterrows()}


def rows_below(text: str, start: str) -> list[list[str]]:
    """The cells of the first table after some text, its heading first."""
    block = re.search(r"(?:^\|.*\n)+", text[text.index(start) :], re.MULTILINE)
    assert block is not None
    lines = [line.strip().strip("|").replace("\\|", "¦").split("|") for line in block[0].splitlines()]
    return [
        [cell.strip().strip("*") for cell in line] for line in lines if not set("".join(line)) <= set("- ")
    ]


def written(cell: str) -> float:
    return float(cell.replace("−", "-"))


def test_signed_results_of_the_readme(values: pd.DataFrame, with_exemplars: dict[str, pd.Series]) -> None:
    """`auto` with exemplars, which articles do not use, and the paper's prompts."""
    [head, *rows] = rows_below((ROOT / "README.md").read_text(encoding="utf-8"), "| signed τ |")
    assert len(rows) == 3
    for name, *cells in rows:
        method = "auto" if name.startswith("`auto`") else re.findall(r"`([\w-]+)`", name)[0]
        for column, cell in zip(head[1:], cells, strict=True):
            where = COLUMNS[column]
            dataset, half = where if isinstance(where, tuple) else (where, None)
            own = values[(values["dataset"] == dataset) & ((values["half"] == half) | (half is None))]
            wanted = own[method].mean()
            if method == "auto" and half:
                wanted = own["auto-exemplars"].mean()
            elif method == "auto" and dataset != "entsalience":
                wanted = with_exemplars[dataset]["tau"]
            assert written(cell) == pytest.approx(wanted, abs=0.0051), (method, column)


def test_results_of_the_methods_page(values: pd.DataFrame, reproduction: dict) -> None:
    """Signed τ and |τ| of every method on every dataset, without exemplars."""
    text = (ROOT / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    [head, *rows] = rows_below(text[text.index("## How good it is") :], "| method |")
    compared = 0
    for name, *cells in rows:
        if not name.startswith("`"):
            continue
        method = name.strip("`")
        for dataset, cell in zip(head[1:], cells, strict=True):
            if cell == "–":
                continue
            signed, free = map(written, cell.split("/"))
            if (dataset, method) in reproduction:
                row = reproduction[dataset, method]
                wanted = row["tau"], row["abs_tau"]
            else:
                own = values[values["dataset"] == dataset]
                free_values = own[f"|{method}|"] if f"|{method}|" in own else own[method].abs()
                wanted = own[method].mean(), free_values.mean()
            assert signed == pytest.approx(wanted[0], abs=0.0051), (method, dataset)
            assert free == pytest.approx(wanted[1], abs=0.0051), (method, dataset)
            compared += 1
    assert compared > 100
