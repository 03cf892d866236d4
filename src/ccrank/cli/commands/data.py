"""`ccrank data` and `ccrank cache`: the datasets, and the cache of readings on disk."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ccrank.cli.options import AsJson, parse_pairs
from ccrank.cli.screen import json_text, print_facts, print_json, print_table
from ccrank.util.text import shortened

app = typer.Typer(help="Datasets of ranking tasks with gold orders.", no_args_is_help=True)
cache_app = typer.Typer(
    help="Show or clear the cache of readings, which spares computing a prompt twice.", no_args_is_help=True
)

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="The folder of data files; by default $CCRANK_DATA, or they are downloaded."
    ),
]


@app.command("list")
def list_command(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the datasets, with their numbers of tasks and items, here and in the paper."""
    from ccrank.study.datasets import counts, datasets
    from ccrank.study.datasets.locate import find

    rows: list[dict[str, Any]] = []
    for dataset in datasets().values():
        tasks, items = None, None
        if all(find(file, data_dir) is not None for file in dataset.files):
            tasks, items = counts(dataset.load(data_dir))
        row = {name: getattr(dataset, name) for name in ("name", "kind", "summary")}
        row |= {"tasks": tasks, "items": None if items is None else round(items, 2)}
        rows.append(row | {name: getattr(dataset, name) for name in ("paper_tasks", "paper_items")})
    if as_json:
        print_json(rows)
        return
    cells = []
    for row in rows:
        here = ("not available", "")
        if row["tasks"] is not None:
            here = (str(row["tasks"]), f"{row['items']:.2f}")
        paper = f"{row['paper_tasks']} / {row['paper_items']:.2f}" if row["paper_tasks"] else "–"
        cells.append([row["name"], row["kind"], *here, paper, row["summary"]])
    print_table(cells, "name", "kind", "tasks", "items", "in the paper", "what", numbers=(2, 3))


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="A dataset's name.")],
    tasks: Annotated[int, typer.Option(help="How many tasks to show.", min=0)] = 2,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="An option of the dataset, NAME=VALUE.")
    ] = None,
    export: Annotated[
        bool, typer.Option("--jsonl", help="Print all tasks as JSON lines, for `ccrank rank --tasks`.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a dataset's description, counts and first tasks, or all tasks as JSON lines."""
    from ccrank.study.datasets import counts, get_dataset

    dataset = get_dataset(name)
    loaded = dataset.load(data_dir, **parse_pairs(option))
    if export:
        sys.stdout.writelines(json_text(task.to_json(), indent=None) for task in loaded)
        return
    count, items = counts(loaded)
    paper = f"{dataset.paper_tasks} tasks of {dataset.paper_items:.2f} items" if dataset.paper_tasks else "–"
    card = {
        "name": dataset.name,
        "what": dataset.summary,
        "kind": dataset.kind,
        "licence": dataset.licence,
        "source": dataset.source,
        "counts": f"{count} tasks of {items:.2f} items on average",
        "in the paper": paper,
        "departs": dataset.departs,
        "options": ", ".join(f"{key}={value}" for key, value in dataset.options.items()) or "none",
    }
    if as_json:
        print_json({**card, "tasks": [task.to_json() for task in loaded[:tasks]]})
        return
    print_facts({key: str(value) for key, value in card.items()})
    for task in loaded[:tasks]:
        if task.query is not None:
            relevant = sum(value > 0 for value in task.values or ())
            typer.echo(
                f"\n{task.id}: {task.query}\n  {len(task.items)} documents, {relevant} of them relevant"
            )
            continue
        typer.echo(f"\n{task.id}: by {task.criterion.name}, {task.criterion.comparative_phrase}")
        if task.context:
            typer.echo(f"  context: {shortened(task.context, 201)}")
        typer.echo("  gold, highest first: " + " > ".join(task.order or task.items))


@cache_app.command("info")
def info_command(as_json: AsJson = False) -> None:
    """Show the location and size of the cache.

    The variable CCRANK_CACHE sets its folder, CCRANK_CACHE_LIMIT its maximal size in GiB.
    """
    from ccrank.models.cache.store import ReadingCache

    info = ReadingCache().info()
    if as_json:
        print_json(
            {"path": str(info.path), "entries": info.entries, "bytes": info.bytes, "limit_bytes": info.limit}
        )
        return
    typer.echo(f"{info.path}\n{info.entries:,} readings, {_size(info.bytes)} of at most {_size(info.limit)}")


@cache_app.command("clear")
def clear_command() -> None:
    """Delete all readings. Models and data are kept."""
    from ccrank.models.cache.store import ReadingCache

    typer.echo(f"{_size(ReadingCache().clear())} freed")


def _size(count: int) -> str:
    """A human-readable number of bytes."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
