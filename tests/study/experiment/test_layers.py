"""Studies that choose each probe's layer without labels: rows, resuming, partial failures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau
from synthetic_study import NO_PAIRS
from tiny import tiny_model

from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks, write_tasks
from ccrank.methods.probe_pipeline import states
from ccrank.methods.probe_pipeline.rankers import TaskFit, closest_layer
from ccrank.methods.probe_pipeline.states import TaskStates, read_anchors
from ccrank.methods.probing.objectives import Settings
from ccrank.models import Cost, Reader, ReadingCache
from ccrank.models.prompter import Prompter
from ccrank.ranking import canonical, from_canonical
from ccrank.study.experiment.execute import run_probe
from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import MethodSpec, Study
from ccrank.study.experiment.units import TaskSet, Unit
from ccrank.study.results.load import load_results
from ccrank.study.results.summary import summarise_results
from ccrank.task import Criterion, Task
from study.experiment.conftest import Interrupting

METHODS = ("pca", "triplet", "triplet:across-tasks", "sup-ccs:leave-one-out", "ccs-pair", "pca@embeddings")
FAST = {name: {"epochs": 4} for name in ("triplet", "ccs-pair", "sup-ccs")}
LAYERS = (2, 4, 6)
KEYS = ["dataset", "method", "split"]
Opener = Callable[[str], Reader]


@pytest.fixture
def open_deep(tmp_path: Path) -> Opener:
    """A tiny model of six layers, with a common cache of readings."""
    cache = ReadingCache(tmp_path / "readings")
    loaded = tiny_model("llama", max_position_embeddings=512, num_hidden_layers=6)
    return lambda name: Reader(loaded, cache=cache, batch_tokens=512)


def study_of(files: Sequence[str], layers: str = "auto", methods: Sequence[str] = METHODS) -> Study:
    named = {MethodSpec.parse(one)[0].name for one in methods}
    options = {name: table for name, table in FAST.items() if name in named}
    return Study(("llama",), tuple(files), tuple(methods), seeds=2, layers=layers, options=options)


def bare(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that depend on the layer only, not on how it was chosen."""
    return frame.drop(columns=["seconds", "distinct_tokens"]).reset_index(drop=True)


def test_rows_are_those_of_the_layer_that_agrees_best(
    task_files: tuple[str, str], tmp_path: Path, open_deep: Opener
) -> None:
    """Each dataset and probe has one layer, the rows it has when asked for by number, and no other agrees better."""
    assert run_study(study_of(task_files), tmp_path / "auto", open_reader=open_deep).failures == []
    numbers = study_of(task_files, ",".join(map(str, LAYERS)))
    run_study(numbers, tmp_path / "all", open_reader=open_deep)
    auto, every = load_results(tmp_path / "auto"), load_results(tmp_path / "all")
    anchors = {}
    for file in task_files:
        tasks, orders = zip(*map(canonical, read_tasks(file)), strict=True)
        found, _ = read_anchors(tasks, Prompter(open_deep("llama")))
        for task, order, anchor in zip(tasks, orders, found, strict=True):
            anchors[Path(file).stem, task.id] = from_canonical(anchor, order)
    every["agree"] = [
        abs(np.nan_to_num(kendalltau(row.scores, anchors[row.dataset, row.task]).statistic))
        for row in every.itertuples()
    ]
    chosen = set()
    for key, own in auto.groupby(KEYS, sort=False):
        twins = every[(every[KEYS] == list(key)).all(axis=1)]
        means = twins.groupby("layer")["agree"].mean()
        [layer] = set(own["layer"])
        assert means[layer] == pytest.approx(means.max())
        assert layer == max(one for one in means.index if np.isclose(means[one], means.max()))
        same = twins[twins["layer"] == layer].drop(columns="agree")
        pd.testing.assert_frame_equal(bare(own), bare(same), check_exact=False, atol=1e-5)
        more = own["distinct_tokens"].to_numpy() - same["distinct_tokens"].to_numpy()
        assert (
            (more == 0).all() if "@" in key[1] else (more > 0).all()
        )  # anchors are paid for where they serve
        chosen.add(layer)
    assert len(chosen - {0}) > 1  # else this proves little


