"""Tables of results: their columns, and the forms that other tools read: CSV, LaTeX, TREC runs and judgements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccrank.errors import needs_extra
from ccrank.io.trec import document_ids, query_id, run_lines, safe
from ccrank.study.results.load import StudyTasks
from ccrank.task import normal_form
from ccrank.util.text import Column, p_text

with needs_extra("report", "a table of results"):
    import pandas as pd

Row = Mapping[str, Any]
NO_NUMBER = "–"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "−": "$-$",
    "–": "--",
    "<": "$<$",
    "|": "$|$",
    "τ": r"$\tau$",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Field(Column):
    """A column of texts, which shows an entry of each row."""

    key: str = ""

    def text(self, row: Row) -> str:
        """The cell of a row."""
        return "" if row[self.key] == "none" else str(row[self.key])

    def empty(self, row: Row) -> bool:
        """Whether a row has nothing to show."""
        return not self.text(row)


@dataclass(frozen=True)
class Measure(Field):
    """A column of numbers."""

    number: bool = True
    form: str = ".3f"
    """How a number is written; "p" for a p-value."""
    high: str = ""
    """The entry of the upper end, for an interval whose lower end is `key`."""
    signed: bool = False
    """Whether it has no meaning for a method that does not give the direction."""
    least: float = -math.inf
    """Smaller values stand for no number."""

    def value(self, row: Row) -> float:
        """The number; NaN if there is none."""
        value = row.get(self.key, math.nan)
        return math.nan if (self.signed and not row["directed"]) or value < self.least else value

    def text(self, row: Row) -> str:
        """The cell of a row."""
        value = self.value(row)
        if math.isnan(value):
            return NO_NUMBER
        if self.high:
            return f"[{value:{self.form}}, {row[self.high]:{self.form}}]"
        return p_text(value) if self.form == "p" else format(value, self.form)

    def empty(self, row: Row) -> bool:
        """Whether a row has nothing to show."""
        return math.isnan(self.value(row))


METHOD = Field("method", key="method")
SPLIT, LAYER = Field("split", drop=1, key="split"), Measure("layer", drop=1, key="layer", form="d", least=0)
RESULTS = (
    METHOD,
    SPLIT,
    LAYER,
    Measure("tasks", drop=3, key="graded", form="d", least=1),
    Measure("queries", drop=3, key="queries", form="d", least=1),
    Measure("nDCG@10", key="ndcg_10"),
    Measure("95 % of nDCG", drop=2, key="ndcg_10_low", form=".2f", high="ndcg_10_high"),
    Measure("chance nDCG", key="chance_ndcg_10"),
    Measure("MRR", drop=4, key="mrr"),
    Measure("MAP", drop=4, key="map"),
    Measure("recall@10", drop=4, key="recall_10"),
    Measure("τ", key="tau", form="+.3f", signed=True),
    Measure("95 %", drop=2, key="tau_low", form="+.2f", high="tau_high", signed=True),
    Measure("|τ|", key="abs_tau"),
    Measure("95 % of |τ|", drop=2, key="abs_tau_low", form=".2f", high="abs_tau_high"),
    Measure("± seeds", drop=5, key="abs_tau_sd"),
    Measure("chance", key="chance_abs_tau"),
    Measure("95 % of chance", drop=6, key="chance_low", form=".2f", high="chance_high"),
    Measure("p", drop=6, key="p_value", form="p"),
    Measure("common τ", drop=4, key="common_tau"),
    Measure("by chance", drop=4, key="common_tau_chance"),
    Measure("p of common τ", drop=4, key="common_tau_p", form="p"),
    Measure("accuracy", drop=4, key="accuracy", form=".1%", signed=True),
    Measure("free", drop=5, key="free_accuracy", form=".1%"),
    Measure("chance free", drop=5, key="chance_free_accuracy", form=".1%"),
    Measure("pairs", drop=5, key="free_pair_accuracy", form=".1%"),
    Measure("coins", drop=5, key="chance_free_pair_accuracy", form=".1%"),
    Measure("consistent", drop=6, key="consistency", form=".2f"),
    Measure("s/task", drop=7, key="seconds", form=".2f"),
    Measure("tokens/task", drop=7, key="distinct_tokens", form=",.0f"),
)
"""Of `summarise`, with the metrics of retrieval."""
COMPARISONS = (
    Field("dataset", key="dataset"),
    Measure("tasks", drop=3, key="tasks", form="d"),
    Measure("first", drop=2, key="first_mean"),
    Measure("second", drop=2, key="second_mean"),
    Measure("difference", key="difference", form="+.3f"),
    Measure("95 %", key="low", form="+.3f", high="high"),
    Measure("p", key="p", form="p"),
    Measure("Holm", key="holm", form="p"),
    Measure("detectable", drop=1, key="detectable"),
)
"""Of `compare`."""
COSINES = (
    Field("model", drop=3, key="model"),
    Field("dataset", key="dataset"),
    Measure("layer", drop=1, key="layer", form="d"),
    Field("first", key="first"),
    Field("second", key="second"),
    Field("relation", key="relation"),
    Measure("cosine", key="cosine"),
    Measure("random", key="random"),
    Measure("pairs", drop=2, key="pairs", form="d"),
)
"""Of `compare_directions`."""


def used(columns: Sequence[Field], rows: Sequence[Row]) -> list[Field]:
    """The columns that have something to show in some row."""
    return [column for column in columns if not all(column.empty(row) for row in rows)]


def to_csv(rows: Sequence[Row]) -> str:
    """One line per row, with all its entries; NaN is an empty cell."""
    return str(pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


def to_latex(columns: Sequence[Field], rows: Sequence[Row]) -> str:
    """A LaTeX table with booktabs rules of the columns that have something to show."""
    kept = used(columns, rows)
    cells = [[_latex(column.text(row), column.number) for column in kept] for row in rows]
    table = pd.DataFrame(cells, columns=[_latex(column.title) for column in kept])
    alignment = "".join("r" if column.number else "l" for column in kept)
    tabular = table.to_latex(index=False, escape=False, column_format=alignment)
    return f"% needs \\usepackage{{booktabs}}\n{tabular}"


def _latex(text: str, number: bool = False) -> str:
    """A text of a cell with its symbols as LaTeX; in a number, a hyphen is a minus."""
    return "".join(_LATEX.get(char, char) for char in (text.replace("-", "−") if number else text))


def trec_run(frame: pd.DataFrame, tasks: StudyTasks) -> Iterator[str]:
    """Lines `qid Q0 docid rank score tag`: a query per task, a document per item, a tag per run.

    The tag is model/method, with split, layer and seed if there are any.
    """
    documents = {key: document_ids(task) for key, task in tasks.items()}
    for row in frame.itertuples():
        task, scores = tasks[row.dataset, row.task], row.scores
        tag = [safe(row.model), safe(row.method)]
        tag += [row.split] if row.split != "none" else []
        tag += [f"layer-{row.layer}"] if row.layer >= 0 else []
        tag += [f"seed-{row.seed}"] if row.layer >= 0 or row.split == "single" else []
        order = sorted(range(len(scores)), key=lambda index: (-scores[index], normal_form(task.items[index])))
        names = documents[row.dataset, row.task]
        ranked = [(names[index], scores[index]) for index in order]
        yield from run_lines(query_id(row.dataset, row.task), ranked, "/".join(tag))


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
