"""Rankings as a person reads them: tables with bars, a line on consistency, quality where gold is known."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ccrank.cli.screen import bar, out, simple_table

if TYPE_CHECKING:
    from ccrank.ranking import Ranking


def show(rankings: Sequence[Ranking], top: int | None, reverse: bool, parts: bool = False) -> None:
    """Tables for people; `parts` adds a column for each part of a combined score."""
    console = out()
    for number, ranking in enumerate(rankings):
        if number:
            console.print()
        if len(rankings) > 1:
            console.print(
                f"{one_line(ranking.task.id)}, by {one_line(ranking.task.criterion.name)}", style="bold"
            )
        low, high = min(ranking.scores), max(ranking.scores)
        routes = dict(ranking.details.get("parts", {})) if parts else {}
        table = simple_table("rank", "item", "score", "", *routes, numbers=(0, 2, *range(4, 4 + len(routes))))
        for row in ranking.to_json(top, reverse)["items"]:
            score = row["score"]
            own = [f"{scores[row['item']]:+.2f}" for scores in routes.values()]
            table.add_row(
                str(row["rank"]), one_line(row["item"]), f"{score:.2f}", bar(score, low, high), *own
            )
        console.print(table)
        console.print(consistency_line(ranking), style="dim")
        for key in ("warning", "hint"):
            if key in ranking.details:
                console.print(f"{key}: {ranking.details[key]}", style="bold" if key == "warning" else "dim")
    _show_summary(rankings)


def one_line(text: str, most: int = 80) -> str:
    """A text as a cell of a table: white space folded, cut when long, without codes that would steer a terminal."""
    folded = " ".join(text.split())
    plain = "".join("\ufffd" if unicodedata.category(char) == "Cc" else char for char in folded)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def consistency_line(ranking: Ranking) -> str:
    """One line on how far the answers go together, and on the direction."""
    parts = [f"{ranking.method} on {ranking.model}"]
    known: Mapping[str, float] = ranking.consistency
    # Few opponents leave pairs that were asked in one order alone, and no triad that could be circular.
    if math.isfinite(known.get("both_orders_agree", math.nan)):
        parts.append(f"both orders agree on {known['both_orders_agree']:.0%} of pairs (a coin would on 50%)")
    if known.get("circular_triads_by_chance"):
        parts.append(
            f"{known['circular_triads']:g} circular triads ({known['circular_triads_by_chance']:g} by chance)"
        )
    if "first_wins" in known:
        parts.append(f"first item wins {known['first_wins']:.0%}")
    if "shuffles_agree" in known:
        parts.append(f"τ between shuffles {known['shuffles_agree']:+.2f} (0 by chance)")
    if "distinct_ratings" in known:
        parts.append(f"{known['distinct_ratings']:.0%} of ratings in use")
    if math.isfinite(known.get("seeds_agree", math.nan)):
        parts.append(f"|τ| between seeds {known['seeds_agree']:.2f}")
    if math.isfinite(known.get("parts_agree", math.nan)):
        low, high = ranking.details["ends"]
        parts.append(f"from {low} to {high}")
        parts.append(f"its parts agree at τ {known['parts_agree']:+.2f} (0 by chance)")
    if "gold" in ranking.details:
        gold = ranking.details["gold"]
        parts.append(
            f"{gold['labelled']} labelled items: τ {gold['leave_one_out_tau']:+.2f} where left out of the fit "
            f"({gold['without_gold_tau']:+.2f} without labels)"
        )
    if "comparisons" in ranking.details:
        parts.append(f"{ranking.details['comparisons']:,} comparisons")
    if not ranking.directed:
        parts.append("direction unknown: the order may be upside down")
    return "; ".join(parts)


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
