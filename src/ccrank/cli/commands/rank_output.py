"""What `ccrank rank` writes: a table, JSON, a run, a probe, warnings; and whether a file can be written at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.cli.commands.rank import OutputFlags
from ccrank.cli.screen import json_text
from ccrank.errors import CcrankError
from ccrank.io import FORMAT_OF_SUFFIX, RankedRows, cell_text, encode_rows, encode_table
from ccrank.io.trec import document_ids, run_lines
from ccrank.request import RankRequest
from ccrank.util.files import write_atomically
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from ccrank.ranking import Ranking
    from ccrank.rankings import GroupedRankings, Rankings
    from ccrank.scale import Scale
    from ccrank.task import Task


def check_writable(
    shown: OutputFlags, save_scale: Path | None, request: RankRequest, read: Mapping[str, Path | None]
) -> str | None:
    """The format of the output; raises an error if a file cannot be written, or is one of those that are read."""
    written = {"--run": shown.run, "--save-scale": save_scale, "--plot": shown.plot, "--out": shown.out}
    for flag, path in written.items():
        if path is not None:
            if flag != "--out":
                check_place(path)
            for given in read.values():
                _refuse_overwriting(path, given, flag)
    if shown.plot is not None:
        _check_plot(shown.plot, request.tasks)
    form = shown.form if shown.out is None else format_of(shown.out, shown.form)
    if form not in (None, "json") and request.rows is not None:
        encode_rows(RankedRows.unscored(request.rows), form)
    return form


def format_of(path: Path, how: str | None) -> str:
    """The output format; raises an error if the file cannot be written."""
    how = how or {".json": "json", **FORMAT_OF_SUFFIX}.get(path.suffix.lower())
    if how is None:
        raise CcrankError(
            f"--out {path}: the name ends in none of .json, {', '.join(FORMAT_OF_SUFFIX)}; rename it, or give "
            "--json or --csv"
        )
    check_place(path)
    return how


def _refuse_overwriting(output: Path, given: Path | None, flag: str) -> None:
    """Raise an error if the output would replace a file that was given, which it does not contain in full."""
    if given is not None and output.exists() and given.exists() and output.samefile(given):
        raise CcrankError(
            f"{flag} {output} is a file that this ranking reads, and would replace it; give another name"
        )


def _check_plot(plot: Path, tasks: Sequence[Task]) -> None:
    """Raise an error if the plot cannot be drawn."""
    from ccrank.ranking_plot import MAX_ITEMS, check_matplotlib

    if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CcrankError(f"--plot must be a .png, .pdf or .svg file, not {plot.name}")
    if len(tasks) != 1:
        raise CcrankError(f"--plot draws one ranking; the tasks file has {len(tasks)}")
    if len(tasks[0].items) > MAX_ITEMS:
        raise CcrankError(f"--plot draws up to {MAX_ITEMS} items, got {len(tasks[0].items)}")
    check_place(plot)
    check_matplotlib()


def check_place(path: Path) -> None:
    """Raise an error unless the path names a file in a folder that exists."""
    if not path.resolve().parent.is_dir():
        raise CcrankError(f"the folder of {path} does not exist; create it, or name another")
    if path.is_dir():
        raise CcrankError(f"{path} is a folder; give a file")


def rendered(
    how: str, rankings: Sequence[Ranking], top: int | None, reverse: bool, many: bool, safe_csv: bool
) -> bytes:
    """The content of a file: JSON, or the rows in one of the formats of tables. Of many tasks, JSON lines hold one
    object each, as --json prints them; a table has a column for the task."""
    if how == "json" or (how == "jsonl" and many):
        objects = [_json(ranking, top, reverse) for ranking in rankings]
        text = "".join(json_text(value, indent=None) for value in objects) if many else json_text(objects[0])
        return text.encode("utf-8", "backslashreplace")
    if not many:
        return encode_rows(rankings[0].ranked_rows(top, reverse), how, safe_csv)
    records = [
        (ranking.task.id, *record)
        for ranking in rankings
        for record in ranking.ranked_rows(top, reverse).records
    ]
    return encode_table(("task", *rankings[0].ranked_rows(0).columns), records, how, safe=safe_csv)


def rendered_table(
    how: str, table: Rankings | GroupedRankings, top: int | None, reverse: bool, safe_csv: bool
) -> bytes:
    """The content of a file with the rankings by several criteria, or of groups."""
    if how == "json":
        return json_text(table.to_json(top, reverse)).encode("utf-8", "backslashreplace")
    return encode_rows(table.ranked_rows(top, reverse), how, safe_csv)


def _json(ranking: Ranking, top: int | None, reverse: bool) -> dict[str, Any]:
    result = ranking.to_json(top, reverse)
    if ranking.task.values is not None and ranking.task.query is not None:
        result |= _relevance_json(ranking)
    elif ranking.task.values is not None:
        from ccrank.metrics import evaluate
        from ccrank.ranking import finite

        measured = evaluate(ranking.scores, ranking.task.values)
        names = ("tau", "abs_tau", "accuracy", "chance_abs_tau", "chance_free_accuracy")
        result["against_gold"] = {name: finite(getattr(measured, name)) for name in names}
    return result


def _relevance_json(ranking: Ranking) -> dict[str, Any]:
    """Metrics of retrieval with their chance levels; nothing where the package for them is not installed."""
    from ccrank.metrics.retrieval import NAMES, chance_relevance, evaluate_relevance, have_measures
    from ccrank.ranking import finite

    if not have_measures():
        return {}
    gold = ranking.task.values or ()
    measured, chance = evaluate_relevance(ranking.scores, gold), chance_relevance(gold)
    names = {"ndcg": "ndcg_10", "recall": "recall_10"}
    metrics = {names.get(name, name): finite(getattr(measured, name)) for name in NAMES}
    levels = {f"chance_{names.get(name, name)}": finite(getattr(chance, name)) for name in NAMES}
    return {"against_gold": metrics | levels}


def run_of(rankings: Sequence[Ranking]) -> Iterator[str]:
    """The lines of a TREC run. Rows of a file are named by their --id, or by their positions, from 1."""
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


def save_scale(scales: Sequence[Scale], path: Path | None) -> CcrankError | None:
    """Write the scale, of several tasks the one that they share. The error, if it cannot be saved, is returned, since
    the ranking is written all the same."""
    from ccrank.scale import cannot_score, one_scale

    if path is None:
        return None
    try:
        scale = one_scale(scales)
        if scale.scorer is None:
            return CcrankError(f"--save-scale: {cannot_score(scale.notes.method)}")
        scale.save(path)
    except CcrankError as error:
        return error
    return None


def show_warnings(rankings: Sequence[Ranking]) -> None:
    """Each warning on a line of stderr; one that several tasks have, once."""
    sys.stdout.flush()  # on a terminal the warnings stand below the result
    sys.stderr.writelines(f"ccrank: warning: {line}\n" for line in warning_lines(rankings))


def write_warnings_beside(path: Path, lines: Sequence[str]) -> None:
    """`x.csv.warnings.txt` beside `x.csv`; without warnings none is left there, not even of an earlier run."""
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
    if len(rankings) == 1:
        return list(about)
    return [
        f"{tasks[0]}: {text}" if len(tasks) == 1 else f"{len(tasks)} of {len(rankings)} tasks: {text}"
        for text, tasks in about.items()
    ]
