"""Documents and queries on the command line: first stages, runs and metrics of retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.cli.screen import out
from ccrank.errors import CcrankError
from ccrank.rows import cell_text
from ccrank.task import Task
from ccrank.trec import document_ids, read_run, run_lines, with_first_stage

if TYPE_CHECKING:
    from ccrank.ranking import Ranking


def take_first_stage(tasks: list[Task], source: str) -> tuple[list[Task], str]:
    """The tasks and the source of their first-stage scores; scores of a run file are put into the tasks."""
    if lacking := [task.id for task in tasks if task.query is None]:
        raise CcrankError(
            f"--first-stage is for documents and a query; task {lacking[0]!r} has none: give --query"
        )
    if source in ("none", "auto", "given", "bm25"):
        return tasks, source
    if not Path(source).is_file():
        raise CcrankError(
            f"--first-stage is bm25, given, none or a TREC run file; there is no file {source!r}"
        )
    return with_first_stage(tasks, read_run(source)), "given"


def run_of(rankings: Sequence[Ranking]) -> Iterator[str]:
    """The lines of a TREC run. Rows of a file are named by their --id, or by their places, from 1."""
    for ranking in rankings:
        tag, rows = f"{ranking.model}/{ranking.method}", ranking.rows
        if rows is None:
            names = document_ids(ranking.task)
            documents = [(names[entry.index], entry.score) for entry in ranking.entries()]
        elif rows.id_column is None:
            documents = [(str(entry.row + 1), entry.score) for entry in ranking.entries()]
        else:
            cells = [str(cell_text(record[rows.id_column])) for record in rows.records]
            documents = [(cells[entry.row], entry.score) for entry in ranking.entries()]
        yield from run_lines(ranking.task.id, documents, tag)


def relevance_json(ranking: Ranking) -> dict[str, Any]:
    """Metrics of retrieval with their chance levels; nothing where the package for them is not installed."""
    from ccrank.metrics.retrieval import NAMES, chance_relevance, evaluate_relevance, have_measures
    from ccrank.ranking import finite

    if not have_measures():
        return {}
    gold = ranking.task.values or ()
    found, chance = evaluate_relevance(ranking.scores, gold), chance_relevance(gold)
    names = {"ndcg": "ndcg_10", "recall": "recall_10"}
    metrics = {names.get(name, name): finite(getattr(found, name)) for name in NAMES}
    levels = {f"chance_{names.get(name, name)}": finite(getattr(chance, name)) for name in NAMES}
    return {"against_gold": metrics | levels}


def show_relevance(rankings: Sequence[Ranking]) -> None:
    """Print metrics of retrieval for documents with grades of relevance."""
    from ccrank.metrics.retrieval import (
        INSTALL,
        chance_relevance,
        evaluate_relevance,
        have_measures,
        mean_relevance,
    )

    if not rankings:
        return
    if not have_measures():
        out().print(f"\nfor nDCG and other metrics of the {len(rankings)} queries: {INSTALL}", markup=False)
        return
    gold = [one.task.values or () for one in rankings]
    found = mean_relevance(
        [evaluate_relevance(one.scores, own) for one, own in zip(rankings, gold, strict=True)]
    )
    chance = mean_relevance([chance_relevance(own) for own in gold])
    plural = "ies" if len(rankings) > 1 else "y"
    out().print(
        f"\n{len(rankings)} quer{plural} with grades: nDCG@10 {found.ndcg:.3f} (chance {chance.ndcg:.3f}), "
        f"MRR {found.mrr:.3f} ({chance.mrr:.3f}), MAP {found.map:.3f} ({chance.map:.3f}), "
        f"recall@10 {found.recall:.3f} ({chance.recall:.3f})"
    )
