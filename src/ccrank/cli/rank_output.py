"""What `ccrank rank` writes: a table, JSON, a probe; and whether a file can be written at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.cli.screen import json_text
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.methods import Method
    from ccrank.ranking import Ranking
    from ccrank.task import Task


def check_output(path: Path, how: str | None) -> str:
    """The output format; raises an error if the file cannot be written."""
    from ccrank.rows import FORMAT_OF_SUFFIX

    how = how or {".json": "json", **FORMAT_OF_SUFFIX}.get(path.suffix.lower())
    if how is None:
        raise CcrankError(
            f"--out {path}: the name ends in none of .json, {', '.join(FORMAT_OF_SUFFIX)}; rename it, or give "
            "--json or --csv"
        )
    check_place(path)
    return how


def refuse_overwriting(output: Path, given: Path | None, flag: str = "--out") -> None:
    """Raise an error if the output would replace a file that was given, which it does not contain in full."""
    if given is not None and output.exists() and given.exists() and output.samefile(given):
        raise CcrankError(
            f"{flag} {output} is a file that this ranking reads, and would replace it; give another name"
        )


def check_plot(plot: Path, tasks: Sequence[Task]) -> None:
    """Raise an error if the plot cannot be drawn."""
    from ccrank.scale_plot import MOST_ITEMS

    if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CcrankError(f"--plot must be a .png, .pdf or .svg file, not {plot.name}")
    if len(tasks) != 1:
        raise CcrankError(f"--plot draws one ranking; the tasks file has {len(tasks)}")
    if len(tasks[0].items) > MOST_ITEMS:
        raise CcrankError(f"--plot draws up to {MOST_ITEMS} items, got {len(tasks[0].items)}")
    check_place(plot)


def check_place(path: Path) -> None:
    """Raise an error unless the path names a file in a folder that exists."""
    if not path.resolve().parent.is_dir():
        raise CcrankError(f"the folder of {path} does not exist; create it, or name another")
    if path.is_dir():
        raise CcrankError(f"{path} is a folder; give a file")


def rendered(how: str, rankings: Sequence[Ranking], top: int | None, reverse: bool, many: bool) -> bytes:
    """The content of a file: JSON, or the rows in one of the formats of tables. Of many tasks, JSON lines hold one
    object each, as --json prints them; a table has a column for the task."""
    if how == "json" or (how == "jsonl" and many):
        found = [_json(ranking, top, reverse) for ranking in rankings]
        text = "".join(json_text(one, indent=None) for one in found) if many else json_text(found[0])
        return text.encode("utf-8", "backslashreplace")
    from ccrank.rows import encode_rows, encode_table

    if not many:
        return encode_rows(rankings[0].ranked_rows(top, reverse), how)
    records = [
        (ranking.task.id, *record)
        for ranking in rankings
        for record in ranking.ranked_rows(top, reverse).records
    ]
    return encode_table(("task", *rankings[0].ranked_rows(0).columns), records, how)


def _json(ranking: Ranking, top: int | None, reverse: bool) -> dict[str, Any]:
    result = ranking.to_json(top, reverse)
    if ranking.task.values is not None and ranking.task.query is not None:
        from ccrank.cli.relevance import relevance_json

        result |= relevance_json(ranking)
    elif ranking.task.values is not None:
        from ccrank.metrics import evaluate
        from ccrank.ranking import finite

        found = evaluate(ranking.scores, ranking.task.values)
        result["against_gold"] = {
            "tau": finite(found.tau),
            "abs_tau": finite(found.abs_tau),
            "accuracy": finite(found.accuracy),
            "chance_abs_tau": finite(found.chance_abs_tau),
            "chance_free_accuracy": finite(found.chance_free_accuracy),
        }
    return result


def check_fits_probe(method: Method) -> None:
    """Raise an error if a method, without labels, has no probe that could be saved."""
    if "layer" not in method.options:
        raise CcrankError(
            f"{method.name} fits no probe that --save-probe could write: use a method of probing, such as ccs (see "
            "`ccrank methods`), or auto with --labels"
        )


def save_shared_probe(rankings: Sequence[Ranking], path: Path) -> CcrankError | None:
    """Write the probe of the ranking; for several tasks, only one that they share. The error, if it cannot be saved, is
    returned, since the ranking is written all the same."""
    probes = {id(ranking.probe): ranking.probe for ranking in rankings}
    [found] = probes.values() if len(probes) == 1 else [None]
    if found is None:
        reason = (
            "each task has its own probe, so save that of one task"
            if len(probes) > 1
            else "it was not fitted to one layer; give one, such as --layer 12"
        )
        return CcrankError(f"{rankings[0].method} has no probe to save: {reason}")
    try:
        found.save(path)
    except CcrankError as error:
        return error
    return None
