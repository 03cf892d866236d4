"""The HTML report of a study: text, tables, figures and every task's rankings in one self-contained page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ccrank.metrics.retrieval import have_measures
from ccrank.report.figures_style import image_bytes
from ccrank.report.rankings import pack_rankings, script_json
from ccrank.results.relevance import add_relevance
from ccrank.results.summary import summarise_results
from ccrank.results.tables import Best, Headline, headlines, kind_summary

if TYPE_CHECKING:
    from ccrank.report.figures import DrawnFigure
    from ccrank.report.study import Study

MOST_ROWS = 1000
"""Maximal number of rows of a table on the page; the rest is in summary.csv."""
MOST_FAILURES = 500
MOST_FIGURE_BYTES = 260_000
"""Larger images are drawn at a lower resolution."""
ALL_FIGURES_BYTES = 1_400_000
"""Images beyond this total are not embedded, only linked as files."""

MINUS = "\u2212"


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell, and its sort value if that differs."""

    text: str
    value: float | None = None
    numeric: bool = False
    strong: bool = False
    detail: str = ""
    """What follows the text where there is room: a deviation, an interval."""


def render_page(study: Study, table: pd.DataFrame, figures: Sequence[DrawnFigure]) -> str:
    """The HTML of a study's report. Text from the study is escaped by the template, or embedded as JSON that the page's
    script shows as text."""
    script, style = _data_file("page.js"), _data_file("page.css")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    rankings = pack_rankings(study.results, study.tasks)
    main = table[table["main_layer"]]
    found = headlines(table)
    return environment.from_string(_data_file("page.html.jinja")).render(
        name=study.name,
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash(script),
        style_hash=_hash(style),
        counts=_counts(study.results),
        headlines=_by_dataset(found),
        verdict=_verdict(found),
        tables=[
            *([_kinds_table(study.results), _summary_table(main)] if len(table) else []),
            *_relevance_tables(study),
        ],
        rows_left_out=max(0, len(main) - MOST_ROWS),
        several_layers=len(main) < len(table),
        figures=_embedded(figures),
        rankings=Markup(script_json(rankings)) if rankings["tasks"] else None,
        ranked_tasks=len(rankings["tasks"]),
        left_out=rankings["left_out"],
        failures=_failures_table(study.failures),
        failure_count=len(study.failures),
        config=study.config,
        settings=_flat(study.environment),
    )


def signed(value: float) -> str:
    """A number with its sign, such as +0.63 or −0.10."""
    return f"{value:+.2f}".replace("-", MINUS)


def headline_words(one: Headline) -> list[str]:
    """The results of a model on a dataset as sentences, with chance levels."""
    words = []
    if one.directed is not None:
        best = one.directed
        verdict = "" if best.above_chance else ", which is not above chance"
        words.append(
            f"Best directed method: {_called(best)}, τ = {signed(best.value)}; random "
            f"orders give 0 (95 %: {signed(best.chance.low)} to {signed(best.chance.high)}){verdict}."
        )
    else:
        words.append("No directed label-free method was run.")
    if one.free is not None:
        best = one.free
        verdict = "" if best.above_chance else ", which is not above chance"
        words.append(
            f"Best regardless of direction: {_called(best)}, |τ| = {best.value:.2f}; random orders give "
            f"{best.chance.mean:.2f} (95 %: {best.chance.low:.2f} to {best.chance.high:.2f}){verdict}."
        )
    if one.ceiling is not None:
        best = one.ceiling
        words.append(f"With labels, {_called(best)} reaches τ = {signed(best.value)}.")
    # Keep a number on the same line as its name: no-break spaces, and a word joiner after |.
    return [
        text.replace("| = ", "|\u2060 = ").replace(" = ", "\u00a0=\u00a0").replace("95 %", "95\u00a0%")
        for text in words
    ]


def _called(best: Best) -> str:
    note = {"baseline": ["a baseline"]}.get(best.family, [])
    if best.split not in ("none", "same-task") or (best.family == "supervised" and best.split == "same-task"):
        note = [*note, "tested on its training task" if best.split == "same-task" else best.split]
    return best.method + (f" ({', '.join(note)})" if note else "")


