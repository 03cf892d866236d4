"""`ccrank bench`: run or resume a whole study with one command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccrank.cli import options as shared
from ccrank.cli.data import DataDir
from ccrank.cli.screen import counted, err, out, spinner
from ccrank.cli.study_view import study_view
from ccrank.errors import CcrankError

if TYPE_CHECKING:
    from ccrank.experiment.runner import StudyReport
    from ccrank.experiment.study import Study
    from ccrank.remote import OpenModel

EXIT_WITH_FAILURES = 3
WHAT, HOW, RUN = "What to compare", "Models and prompts", "The run"
SHOWN_FAILURES = 10


@shared.with_reader_flags
def bench_command(
    folder: Annotated[Path, typer.Option("--out", help="The study's folder, for results and progress.")],
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset", help="A packaged study: quick, paper, reproduction or sizes.", rich_help_panel=WHAT
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A study as a TOML file.", rich_help_panel=WHAT)
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            help="Models, comma-separated; openai:URL#NAME is one behind a server.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    datasets: Annotated[
        str | None,
        typer.Option(
            "--datasets", help="Datasets and JSONL task files, comma-separated.", rich_help_panel=WHAT
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="NAME\\[@VARIANT]\\[:SPLIT], comma-separated; splits are same-task, leave-one-out, across-tasks.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Number of seeds per probe.", rich_help_panel=WHAT)
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            help="last, all, numbers such as 12,20, or auto: for each probe one layer, chosen without labels.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximal number of tasks per dataset.", rich_help_panel=WHAT),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", help="An option of a method, METHOD.NAME=VALUE.", rich_help_panel=WHAT
        ),
    ] = None,
    skip_unsupported: Annotated[
        bool | None,
        typer.Option(
            "--skip-unsupported/--no-skip-unsupported",
            help="Leave out methods that a model behind a server cannot run, instead of refusing the study.",
            show_default="for the methods of a preset",
            rich_help_panel=WHAT,
        ),
    ] = None,
    data_dir: DataDir = None,
    reader_flags: shared.ReaderFlags = shared.NO_FLAGS,
    engine: shared.EngineName = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    templates: shared.TemplateFile = None,
    template: shared.TemplateChange = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            help="Folder of cached readings; default: `cache` in the study's folder.",
            rich_help_panel=RUN,
        ),
    ] = None,
    force_new: Annotated[
        bool,
        typer.Option("--force-new", help="Move an existing, different study aside.", rich_help_panel=RUN),
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Repeat units with failed tasks.", rich_help_panel=RUN)
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report/--no-report", help="Write figures and an HTML report at the end.", rich_help_panel=RUN
        ),
    ] = True,
) -> None:
    """Compare models, datasets and methods: the paper's study, or your own.

    [bold]ccrank bench --preset quick --out quick[/bold]

    [bold]ccrank bench --models default,gpt2 --datasets wikilists,mine.jsonl --methods prompt-pair,pca --out mine[/bold]

    After an interruption, the same command resumes the study. Exit codes: 0 done, 3 done, but some tasks failed
    (listed in failures.jsonl), 2 bad input, 130 interrupted.
    """
    with spinner("starting"):
        from ccrank.experiment.runner import run_study
    flags: dict[str, Any] = {
        "models": models,
        "datasets": datasets,
        "methods": methods,
        "seeds": seeds,
        "layers": layers,
        "limit": limit,
        "templates": None if templates is None else str(templates),
        "template": template or None,
        "skip_unsupported": skip_unsupported,
    }
    where = shared.Cluster(engine, address, workers)
    study = study_of(folder, preset, config, flags, method_options(option), reader_flags.given())
    start = time.perf_counter()
    with study_view() as watcher:
        done = run_study(
            study,
            folder,
            data_dir=data_dir,
            cache=cache,
            force_new=force_new,
            retry=retry,
            watcher=watcher,
            open_reader=_on_cluster(where, study) if where.engine == "ray" else None,
        )
    page = _write_report(folder) if report and done.rows else None
    _print_outcome(folder, done, page, time.perf_counter() - start)
    if done.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)


def _on_cluster(where: shared.Cluster, study: Study) -> Callable[[str], OpenModel]:
    """Opens each model of a study on the workers of a cluster, after those of the model before it have ended."""
    from ccrank.distributed import ClusterReader, Pool, connect
    from ccrank.reader_options import ReaderOptions
    from ccrank.remote import is_remote

    if remote := [name for name in study.addresses if is_remote(name)]:
        raise CcrankError(
            f"--engine ray is for models that ccrank loads itself, and {remote[0]} is behind a server: remove one of "
            "them"
        )
    options = ReaderOptions(**study.reader)
    open_pools: list[Pool] = []

    def opened(name: str) -> OpenModel:
        while open_pools:
            open_pools.pop().close()
        open_pools.append(connect(where.address, where.workers, name, options))
        return ClusterReader.open(open_pools[-1], name, options)

    return opened


def study_of(
    folder: Path,
    name: str | None,
    config: Path | None,
    flags: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
    reader: Mapping[str, Any],
) -> Study:
    """The study that the arguments describe: a preset, a file or the folder's own, overridden by the flags given."""
    from ccrank.experiment.study import Study, preset
    from ccrank.toml import parse_toml

    given = {key: value for key, value in flags.items() if value is not None}
    if name and config:
        raise CcrankError("--preset and --config are mutually exclusive")
    own = folder / "config.toml"
    where = "the study"
    if name:
        base: dict[str, Any] = preset(name)
    elif config:
        base, where = parse_toml(config), str(config)
    elif "datasets" in given:
        base = {"methods": preset("quick")["methods"]}
    elif own.exists():
        base, where = parse_toml(own), str(own)
    else:
        raise CcrankError(
            "no study given: use --preset quick (minutes) or paper (hours), --config FILE, or --datasets"
        )
    if (name or "datasets" in given) and not config and "methods" not in given:
        given.setdefault("skip_unsupported", True)  # nobody asked for each single method of a preset
    table = base.get("options", {})
    if name and "methods" in given:
        # A preset's options of methods that the flag leaves out are left out too.
        named = {text.strip().partition(":")[0].partition("@")[0] for text in given["methods"].split(",")}
        table = given["options"] = {key: value for key, value in table.items() if key in named}
    if options:
        given["options"] = {
            key: {**table.get(key, {}), **options.get(key, {})} for key in {**table, **options}
        }
    given["reader"] = {**base.get("reader", {}), **reader}
    return Study.parse({**base, **given}, where)


