"""`ccrank bench`: run or resume a whole study with one command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ccrank.cli import options as shared
from ccrank.cli.commands.data import DataDir
from ccrank.cli.options import flag
from ccrank.cli.screen import counted, duration, err, out, print_table, spinner
from ccrank.errors import CcrankError, needs_extra

if TYPE_CHECKING:
    from ccrank.models.remote import OpenModel
    from ccrank.study.experiment.runner import StudyReport
    from ccrank.study.experiment.study import Study

EXIT_WITH_FAILURES = 3
SHOWN_FAILURES = 10


@dataclass(frozen=True, kw_only=True)
class StudyFlags(shared.Flags, panel="What to compare"):
    """What is compared; None stands for the value of a preset or a file."""

    preset: str | None = flag("A packaged study: quick, paper, paper-models, reproduction or sizes.")
    config: Path | None = flag("A study as a TOML file.")
    models: str | None = flag("Models, comma-separated; openai:URL#NAME is one behind a server.")
    datasets: str | None = flag("Datasets and JSONL task files, comma-separated.")
    methods: str | None = flag(
        "NAME\\[@VARIANT]\\[:SPLIT], comma-separated; splits are same-task, leave-one-out, across-tasks, "
        "across-items."
    )
    seeds: int | None = flag("Number of seeds per probe.", min=1)
    layers: str | None = flag(
        "last, all, numbers such as 12,20, or auto: for each probe one layer, chosen without labels."
    )
    folds: str | None = flag(
        "What held-out tasks share with those trained on: tasks (no task), items (no item either), or both in turn. "
        "\\[default: tasks]"
    )
    save_probes: bool | None = flag(
        "Store the directions of probes for `ccrank compare --cosines`. \\[default: no-save-probes]"
    )
    jury: bool | None = flag(
        "Add the jury of all models as one more model, for methods that know the direction and are not probes. "
        "\\[default: no-jury]"
    )
    limit: int | None = flag("Maximal number of tasks per dataset.", min=1)
    option: list[str] | None = flag("An option of a method, METHOD.NAME=VALUE.", "--option", "-o")
    dataset_option: list[str] | None = flag(
        "An option of a dataset, DATASET.NAME=VALUE, such as entsalience.words=none for whole articles."
    )
    plugin: list[Path] | None = flag(shared.PLUGIN_HELP)
    skip_unsupported: bool | None = flag(
        "Leave out methods that a model behind a server cannot run, instead of refusing the study.",
        show_default="for the methods of a preset",
    )


@dataclass(frozen=True, kw_only=True)
class RunFlags(shared.Flags, panel="The run"):
    cache: Path | None = flag("Folder of cached readings; default: `cache` in the study's folder.")
    force_new: bool = flag("Move an existing, different study aside.", default=False)
    retry: bool = flag("Repeat units with failed tasks.", default=False)
    estimate: bool = flag("Show the hours, memory and downloads of each model, and exit.", default=False)
    report: bool = flag("Write figures and an HTML report at the end.", default=True)


@dataclass(frozen=True, kw_only=True)
class BenchFlags(StudyFlags, shared.ReaderFlags, shared.TemplateFlags, RunFlags, shared.ClusterFlags):
    folder: Path = flag("The study's folder, for results and progress.", "--out", default=MISSING)
    data_dir: DataDir = None


@shared.takes_flags("folder preset config models datasets methods seeds limit data_dir estimate retry report")
def bench_command(flags: BenchFlags) -> None:
    """Compare models, datasets and methods: the paper's study, or your own.

    [bold]ccrank bench --preset quick --out quick[/bold]

    [bold]ccrank bench --models default,gemma-3-270m --datasets reviews,mine.jsonl --methods auto,pca --out mine[/bold]

    After an interruption, the same command resumes the study. Exit codes: 0 done, 3 done, but some tasks failed
    (listed in failures.jsonl), 2 bad input, 130 interrupted.
    """
    with spinner("starting"), needs_extra("report", "ccrank bench"):
        from ccrank.cli.study_view import StudyView
        from ccrank.study.experiment.runner import run_study

        if flags.report:  # a missing package is an error before the study, not after it
            from ccrank.study.report.write_report import write_report
    study, folder = study_of(flags), flags.folder
    if flags.estimate or len(study.models) > 1:
        _show_estimate(study, flags)
        if flags.estimate:
            return
    start = time.perf_counter()
    view = StudyView()
    with view.progress:
        done = run_study(
            study,
            folder,
            data_dir=flags.data_dir,
            cache=flags.cache,
            force_new=flags.force_new,
            retry=flags.retry,
            watcher=view,
            open_reader=_on_cluster(flags, study) if flags.engine == "ray" else None,
        )
    page = None
    if flags.report and done.rows:
        with spinner("writing the report"):
            page = write_report(folder)
    _print_outcome(folder, done, page, time.perf_counter() - start)
    if done.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)


def _show_estimate(study: Study, flags: BenchFlags) -> None:
    """A row for each model on the error output, so that the results of a run stay alone on the other."""
    with spinner("estimating"):
        from ccrank.study.experiment.estimate import estimate
        from ccrank.study.experiment.units import load_task_sets

        rows = estimate(study, load_task_sets(study, flags.data_dir), flags.folder)
    cells = [
        (
            row.model,
            f"{row.units:,}",
            f"{row.tokens / 1e6:,.1f} M",
            "?" if row.parameters is None else f"{row.parameters / 1e9:.2f} B",
            _gigabytes(row.memory),
            "–" if row.download == 0 else _gigabytes(row.download),
            "?" if row.seconds is None else duration(row.seconds),
        )
        for row in rows
    ]
    names = ("model", "units", "tokens", "parameters", "memory", "download", "time here")
    print_table(cells, *names, console=err())
    seconds = sum(row.seconds or 0 for row in rows)
    total = _gigabytes(sum(row.download or 0 for row in rows))
    err().print(
        f"About {duration(seconds)} and {total} of downloads in all. Time is reading at the rate of a matrix product "
        "on this machine; small models on a GPU and probes on a CPU take longer.",
        highlight=False,
    )


def _gigabytes(size: float | None) -> str:
    if size is None:
        return "?"
    return f"{size / 2**30:.1f} GiB" if size >= 1e8 else f"{size / 2**20:.0f} MiB"


def _on_cluster(flags: BenchFlags, study: Study) -> Callable[[str], OpenModel]:
    """A function that opens each model of a study on the workers of a cluster, and ends those of the previous model."""
    from ccrank.jobs.cluster import ClusterReader, Pool, connect
    from ccrank.models.remote import is_remote
    from ccrank.reader_options import ReaderOptions
    from ccrank.study.experiment.runner import check_models

    if remote := [name for name in study.addresses if is_remote(name)]:
        raise CcrankError(
            f"--engine ray is for models that ccrank loads itself, and {remote[0]} is behind a server: remove one"
        )
    check_models(study)
    options = ReaderOptions(**study.reader)
    open_pools: list[Pool] = []

    def opened(name: str) -> OpenModel:
        while open_pools:
            open_pools.pop().close()
        open_pools.append(connect(flags.address, flags.workers, name, options))
        return ClusterReader.open(open_pools[-1], name, options)

    return opened


def study_of(flags: BenchFlags) -> Study:
    """The study that the flags describe: a preset, a file or the folder's own, overridden by the flags given."""
    from ccrank.study.experiment.study import Study, preset
    from ccrank.util.files import parse_toml

    names = [each.name for each in fields(Study)]
    given = {name: value for name in names if (value := getattr(flags, name, None)) is not None}
    given |= {"plugins": [str(path) for path in flags.plugin]} if flags.plugin else {}
    given |= {"templates": str(flags.templates)} if flags.templates is not None else {}
    tables = {
        "options": dotted_options(flags.option, "prompt-pair.calibration=none"),
        "dataset_options": dotted_options(flags.dataset_option, "entsalience.words=none"),
    }
    stored = flags.folder / "config.toml"
    config = flags.config
    if flags.preset:
        if config:
            raise CcrankError("--preset and --config are mutually exclusive")
        base: dict[str, Any] = preset(flags.preset)
    elif config is None and "datasets" in given:
        base = {"methods": preset("quick")["methods"]}
    elif config is not None or stored.exists():
        config = config or stored
        base = parse_toml(config)
    else:
        raise CcrankError(
            "no study given: use --preset quick (minutes) or paper (hours), --config FILE, or --datasets"
        )
    if config is None and "methods" not in given:
        given.setdefault("skip_unsupported", True)  # nobody asked for each single method of a preset
    before = {kind: base.get(kind, {}) for kind in tables}
    if flags.preset and "methods" in given:
        # A preset's options of methods that the flag leaves out are left out too.
        kept = {text.strip().partition(":")[0].partition("@")[0] for text in given["methods"].split(",")}
        before["options"] = {name: value for name, value in before["options"].items() if name in kept}
    for kind, table in tables.items():
        owners = {**before[kind], **table}
        given[kind] = {name: {**before[kind].get(name, {}), **table.get(name, {})} for name in owners}
    given["reader"] = {**base.get("reader", {}), **flags.given()}
    return Study.parse({**base, **given}, "the study" if config is None else str(config))


