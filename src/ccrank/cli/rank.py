"""`ccrank rank`: the command that most users will ever type."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli import options as shared
from ccrank.cli.screen import json_text, reading_progress, spinner
from ccrank.cli.show import show
from ccrank.criterion_phrase import criterion_of
from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.task import Task
from ccrank.taskfiles import read_items, read_labels, read_tasks, read_text

if TYPE_CHECKING:
    from ccrank.labels import Labels
    from ccrank.lm import Reader
    from ccrank.methods import Method
    from ccrank.prompts import Templates
    from ccrank.ranking import Ranking

WHAT, MODEL, SHOW = "What to rank", "Model and prompts", "What to show"


@shared.with_reader_flags
def rank_command(
    items: Annotated[
        list[str] | None, typer.Argument(help="The items; else --file, --tasks or stdin.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help="The criterion: size, cheapest, least risky …", rich_help_panel=WHAT),
    ] = None,
    comparative: Annotated[
        str | None,
        typer.Option(
            "--comparative", help="What the higher item is, compared: larger.", rich_help_panel=WHAT
        ),
    ] = None,
    poles: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--poles", help="Words for the low and the high end: small large.", rich_help_panel=WHAT
        ),
    ] = None,
    category: Annotated[
        str | None, typer.Option("--category", help="What the items are: country.", rich_help_panel=WHAT)
    ] = None,
    context: Annotated[
        Path | None,
        typer.Option("--context", help="A text file that the items are about.", rich_help_panel=WHAT),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Items from lines, CSV, TSV or JSONL.", rich_help_panel=WHAT),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="The column (or field) of items.", rich_help_panel=WHAT)
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="lines, csv, tsv or jsonl; else by suffix.", rich_help_panel=WHAT),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", help="Rank every task of a JSONL file.", rich_help_panel=WHAT)
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="A few labels: item,value (CSV, TSV, JSON) or lines A > B.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="See `ccrank methods`.", rich_help_panel=MODEL)
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="A method's option, NAME=VALUE.", rich_help_panel=MODEL),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            "--layers",
            help="Of a probe's states: last, all, auto or a number.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    probe: Annotated[
        Path | None,
        typer.Option("--probe", help="Rank by a probe that --save-probe has saved.", rich_help_panel=MODEL),
    ] = None,
    save_probe: Annotated[
        Path | None,
        typer.Option(
            "--save-probe", help="Save the probe that was fitted (.safetensors).", rich_help_panel=MODEL
        ),
    ] = None,
    model: shared.Model = "default",
    reader_flags: shared.ReaderFlags = shared.NO_FLAGS,
    templates: shared.TemplateFile = None,
    template: shared.TemplateChange = None,
    no_cache: shared.NoCache = False,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Show the first K.", rich_help_panel=SHOW)
    ] = None,
    signals: Annotated[
        bool, typer.Option("--signals", help="Show the signals of a combined score.", rich_help_panel=SHOW)
    ] = False,
    reverse: Annotated[bool, typer.Option("--reverse", help="Lowest first.", rich_help_panel=SHOW)] = False,
    as_json: shared.AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.", rich_help_panel=SHOW)] = False,
    output: Annotated[
        Path | None, typer.Option("--out", help="Write there instead (.json, .csv).", rich_help_panel=SHOW)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Draw the items on their scale (.png, .pdf, .svg).", rich_help_panel=SHOW
        ),
    ] = None,
    more: Annotated[str | None, typer.Option("--more", hidden=True)] = None,
    gold: Annotated[Path | None, typer.Option("--gold", hidden=True)] = None,
    parts: Annotated[bool, typer.Option("--parts", hidden=True)] = False,
) -> None:
    """Rank items by a criterion, best first.

    [bold]ccrank rank Russia Canada Brazil Chad Monaco --by size --category country[/bold]

    [bold]ccrank rank --file reviews.csv --column text --by sentiment --poles negative positive --json[/bold]

    Results go to stdout, progress to stderr. Exit codes: 0 done, 2 bad input, 130 interrupted, 141 closed pipe.
    """
    if as_json and as_csv:
        raise CcrankError("--json and --csv exclude each other")
    how = "json" if as_json else "csv" if as_csv else None
    comparative = shared.renamed("--more", more, "--comparative", comparative)
    labels = shared.renamed("--gold", gold, "--labels", labels)
    signals = shared.renamed("--parts", parts, "--signals", signals)
    wanted = _tasks(items, by, comparative, poles, category, context, file, column, form, tasks)
    # What can be refused is refused before the work is done, not after it.
    if plot is not None:
        check_plot(plot, wanted)
    if output is not None:
        how = check_output(output, how)
    with spinner("starting"):
        from ccrank.api import rank_tasks
        from ccrank.methods import DEFAULT_METHOD, SAVED_PROBE, get_method
        from ccrank.prompts import load_templates
    if probe is not None and method not in (None, SAVED_PROBE):
        raise CcrankError(f"--probe ranks by the saved probe; leave --method {method} out")
    chosen = SAVED_PROBE if probe is not None else method or DEFAULT_METHOD
    pairs = shared.parse_pairs(option)
    pairs |= {"layer": layer} if layer is not None else {}
    pairs |= {"file": str(probe)} if probe is not None else {}
    options = get_method(chosen).parse_options(pairs)
    if labels is not None:
        options["labels"] = _labels(labels, wanted, get_method(chosen))
    wording = load_templates(templates, template or ())
    reader = shared.open_reader(model, reader_flags.options(), use_cache=not no_cache)
    with reading_progress(*_expected(wanted, reader, get_method(chosen), wording, options)) as progress:
        rankings = rank_tasks(wanted, reader, chosen, wording, options=options, progress=progress)
    if save_probe is not None:
        _save_probe(rankings, save_probe)
    if output is not None and how:
        write_atomically(output, _render(how, rankings, top, reverse, many=tasks is not None))
    elif how:
        # Line by line: an unbuffered stream drops the rest of a single large write when its reader leaves.
        text = _render(how, rankings, top, reverse, many=tasks is not None)
        sys.stdout.writelines(text.splitlines(keepends=True))
    else:
        show(rankings, top, reverse, signals)
    if plot is not None:
        from ccrank.report.scale import plot_scale

        plot_scale(rankings[0], plot)


def _tasks(
    items: Sequence[str] | None,
    by: str | None,
    comparative: str | None,
    poles: tuple[str, str] | None,
    category: str | None,
    context: Path | None,
    file: Path | None,
    column: str | None,
    form: str | None,
    tasks: Path | None,
) -> list[Task]:
    """The tasks that the arguments describe; exactly one source of items is taken."""
    if tasks is not None:
        given: dict[str, object] = {
            "items": items,
            "--by": by,
            "--comparative": comparative,
            "--poles": poles,
            "--category": category,
            "--context": context,
            "--file": file,
            "--column": column,
            "--format": form,
        }
        if several := [name for name, value in given.items() if value]:
            raise CcrankError(f"--tasks brings its own items and criteria; leave {', '.join(several)} out")
        return read_tasks(tasks)
    if items and (file or column or form):
        raise CcrankError(
            "give the items as arguments, or with --file (and its --column and --format), not both"
        )
    if by is None or not by.strip():
        raise CcrankError("by what? Give a criterion, such as --by size or --by 'how positive it is'")
    if not items and file is None and sys.stdin.isatty():
        raise CcrankError("no items: give them as arguments, with --file, or on stdin, one per line")
    texts = list(items) if items else read_items(file if file is not None else "-", column, form)
    text = None if context is None else read_text(context).strip()
    criterion = criterion_of(by, comparative=comparative, poles=poles, category=category)
    return [Task(criterion, tuple(texts), text or None, id=f"ranking by {by.strip()}")]


def _expected(
    tasks: Sequence[Task], reader: Reader, method: Method, templates: Templates, options: Mapping[str, Any]
) -> tuple[int, float]:
    """About how many tokens will be read, and how many of them in a second."""
    from ccrank.estimate import expected_tokens
    from ccrank.lm.speed import tokens_per_second

    try:
        tokens = expected_tokens(tasks, reader, method, templates, options)
    except CcrankError:
        tokens = 0  # the method checks its input more closely, and says what is wrong
    return tokens, tokens_per_second(reader.loaded.model)


def _labels(path: Path, tasks: Sequence[Task], method: Method) -> Labels:
    """The labels of the one list, for a method that takes them."""
    if "labels" not in method.options:
        raise CcrankError(f"{method.name} takes no labels; leave --labels out, or use --method auto")
    if len(tasks) != 1:
        raise CcrankError(f"--labels is for the items of one list; the tasks file has {len(tasks)}")
    return read_labels(path, tasks[0].items)


def _save_probe(rankings: Sequence[Ranking], path: Path) -> None:
    """The probe of the ranking; for several tasks only one that all of them share."""
    probes = {id(ranking.probe): ranking.probe for ranking in rankings}
    [found] = probes.values() if len(probes) == 1 else [None]
    if found is None:
        reason = (
            "each task has a probe of its own"
            if len(probes) > 1
            else "it fits none, or several layers at once"
        )
        raise CcrankError(f"{rankings[0].method} has no probe to save: {reason}")
    found.save(path)


def check_plot(plot: Path, tasks: Sequence[Task]) -> None:
    """Refuse what could not be drawn."""
    from ccrank.report.scale import MOST_ITEMS

    if plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CcrankError(f"--plot writes .png, .pdf or .svg, not {plot.name}")
    if len(tasks) != 1:
        raise CcrankError(f"--plot draws one ranking; the tasks file has {len(tasks)}")
    if len(tasks[0].items) > MOST_ITEMS:
        raise CcrankError(f"--plot draws up to {MOST_ITEMS} items, got {len(tasks[0].items)}")
    _check_place(plot)


def check_output(path: Path, how: str | None) -> str:
    """The form to write a file in; refuse what could not be written."""
    how = how or {".json": "json", ".jsonl": "json", ".csv": "csv"}.get(path.suffix.lower())
    if how is None:
        raise CcrankError(f"--out {path} ends neither in .json nor in .csv; say which with --json or --csv")
    _check_place(path)
    return how


def _check_place(path: Path) -> None:
    if not path.resolve().parent.is_dir():
        raise CcrankError(f"the folder of {path} does not exist")
    if path.is_dir():
        raise CcrankError(f"{path} is a folder; give a file")


def _render(how: str, rankings: Sequence[Ranking], top: int | None, reverse: bool, many: bool) -> str:
    if how == "json":
        rows = [_json(ranking, top, reverse) for ranking in rankings]
        if many:
            return "".join(json_text(row, indent=None) for row in rows)
        return json_text(rows[0])
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*(["task"] if many else []), "rank", "item", "score"])
    for ranking in rankings:
        for row in ranking.to_json(top, reverse)["items"]:
            writer.writerow([*([ranking.task.id] if many else []), row["rank"], row["item"], row["score"]])
    return buffer.getvalue()


def _json(ranking: Ranking, top: int | None, reverse: bool) -> dict[str, Any]:
    result = ranking.to_json(top, reverse)
    if ranking.task.values is not None:
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
