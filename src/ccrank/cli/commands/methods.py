"""`ccrank methods` and `ccrank cost`: the methods, their options, and how much each reads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli.options import AsJson, LoadedModelName, Plugins, Revision, method_names, open_reader
from ccrank.cli.screen import out, print_json, print_table, unwrapped
from ccrank.errors import CcrankError
from ccrank.reader_options import ReaderOptions

if TYPE_CHECKING:
    from ccrank.models import Reader
    from ccrank.task import Task

MAX_CONTEXT_TOKENS = 32_768
"""Bounds memory and time for models with a larger window, or none."""


def methods_command(
    name: Annotated[
        str | None, typer.Argument(help="Show this method with its options.", autocompletion=method_names)
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, or describe one and its options."""
    from ccrank.methods.plugins import load_installed_plugins
    from ccrank.methods.registry import METHODS, get_method

    load_installed_plugins()
    chosen = [get_method(name)] if name else list(METHODS.values())
    if as_json:
        print_json([method.to_json() for method in chosen])
        return
    rows = [
        (method.name, method.summary, method.family, "yes" if method.directed else "no", method.calls)
        for method in chosen
    ]
    print_table(rows, "method", "what it does", "family", "directed", "model calls")
    if name:
        out().print("\n" + unwrapped(inspect.getdoc(chosen[0].run) or ""), highlight=False)
        options = chosen[0].options
        typer.echo("\nOptions (--option NAME=VALUE), with their defaults:" if options else "\nNo options.")
        typed = {"True": "yes", "False": "no", "None": ""}
        for option, default in options.items():
            typer.echo(f"  {option.replace('_', '-')}={typed.get(str(default), default)}")


def cost_command(
    sizes: Annotated[str, typer.Option("--items", help="Numbers of items, comma-separated.")] = "5,10,20,50",
    context_tokens: Annotated[int, typer.Option(help="Tokens of a context before each prompt.", min=0)] = 0,
    model: LoadedModelName = "default",
    revision: Revision = "auto",
    as_json: AsJson = False,
) -> None:
    """Count the model calls and tokens of each method, without running the model.

    [bold]prompt tokens[/bold] are computed when reading prompt by prompt, [bold]distinct tokens[/bold] when
    every common prefix is computed once, as in ccrank.
    """
    try:
        counts = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise CcrankError(f"--items takes numbers, such as 5,10,20, not {sizes!r}") from None
    if min(counts) < 2:
        raise CcrankError(f"a ranking needs at least 2 items, got {min(counts)}")
    reader = open_reader(model, ReaderOptions(device="cpu", revision=revision), cache=False)
    check_context(context_tokens, reader.loaded.window)
    rows = [row for count in counts for row in costs(reader, count, context_tokens)]
    if as_json:
        print_json(rows)
        return
    out().print(f"{model}, {f'{context_tokens} tokens of' if context_tokens else 'no'} context", style="bold")
    forms = {
        "items": "",
        "method": "",
        "calls": ",",
        "prompt_tokens": ",",
        "distinct_tokens": ",",
        "share": ".1%",
    }
    cells = [[format(row[name], form) for name, form in forms.items()] for row in rows]
    print_table(cells, *(name.replace("_", " ") for name in forms), numbers=(0, 2, 3, 4, 5))


def check_context(context_tokens: int, window: int | None) -> None:
    """Refuse a context that the model cannot read."""
    most = MAX_CONTEXT_TOKENS if window is None else min(window, MAX_CONTEXT_TOKENS)
    if context_tokens > most:
        reason = "the model's window" if most == window else "the most that is counted"
        raise CcrankError(f"--context-tokens must be at most {most} ({reason}), got {context_tokens}")


def costs(reader: Reader, count: int, context_tokens: int) -> list[dict[str, Any]]:
    """One row per method, or per group of methods with the same prompts, for a list of `count` items."""
    from ccrank.methods.estimate import expected_cost
    from ccrank.methods.registry import METHODS
    from ccrank.prompts import load_templates
    from ccrank.task import Task

    templates = load_templates()
    task = sample_task(reader, count, context_tokens)
    rows: dict[str, dict[str, Any]] = {}
    for method in METHODS.values():
        name = method.cost_name or method.name
        if name in rows:
            continue
        once = {method.repeats_option: 1} if method.repeats_option else {}
        try:
            cost = expected_cost(task, reader, method, templates, once)
        except CcrankError:  # it needs a query
            asked = Task.of_query(task.criterion.name, task.items, context=task.context)
            cost = expected_cost(asked, reader, method, templates, once)
        rows[name] = {
            "items": count,
            "context_tokens": context_tokens,
            "method": name,
            "calls": cost.prompts,
            "prompt_tokens": cost.prompt_tokens,
            "distinct_tokens": cost.distinct_tokens,
            "share": round(cost.distinct_tokens / max(1, cost.prompt_tokens), 4),
        }
    return list(rows.values())


def sample_task(reader: Reader, count: int, context_tokens: int) -> Task:
    """Names of typical length from the packaged lists, and a context of the given length."""
    from ccrank.study.datasets import load_dataset
    from ccrank.task import Criterion, Task

    lists = sorted(load_dataset("worldlists"), key=lambda task: task.criterion.category != "country")
    names = list(dict.fromkeys(item for task in lists for item in task.items))
    if count > len(names):
        raise CcrankError(f"--items must be at most {len(names)}, got {count}")
    context = None
    if context_tokens:
        [story] = [task.context for task in load_dataset("synthcontext") if "wealth" in task.criterion.name]
        tokenizer = reader.loaded.tokenizer
        text = f"{story} " * (context_tokens // 20 + 1)
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        context = tokenizer.decode(ids[:context_tokens])
    return Task(Criterion("size"), tuple(names[:count]), context)