def dotted_options(pairs: Sequence[str] | None, example: str) -> dict[str, dict[str, str]]:
    """OWNER.NAME=VALUE options by owner, a method or a dataset."""
    parsed: dict[str, dict[str, str]] = {}
    for key, value in shared.parse_pairs(pairs).items():
        owner, dot, name = key.rpartition(".")
        if not dot:
            raise CcrankError(f"such an option must be written like {example}, got {key!r}")
        parsed.setdefault(owner, {})[name] = value
    return parsed


def _print_outcome(folder: Path, done: StudyReport, page: Path | None, seconds: float) -> None:
    before = f", {done.done_before} of them done before" if done.done_before else ""
    took = f"{done.units - done.done_before} took {seconds:,.0f} s"
    see = f"; see `ccrank results {folder}`" if done.rows else ""
    rows = f"{counted(done.rows, 'row')} in {folder / 'results.parquet'}{see}"
    out().print(f"{counted(done.units, 'unit')}{before}; {took}. {rows}")
    if page is not None:
        out().print(f"report: {page}")
    if not done.failures:
        return
    count, listed = counted(len(done.failures), "failure"), folder / "failures.jsonl"
    lines = [f"{count}, listed in {listed}; --retry repeats the units:"]
    for entry in done.failures[:SHOWN_FAILURES]:
        task = "" if entry["task"] is None else f" · task {entry['task']}"
        unit = f"{entry['model']} · {entry['dataset']} · {entry['method']} ({entry['split']}){task}"
        lines.append(f"  {unit}: {entry['reason']}")
    if len(done.failures) > SHOWN_FAILURES:
        lines.append(f"  and {len(done.failures) - SHOWN_FAILURES} more")
    sys.stderr.writelines(f"{line}\n" for line in lines)