def method_options(pairs: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """METHOD.NAME=VALUE options by method."""
    parsed: dict[str, dict[str, str]] = {}
    for key, value in shared.parse_pairs(pairs).items():
        method, dot, name = key.partition(".")
        if not dot:
            raise CcrankError(
                f"a method option must be METHOD.NAME=VALUE, such as prompt-pair.calibration=none, got {key!r}"
            )
        parsed.setdefault(method, {})[name] = value
    return parsed


def _write_report(folder: Path) -> Path:
    with spinner("writing the report"):
        from ccrank.report.study import write_report

        return write_report(folder)


def _print_outcome(folder: Path, done: StudyReport, page: Path | None, seconds: float) -> None:
    fresh = done.units - done.done_before
    before = f", {done.done_before} of them done before" if done.done_before else ""
    see = f"; see `ccrank results {folder}`" if done.rows else ""
    out().print(
        f"{counted(done.units, 'unit')}{before}; {fresh} took {seconds:,.0f} s. {counted(done.rows, 'row')} in "
        f"{folder / 'results.parquet'}{see}"
    )
    if page is not None:
        out().print(f"report: {page}")
    if not done.failures:
        return
    console = err()
    console.print(
        f"{counted(len(done.failures), 'failure')}, listed in {folder / 'failures.jsonl'}; --retry repeats the units:",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    for entry in done.failures[:SHOWN_FAILURES]:
        task = "" if entry["task"] is None else f" · task {entry['task']}"
        console.print(
            f"  {entry['model']} · {entry['dataset']} · {entry['method']} ({entry['split']}){task}: {entry['reason']}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if len(done.failures) > SHOWN_FAILURES:
        console.print(f"  and {len(done.failures) - SHOWN_FAILURES} more")
