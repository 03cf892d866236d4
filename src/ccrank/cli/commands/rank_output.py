"""What `ccrank rank` shows and writes, and whether a file can be written at all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.cli.commands.rank import RankFlags
from ccrank.cli.screen import bar, counted, fitted_table, json_text, out
from ccrank.confidence import RIGHT, Confidence
from ccrank.errors import CcrankError
from ccrank.io import FORMAT_OF_SUFFIX, Entry, RankedRows, cell_text, encode_rows, encode_table
from ccrank.io.trec import document_ids, run_lines
from ccrank.request import RankRequest
from ccrank.util.files import write_atomically
from ccrank.util.text import Column, one_line

if TYPE_CHECKING:
    from rich.table import Table

    from ccrank.ranking import Ranking
    from ccrank.rankings import GroupedRankings, Rankings
    from ccrank.request import Ranked
    from ccrank.scale import Scale
    from ccrank.task import Task


def check_writable(flags: RankFlags, request: RankRequest) -> str | None:
    """The format of the output; raises an error if a file cannot be written, or is one of those that are read."""
    for flag, path in {"--run": flags.run, "--save-scale": flags.save_scale, "--plot": flags.plot}.items():
        if path is not None:
            check_target(path, flag, flags.files_read)
    if flags.plot is not None:
        _check_plot(flags.plot, request.tasks)
    form = "json" if flags.json else "csv" if flags.csv else None
    if flags.out is not None:
        form = format_of(flags.out, form, flags.files_read)
    if flags.safe_csv and form not in ("csv", "tsv"):
        raise CcrankError("--safe-csv is for CSV and TSV; add --csv, or --out with such a file")
    if form not in (None, "json") and request.rows is not None:
        encode_rows(RankedRows.unscored(request.rows), form)
    return form


def format_of(path: Path, form: str | None, read: Iterable[Path]) -> str:
    """The output format; raises an error if the file cannot be written."""
    form = form or {".json": "json", **FORMAT_OF_SUFFIX}.get(path.suffix.lower())
    if form is None:
        raise CcrankError(
            f"--out {path}: the name ends in none of .json, {', '.join(FORMAT_OF_SUFFIX)}; rename it, or give "
            "--json or --csv"
        )
    check_target(path, "--out", read)
    return form


def _check_plot(plot: Path, tasks: Sequence[Task]) -> None:
    """Raise an error if the plot cannot be drawn."""
    from ccrank.ranking_plot import MAX_ITEMS, check_matplotlib

    if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CcrankError(f"--plot must be a .png, .pdf or .svg file, not {plot.name}")
    if len(tasks) != 1:
        raise CcrankError(f"--plot draws one ranking; the tasks file has {len(tasks)}")
    if len(tasks[0].items) > MAX_ITEMS:
        raise CcrankError(f"--plot draws up to {MAX_ITEMS} items, got {len(tasks[0].items)}")
    check_matplotlib()


def check_target(path: Path, flag: str, read: Iterable[Path]) -> None:
    """Raise an error unless the path names a file in an existing folder, and not one that is read: the output does not
    contain that file in full."""
    if not path.resolve().parent.is_dir():
        raise CcrankError(f"the folder of {path} does not exist; create it, or name another")
    if path.is_dir():
        raise CcrankError(f"{path} is a folder; give a file")
    for given in read:
        if path.exists() and given.exists() and path.samefile(given):
            raise CcrankError(
                f"{flag} {path} is a file that this command reads, and would replace it; give another name"
            )


def write(ranked: Ranked, flags: RankFlags, form: str | None) -> None:
    """Write the files, then show the rankings, since output that is piped into `head` may end early."""
    from ccrank.ranking import Ranking
    from ccrank.rankings import Rankings

    if isinstance(ranked, Ranking):
        rankings = [ranked]
    else:
        rankings = ranked if isinstance(ranked, list) else [*ranked.values()]
    if flags.run is not None:
        write_atomically(flags.run, run_of(rankings))
    if flags.plot is not None:
        rankings[0].plot(flags.plot)
    if form is not None:
        content = rendered(form, ranked, flags.top, flags.reverse, flags.safe_csv)
        write_or_print(content, flags.out)
        if flags.out is not None and form != "json":
            write_warnings_beside(flags.out, warning_lines(rankings))
    elif isinstance(ranked, Rankings):
        show_table(ranked, flags.top, flags.reverse)
    else:
        show(rankings, flags.top, flags.reverse, flags.verbose)
    show_warnings(rankings)


def write_or_print(content: bytes, path: Path | None) -> None:
    """Write to a file, or to the standard output."""
    if path is not None:
        write_atomically(path, content)
    else:
        # Line by line: an unbuffered stream drops the rest of a large write when the pipe is closed.
        sys.stdout.writelines(content.decode("utf-8").splitlines(keepends=True))


def rendered(form: str, ranked: Ranked, top: int | None, reverse: bool, safe_csv: bool) -> bytes:
    """The content of a file: JSON, or the rows in one of the formats of tables. Of a list of tasks, JSON lines hold one
    object each, as --json prints them; a table has a column for the task."""
    if isinstance(ranked, list):
        if form not in ("json", "jsonl"):
            return _table_of_tasks(form, ranked, top, reverse, safe_csv)
        text = "".join(json_text(_json(ranking, top, reverse), indent=None) for ranking in ranked)
    elif form == "json":
        text = json_text(_json(ranked, top, reverse))
    else:
        return encode_rows(ranked.ranked_rows(top, reverse), form, safe_csv)
    return text.encode("utf-8", "backslashreplace")


def _table_of_tasks(
    form: str, rankings: Sequence[Ranking], top: int | None, reverse: bool, safe_csv: bool
) -> bytes:
    tables = [ranking.ranked_rows(top, reverse) for ranking in rankings]
    # Intervals of ranks come last, where they are known.
    header = max((table.columns for table in tables), key=len)
    records = [
        (ranking.task.id, *record, *(None,) * (len(header) - len(record)))
        for ranking, table in zip(rankings, tables, strict=True)
        for record in table.records
    ]
    return encode_table(("task", *header), records, form, safe=safe_csv)


def _json(ranked: Ranking | Rankings | GroupedRankings, top: int | None, reverse: bool) -> dict[str, Any]:
    from ccrank.ranking import Ranking, finite

    result = ranked.to_json(top, reverse)
    if isinstance(ranked, Ranking) and (metrics := against_gold(ranked)):
        result["against_gold"] = {name: finite(value) for name, value in metrics.items()}
    return result


def run_of(rankings: Sequence[Ranking]) -> Iterator[str]:
    """The lines of a TREC run. Rows of a file are named by their --id, or by their positions, from 1."""
    for ranking in rankings:
        rows, entries = ranking.rows, ranking.entries()
        if rows is None:
            ids = document_ids(ranking.task)
            names = [ids[entry.index] for entry in entries]
        elif (column := rows.id_column) is None:
            names = [str(entry.row + 1) for entry in entries]
        else:
            names = [cell_text(rows.records[entry.row][column]) for entry in entries]
        documents = [(name, entry.score) for name, entry in zip(names, entries, strict=True)]
        yield from run_lines(ranking.task.id, documents, f"{ranking.model}/{ranking.method}")


def save_scale(scales: Sequence[Scale], path: Path) -> None:
    """Write the scale, which several tasks share."""
    from ccrank.scale import one_scale
    from ccrank.scale.stored import cannot_score

    scale = one_scale(scales)
    if not scale.scores_others:
        raise CcrankError(f"--save-scale: {cannot_score(scale.notes.method)}")
    scale.save(path)


def show_warnings(rankings: Sequence[Ranking]) -> None:
    """Print each warning on a line of stderr; a warning of several tasks is printed once."""
    sys.stdout.flush()  # on a terminal the warnings stand below the result
    sys.stderr.writelines(f"ccrank: warning: {line}\n" for line in warning_lines(rankings))


def write_warnings_beside(path: Path, lines: Sequence[str]) -> None:
    """`x.csv.warnings.txt` beside `x.csv`; without warnings, a file of an earlier run is removed."""
    if path.exists() and not path.is_file():
        return  # a pipe or a device has no neighbours
    beside = path.with_name(f"{path.name}.warnings.txt")
    if lines:
        write_atomically(beside, [f"{line}\n" for line in lines])
    else:
        beside.unlink(missing_ok=True)


def warning_lines(rankings: Sequence[Ranking]) -> list[str]:
    """The different warnings, each with the tasks that it is about if there are several tasks."""
    about: dict[str, list[str]] = {}
    for ranking in rankings:
        for text in ranking.warnings:
            about.setdefault(text, []).append(one_line(ranking.task.id))
    several = f" of {len(rankings)} tasks"
    named = ((ids[0] if len(ids) == 1 else f"{len(ids)}{several}", text) for text, ids in about.items())
    return [text if len(rankings) == 1 else f"{name}: {text}" for name, text in named]


def show(rankings: Sequence[Ranking], top: int | None, reverse: bool, verbose: bool = False) -> None:
    """Print rankings as tables; `verbose` adds a column for each signal of a combined score, intervals where a
    confidence is known, and the numbers behind the last two lines."""
    console = out()
    for number, ranking in enumerate(rankings):
        if number:
            console.print()
        heading = understood_line(ranking, reverse)
        console.print(
            f"{one_line(ranking.task.id)}, {heading}" if len(rankings) > 1 else heading, style="bold"
        )
        if line := alternatives_line(ranking):
            console.print(line, style="dim")
        console.print(_table(ranking, ranking.entries(top, reverse), verbose))
        console.print(consistency_line(ranking, verbose), style="dim")
        if ranking.confidence is not None:
            console.print(confidence_line(ranking.confidence, verbose), style="dim")
    _show_summary(rankings)


def _table(ranking: Ranking, entries: Sequence[Entry], verbose: bool) -> Table:
    low, high = min(ranking.scores), max(ranking.scores)
    columns = [
        (Column("rank", number=True), [str(entry.rank) for entry in entries]),
        (Column("item", most=80), [one_line(entry.item) for entry in entries]),
        (Column("score", number=True), [f"{entry.score:.2f}" for entry in entries]),
        (Column("", drop=1), [bar(entry.score, low, high) for entry in entries]),
    ]
    indices, rows = [entry.index for entry in entries], ranking.rows
    if (uncertainty := ranking.uncertainty) is not None and (verbose or ranking.confidence is None):
        low_ranks, high_ranks = uncertainty.rank_low, uncertainty.rank_high
        spans = [f"{low_ranks[index]}–{high_ranks[index]}" for index in indices]
        columns += [
            (Column("±", number=True), [f"{uncertainty.deviation[index]:.2f}" for index in indices]),
            (Column(f"{uncertainty.probability:.0%} of ranks", number=True), spans),
        ]
    for name, scores in ranking.details.get("signals", {}).items() if verbose else ():
        texts = [f"{scores[ranking.task.items[index]]:+.2f}" for index in indices]
        columns.append((Column(name, number=True, drop=2), texts))
    if rows is not None and rows.id_column is not None:
        title = one_line(str(rows.columns[rows.id_column]))
        ids = [one_line(cell_text(rows.records[entry.row][rows.id_column])) for entry in entries]
        columns.append((Column(title, most=40), ids))
    return fitted_table(columns)[0]


def show_table(table: Rankings, top: int | None, reverse: bool) -> None:
    """Print one table of several rankings, a column for each, and what was understood of each criterion."""
    console = out()
    for ranking in table.values():
        console.print(understood_line(ranking, reverse and ranking is table.first), style="bold")
    first = table.first.entries(top, reverse)
    columns = [(Column("item", most=80), [one_line(entry.item) for entry in first])]
    for name, by_row in table.entries_by_row.items():
        entries = [by_row[entry.row] for entry in first]
        ranks = Column(one_line(name, 30), number=True)
        columns.append((ranks, [str(entry.rank) for entry in entries]))
        columns.append((Column("score", number=True), [f"{entry.score:.2f}" for entry in entries]))
    console.print(fitted_table(columns)[0])
    for name, ranking in table.items():
        console.print(f"{one_line(name, 30)}: {consistency_line(ranking)}", style="dim")
        if ranking.confidence is not None:
            console.print(f"  {confidence_line(ranking.confidence)}", style="dim")


def understood_line(ranking: Ranking, reverse: bool = False) -> str:
    """What the criterion was taken to mean: "by price: cheapest first"."""
    by = f"by {one_line(ranking.task.criterion.name)}"
    if ranking.understood is None or not ranking.directed:
        return by
    return f"{by}: {one_line(ranking.understood.last if reverse else ranking.understood.first)}"


def alternatives_line(ranking: Ranking) -> str:
    """The other senses of the criterion, as flags; empty if there is none."""
    known = ranking.understood
    if known is None or not known.alternatives:
        return ""
    flags = (" ".join(("--poles", *other.poles)) for other in known.alternatives[:2])
    return f"taken as {' to '.join(known.poles)}; if you mean another sense: {' or '.join(flags)}"


def consistency_line(ranking: Ranking, numbers: bool = False) -> str:
    """One line about the ranking's consistency and direction; with `numbers`, its measures as in JSON."""
    from ccrank.methods.registry import get_method

    phrases = get_method(ranking.method).describe(ranking.consistency, ranking.details)
    if numbers:
        labels = ranking.details.get("labels", {})
        predicted = {name: labels.get(name) for name in ("left_out_tau", "label_free_tau")}
        measures = {**ranking.consistency, **predicted}.items()
        phrases += [
            f"{name} = {value:.2g}" for name, value in measures if value is not None and isfinite(value)
        ]
    direction = [] if ranking.directed else ["direction unknown: the order may be reversed"]
    return "; ".join([f"{ranking.method} on {ranking.model}", *phrases, *direction])


