"""`ccrank bench` and `ccrank results` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ccrank.cli.app import app
from ccrank.cli.bench import method_options, study_of
from ccrank.errors import CcrankError
from ccrank.results import load_results
from ccrank.task import Criterion, Task
from ccrank.taskfiles import read_tasks, write_tasks
from tiny import save_model, tiny_model


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
    out = tmp_path / "out"
    command = ["bench", "--models", "no-such-model", "--datasets", task_files[0], "--methods", "pca"]
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
    reader = {"device": "auto", "chat": True}
    study = study_of(
        tmp_path, "quick", None, {"seeds": 3, "limit": None}, method_options(["triplet.margin=0.5"]), reader
    )
    assert (study.seeds, study.limit) == (3, 8)
    assert study.options == {"triplet": {"margin": "0.5"}}
    assert study.reader["chat"] is True
    fewer = study_of(tmp_path, "reproduction", None, {"methods": "pca, auto"}, {}, {})
    assert fewer.options == {"auto": {"exemplars": False}}
    assert study_of(tmp_path, "reproduction", None, {"methods": "margin@pairs"}, {}, {}).options == {}
    config = tmp_path / "mine.toml"
    config.write_text(study.to_toml(), encoding="utf-8")
    assert study_of(tmp_path, None, config, {}, {}, {}) == study
    with pytest.raises(CcrankError, match="no study given"):
        study_of(tmp_path, None, None, {}, {}, {})
    with pytest.raises(CcrankError, match=r"METHOD\.NAME=VALUE"):
        method_options(["margin=0.5"])