def test_planted_anchors_choose_the_layer() -> None:
    """Of layers of noise and one that contains the anchors, the latter is chosen at any index; gold is not used."""
    generator = np.random.default_rng(0)
    criterion = Criterion("size")
    tasks = tuple(
        Task(criterion, tuple("abcdefgh"), None, tuple(generator.permutation(8).astype(float)), f"task {one}")
        for one in range(4)
    )
    anchors = {index: generator.normal(size=8) for index in range(4)}
    unit = Unit("m", "d", MethodSpec("pca", "none"), "auto")
    for place in range(3):
        with tempfile.TemporaryFile() as file:
            shared = TaskStates((5, 7, 9), seconds=8.0, anchors=anchors, _file=file)
            for index in range(4):
                table = generator.normal(size=(8, 3, 6))
                table[:, place] += 30 * np.outer(anchors[index], generator.normal(size=6))
                shared.add(index, table, Cost(8, 10, 10, 10))
            outcome = run_probe(unit, TaskSet("other", tasks), shared, 2, Settings())
        assert [row["layer"] for row in outcome.rows] == [shared.layers[place]] * 4
        for row, anchor in zip(outcome.rows, anchors.values(), strict=True):
            assert abs(kendalltau(row["scores"], anchor).statistic) > 0.8


def test_a_choice_is_charged_for_all_layers_that_were_fitted() -> None:
    """The seconds of a task are the sum over layers; of layers that agree as well the last is taken."""
    anchor = np.arange(4.0)
    by_layer = {
        layer: [TaskFit(3, anchor[None], seconds), TaskFit(5, -anchor[None], 2 * seconds)]
        for layer, seconds in ((2, 1.0), (4, 2.5), (6, 0.25))
    }
    chosen = closest_layer(by_layer, {3: anchor, 5: anchor})
    assert list(chosen) == [6]
    assert [fit.seconds for fit in chosen[6]] == [3.75, 7.5]