def _verdict(found: Sequence[Headline]) -> str:
    directed = [one.directed for one in found if one.directed is not None]
    free = [one.free for one in found if one.free is not None]
    words = []
    if directed:
        above = sum(one.above_chance for one in directed)
        words.append(
            f"a directed label-free method is above chance for {above} of {len(directed)} "
            "combinations of model and dataset"
        )
    if free:
        above = sum(one.above_chance for one in free)
        baselines = sum(one.family == "baseline" for one in free)
        note = f", and for {baselines} the best is a baseline" if baselines else ""
        words.append(f"a label-free method is above chance in |τ| for {above} of {len(free)}{note}")
    text = "; ".join(words)
    return text[:1].upper() + text[1:] + "." if text else ""


def _by_dataset(found: Sequence[Headline]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for one in found:
        group = groups.setdefault(one.dataset, {"dataset": one.dataset, "tasks": one.tasks, "models": []})
        group["models"].append({"model": one.model, "words": headline_words(one)})
    return list(groups.values())


def _counts(results: pd.DataFrame) -> list[tuple[int, str]]:
    tasks = len(results.drop_duplicates(["dataset", "task"]))
    numbers = [(tasks, "task")] + [
        (int(results[column].nunique()), column) for column in ("dataset", "model", "method", "seed")
    ]
    return [(number, word if number == 1 else word + "s") for number, word in numbers]


def _number(value: float, places: int = 2, strong: bool = False, spread: float = 0.0) -> Cell:
    if value is None or math.isnan(value):
        return Cell("–", None, True)
    text = f"{value:.{places}f}".replace("-", MINUS)
    return Cell(text, float(value), True, strong, f" ± {spread:.{places}f}" if spread > 0 else "")


def _chance(low: float, mean: float, high: float) -> Cell:
    return Cell(f"{mean:.2f}", float(mean), True, detail=f" ({low:.2f}–{high:.2f})")


def _p_value(value: float) -> Cell:
    return Cell("< 0.001" if value < 0.001 else f"{value:.3f}", float(value), True)


def _kinds_table(results: pd.DataFrame) -> dict[str, Any]:
    rows = kind_summary(results) if results["tau"].notna().any() else pd.DataFrame()
    heads = [
        "Method", "Family", "Model", "Kind", "τ", "|τ|", "Chance |τ| (95 %)", "Accuracy", "Free accuracy",
        "Chance accuracy",
    ]  # fmt: skip
    body = [
        [
            Cell(row.method),
            Cell(row.family),
            Cell(row.model),
            Cell(row.kind),
            _number(row.tau if row.directed else math.nan, spread=row.tau_sd),
            _number(row.abs_tau, strong=row.abs_tau > row.chance_high, spread=row.abs_tau_sd),
            _chance(row.chance_low, row.chance, row.chance_high),
            _number(row.accuracy if row.directed else math.nan, spread=row.accuracy_sd),
            _number(row.free_accuracy, spread=row.free_accuracy_sd),
            _number((1 + row.chance) / 2),
        ]
        for row in rows.itertuples()
    ]
    caption = "Means over datasets of a kind, main setting: the numbers of the first figure"
    return {
        "id": "kinds",
        "caption": caption,
        "heads": heads,
        "minor": _minor(heads, rows),
        "rows": body,
        "filters": ["Model", "Kind", "Family"],
    }


def _summary_table(rows: pd.DataFrame) -> dict[str, Any]:
    heads = [
        "Method", "Family", "Model", "Dataset", "Split", "Layer", "Tasks", "Seeds", "τ", "|τ|", "Chance |τ| (95 %)",
        "p", "Accuracy", "Free accuracy", "Chance accuracy", "Consistency", "Tokens / task", "Seconds / task",
    ]  # fmt: skip
    body = [
        [
            Cell(row.method),
            Cell(row.family),
            Cell(row.model),
            Cell(row.dataset),
            Cell(row.split),
            Cell("–", None, True) if row.layer < 0 else Cell(str(row.layer), float(row.layer), True),
            Cell(str(row.tasks), float(row.tasks), True),
            Cell(str(row.seeds), float(row.seeds), True),
            _number(row.tau if row.directed else math.nan, spread=row.tau_sd),
            _number(row.abs_tau, strong=row.abs_tau > row.chance_high, spread=row.abs_tau_sd),
            _chance(row.chance_low, row.chance, row.chance_high),
            _p_value(row.p_value),
            _number(row.accuracy if row.directed else math.nan),
            _number(row.free_accuracy),
            _number((1 + row.chance) / 2),
            _number(row.consistency),
            _number(row.distinct_tokens, 0),
            _number(row.seconds, 3),
        ]
        for row in rows.head(MOST_ROWS).itertuples()
    ]
    return {
        "id": "summary",
        "caption": "Every model, dataset, method and split",
        "heads": heads,
        "minor": _minor(heads, rows),
        "rows": body,
        "filters": ["Model", "Dataset", "Family", "Split"],
    }


def _relevance_tables(study: Study) -> list[dict[str, Any]]:
    """A table of the metrics of retrieval, for studies with queries; none where their package is not installed."""
    if not have_measures():
        return []
    entries = add_relevance(summarise_results(study.results), study.results, study.tasks)
    rows = pd.DataFrame([entry for entry in entries if entry.get("queries")])
    if rows.empty:
        return []
    heads = [
        "Method", "Family", "Model", "Dataset", "Queries", "nDCG@10", "Chance nDCG@10", "MRR", "MAP", "Recall@10",
        "Tokens / task", "Seconds / task",
    ]  # fmt: skip
    body = [
        [
            Cell(row.method),
            Cell(row.family),
            Cell(row.model),
            Cell(row.dataset),
            Cell(str(row.queries), float(row.queries), True),
            Cell(
                f"{row.ndcg_10:.2f}",
                row.ndcg_10,
                True,
                detail=f" ({row.ndcg_10_low:.2f}–{row.ndcg_10_high:.2f})",
            ),
            *(_number(value) for value in (row.chance_ndcg_10, row.mrr, row.map, row.recall_10)),
            _number(row.distinct_tokens, 0),
            _number(row.seconds, 3),
        ]
        for row in rows.head(MOST_ROWS).itertuples()
    ]
    return [
        {
            "id": "relevance",
            "caption": "Relevance to queries, with 95 % intervals of nDCG@10 over queries",
            "heads": heads,
            "minor": _minor(heads, rows),
            "rows": body,
            "filters": ["Model", "Dataset", "Family"],
        }
    ]


MAJOR = ("Method", "Dataset", "Kind", "τ", "|τ|", "Chance |τ| (95 %)", "nDCG@10", "Chance nDCG@10")
"""The columns that a phone shows; the others need a wider screen."""


def _minor(heads: Sequence[str], rows: pd.DataFrame) -> list[bool]:
    """For each column whether a phone leaves it out; the model stays where there are several."""
    models = rows["model"].nunique() if len(rows) else 0
    return [head not in MAJOR and not (head == "Model" and models > 1) for head in heads]


def _failures_table(failures: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not failures:
        return None
    shown = failures[:MOST_FAILURES]
    heads = list(dict.fromkeys(str(key) for one in shown for key in one))
    body = [[Cell(_plain(one.get(head, ""))[:600]) for head in heads] for one in shown]
    titles = [head[:1].upper() + head[1:] for head in heads]
    return {
        "id": "failures",
        "caption": "Tasks and units that failed",
        "heads": titles,
        "minor": [False] * len(titles),
        "rows": body,
        "filters": [],
    }


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (path, text) rows."""
    lines = []
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            lines += _flat(inner, name + ".")
        else:
            lines.append((name, _plain(inner)))
    return lines


def _plain(value: object) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _embedded(figures: Sequence[DrawnFigure]) -> list[dict[str, Any]]:
    """Each figure as an embedded image: the smaller of SVG and PNG."""
    shown, total = [], 0
    for one in figures:
        forms = {form: one.files[form].read_bytes() for form in ("svg", "png")}
        form = min(forms, key=lambda name: len(forms[name]))
        content = forms[form]
        if len(content) > MOST_FIGURE_BYTES:
            form, content = "png", image_bytes(one.figure, "png", dpi=110)
        total += len(content)
        kind = {"svg": "image/svg+xml", "png": "image/png"}[form]
        width, height = one.figure.get_size_inches()
        shown.append(
            {
                "name": one.kind.name,
                "title": one.kind.title,
                "caption": one.kind.caption,
                "width": round(width * 100),
                "height": round(height * 100),
                "source": f"data:{kind};base64,{base64.b64encode(content).decode()}"
                if total <= ALL_FIGURES_BYTES
                else "",
            }
        )
    return shown


def _data_file(name: str) -> str:
    return resources.files("ccrank.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
