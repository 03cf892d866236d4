"""Results in the formats of other tools: CSV, LaTeX, and TREC run and judgement files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccrank.io.trec import document_ids, query_id, safe
from ccrank.study.results.load import StudyTasks
from ccrank.task import normal_form
from ccrank.util.text import p_text

if TYPE_CHECKING:
    import pandas as pd

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "−": "$-$",
}
_HEADS = {
    "model": "Model",
    "dataset": "Dataset",
    "kind": "Kind",
    "method": "Method",
    "split": "Split",
    "layer": "Layer",
    "graded": "Tasks",
    "tau": r"$\tau$",
    "abs_tau": r"$|\tau|$",
    "abs_tau_sd": r"$\pm$",
    "chance_abs_tau": "chance",
    "accuracy": "Acc.",
    "free_accuracy": "Free acc.",
    "chance_free_accuracy": "chance",
    "free_pair_accuracy": "Pairs",
    "chance_free_pair_accuracy": "chance",
    "seconds": "s/task",
    "distinct_tokens": "Tokens/task",
}

_IF_ANY = ("abs_tau_sd", "free_pair_accuracy", "chance_free_pair_accuracy")
"""Columns of some methods only: of several runs, and of pairwise answers."""


def to_csv(entries: Sequence[Mapping[str, Any]]) -> str:
    """One line per entry; NaN is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(entries[0])
    for entry in entries:
        writer.writerow(
            ["" if isinstance(value, float) and math.isnan(value) else value for value in entry.values()]
        )
    return buffer.getvalue()


def to_latex(entries: Sequence[Mapping[str, Any]]) -> str:
    """The entries of `summarise_results` as a LaTeX table with booktabs rules."""
    names = [
        name
        for name in _HEADS
        if name in entries[0]
        and not (name == "kind" and "dataset" in entries[0])
        and not (name in _IF_ANY and all(math.isnan(entry[name]) for entry in entries))
    ]
    texts = ("model", "dataset", "kind", "method", "split")
    columns = [(_HEADS[name], name not in texts) for name in names]
    return latex_table(columns, [[_cell(entry, name) for name in names] for entry in entries])


def latex_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> str:
    """A table with booktabs rules from heads, each with whether its column has numbers, and cells."""
    lines = [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for _, number in columns)}}}",
        r"\toprule",
        *(" & ".join(cells) + r" \\" for cells in ([head for head, _ in columns], *rows)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    lines.insert(4, r"\midrule")
    return "\n".join(lines) + "\n"


def comparison_latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of `compare` as a LaTeX table."""
    texts, numbers = ("Model", "Comparison", "Dataset"), ("Tasks", "First", "Second", "Difference")
    columns = [(head, head not in texts) for head in (*texts, *numbers, "$p$", "Holm", "Detectable")]
    return latex_table(
        columns,
        [
            [
                *(
                    latex_text(text)
                    for text in (row["model"], f"{row['first']} − {row['second']}", row["dataset"])
                ),
                str(row["tasks"]),
                f"{row['first_mean']:.3f}",
                f"{row['second_mean']:.3f}",
                f"${row['difference']:+.3f}${_between(row['low'], row['high'], '+.3f')}",
                *(_p_cell(row[name]) for name in ("p", "holm")),
                "--" if math.isnan(row["detectable"]) else f"{row['detectable']:.3f}",
            ]
            for row in rows
        ],
    )


def latex_text(text: str) -> str:
    """A text with the characters escaped that LaTeX reads as commands."""
    return "".join(_LATEX.get(char, char) for char in text)


def _between(low: float, high: float, form: str = "+.2f") -> str:
    """An interval behind its value; nothing if there is none."""
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def _p_cell(value: float) -> str:
    return "--" if math.isnan(value) else p_text(value).replace("< ", "$<$ ")


def _cell(entry: Mapping[str, Any], name: str) -> str:
    value = entry[name]
    if isinstance(value, str):
        return latex_text(value)
    if name == "layer":
        return "--" if value < 0 else str(value)
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "--"
    if name in ("tau", "accuracy") and not entry["directed"]:
        return "--"  # the direction is arbitrary, so the sign means nothing
    if name == "tau":
        return f"${value:+.3f}${_between(entry['tau_low'], entry['tau_high'])}"
    if name == "abs_tau":
        return f"{value:.3f}{_between(entry['abs_tau_low'], entry['abs_tau_high'], '.2f')}"
    if name == "distinct_tokens":
        return f"{value:.0f}"
    return f"{value:.2f}" if name == "seconds" else f"{value:.3f}"


def trec_run(frame: pd.DataFrame, tasks: StudyTasks) -> Iterator[str]:
    """Lines `qid Q0 docid rank score tag`: a query per task, a document per item, a tag per run.

    The tag is model/method, with split, layer and seed if there are any.
    """
    documents = {key: document_ids(task) for key, task in tasks.items()}
    columns = ("dataset", "task", "model", "method", "split", "layer", "seed", "scores")
    for dataset, name, model, method, split, layer, seed, scores in zip(
        *(frame[column] for column in columns), strict=True
    ):
        task = tasks[dataset, name]
        tag = "/".join(
            [
                safe(model),
                safe(method),
                *([split] if split != "none" else []),
                *([f"layer-{layer}"] if layer >= 0 else []),
                *([f"seed-{seed}"] if layer >= 0 or split == "single" else []),
            ]
        )
        order = sorted(range(len(scores)), key=lambda index: (-scores[index], normal_form(task.items[index])))
        query = query_id(dataset, name)
        for rank, index in enumerate(order, start=1):
            yield f"{query} Q0 {documents[dataset, name][index]} {rank} {scores[index]:.9g} {tag}\n"


def trec_judgements(tasks: StudyTasks) -> Iterator[str]:
    """Lines `qid 0 docid grade` for tasks with gold: the lowest item has grade 0, the next 1, and so on; grades of
    relevance to a query are as they are."""
    for (dataset, name), task in tasks.items():
        if task.values is not None:
            grades = {value: grade for grade, value in enumerate(sorted(task.values))}
            if task.query is not None:
                grades = {value: int(value) for value in task.values}
            for document, value in zip(document_ids(task), task.values, strict=True):
                yield f"{query_id(dataset, name)} 0 {document} {grades[value]}\n"
