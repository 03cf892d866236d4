"""Printing rankings: tables with bars, a line on consistency, and metrics if gold is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccrank.cli.screen import Column, bar, fitted_table, out
from ccrank.confidence import RIGHT, Confidence
from ccrank.io import cell_text
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from ccrank.ranking import Ranking
    from ccrank.rankings import Rankings


MAX_ALTERNATIVES = 2


def show(rankings: Sequence[Ranking], top: int | None, reverse: bool, signals: bool = False) -> None:
    """Print rankings as tables; `signals` adds a column for each signal of a combined score, and intervals
    where a confidence is known."""
    console = out()
    for number, ranking in enumerate(rankings):
        if number:
            console.print()
        heading = understood_line(ranking, reverse)
        console.print(
            f"{one_line(ranking.task.id)}, {heading}" if len(rankings) > 1 else heading, style="bold"
        )
        if line := alternatives_line(ranking):
            console.print(line, style="dim", markup=False)
        low, high = min(ranking.scores), max(ranking.scores)
        columns = dict(ranking.details.get("signals", {})) if signals else {}
        id_column = None if ranking.rows is None else ranking.rows.id_column
        doubt = ranking.uncertainty if signals else ranking.tabled_uncertainty
        titles = [
            Column("rank", number=True),
            Column("item", most=80),
            Column("score", number=True),
            Column("", drop=1),
            *(
                []
                if doubt is None
                else [Column("±", number=True), Column(f"{doubt.probability:.0%} of ranks", number=True)]
            ),
            *(Column(name, number=True, drop=2) for name in columns),
        ]
        if ranking.rows is not None and id_column is not None:
            titles.append(Column(one_line(str(ranking.rows.columns[id_column])), most=40))
        cells = []
        for entry in ranking.entries(top, reverse):
            extra = []
            if doubt is not None:
                span = f"{doubt.rank_low[entry.index]}–{doubt.rank_high[entry.index]}"
                extra = [f"{doubt.deviation[entry.index]:.2f}", span]
            extra += [f"{scores[ranking.task.items[entry.index]]:+.2f}" for scores in columns.values()]
            if ranking.rows is not None and id_column is not None:
                extra.append(one_line(cell_text(ranking.rows.records[entry.row][id_column])))
            cells.append(
                [
                    str(entry.rank),
                    one_line(entry.item),
                    f"{entry.score:.2f}",
                    bar(entry.score, low, high),
                    *extra,
                ]
            )
        console.print(fitted_table(titles, cells)[0])
        console.print(consistency_line(ranking), style="dim")
        if ranking.confidence is not None:
            console.print(confidence_line(ranking.confidence, signals), style="dim")
    _show_summary(rankings)


def show_table(table: Rankings, top: int | None, reverse: bool) -> None:
    """Print one table of several rankings, a column for each, and what was understood of each criterion."""
    console = out()
    for ranking in table.values():
        console.print(understood_line(ranking, reverse and ranking is table.first), style="bold")
    titles = [Column("item", most=80)]
    for name in table:
        titles += [Column(one_line(name, 30), number=True), Column("score", number=True)]
    cells = []
    for first in table.first.entries(top, reverse):
        own = [by_row[first.row] for by_row in table.entries_by_row.values()]
        cells.append(
            [one_line(first.item), *(text for one in own for text in (str(one.rank), f"{one.score:.2f}"))]
        )
    console.print(fitted_table(titles, cells)[0])
    for name, ranking in table.items():
        console.print(f"{one_line(name, 30)}: {consistency_line(ranking)}", style="dim", markup=False)
        if ranking.confidence is not None:
            console.print(f"  {confidence_line(ranking.confidence)}", style="dim", markup=False)


def understood_line(ranking: Ranking, reverse: bool = False) -> str:
    """What the criterion was taken to mean: "by price: cheapest first"."""
    by = f"by {one_line(ranking.task.criterion.name)}"
    if ranking.understood is None or not ranking.directed:
        return by
    return f"{by}: {one_line(ranking.understood.last if reverse else ranking.understood.first)}"


def alternatives_line(ranking: Ranking) -> str:
    """What else the criterion may mean, as flags; empty if nothing."""
    known = ranking.understood
    if known is None or not known.alternatives:
        return ""
    flags = (" ".join(("--poles", *other.poles)) for other in known.alternatives[:MAX_ALTERNATIVES])
    return f"taken as {' to '.join(known.poles)}; if you mean another sense: {' or '.join(flags)}"


def consistency_line(ranking: Ranking) -> str:
    """One line about the ranking's consistency and direction."""
    from ccrank.methods.registry import get_method

    phrases = get_method(ranking.method).describe(ranking.consistency, ranking.details)
    direction = [] if ranking.directed else ["direction unknown: the order may be reversed"]
    return "; ".join([f"{ranking.method} on {ranking.model}", *phrases, *direction])


def confidence_line(confidence: Confidence, numbers: bool = False) -> str:
    """How likely the order is right, in words and, with `numbers`, as a probability."""
    more = f" (P(τ > {RIGHT}) = {confidence.probability:.2f})" if numbers else ""
    return f"confidence: {confidence.level}{more}: {confidence.sentence}"


def _show_summary(rankings: Sequence[Ranking]) -> None:
    """Print metrics with chance levels for tasks with gold."""
    import numpy as np

    from ccrank.metrics import evaluate, mean_with_interval

    _show_relevance(
        [
            ranking
            for ranking in rankings
            if ranking.task.query is not None and ranking.task.values is not None
        ]
    )
    evaluations = [
        evaluate(ranking.scores, ranking.task.values)
        for ranking in rankings
        if ranking.task.values is not None and ranking.task.query is None
    ]
    if not evaluations:
        return
    tau = mean_with_interval([task.tau for task in evaluations], np.random.default_rng(0))
    between = f" [{tau.low:+.3f}, {tau.high:+.3f}]" if len(evaluations) > 1 else ""
    names = ("abs_tau", "chance_abs_tau", "accuracy")
    abs_tau, chance, accuracy = (np.mean([getattr(task, name) for task in evaluations]) for name in names)
    out().print(
        f"\n{len(evaluations)} task{'s' if len(evaluations) > 1 else ''} with gold: τ {tau.mean:+.3f}{between} "
        f"(chance 0), |τ| {abs_tau:.3f} (chance {chance:.3f}), pairwise accuracy {accuracy:.1%} (chance 50%)"
    )


def _show_relevance(rankings: Sequence[Ranking]) -> None:
    """Print metrics of retrieval for documents with grades of relevance."""
    from ccrank.errors import install_line
    from ccrank.metrics.retrieval import (
        chance_relevance,
        evaluate_relevance,
        have_measures,
        mean_relevance,
    )

    if not rankings:
        return
    if not have_measures():
        out().print(
            f"\nfor nDCG and other metrics of the {len(rankings)} queries: {install_line('relevance')}",
            markup=False,
        )
        return
    gold = [ranking.task.values or () for ranking in rankings]
    measured = mean_relevance(
        [evaluate_relevance(ranking.scores, grades) for ranking, grades in zip(rankings, gold, strict=True)]
    )
    chance = mean_relevance([chance_relevance(grades) for grades in gold])
    plural = "ies" if len(rankings) > 1 else "y"
    out().print(
        f"\n{len(rankings)} quer{plural} with grades: nDCG@10 {measured.ndcg:.3f} (chance {chance.ndcg:.3f}), "
        f"MRR {measured.mrr:.3f} ({chance.mrr:.3f}), MAP {measured.map:.3f} ({chance.map:.3f}), "
        f"recall@10 {measured.recall:.3f} ({chance.recall:.3f})"
    )
