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
from ccrank.study.report.encoded_rankings import pack_rankings, script_json
from ccrank.study.report.figures_style import image_bytes
from ccrank.study.results.summary import add_relevance, summarise_results
from ccrank.study.results.tables import (
    Best,
    Headline,
    headlines,
    kind_summary,
    main_setting,
    with_intervals,
)
from ccrank.util.text import p_text

if TYPE_CHECKING:
    from ccrank.study.report.write_report import DrawnFigure, StoredStudy

MAX_ROWS = 1000
"""Maximal number of rows of a table on the page; the rest is in summary.csv."""
MAX_FAILURES = 500
MAX_FIGURE_BYTES = 260_000
"""Larger images are drawn at a lower resolution."""
MAX_ALL_FIGURES_BYTES = 1_400_000
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


def render_page(study: StoredStudy, table: pd.DataFrame, figures: Sequence[DrawnFigure]) -> str:
    """The HTML of a study's report. Text from the study is escaped by the template, or embedded as JSON that the page's
    script shows as text."""
    script, style = _data_file("page.js"), _data_file("page.css")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    rankings = pack_rankings(study.results, study.tasks)
    main = table[table["main_layer"]]
    best = headlines(table)
    return environment.from_string(_data_file("page.html.jinja")).render(
        name=study.name,
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash(script),
        style_hash=_hash(style),
        counts=_counts(study.results),
        headlines=_by_dataset(best),
        verdict=_verdict(best),
        tables=list(
            filter(None, (_kinds_table(study.results), _summary_table(main), _relevance_table(study)))
        ),
        rows_left_out=max(0, len(main) - MAX_ROWS),
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


def headline_words(headline: Headline) -> list[str]:
    """The results of a model on a dataset as sentences, with chance levels."""
    sentences = []
    if (best := headline.directed) is not None:
        low, high = signed(best.chance.low), signed(best.chance.high)
        sentences.append(
            f"Best directed method: {_called(best)}, τ = {signed(best.value)}; random orders give 0 "
            f"({_corrected(best)}: {low} to {high}){_caveat(best)}."
        )
    else:
        sentences.append("No directed label-free method was run.")
    if (best := headline.free) is not None:
        sentences.append(
            f"Best regardless of direction: {_called(best)}, |τ| = {best.value:.2f}; random orders give "
            f"{best.chance.mean:.2f} ({_corrected(best)}: {best.chance.low:.2f} to {best.chance.high:.2f})"
            f"{_caveat(best)}."
        )
    if (best := headline.ceiling) is not None:
        sentences.append(f"With labels, {_called(best)} reaches τ = {signed(best.value)}.")
    # Keep a number on the same line as its name: no-break spaces, and a word joiner after |.
    return [
        text.replace("| = ", "|\u2060 = ").replace(" = ", "\u00a0=\u00a0").replace("95 %", "95\u00a0%")
        for text in sentences
    ]


def _corrected(best: Best) -> str:
    return "95 %" if best.methods == 1 else f"95 % for the best of {best.methods}"


def _caveat(best: Best) -> str:
    return "" if best.above_chance else ", which is not above chance"


def _called(best: Best) -> str:
    notes = ["a baseline"] if best.family == "baseline" else []
    if best.split == "same-task" and best.family == "supervised":
        notes.append("tested on its training task")
    elif best.split not in ("none", "same-task"):
        notes.append(best.split)
    return best.method + (f" ({', '.join(notes)})" if notes else "")


def _verdict(all_headlines: Sequence[Headline]) -> str:
    directed = [headline.directed for headline in all_headlines if headline.directed is not None]
    free = [headline.free for headline in all_headlines if headline.free is not None]
    clauses = []
    if directed:
        above = sum(best.above_chance for best in directed)
        clauses.append(
            f"a directed label-free method is above chance for {above} of {len(directed)} "
            "combinations of model and dataset"
        )
    if free:
        above = sum(best.above_chance for best in free)
        baselines = sum(best.family == "baseline" for best in free)
        note = f", and for {baselines} the best is a baseline" if baselines else ""
        clauses.append(f"a label-free method is above chance in |τ| for {above} of {len(free)}{note}")
    text = "; ".join(clauses)
    return text[:1].upper() + text[1:] + "." if text else ""


def _by_dataset(all_headlines: Sequence[Headline]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for headline in all_headlines:
        group = {"dataset": headline.dataset, "tasks": headline.tasks, "models": []}
        models = groups.setdefault(headline.dataset, group)["models"]
        models.append({"model": headline.model, "words": headline_words(headline)})
    return list(groups.values())


def _counts(results: pd.DataFrame) -> list[tuple[int, str]]:
    tasks = len(results.drop_duplicates(["dataset", "task"]))
    numbers = [(tasks, "task")] + [
        (int(results[column].nunique()), column) for column in ("dataset", "model", "method", "seed")
    ]
    return [(number, word if number == 1 else word + "s") for number, word in numbers]


def _number(value: float, places: int = 2, strong: bool = False, spread: float = 0.0) -> Cell:
    if math.isnan(value):
        return Cell("–", None, True)
    text = f"{value:.{places}f}".replace("-", MINUS)
    return Cell(text, float(value), True, strong, f" ± {spread:.{places}f}" if spread > 0 else "")


def _count(value: int) -> Cell:
    return Cell(str(value), float(value), True)


def _with_interval(value: float, low: float, high: float) -> Cell:
    return Cell(f"{value:.2f}", float(value), True, detail=f" ({low:.2f}–{high:.2f})")


def _interval(low: float, high: float) -> Cell:
    return Cell("–" if math.isnan(low) else f"{low:.2f}–{high:.2f}", None if math.isnan(low) else low, True)


def _p_value(value: float) -> Cell:
    return Cell(p_text(value), float(value), True)


def _if_directed(row: Any, name: str, spread: float = 0.0) -> Cell:
    return _number(getattr(row, name) if row.directed else math.nan, spread=spread)


def _names(row: Any, *columns: str) -> dict[str, Cell]:
    return {column.capitalize(): Cell(getattr(row, column)) for column in columns}


def _taus(row: Any) -> dict[str, Cell]:
    return {
        "τ": _if_directed(row, "tau", row.tau_sd),
        "|τ|": _number(row.abs_tau, strong=row.abs_tau > row.chance_high, spread=row.abs_tau_sd),
        "|τ| 95 %": _interval(row.abs_tau_low, row.abs_tau_high),
        "Chance |τ| (95 %)": _with_interval(row.chance, row.chance_low, row.chance_high),
    }


def _costs(row: Any) -> dict[str, Cell]:
    return {"Tokens / task": _number(row.distinct_tokens, 0), "Seconds / task": _number(row.seconds, 3)}


def _kinds_table(results: pd.DataFrame) -> dict[str, Any] | None:
    table = kind_summary(results)
    rows = [
        {
            **_names(row, "method", "family", "model", "kind"),
            **_taus(row),
            "Accuracy": _if_directed(row, "accuracy", row.accuracy_sd),
            "Free accuracy": _number(row.free_accuracy, spread=row.free_accuracy_sd),
            "Chance accuracy": _number((1 + row.chance) / 2),
        }
        for row in with_intervals(table, main_setting(results), ["model", "kind", "method"]).itertuples()
    ]
    caption = "Means over datasets of a kind, main setting: the numbers of the first figure"
    return _table("kinds", caption, rows, ["Model", "Kind", "Family"])


def _summary_table(table: pd.DataFrame) -> dict[str, Any] | None:
    rows = [
        {
            **_names(row, "method", "family", "model", "dataset", "split"),
            "Layer": Cell("–", None, True) if row.layer < 0 else _count(row.layer),
            "Tasks": _count(row.tasks),
            "Seeds": _count(row.seeds),
            **_taus(row),
            "p": _p_value(row.p_value),
            "Accuracy": _if_directed(row, "accuracy"),
            "Free accuracy": _number(row.free_accuracy),
            "Chance accuracy": _number((1 + row.chance) / 2),
            "Consistency": _number(row.consistency),
            **_costs(row),
        }
        for row in table.head(MAX_ROWS).itertuples()
    ]
    caption = "Every model, dataset, method and split"
    return _table("summary", caption, rows, ["Model", "Dataset", "Family", "Split"])


def _relevance_table(study: StoredStudy) -> dict[str, Any] | None:
    """The metrics of retrieval, for studies with queries; None where their package is not installed."""
    if not have_measures():
        return None
    entries = add_relevance(summarise_results(study.results), study.results, study.tasks)
    table = pd.DataFrame([entry for entry in entries if entry.get("queries")])
    rows = [
        {
            **_names(row, "method", "family", "model", "dataset"),
            "Queries": _count(row.queries),
            "nDCG@10": _with_interval(row.ndcg_10, row.ndcg_10_low, row.ndcg_10_high),
            "Chance nDCG@10": _number(row.chance_ndcg_10),
            "MRR": _number(row.mrr),
            "MAP": _number(row.map),
            "Recall@10": _number(row.recall_10),
            **_costs(row),
        }
        for row in table.head(MAX_ROWS).itertuples()
    ]
    caption = "Relevance to queries, with 95 % intervals of nDCG@10 over queries"
    return _table("relevance", caption, rows, ["Model", "Dataset", "Family"])


MAJOR = ("Method", "Dataset", "Kind", "τ", "|τ|", "Chance |τ| (95 %)", "nDCG@10", "Chance nDCG@10")
"""The columns that a phone shows, with the model where there are several; the others need a wider screen."""


def _table(
    name: str, caption: str, rows: Sequence[Mapping[str, Cell]], filters: list[str]
) -> dict[str, Any] | None:
    """What the template needs of a table; None without rows."""
    if not rows:
        return None
    heads = list(rows[0])
    major = (*MAJOR, "Model") if len({row["Model"].text for row in rows}) > 1 else MAJOR
    return {
        "id": name,
        "caption": caption,
        "heads": heads,
        "minor": [head not in major for head in heads],
        "rows": [list(row.values()) for row in rows],
        "filters": filters,
    }


def _failures_table(failures: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not failures:
        return None
    shown = failures[:MAX_FAILURES]
    heads = list(dict.fromkeys(str(key) for failure in shown for key in failure))
    body = [[Cell(_plain(failure.get(head, ""))[:600]) for head in heads] for failure in shown]
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
    for drawn in figures:
        contents = {form: drawn.files[form].read_bytes() for form in ("svg", "png")}
        form = min(contents, key=lambda name: len(contents[name]))
        content = contents[form]
        if len(content) > MAX_FIGURE_BYTES:
            form, content = "png", image_bytes(drawn.figure, "png", dpi=110)
        total += len(content)
        media_type = {"svg": "image/svg+xml", "png": "image/png"}[form]
        source = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
        width, height = drawn.figure.get_size_inches()
        shown.append(
            {
                "name": drawn.name,
                "title": drawn.title,
                "caption": drawn.caption,
                "width": round(width * 100),
                "height": round(height * 100),
                "source": source if total <= MAX_ALL_FIGURES_BYTES else "",
            }
        )
    return shown


def _data_file(name: str) -> str:
    return resources.files("ccrank.study.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