def test_anchors_are_read_once_for_a_group(
    task_files: tuple[str, str], tmp_path: Path, open_deep: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three probes on single items and one on pairs: two readings for each dataset, and none without a choice."""
    calls = []

    def counted(tasks: Sequence[Task], *rest: object, **named: object) -> object:
        calls.append([task.id for task in tasks])
        return read_anchors(tasks, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(states, "read_anchors", counted)
    methods = ("pca", "random", "triplet", "ccs-pair", "pca@embeddings", "length")
    run_study(study_of(task_files, methods=methods), tmp_path / "auto", open_reader=open_deep)
    assert len(calls) == 4
    run_study(study_of(task_files, "last", methods), tmp_path / "last", open_reader=open_deep)
    assert len(calls) == 4


def test_interrupted_runs_end_as_one_run(
    task_files: tuple[str, str], tmp_path: Path, open_deep: Opener
) -> None:
    """Interrupted within a group and between groups, the table is that of one run to the last bit."""
    study = study_of(task_files)
    run_study(study, tmp_path / "whole", open_reader=open_deep)
    for most in (2, 4, 3):
        with pytest.raises(KeyboardInterrupt):
            run_study(study, tmp_path / "parts", open_reader=open_deep, watcher=Interrupting(most))
    report = run_study(study, tmp_path / "parts", open_reader=open_deep)
    assert report.done_before == 9
    first, second = (load_results(tmp_path / name).drop(columns="seconds") for name in ("whole", "parts"))
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_tasks_without_anchors_or_states_are_set_apart(
    tmp_path: Path, open_deep: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are failures with their reasons and have no rows; the others are as in a study without them."""
    tasks = [
        Task(Criterion("size"), items, None, tuple(map(float, range(len(items)))), f"good-{index}")
        for index, items in enumerate(
            [
                ("red", "blue", "dog"),
                ("warm", "cold", "fox", "Peru"),
                ("Chad", "Peru", "rich"),
                ("poor", "fox", "dog"),
            ]
        )
    ]
    long = Task(Criterion("size"), ("fox", "dog", "red"), "a dark tower " * 400, (1.0, 2.0, 3.0), "too-long")
    mute = Task(Criterion("size"), ("dog", "fox", "cold"), None, (1.0, 2.0, 3.0), "mute")
    for name, own in (("few", tasks), ("many", [tasks[0], long, tasks[1], mute, *tasks[2:]])):
        write_tasks(own, tmp_path / f"{name}.jsonl")

    def some_fail(own: Sequence[Task], *rest: object, **named: object) -> object:
        assert "too-long" not in {task.id for task in own}  # it has no states to choose among
        if any(task.id == "mute" for task in own):
            raise CcrankError("task 'mute' says nothing")
        return read_anchors(own, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(states, "read_anchors", some_fail)
    methods = ("pca", "triplet:across-tasks", "sup-ccs:same-task", "pca@embeddings")
    frames = {}
    for name in ("few", "many"):
        study = study_of([str(tmp_path / f"{name}.jsonl")], methods=methods)
        report = run_study(study, tmp_path / name, open_reader=open_deep)
        frames[name] = load_results(tmp_path / name)
    failures = {(one["method"], one["task"]): one["reason"] for one in report.failures}
    for method in ("pca", "triplet", "sup-ccs"):
        assert failures[method, "mute"] == "task 'mute' says nothing"
        assert "too-long" in failures[method, "too-long"]
    assert ("pca@embeddings", "mute") not in failures  # layer 0 is not a choice
    many = frames["many"][frames["many"]["task"] != "mute"].drop(columns="dataset")
    pd.testing.assert_frame_equal(
        bare(many), bare(frames["few"].drop(columns="dataset")), check_exact=False, atol=1e-4
    )
    assert not (many["task"] == "too-long").any()


def test_anchors_that_fail_for_all_tasks_fail_the_unit_in_one_line(
    task_files: tuple[str, str], tmp_path: Path, open_deep: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No layer is chosen by default if none can be selected; other methods continue."""

    def fail(*_: object, **__: object) -> object:
        raise CcrankError("no anchors today")

    monkeypatch.setattr(states, "read_anchors", fail)
    study = study_of(task_files[:1], methods=("pca", "triplet", "length"))
    report = run_study(study, tmp_path / "out", open_reader=open_deep)
    assert [(one["method"], one["task"], one["reason"]) for one in report.failures] == [
        ("pca", None, "no anchors today"),
        ("triplet", None, "no anchors today"),
    ]
    assert set(load_results(tmp_path / "out")["method"]) == {"length"}


def test_a_study_of_the_old_rule_is_not_gone_on_with(
    task_files: tuple[str, str], tmp_path: Path, open_deep: Opener
) -> None:
    """A folder whose auto was a fixed set of layers is refused by name; other layers are recorded as before."""
    study = study_of(task_files[:1], methods=("pca",))
    run_study(study, tmp_path / "out", open_reader=open_deep)
    path = tmp_path / "out" / "fingerprint.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**known, "layers": "auto"}), encoding="utf-8")
    with pytest.raises(CcrankError, match="layers was 'auto', is 'auto, the layer closest to"):
        run_study(study, tmp_path / "out", open_reader=open_deep)
    assert Study.load(tmp_path / "out" / "config.toml") == study
    for layers in ("last", "all", "2,4"):
        assert study_of(task_files, layers).fingerprint()["layers"] == layers


def test_kinds_are_means_over_the_layers_that_were_chosen() -> None:
    """Datasets with one layer each are averaged with layer −1; if a dataset has several, layers are separate."""
    row = {
        "model": "m", "kind": "facts", "family": "probing", "split": "none", "n_items": 3, "seed": 0, "accuracy": 0.5,
        "free_accuracy": 0.5, "abs_tau": 0.5, "chance_abs_tau": 0.5, "chance_free_accuracy": 0.5, "consistency": 0.5,
        "seconds": 1.0, "distinct_tokens": 3, "directed": False, **NO_PAIRS,
    }  # fmt: skip
    layers = {
        "chosen": {"a": (4,), "b": (6,)},
        "asked": {"a": (4, 6), "b": (4, 6)},
        "one": {"a": (5,), "b": (5,)},
    }
    rows = [
        {**row, "method": method, "dataset": dataset, "layer": layer, "task": task, "tau": 0.1 * layer}
        for method, datasets in layers.items()
        for dataset, own in datasets.items()
        for layer in own
        for task in ("x", "y")
    ]
    found = {(one["method"], one["layer"]): one for one in summarise_results(pd.DataFrame(rows), by="kind")}
    assert set(found) == {("chosen", -1), ("asked", 4), ("asked", 6), ("one", 5)}
    assert (found["chosen", -1]["datasets"], found["chosen", -1]["tau"]) == (2, pytest.approx(0.5))
