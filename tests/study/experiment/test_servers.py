"""Studies on models behind servers, alone and beside loaded ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from completion_server import KEY, StandIn, serving
from tiny import tiny_model
from typer.testing import CliRunner

from ccrank.cli.commands import app
from ccrank.cli.commands.bench import BenchFlags, study_of
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import write_tasks
from ccrank.methods.registry import methods_without_states
from ccrank.models import Reader, ReadingCache
from ccrank.models.remote import client as remote_client
from ccrank.models.remote import is_remote, open_model
from ccrank.models.remote.client import KEY_VARIABLE
from ccrank.study.experiment.runner import StudyWatcher, run_study
from ccrank.study.experiment.study import Study
from ccrank.study.results.load import load_environment, load_failures, load_results
from ccrank.task import Criterion, Task
from study.experiment.conftest import Interrupting, small_tasks, two_task_files

SHARED_METHODS = ("poles", "prompt-pair", "length")
"""Methods whose scores are the same with log-probabilities as with logits."""


@pytest.fixture
def task_files(tmp_path: Path) -> tuple[str, str]:
    """Two files of two lists, the second with a context."""
    return two_task_files(tmp_path, 2, 2, start=3)


@pytest.fixture
def stand_in(open_tiny: Callable[[str], Reader], monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A server of the tiny Llama, asked again at once after a failure."""
    monkeypatch.setattr(remote_client, "FIRST_WAIT_SECONDS", 0.001)
    with serving(open_tiny("llama"), "vllm") as one:
        yield one


class Listening(StudyWatcher):
    """Keeps what a study says, and may do something after a unit."""

    def __init__(self, after: Callable[[], None] = lambda: None) -> None:
        self.said: list[str] = []
        self.after = after

    def say(self, words: str) -> None:
        self.said.append(words)

    def finish(self, *_: object) -> None:  # type: ignore[override]
        self.after()


def scores(frame: pd.DataFrame, model: str) -> pd.Series:
    """Scores of a model by dataset, method and task."""
    own = frame[frame["model"] == model]
    return own.set_index(["dataset", "method", "task"])["scores"].sort_index()


def test_server_and_loaded_model_side_by_side(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn, open_tiny: Callable[[str], Reader]
) -> None:
    """The same model behind a server and loaded here have the same scores in one study; the records say which is
    which."""
    name = f"openai:{stand_in.url}#tiny"
    study = Study((name, "llama"), task_files, SHARED_METHODS)
    cache = ReadingCache(tmp_path / "cache")

    def opener(model: str) -> Any:
        return open_model(model, cache=cache) if is_remote(model) else open_tiny(model)

    report = run_study(study, tmp_path / "out", open_reader=opener)
    assert report.failures == []
    frame = load_results(tmp_path / "out")
    assert set(frame["model"]) == {name, "llama"}
    found, expected = scores(frame, name), scores(frame, "llama")
    assert found.index.equals(expected.index)
    assert len(found) == len(SHARED_METHODS) * 4
    for key, own in found.items():
        np.testing.assert_allclose(own, expected[key], atol=2e-3, err_msg=str(key))
    models = load_environment(tmp_path / "out")["models"]
    assert models["llama"]["remote"] is False
    assert models[name]["remote"] is True
    assert models[name]["server"] == stand_in.url
    assert models[name]["weights"]["served_name"] == "tiny"


