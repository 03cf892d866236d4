"""`ccrank bench` and `ccrank results` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import save_model, tiny_model
from typer.testing import CliRunner

from ccrank.cli.commands import app
from ccrank.cli.commands.bench import BenchFlags, dotted_options, study_of
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks, write_tasks
from ccrank.study.experiment.study import Study
from ccrank.study.results.load import load_results
from ccrank.task import Criterion, Task


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A tiny model's folder."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    save_model(loaded, tmp_path / "model")
    return str(tmp_path / "model")


def test_bench_and_results(model: str, task_files: tuple[str, str], tmp_path: Path) -> None:
    """A study from flags; the same command again does nothing; every form of the results is printed."""
    runner, out = CliRunner(), tmp_path / "out"
    command = ["bench", "--models", model, "--datasets", ",".join(task_files), "--seeds", "2", "--limit", "2"]
    command += ["--methods", "prompt-pair,random,triplet", "-o", "triplet.epochs=3", "--out", str(out)]
    first = runner.invoke(app, [*command, "--no-report"], catch_exceptions=False)
    assert first.exit_code == 0
    assert "[6/6]" in first.stderr
    frame = load_results(out)
    assert len(frame) == 2 * 2 * (1 + 2 + 2)
    again = runner.invoke(app, ["bench", "--out", str(out), "--no-report"], catch_exceptions=False)
    assert "0 took" in again.stdout
    table = runner.invoke(app, ["results", str(out)], catch_exceptions=False)
    assert "triplet" in table.stdout
    entries = json.loads(runner.invoke(app, ["results", str(out), "--json"]).stdout)
    assert {entry["method"] for entry in entries} == {"prompt-pair", "random", "triplet"}
    pairs = {entry["method"]: entry["free_pair_accuracy"] for entry in entries if entry["dataset"] == "first"}
    assert pairs["triplet"] is None
    wide = runner.invoke(app, ["results", str(out), "--dataset", "first"], env={"COLUMNS": "250"}).stdout
    [shown] = [line for line in wide.splitlines() if line.startswith("prompt-pair")]
    assert f"{pairs['prompt-pair']:.1%}" in shown
    assert "coins" in wide
    probes = ["results", str(out), "--method", "random"]
    assert "coins" not in runner.invoke(app, probes, env={"COLUMNS": "250"}).stdout
    kinds = json.loads(runner.invoke(app, ["results", str(out), "--by", "kind", "--json"]).stdout)
    assert [entry["datasets"] for entry in kinds] == [2, 2, 2]
    run = tmp_path / "run.trec"
    runner.invoke(
        app, ["results", str(out), "--trec", str(run), "--method", "random"], catch_exceptions=False
    )
    chosen = frame[frame["method"] == "random"]
    assert len(run.read_text(encoding="utf-8").splitlines()) == chosen["n_items"].sum()
    gold = tmp_path / "gold.qrels"
    runner.invoke(
        app, ["results", str(out), "--qrels", str(gold), "--dataset", "first"], catch_exceptions=False
    )
    judged = [line.split()[0].partition("/")[0] for line in gold.read_text(encoding="utf-8").splitlines()]
    tasks = frame[frame["dataset"] == "first"].drop_duplicates("task")
    assert judged == ["first"] * tasks["n_items"].sum()


def test_failures_have_an_exit_code_and_a_line(
    model: str, task_files: tuple[str, str], tmp_path: Path
) -> None:
    """A task that fails leaves the rest done, exit code 3, and its reason on the screen."""
    tasks = [*read_tasks(task_files[0]), Task(Criterion("size"), ("a", "b", "c"), "red " * 3000, id="long")]
    write_tasks(tasks, tmp_path / "mine.jsonl")
    command = ["bench", "--models", model, "--datasets", str(tmp_path / "mine.jsonl"), "--no-report"]
    command += ["--methods", "prompt-point", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 3
    assert "1 failure, listed in" in done.stderr
    assert "task long" in done.stderr
    assert len(load_results(tmp_path / "out")) == 5


def test_a_study_without_results_says_why(tmp_path: Path, task_files: tuple[str, str]) -> None:
    """Where every unit failed, `bench` does not point to results, and `results` points to the failures."""
    out, broken = tmp_path / "out", tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}", encoding="utf-8")
    command = ["bench", "--models", str(broken), "--datasets", task_files[0], "--methods", "pca"]
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 3
    assert "1 unit; 1 took " in done.stdout
    assert "see `ccrank results" not in done.stdout
    shown = CliRunner().invoke(app, ["results", str(out), "--json"])
    assert shown.stdout == ""
    with pytest.raises(
        CcrankError, match=r"has no results: all its units failed, see .*failures\.jsonl; .*--retry"
    ):
        CliRunner().invoke(app, ["results", str(out)], catch_exceptions=False)
    (out / "failures.jsonl").unlink()  # as while the study runs
    with pytest.raises(CcrankError, match=f"all its units so far failed; `ccrank bench --out {out}` runs"):
        CliRunner().invoke(app, ["results", str(out)], catch_exceptions=False)


def test_flags_are_laid_over_presets(tmp_path: Path) -> None:
    """A preset gives what the flags do not; a method's options are merged; without anything the command asks."""

    def study(preset: str | None = None, **flags: Any) -> Study:
        return study_of(BenchFlags(folder=tmp_path, preset=preset, **flags))

    quick = study("quick", device="auto", chat=True, seeds=3, option=["triplet.margin=0.5"])
    assert (quick.seeds, quick.limit) == (3, 8)
    assert quick.options == {"triplet": {"margin": "0.5"}}
    assert quick.reader["chat"] is True
    assert study("reproduction", methods="pca, auto").options == {"auto": {"exemplars": False}}
    assert study("reproduction", methods="margin@pairs").options == {}
    config = tmp_path / "mine.toml"
    config.write_text(quick.to_toml(), encoding="utf-8")
    assert study(config=config) == quick
    with pytest.raises(CcrankError, match="no study given"):
        study()
    with pytest.raises(CcrankError, match=r"written like a\.b=c"):
        dotted_options(["margin=0.5"], "a.b=c")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--models", "defualt"], "no model 'defualt'; did you mean 'default'"),
        (["--models", "MODEL,defualt"], "did you mean 'default'"),
        (["--layers", "1,31"], "there is no layer 31"),
        (["--layers", "-9"], "there is no layer -9"),
        (["--methods", "prompt-pair", "-o", "prompt-pair.template=pairr"], "did you mean 'pair'"),
        (["--template", "singel={item} is {slot}"], "--template singel: .*did you mean 'single'"),
        (["--datasets", "scalradj"], "did you mean 'scalaradj'"),
        (["--datasets", "Reviews-leters"], "did you mean 'reviews-letters'"),
    ],
)
def test_bad_input_is_refused_before_a_folder_exists(
    given: list[str], message: str, model: str, task_files: tuple[str, str], tmp_path: Path
) -> None:
    """A wrong name of a model, layer, template or dataset is an error at once, and leaves nothing behind."""
    out = tmp_path / "out"
    command = ["bench", "--models", model, "--datasets", task_files[0], "--methods", "pca", "--out", str(out)]
    command += [word.replace("MODEL", model) for word in given]
    with pytest.raises(CcrankError, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert not out.exists()


def test_a_template_of_ones_own_is_used_by_an_option(
    model: str, task_files: tuple[str, str], tmp_path: Path
) -> None:
    """A new template is refused unless an option of a method names it."""
    command = ["bench", "--models", model, "--datasets", task_files[0], "--methods", "prompt-point"]
    command += ["--template", "mine={item} is {slot}", "--no-report", "--out", str(tmp_path / "out")]
    with pytest.raises(CcrankError, match="no option uses a new one"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    done = CliRunner().invoke(app, [*command, "-o", "prompt-point.template=mine"], catch_exceptions=False)
    assert done.exit_code == 0
