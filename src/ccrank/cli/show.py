"""Printing rankings: tables with bars, a line on consistency, and metrics if gold is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccrank.cli.relevance import show_relevance
from ccrank.cli.screen import Column, bar, fitted_table, out
from ccrank.confidence import RIGHT, Confidence
from ccrank.rows import cell_text
from ccrank.text import one_line

if TYPE_CHECKING:
    from ccrank.ranking import Ranking


def show(rankings: Sequence[Ranking], top: int | None, reverse: bool, signals: bool = False) -> None:
    """Print rankings as tables; `signals` adds a column for each signal of a combined score."""
    console = out()
    for number, ranking in enumerate(rankings):
        if number:
            console.print()
        heading = understood_line(ranking, reverse)
        console.print(
            f"{one_line(ranking.task.id)}, {heading}" if len(rankings) > 1 else heading, style="bold"
        )
        low, high = min(ranking.scores), max(ranking.scores)
        columns = dict(ranking.details.get("signals", {})) if signals else {}
        id_column = None if ranking.rows is None else ranking.rows.id_column
        doubt = ranking.uncertainty
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
            own = []
            if doubt is not None:
                span = f"{doubt.rank_low[entry.index]}–{doubt.rank_high[entry.index]}"
                own = [f"{doubt.deviation[entry.index]:.2f}", span]
            own += [f"{scores[ranking.task.items[entry.index]]:+.2f}" for scores in columns.values()]
            if ranking.rows is not None and id_column is not None:
                own.append(one_line(cell_text(ranking.rows.records[entry.row][id_column])))
            cells.append(
                [
                    str(entry.rank),
                    one_line(entry.item),
                    f"{entry.score:.2f}",
                    bar(entry.score, low, high),
                    *own,
                ]
            )
        console.print(fitted_table(titles, cells)[0])
        console.print(consistency_line(ranking), style="dim")
        if ranking.confidence is not None:
            console.print(confidence_line(ranking.confidence), style="dim")
    _show_summary(rankings)


def understood_line(ranking: Ranking, reverse: bool = False) -> str:
    """What the criterion was taken to mean: "by price: cheapest first".

    Parameters
    ----------
    ranking
        The ranking.
    reverse
        Whether it is shown from its end.
    """
    by = f"by {one_line(ranking.task.criterion.name)}"
    if ranking.understood is None or not ranking.directed:
        return by
    return f"{by}: {one_line(ranking.understood.last if reverse else ranking.understood.first)}"


def consistency_line(ranking: Ranking) -> str:
    """One line about the ranking's consistency and direction."""
    from ccrank.methods import get_method

    phrases = get_method(ranking.method).describe(ranking.consistency, ranking.details)
    direction = [] if ranking.directed else ["direction unknown: the order may be reversed"]
    return "; ".join([f"{ranking.method} on {ranking.model}", *phrases, *direction])


def confidence_line(confidence: Confidence) -> str:
    """How likely the order is right, in words and as a probability."""
    return f"confidence: {confidence.level} (P(τ > {RIGHT}) = {confidence.probability:.2f})"


def _show_summary(rankings: Sequence[Ranking]) -> None:
    """Print metrics with chance levels for tasks with gold."""
    import numpy as np

    from ccrank.metrics import evaluate, summarise

    show_relevance([one for one in rankings if one.task.query is not None and one.task.values is not None])
    found = [
        evaluate(ranking.scores, ranking.task.values)
        for ranking in rankings
        if ranking.task.values is not None and ranking.task.query is None
    ]
    if not found:
        return
    summary = summarise(found, np.random.default_rng(0))
    between = f" [{summary.tau.low:+.3f}, {summary.tau.high:+.3f}]" if len(found) > 1 else ""
    out().print(
        f"\n{summary.n_tasks} task{'s' if len(found) > 1 else ''} with gold: τ {summary.tau.mean:+.3f}{between} "
        f"(chance 0), |τ| {summary.abs_tau.mean:.3f} (chance {summary.chance_abs_tau.mean:.3f}), "
        f"pairwise accuracy {summary.accuracy.mean:.1%} (chance 50%)"
    )
