"""Rankings as a person reads them: tables with bars, a line on consistency, quality if gold is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccrank.cli.screen import Column, bar, fitted_table, out
from ccrank.text import one_line

if TYPE_CHECKING:
    from ccrank.ranking import Ranking


def show(rankings: Sequence[Ranking], top: int | None, reverse: bool, signals: bool = False) -> None:
    """Tables for people; `signals` adds a column for each signal of a combined score."""
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
        titles = [
            Column("rank", number=True),
            Column("item", most=80),
            Column("score", number=True),
            Column("", drop=1),
            *(Column(name, number=True, drop=2) for name in columns),
        ]
        cells = []
        for row in ranking.to_json(top, reverse)["items"]:
            score = row["score"]
            own = [f"{scores[row['item']]:+.2f}" for scores in columns.values()]
            cells.append(
                [str(row["rank"]), one_line(row["item"]), f"{score:.2f}", bar(score, low, high), *own]
            )
        console.print(fitted_table(titles, cells)[0])
        console.print(consistency_line(ranking), style="dim")
        for key in ("warning", "hint"):
            if key in ranking.details:
                console.print(f"{key}: {ranking.details[key]}", style="bold" if key == "warning" else "dim")
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
    """One line on how consistent the ranking is, and on its direction."""
    from ccrank.methods import get_method

    phrases = get_method(ranking.method).describe(ranking.consistency, ranking.details)
    direction = [] if ranking.directed else ["direction unknown: the order may be reversed"]
    return "; ".join([f"{ranking.method} on {ranking.model}", *phrases, *direction])


def _show_summary(rankings: Sequence[Ranking]) -> None:
    """Where gold is known: how good the orders are, beside what chance gives."""
    import numpy as np

    from ccrank.metrics import evaluate, summarise

    found = [
        evaluate(ranking.scores, ranking.task.values)
        for ranking in rankings
        if ranking.task.values is not None
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
