"""Running studies on tiny models: rows, resuming, partial failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks, write_tasks
from ccrank.methods.probe_pipeline.rankers import seed_scores
from ccrank.methods.probe_pipeline.states import read_pair_states, read_single_states
from ccrank.methods.probing.fits import fit_each, task_folds
from ccrank.methods.probing.objectives import ProbeSpec, Settings
from ccrank.metrics.order import evaluate
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.prompts import load_templates
from ccrank.ranking import canonical, from_canonical
from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import Study
from ccrank.study.experiment.study_folder import StudyFolder
from ccrank.study.experiment.units import load_task_sets, plan_units
from ccrank.study.results.load import load_failures, load_results, load_tasks
from ccrank.study.results.schema import SCHEMA
from ccrank.task import Criterion, Task
from study.experiment.conftest import Interrupting

METHODS = ("prompt-pair", "prompt-list", "triplet", "triplet:across-tasks", "ccs-pair", "sup-ccs", "random")
MORE = ("pca", "length", "frequency", "pca@embeddings")
FAST = {name: {"epochs": 4} for name in ("triplet", "ccs-pair", "sup-ccs")}
Opener = Callable[[str], Reader]


def same(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Equal to the last bit, time aside."""
    pd.testing.assert_frame_equal(
        first.drop(columns="seconds"), second.drop(columns="seconds"), check_exact=True
    )
    return True