def test_methods_with_states_are_refused_before_anything_is_read(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """The message names the methods, the model and what can be used instead; the server is not asked at all, and the
    folder stays empty."""
    study = Study((f"openai:{stand_in.url}",), task_files, ("poles", "triplet", "sup-ccs:same-task"))
    expected = (
        rf"openai:{stand_in.url} is behind a server.* triplet:same-task, sup-ccs:same-task need them; .*"
    )
    with pytest.raises(CcrankError, match=expected + ", ".join(methods_without_states())):
        run_study(study, tmp_path / "out")
    assert stand_in.asked == []
    assert not (tmp_path / "out").exists()


def test_left_out_methods_are_said_and_recorded(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """With skip_unsupported the rest is run; what is left out is said, in the report and in the records."""
    methods = ("auto", "poles", "axis", "random", "pca@embeddings", "length")
    study = Study((f"openai:{stand_in.url}#tiny",), task_files, methods, skip_unsupported=True)
    watcher = Listening()
    report = run_study(study, tmp_path / "out", watcher=watcher)
    assert report.failures == []
    # The second file has two lists with a context, too few for a probe: `auto` reads no states there.
    assert report.left_out == {study.models[0]: ["auto (on first)", "axis", "random", "pca@embeddings"]}
    [notice] = [line for line in watcher.said if "left out" in line]
    assert "auto (on first), axis, random, pca@embeddings" in notice
    done = load_results(tmp_path / "out").groupby("method")["dataset"].agg(set).to_dict()
    assert done == {"auto": {"second"}, "poles": {"first", "second"}, "length": {"first", "second"}}
    [model] = load_environment(tmp_path / "out")["models"].values()
    assert model["left_out"] == report.left_out[study.models[0]]


def test_auto_runs_where_it_reads_no_states(tmp_path: Path, stand_in: StandIn) -> None:
    """`auto` is left out for plain lists and for a pool of lists, and run for documents with a query, and for a pool
    without the probe; what is not left out does not fail."""
    with_context = small_tasks(5, context="The tower is dark.")
    queries = [
        Task.of_query("how tall?", task.items, values=task.values, id=task.id) for task in with_context
    ]
    write_tasks(with_context, tmp_path / "pool.jsonl")
    write_tasks(queries, tmp_path / "queries.jsonl")
    files = (str(tmp_path / "pool.jsonl"), str(tmp_path / "queries.jsonl"))
    name = f"openai:{stand_in.url}#tiny"
    for options, done in (({}, {"queries"}), ({"auto": {"anchor": "no"}}, {"pool", "queries"})):
        study = Study((name,), files, ("auto",), options=options, skip_unsupported=True)
        report = run_study(study, tmp_path / f"out-{len(done)}")
        assert report.failures == []
        assert set(load_results(tmp_path / f"out-{len(done)}")["dataset"]) == done


def test_a_study_with_nothing_left_is_refused(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """A server that can run none of the methods is an error, not an empty table."""
    study = Study((f"openai:{stand_in.url}#tiny",), task_files, ("axis", "pca"), skip_unsupported=True)
    with pytest.raises(CcrankError, match="axis, pca need them; give --methods of poles"):
        run_study(study, tmp_path / "out")


def test_presets_leave_methods_out_and_flags_do_not(tmp_path: Path) -> None:
    """Methods of a preset, or of no choice, are left out; those that a user names are refused, unless the flag says
    otherwise; a folder continues as it began."""

    def study(**flags: Any) -> Study:
        return study_of(BenchFlags(folder=tmp_path, **flags))

    assert study(preset="paper").skip_unsupported
    assert study(datasets="everyday").skip_unsupported
    assert not study(preset="paper", methods="pca").skip_unsupported
    assert not study(preset="paper", skip_unsupported=False).skip_unsupported
    assert not study(datasets="everyday", methods="pca").skip_unsupported
    assert study(datasets="everyday", methods="pca", skip_unsupported=True).skip_unsupported
    for stored in (Study(("a",), ("b",), ("pca",), skip_unsupported=True), Study(("a",), ("b",), ("pca",))):
        (tmp_path / "config.toml").write_text(stored.to_toml(), encoding="utf-8")
        assert study() == stored
    with pytest.raises(CcrankError, match="skip_unsupported must be true or false"):
        Study.parse({"datasets": ["b"], "methods": ["pca"], "skip_unsupported": "yes"})


def test_the_name_is_asked_for_and_stored(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """An address without a name is stored with the one that the server gives, so that the folder refuses another model
    behind the same address."""
    study = Study((f"openai:{stand_in.url}",), task_files[:1], ("length", "poles"))
    run_study(study, tmp_path / "out")
    assert set(load_results(tmp_path / "out")["model"]) == {f"openai:{stand_in.url}#tiny"}
    assert Study.load(tmp_path / "out" / "config.toml").models == (f"openai:{stand_in.url}#tiny",)
    asked = len(stand_in.asked)
    run_study(Study.load(tmp_path / "out" / "config.toml"), tmp_path / "out")  # all is done
    assert len(stand_in.asked) == asked
    stand_in.name = "other"
    with pytest.raises(CcrankError, match=r"models without openai:.*#tiny, with openai:.*#other"):
        run_study(study, tmp_path / "out")
    with pytest.raises(CcrankError, match=r"contains .* twice"):
        run_study(
            Study((*study.models, f"openai:{stand_in.url}#other"), task_files, ("poles",)), tmp_path / "two"
        )


def test_no_secret_is_stored(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user, password and query of an address, and the key, reach the server and no file of the study; the command
    prints none of them."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    address = stand_in.url.replace("http://", "http://ada:hunter2@") + "?token=abc123#tiny"
    command = ["bench", "--models", f"openai:{address}", "--datasets", task_files[0]]
    command += ["--methods", "poles", "--out", str(tmp_path / "out"), "--no-report"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert stand_in.headers[-1]["authorization"].startswith("Basic ")
    stored = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(stored) > 5
    for secret in (KEY, "hunter2", "abc123", "YWRhOmh1bnRlcjI"):
        assert secret not in done.output
        assert not any(secret.encode() in content for content in stored)


def test_a_continued_study_is_that_of_one_run(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """A study is continued where it was interrupted, even if its cache is gone and the server was restarted with
    another window."""
    study = Study((f"openai:{stand_in.url}#tiny",), task_files, ("poles", "prompt-pair", "length"))
    run_study(study, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "parts", watcher=Interrupting(2))
    shutil.rmtree(tmp_path / "parts" / "cache")
    stand_in.created, stand_in.window = 2, 400
    report = run_study(study, tmp_path / "parts")
    assert (report.done_before, report.failures) == (2, [])
    whole, parts = (scores(load_results(tmp_path / name), study.models[0]) for name in ("whole", "parts"))
    for key, own in whole.items():
        np.testing.assert_allclose(parts[key], own, atol=1e-5)


def test_other_weights_under_the_same_name_are_refused(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """A folder that was begun with other weights behind the same address and name is not continued."""
    study = Study((f"openai:{stand_in.url}#tiny",), task_files, ("poles", "prompt-pair"))
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "out", watcher=Interrupting(1))
    stand_in.reader = Reader(tiny_model("llama", seed=1, max_position_embeddings=512))
    with pytest.raises(CcrankError, match=r"#tiny differs from the one in .*after the same .*--force-new"):
        run_study(study, tmp_path / "out")


@pytest.mark.parametrize("change", ["weights", "name"])
def test_a_model_that_changes_meanwhile_is_noticed(
    change: str, task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn
) -> None:
    """If the server has another model after some units, what was read of it is not stored, and the study can be
    continued with the first one."""
    first = stand_in.reader

    def exchange() -> None:
        if change == "weights":
            stand_in.reader = Reader(tiny_model("llama", seed=1, max_position_embeddings=512))
        else:
            stand_in.name = "other"

    study = Study((f"openai:{stand_in.url}#tiny",), task_files, ("prompt-pair", "poles"))
    report = run_study(study, tmp_path / "out", watcher=Listening(exchange))
    reason = "has changed while it was read" if change == "weights" else "has no model 'tiny'; it has other"
    assert len(report.failures) == 3
    assert all(reason in one["reason"] for one in report.failures)
    stand_in.reader, stand_in.name = first, "tiny"
    again = run_study(study, tmp_path / "out")
    assert (again.done_before, again.failures) == (1, [])
    run_study(study, tmp_path / "whole")
    whole, parts = (scores(load_results(tmp_path / name), study.models[0]) for name in ("whole", "out"))
    for key, own in whole.items():
        np.testing.assert_allclose(parts[key], own, atol=1e-5)


def test_a_server_that_is_lost_ends_its_model_alone(
    task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn, open_tiny: Callable[[str], Reader]
) -> None:
    """When a server fails for good, its units are not marked as done and not tried task by task; other models go on,
    and the next run continues."""
    name = f"openai:{stand_in.url}#tiny"
    study = Study((name, "llama"), task_files, ("prompt-pair", "poles"))

    def opener(model: str) -> Any:
        return open_model(model) if is_remote(model) else open_tiny(model)

    def fail() -> None:
        stand_in.faults = ["500"] * 10_000

    report = run_study(study, tmp_path / "out", open_reader=opener, watcher=Listening(fail))
    assert [(one["model"], one["task"]) for one in report.failures] == [(name, None)] * 3
    assert "answered 500: please come again, after" in report.failures[0]["reason"]
    assert load_failures(tmp_path / "out") == report.failures
    requests_of_one_unit = remote_client.MAX_ATTEMPTS * (remote_client.DEFAULT_REQUESTS + 1)
    assert 10_000 - len(stand_in.faults) <= requests_of_one_unit
    stand_in.faults = []
    again = run_study(study, tmp_path / "out", open_reader=opener)
    assert (again.done_before, again.failures) == (5, [])


def test_a_task_that_the_server_refuses_is_set_apart(tmp_path: Path, stand_in: StandIn) -> None:
    """A request that is refused for its own sake fails its task alone."""
    tasks = [*small_tasks(3), Task(Criterion("size", "larger"), ("fox", "dog"), "red " * 3000, id="long")]
    write_tasks(tasks, tmp_path / "mine.jsonl")
    study = Study((f"openai:{stand_in.url}#tiny",), (str(tmp_path / "mine.jsonl"),), ("prompt-point",))
    report = run_study(study, tmp_path / "out")
    assert [one["task"] for one in report.failures] == ["long"]
    assert "exceeds the context" in report.failures[0]["reason"]
    assert set(load_results(tmp_path / "out")["task"]) == {"task-0", "task-1", "task-2"}


@pytest.mark.parametrize(
    ("models", "reader", "refused"),
    [
        (("{server}",), {"dtype": "bfloat16"}, "--dtype"),
        (("{server}", "llama"), {"chat": True}, "--chat"),
        (("{server}", "{folder}"), {"batch_tokens": 512}, None),
    ],
)
def test_reader_options_beside_servers(
    models: tuple[str, ...],
    reader: dict[str, Any],
    refused: str | None,
    task_files: tuple[str, str],
    tmp_path: Path,
    stand_in: StandIn,
) -> None:
    """Options of loading concern the loaded models of a study; where there are none, and where an option changes
    prompts, they are refused before anything is read."""
    (tmp_path / "config.json").write_text(
        "{}", encoding="utf-8"
    )  # the folder of a model that cannot be loaded
    server = f"openai:{stand_in.url}#tiny"
    named = tuple(one.format(server=server, folder=tmp_path) for one in models)
    study = Study(named, task_files[:1], ("length",), reader=reader)
    if refused:
        with pytest.raises(CcrankError, match=rf"{refused} .*is for models that ccrank loads itself"):
            run_study(study, tmp_path / "out")
        assert stand_in.asked == []
    else:
        report = run_study(study, tmp_path / "out")
        assert {one["model"] for one in report.failures} == {str(tmp_path)}


def test_bench_on_the_command_line(task_files: tuple[str, str], tmp_path: Path, stand_in: StandIn) -> None:
    """A preset on a server runs what it can and says what it leaves out; the table and the report name the server; a
    named method that needs states is exit code 2; a cluster is refused."""
    runner, name = CliRunner(), f"openai:{stand_in.url}#tiny"
    command = ["bench", "--preset", "quick", "--models", name, "--datasets", task_files[0]]
    command += ["-o", "prompt-list.shuffles=1"]
    done = runner.invoke(
        app, [*command, "--limit", "1", "--out", str(tmp_path / "out")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.stderr
    assert "left out for it: auto, axis, triplet:same-task" in " ".join(done.stderr.split())
    table = runner.invoke(app, ["results", str(tmp_path / "out"), "--json"], catch_exceptions=False)
    entries = json.loads(table.stdout)
    assert {entry["method"] for entry in entries} == {
        "poles",
        "likelihood",
        "prompt-pair",
        "prompt-point",
        "prompt-list",
    }
    assert {entry["model"] for entry in entries} == {name}
    assert name in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    refused = runner.invoke(app, [*command[:-2], "--methods", "pca", "--out", str(tmp_path / "two")])
    assert refused.exit_code != 0
    assert "pca needs them" in str(refused.exception or refused.stderr)
    cluster = runner.invoke(app, [*command, "--engine", "ray", "--out", str(tmp_path / "three")])
    assert cluster.exit_code != 0
    assert "--engine ray is for models that ccrank loads itself" in str(cluster.exception or cluster.stderr)