def confidence_line(confidence: Confidence, numbers: bool = False) -> str:
    """How likely the order is right, in words and, with `numbers`, as a probability."""
    more = f" (P(τ > {RIGHT}) = {confidence.probability:.2f})" if numbers else ""
    return f"confidence: {confidence.level}{more}: {confidence.sentence}"


def against_gold(ranking: Ranking) -> dict[str, float]:
    """Metrics against the gold of a task with their chance levels; for a query the metrics of retrieval, if their
    package is installed. Empty without gold."""
    from ccrank.metrics.order import evaluate
    from ccrank.metrics.retrieval import NAMES, chance_relevance, evaluate_relevance, have_measures

    gold = ranking.task.values
    if gold is None:
        return {}
    if ranking.task.query is None:
        measured = evaluate(ranking.scores, gold)
        names = ("tau", "abs_tau", "accuracy", "chance_abs_tau", "chance_free_accuracy")
        return {name: getattr(measured, name) for name in names}
    if not have_measures():
        return {}
    columns = {"ndcg": "ndcg_10", "recall": "recall_10"}
    both = {"": evaluate_relevance(ranking.scores, gold), "chance_": chance_relevance(gold)}
    return {
        f"{prefix}{columns.get(name, name)}": getattr(metrics, name)
        for prefix, metrics in both.items()
        for name in NAMES
    }