def test_folds_are_stored_and_variants_are_trained_as_they_say(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """A task trained across tasks has the fold that held it out, others −1; a probe with sub-batches has the scores of
    that setting, beside those of the plain probe."""
    methods = ("margin", "margin@pairs", "triplet@triples", "random:across-tasks", "pca:across-tasks")
    study = Study(
        ("llama",),
        task_files[:1],
        methods,
        seeds=2,
        options={"margin": {"epochs": 3}, "triplet": {"epochs": 3}},
    )
    assert run_study(study, tmp_path / "out", open_reader=open_tiny).failures == []
    frame = load_results(tmp_path / "out")
    across = frame["split"] == "across-tasks"
    assert set(frame.loc[~across, "fold"]) == {-1}
    folds = frame[across].groupby("task")["fold"].agg(["nunique", "first"])
    assert (folds["nunique"] == 1).all()
    given = read_tasks(task_files[0])
    assert folds.loc[[task.id for task in given], "first"].tolist() == task_folds(5, 4, 0).tolist()
    reader = open_tiny("llama")
    sorted_tasks, orders = zip(*map(canonical, given), strict=True)
    states, _ = read_single_states(sorted_tasks, Prompter(reader), [reader.depth])
    for label, name, sub_batch in (
        ("margin", "margin", "none"),
        ("margin@pairs", "margin", "pairs"),
        ("triplet@triples", "triplet", "triples"),
    ):
        settings = Settings(epochs=3, sub_batch=sub_batch)  # type: ignore[arg-type]
        scores = fit_each([own[:, 0] for own in states], name, seeds=(0, 1), settings=settings).scores(
            [own[:, 0] for own in states]
        )
        rows = frame[frame["method"] == label].set_index(["task", "seed"])
        for task, order, own in zip(given, orders, scores, strict=True):
            for seed in (0, 1):
                np.testing.assert_allclose(
                    rows.loc[(task.id, seed), "scores"], from_canonical(own[seed], order), atol=1e-6
                )


def test_rows_are_the_grid_and_what_the_methods_give(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """One row for each task, seed and layer; scores are those of the method called directly; metrics are theirs."""
    study = Study(("llama", "bert"), task_files, METHODS + MORE, seeds=2, layers="1,3", options=FAST)
    report = run_study(study, tmp_path / "out", open_reader=open_tiny)
    assert report.failures == []
    frame = load_results(tmp_path / "out")
    assert list(frame.columns) == SCHEMA.names
    assert report.rows == len(frame)
    counts = frame.groupby(["model", "dataset", "method", "split"]).size()
    tasks = {"first": 5, "second": 3}
    rows = {"prompt": 1, "length": 1, "frequency": 1, "pca@embeddings": 1, "pca": 2}
    assert set(frame["model"]) == {"llama", "bert"}
    for (_, dataset, method, _), count in counts.items():
        name = "prompt" if method.startswith("prompt-") else method
        assert count == tasks[dataset] * rows.get(name, 4), (dataset, method)
    assert not frame.duplicated(["model", "dataset", "method", "split", "task", "layer", "seed"]).any()
    families = dict(zip(frame["method"], frame["family"], strict=True))
    assert families["triplet"] == "probing"
    assert families["sup-ccs"] == "supervised"
    assert families["pca@embeddings"] == families["random"] == families["length"] == "baseline"
    assert set(frame.loc[frame["method"].isin(["pca", "random", "prompt-pair"]), "split"]) == {"none"}

    known = load_tasks(tmp_path / "out")
    for row in frame.itertuples():
        found = evaluate(row.scores, known[row.dataset, row.task].values)  # type: ignore[arg-type]
        assert (row.tau, row.free_accuracy) == (found.tau, found.free_accuracy)
        assert row.chance_abs_tau == found.chance_abs_tau

    reader, given = open_tiny("llama"), read_tasks(task_files[0])
    pair = frame[(frame["model"] == "llama") & (frame["dataset"] == "first")].set_index(["method", "task"])
    for ranking in rank_tasks(given, reader, "prompt-pair"):
        row = pair.loc[[("prompt-pair", ranking.task.id)]].iloc[0]
        np.testing.assert_array_equal(row["scores"], ranking.scores)
        assert row["consistency"] == ranking.consistency["both_orders_agree"]
    sorted_tasks, orders = zip(*map(canonical, given), strict=True)
    states, _ = read_single_states(sorted_tasks, Prompter(reader), [3])
    scores, *_ = seed_scores(
        sorted_tasks,
        [one[:, 0] for one in states],
        ProbeSpec("triplet", (0, 1), Settings(epochs=4), "across-tasks"),
    )
    twins = frame[
        (frame["model"] == "llama")
        & (frame["dataset"] == "first")
        & (frame["method"] == "triplet")
        & (frame["split"] == "across-tasks")
        & (frame["layer"] == 3)
        & (frame["seed"] == 1)
    ]
    for row, one, order in zip(twins.itertuples(), scores, orders, strict=True):
        np.testing.assert_array_equal(row.scores, from_canonical(one[1], order))


def test_single_pairwise_answers_are_scored(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """The accuracy of single answers is a count over the answers of the model, or of the probe of the seed; chance is
    that of as many coins; methods without such answers have none."""
    methods = ("prompt-pair", "ccs-pair", "ccs-pair:across-tasks", "sup-ccs-pair:leave-one-out", "pca")
    options = {name: {"epochs": 4} for name in ("ccs-pair", "sup-ccs-pair")}
    study = Study(("llama",), task_files[:1], methods, seeds=2, options=options)
    assert run_study(study, tmp_path / "out", open_reader=open_tiny).failures == []
    frame, reader = load_results(tmp_path / "out"), open_tiny("llama")
    columns = ["pair_accuracy", "free_pair_accuracy", "chance_free_pair_accuracy"]
    without = (frame["method"] == "pca") | (frame["split"] == "leave-one-out")
    assert frame.loc[without, columns].isna().all(axis=None)
    assert frame.loc[~without, columns].notna().all(axis=None)
    tasks, templates = read_tasks(task_files[0]), load_templates()
    states, _ = read_pair_states(tasks, Prompter(reader, templates), [reader.depth])
    fits = fit_each([one[:, 0] for one in states], "ccs-pair", seeds=(0, 1), settings=Settings(epochs=4))
    predictions = fits.scores([one[:, 0] for one in states])
    probe = frame[(frame["method"] == "ccs-pair") & (frame["split"] == "same-task")]
    pair = frame[frame["method"] == "prompt-pair"].set_index("task")
    for index, task in enumerate(tasks):
        pairs = list(permutations(range(len(task.items)), 2))
        assert task.values is not None
        higher = [task.values[i] > task.values[j] for i, j in pairs]
        logits = reader.read([templates.pair(task, i, j) for i, j in pairs], ["Yes", "No"]).logits
        assert logits is not None
        margins = logits[:, 0].astype(float) - logits[:, 1]
        said = margins > margins.mean()
        own = probe[probe["task"] == task.id].set_index("seed")
        found = [
            (pair.loc[task.id], said),
            *((own.loc[seed], predictions[index][seed] > 0.5) for seed in (0, 1)),
        ]
        for row, answers in found:
            right = sum(one == gold for one, gold in zip(answers, higher, strict=True)) / len(pairs)
            assert row["pair_accuracy"] == pytest.approx(right)
            assert row["free_pair_accuracy"] == pytest.approx(max(right, 1 - right))
            heads = [sum(coins) for coins in product((0, 1), repeat=min(len(pairs), 12))]
            if len(pairs) <= 12:
                chance = sum(max(k, len(pairs) - k) for k in heads) / len(heads) / len(pairs)
                assert row["chance_free_pair_accuracy"] == pytest.approx(chance)


def test_single_runs_of_a_listwise_prompt(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """`prompt-list:single` has a row for each shuffle; the first is what one shuffle alone gives, their mean ranks are
    the scores of `prompt-list`, and they share its cost."""
    options = {"prompt-list": {"shuffles": 3}}
    study = Study(("llama",), task_files, ("prompt-list", "prompt-list:single"), options=options)
    run_study(study, tmp_path / "out", open_reader=open_tiny)
    frame = load_results(tmp_path / "out")
    single = frame[frame["split"] == "single"]
    assert set(single["method"]) == {"prompt-list"}
    assert single.groupby(["dataset", "task"])["seed"].apply(list).map(lambda one: one == [0, 1, 2]).all()
    one_by_one = frame[frame["dataset"] == "first"]
    joined = one_by_one[one_by_one["split"] == "none"].set_index("task")
    known = load_tasks(tmp_path / "out")
    reader = open_tiny("llama")
    for name, runs in one_by_one[one_by_one["split"] == "single"].groupby("task"):
        scores = np.stack(runs["scores"])
        assert all(sorted(row) == list(range(len(row))) for row in scores.tolist())
        np.testing.assert_allclose(scores.mean(axis=0), joined.loc[name, "scores"])
        task = known["first", str(name)]
        [first] = rank_tasks([task], reader, "prompt-list", options={"shuffles": 1})
        np.testing.assert_array_equal(scores[0], first.scores)
        for row in runs.itertuples():
            assert row.tau == evaluate(row.scores, task.values).tau  # type: ignore[arg-type]
    shares = single.groupby(["dataset", "task"])["distinct_tokens"].sum()
    whole = frame[frame["split"] == "none"].groupby(["dataset", "task"])["distinct_tokens"].sum()
    assert ((whole - shares) < 3).all()


def test_interrupted_runs_end_as_one_run(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """However often a study is interrupted, each unit is done once and the table is that of one run."""
    study = Study(("llama",), task_files, METHODS, seeds=2, options=FAST)
    run_study(study, tmp_path / "whole", open_reader=open_tiny)
    total = 0
    for most in (1, 3, 6):
        watcher = Interrupting(most)
        with pytest.raises(KeyboardInterrupt):
            run_study(study, tmp_path / "parts", open_reader=open_tiny, watcher=watcher)
        total += watcher.done
        assert len(load_results(tmp_path / "parts")) > 0  # what there is can be looked at
    last = Interrupting()
    report = run_study(study, tmp_path / "parts", open_reader=open_tiny, watcher=last)
    assert report.done_before == total == 10
    assert report.units == total + last.done
    assert same(load_results(tmp_path / "parts"), load_results(tmp_path / "whole"))
    again = Interrupting()
    run_study(study, tmp_path / "parts", watcher=again)  # nothing is left to do, so no model is opened
    assert again.done == 0
    assert same(load_results(tmp_path / "parts"), load_results(tmp_path / "whole"))


def test_a_damaged_unit_is_done_again(task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener) -> None:
    """A unit's file that cannot be read counts as not done."""
    study = Study(("llama",), task_files[:1], ("prompt-point", "pca"))
    run_study(study, tmp_path / "out", open_reader=open_tiny)
    before = load_results(tmp_path / "out")
    unit = plan_units(study, load_task_sets(study))[0]
    path = StudyFolder(tmp_path / "out").unit_path(unit)
    path.write_bytes(path.read_bytes()[:-20])
    watcher = Interrupting()
    run_study(study, tmp_path / "out", open_reader=open_tiny, watcher=watcher)
    assert watcher.done == 1
    assert same(load_results(tmp_path / "out"), before)


def test_another_study_in_the_folder_is_refused(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """A changed configuration, task file or model raises an error; --force-new moves the old results aside."""
    out = tmp_path / "out"
    study = Study(("llama",), task_files, ("prompt-point", "random"), seeds=2)
    run_study(study, out, open_reader=open_tiny)
    before = load_results(out)
    with pytest.raises(CcrankError, match="seeds was 2, is 3"):
        run_study(
            Study(("llama",), task_files, ("prompt-point", "random"), seeds=3), out, open_reader=open_tiny
        )
    with pytest.raises(CcrankError, match="methods with pca"):
        run_study(Study(("llama",), task_files, ("prompt-point", "random", "pca"), seeds=2), out)
    path = Path(task_files[0])
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Chad", "Chile"), encoding="utf-8")
    with pytest.raises(CcrankError, match="tasks of first changed"):
        run_study(study, out)
    (out / "fingerprint.json").write_text("{", encoding="utf-8")
    with pytest.raises(CcrankError, match="contains a damaged study"):
        run_study(study, out)
    assert same(load_results(out), before)
    run_study(study, out, open_reader=open_tiny, force_new=True)
    assert not load_results(out)["scores"].equals(before["scores"])
    assert same(load_results(out / "before-1"), before)


def test_other_weights_under_the_same_name_are_refused(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """A model that has changed since the study began is not mixed in."""
    study = Study(("llama",), task_files[:1], ("prompt-point", "random"))

    def other(name: str) -> Reader:
        reader = open_tiny(name)
        object.__setattr__(reader.loaded, "identity", "another")
        return reader

    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "out", open_reader=open_tiny, watcher=Interrupting(1))
    with pytest.raises(CcrankError, match="llama differs from the one"):
        run_study(study, tmp_path / "out", open_reader=other)


def test_two_runs_in_one_folder_are_refused(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """A second run on a folder that is in use raises an error."""
    study = Study(("llama",), task_files[:1], ("length",))
    with StudyFolder(tmp_path / "out").locked(), pytest.raises(CcrankError, match="another process"):
        run_study(study, tmp_path / "out", open_reader=open_tiny)
    assert run_study(study, tmp_path / "out", open_reader=open_tiny).rows == 5


@pytest.fixture
def troubled(tmp_path: Path) -> str:
    """Good tasks, one far too long for the model, one that is no Unicode, and one without gold."""
    path = tmp_path / "troubled.jsonl"
    tasks = read_tasks(_write(tmp_path / "good.jsonl"))
    long = Task(Criterion("size"), ("fox", "dog", "red"), "a dark tower " * 400, (1.0, 2.0, 3.0), "too-long")
    torn = Task(Criterion("size"), ("fox\ud800", "dog", "red"), None, (1.0, 2.0, 3.0), "torn")
    bare = Task(Criterion("size"), ("fox", "dog", "cold", "warm"), id="no-gold")
    write_tasks([tasks[0], long, tasks[1], torn, *tasks[2:], bare], path)
    return str(path)


def _write(path: Path) -> Path:
    items = [
        ("red", "blue", "dog"),
        ("warm", "cold", "fox", "Peru"),
        ("Chad", "Peru", "rich"),
        ("poor", "fox", "dog"),
    ]
    tasks = [
        Task(Criterion("size"), one, None, tuple(map(float, range(len(one)))), f"good-{index}")
        for index, one in enumerate(items)
    ]
    write_tasks(tasks, path)
    return path


def test_failing_tasks_are_set_apart(troubled: str, tmp_path: Path, open_tiny: Opener) -> None:
    """A task that fails is listed with its reason; the others have the rows that they have without it."""
    methods = ("prompt-pair", "triplet", "triplet:across-tasks", "sup-ccs:same-task", "length")
    fast = {name: FAST[name] for name in ("triplet", "sup-ccs")}
    study = Study(("llama",), (troubled,), methods, seeds=2, options=fast)
    report = run_study(study, tmp_path / "out", open_reader=open_tiny)
    frame = load_results(tmp_path / "out")
    failures = {(one["method"], one["split"], one["task"]): one["reason"] for one in report.failures}
    assert load_failures(tmp_path / "out") == report.failures
    for method, split in (("prompt-pair", "none"), ("triplet", "across-tasks"), ("sup-ccs", "same-task")):
        assert "too-long" in failures[method, split, "too-long"]
        assert "Unicode" in failures[method, split, "torn"]
    assert "gold" in failures["sup-ccs", "same-task", "no-gold"]
    assert ("triplet", "same-task", "no-gold") not in failures
    assert frame[frame["task"] == "no-gold"]["tau"].isna().all()
    assert set(frame[frame["method"] == "length"]["task"]) == set(frame["task"]) | {"too-long"}

    fast = {"triplet": FAST["triplet"]}
    good = Study(("llama",), (str(tmp_path / "good.jsonl"),), methods[:2], seeds=2, options=fast)
    run_study(good, tmp_path / "good", open_reader=open_tiny)
    wanted = load_results(tmp_path / "good").set_index(["method", "task", "seed"])["scores"]
    found = frame[frame["split"] != "across-tasks"].set_index(["method", "task", "seed"])["scores"]
    for key, scores in wanted.items():
        np.testing.assert_allclose(found[key], scores, atol=1e-4)

    again = Interrupting()
    assert run_study(study, tmp_path / "out", watcher=again).failures == report.failures
    assert again.done == 0
    run_study(study, tmp_path / "out", open_reader=open_tiny, watcher=again, retry=True)
    assert again.done == len(methods)  # length fails on the torn task too


def test_models_that_fail_do_not_stop_the_others(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """A model that cannot be opened is one failure for each unit, tried again by the next run."""
    study = Study(("broken", "llama"), task_files[:1], ("prompt-point", "pca"))

    def opener(name: str) -> Reader:
        if name == "broken":
            raise CcrankError("no such model")
        return open_tiny(name)

    report = run_study(study, tmp_path / "out", open_reader=opener)
    assert [(one["model"], one["task"], one["reason"]) for one in report.failures] == [
        ("broken", None, "no such model")
    ] * 2
    assert set(load_results(tmp_path / "out")["model"]) == {"llama"}
    second = run_study(study, tmp_path / "out", open_reader=lambda name: open_tiny("gpt2"))
    assert second.failures == []
    assert second.done_before == 2


def test_a_model_without_a_head_fails_in_one_line(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener
) -> None:
    """A reason shared by all tasks is recorded once for the unit; probes of the same model continue."""
    study = Study(("llama",), task_files[:1], ("prompt-pair", "random"))

    def headless(name: str) -> Reader:
        reader = open_tiny(name)
        object.__setattr__(reader.loaded, "missing_head", ("lm_head.weight",))
        return reader

    report = run_study(study, tmp_path / "out", open_reader=headless)
    [failure] = report.failures
    assert failure["task"] is None
    assert "head" in failure["reason"]
    assert set(load_results(tmp_path / "out")["method"]) == {"random"}


def test_records(task_files: tuple[str, str], tmp_path: Path, open_tiny: Opener) -> None:
    """The folder records the configuration, the environment, the weights and the tasks."""
    study = Study(("llama",), (*task_files, "synthfacts"), ("length", "random"), seeds=1, layers="auto")
    run_study(study, tmp_path / "out", open_reader=open_tiny)
    assert Study.load(tmp_path / "out" / "config.toml") == study
    facts = json.loads((tmp_path / "out" / "environment.json").read_text(encoding="utf-8"))
    assert {"ccrank", "python", "torch", "transformers", "numpy", "cpu", "cores", "memory_gib", "gpu"} <= set(
        facts
    )
    assert facts["models"]["llama"]["identity"] == "tiny-llama-0"
    tasks = load_tasks(tmp_path / "out")
    assert {task.about["dataset"] for task in tasks.values()} == {"first", "second", "synthfacts"}
    assert [task for (dataset, _), task in tasks.items() if dataset == "first"] == read_tasks(task_files[0])
    frame = load_results(tmp_path / "out")
    assert set(zip(frame["dataset"], frame["task"], strict=True)) == set(tasks)
    assert set(frame[frame["method"] == "random"]["layer"]) <= {1, 3}  # the candidates of three layers
