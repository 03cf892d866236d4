"""Directions of probes: stored with a study, read back, and compared."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ccrank.cli.commands import app
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import write_tasks
from ccrank.methods.probe_pipeline.states import read_single_states
from ccrank.methods.probing.fits import fit_each
from ccrank.models.prompter import Prompter
from ccrank.ranking import canonical
from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import Study
from ccrank.study.results.directions import Directions, compare_directions, load_directions, random_cosine
from ccrank.task import Criterion, Task

METHODS = ("triplet", "random", "sup-ordreg:across-tasks", "sup-ordreg:leave-one-out", "length")


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory) -> Path:
    """Five tasks of a tiny model, run without and then with stored directions."""
    from tiny import tiny_reader

    folder = tmp_path_factory.mktemp("study")
    words = ["red", "blue", "green", "warm", "cold", "rich", "poor", "dark"]
    tasks = [
        Task(Criterion("size"), tuple(words[start : start + 4]), None, (1.0, 3.0, 2.0, 4.0), f"t{start}")
        for start in range(5)
    ]
    write_tasks(tasks, folder / "tasks.jsonl")
    for save in (False, True):
        study = Study(
            ("tiny",), (str(folder / "tasks.jsonl"),), METHODS, seeds=2, layers="1,2", save_probes=save
        )
        report = run_study(study, folder / "out", open_reader=lambda name: tiny_reader())
        assert report.failures == []
        assert (folder / "out" / "directions").exists() == save
    assert report.done_before == 2  # of the others there are no directions to store
    return folder


def test_stored_directions_are_those_of_the_fits(study_folder: Path) -> None:
    """A task's directions are the weights of a fit to its states, for each seed and layer; folds have their own."""
    from tiny import tiny_reader

    found = {one.name: one for one in load_directions(study_folder / "out")}
    assert set(found) == {"triplet:same-task", "random", "sup-ordreg:across-tasks"}
    triplet = found["triplet:same-task"]
    assert triplet.owners == tuple(f"t{number}" for number in range(5))
    from ccrank.io.taskfiles import read_tasks

    tasks = [canonical(task)[0] for task in read_tasks(study_folder / "tasks.jsonl")]
    states, _ = read_single_states(tasks, Prompter(tiny_reader()), [1, 2])
    fits = fit_each([one[:, 1] for one in states], "triplet", seeds=(0, 1))
    np.testing.assert_allclose(triplet.weights[2], fits.weights.numpy(), rtol=1e-4, atol=1e-5)
    across = found["sup-ordreg:across-tasks"]
    assert across.owners == ("fold 0", "fold 1", "fold 2", "fold 3")
    assert across.weights[1].shape[:2] == (4, 2)


def test_cosines_are_those_of_a_plain_loop() -> None:
    """Within a method between seeds and between tasks, between methods on the same task; none are counted twice."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 3, 2, 7))
    stored = [
        Directions("m", "d", name, "same-task", (0, 1), ("a", "b", "c"), {5: weights})
        for name, weights in (("one", first), ("two", second))
    ]

    def cosine(one: np.ndarray, other: np.ndarray) -> float:
        return abs(one @ other) / math.sqrt((one @ one) * (other @ other))

    rows = {
        (row["first"], row["second"], row["relation"]): row
        for row in compare_directions(stored, ["one", "two"])
    }
    one, two = "one:same-task", "two:same-task"
    seeds = [cosine(own[0], own[1]) for own in first]
    assert rows[one, one, "seeds"]["cosine"] == pytest.approx(np.mean(seeds))
    assert rows[one, one, "seeds"]["pairs"] == 3
    tasks = [
        cosine(first[a, i], first[b, 1 - i]) for a in range(3) for b in range(3) for i in (0, 1) if a < b
    ]
    assert rows[one, one, "tasks"]["cosine"] == pytest.approx(np.mean(tasks))
    assert rows[one, one, "tasks"]["pairs"] == len(tasks)
    same = [cosine(first[a, i], second[a, i]) for a in range(3) for i in (0, 1)]
    assert rows[one, two, "same seed"]["cosine"] == pytest.approx(np.mean(same))
    drawn = rng.normal(size=(2, 20_000, 7))
    simulated = np.mean([cosine(a, b) for a, b in zip(*drawn, strict=True)])
    assert rows[one, one, "seeds"]["random"] == pytest.approx(simulated, abs=0.01) == random_cosine(7)


def test_the_command_compares_directions(study_folder: Path) -> None:
    """A probe shares its seed's start with the random direction; every form has the same rows."""
    words = ["compare", str(study_folder / "out"), "--cosines", "--methods", "triplet,random"]
    done = CliRunner().invoke(app, [*words, "--json"])
    rows = json.loads(done.output)
    same, other = (
        next(
            row for row in rows if row["second"] == "random" and row["relation"] == name and row["layer"] == 2
        )
        for name in ("same seed", "other seeds")
    )
    assert same["cosine"] > other["cosine"]
    for form, extra in (("--csv", 1), ("--latex", 7)):
        done = CliRunner().invoke(app, [*words, form])
        assert len(done.output.splitlines()) == len(rows) + extra
    assert f"{same['cosine']:.3f}" in CliRunner().invoke(app, words, env={"COLUMNS": "120"}).output


def test_missing_and_damaged_directions_are_named(study_folder: Path, tmp_path: Path) -> None:
    """With the command that stores them, or the file to delete."""
    with pytest.raises(CcrankError, match="--save-probes"):
        load_directions(tmp_path)
    with pytest.raises(CcrankError, match="no directions of 'pca'; the study stored random"):
        compare_directions(load_directions(study_folder / "out"), ["pca"])
    (tmp_path / "directions").mkdir()
    (tmp_path / "directions" / "a.safetensors").write_bytes(b"{}")
    with pytest.raises(CcrankError, match="cannot be read"):
        load_directions(tmp_path)