def _show_summary(rankings: Sequence[Ranking]) -> None:
    """Print the means of metrics with chance levels for tasks with gold."""
    import numpy as np

    from ccrank.errors import install_line
    from ccrank.metrics.tasks import mean_with_interval

    with_gold = [ranking for ranking in rankings if ranking.task.values is not None]
    queries = [against_gold(ranking) for ranking in with_gold if ranking.task.query is not None]
    tasks = [against_gold(ranking) for ranking in with_gold if ranking.task.query is None]

    def mean(name: str, rows: Sequence[Mapping[str, float]]) -> float:
        known = [row[name] for row in rows if not isnan(row[name])]
        return float(np.mean(known)) if known else nan

    if queries and not queries[0]:
        line = install_line("relevance")
        out().print(f"\nfor nDCG and other metrics of the {len(queries)} queries: {line}")
    elif queries:
        titles = {"nDCG@10": "ndcg_10", "MRR": "mrr", "MAP": "map", "recall@10": "recall_10"}
        levels = {name: f"{mean(f'chance_{name}', queries):.3f}" for name in titles.values()}
        levels["ndcg_10"] = f"chance {levels['ndcg_10']}"
        means = (f"{title} {mean(name, queries):.3f} ({levels[name]})" for title, name in titles.items())
        plural = "ies" if len(queries) > 1 else "y"
        out().print(f"\n{len(queries)} quer{plural} with grades: {', '.join(means)}")
    if tasks:
        tau = mean_with_interval([row["tau"] for row in tasks], np.random.default_rng(0))
        between = f" [{tau.low:+.3f}, {tau.high:+.3f}]" if len(tasks) > 1 else ""
        out().print(
            f"\n{counted(len(tasks), 'task')} with gold: τ {tau.mean:+.3f}{between} (chance 0), "
            f"|τ| {mean('abs_tau', tasks):.3f} (chance {mean('chance_abs_tau', tasks):.3f}), "
            f"pairwise accuracy {mean('accuracy', tasks):.1%} (chance 50%)"
        )
