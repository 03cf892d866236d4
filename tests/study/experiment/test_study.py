"""Studies as data, and their grids."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccrank.errors import CcrankError
from ccrank.methods.probing.objectives import OBJECTIVES
from ccrank.methods.registry import METHODS
from ccrank.study.experiment.study import MethodSpec, Study, preset, to_toml
from ccrank.study.experiment.units import TaskSet, load_task_sets, plan_units, spread
from ccrank.util.files import parse_toml

PAPER_DATASETS = {"synthfacts", "scalaradj", "wikilists", "synthcontext", "reviews", "entsalience"}


def test_paper_preset_has_the_whole_comparison() -> None:
    """Six datasets, every prompting method, every probe within and across tasks, each supervised probe in three
    splits."""
    study = Study.parse(preset("paper"))
    chosen = {str(choice) for choice in study.choices}
    assert set(study.datasets) == PAPER_DATASETS
    for name, objective in OBJECTIVES.items():
        if objective.supervised:
            splits: tuple[str, ...] = ("same-task", "leave-one-out", "across-tasks")
        else:
            splits = ("same-task", "across-tasks") if objective.loss else ()
        assert {f"{name}:{split}" for split in splits} <= chosen
    assert {name for name in METHODS if name.startswith("prompt-")} <= chosen
    assert {
        "random",
        "pca",
        "length",
        "frequency",
        "pca@embeddings",
        "triplet@embeddings:same-task",
    } <= chosen


def test_paper_preset_has_the_papers_settings() -> None:
    """Five seeds on the states of the last layer, all tasks, the methods' own defaults."""
    study = Study.parse(preset("paper"))
    assert (study.seeds, study.layers, study.limit, study.options) == (5, "last", None, {})


def test_reproduction_preset_is_the_paper_preset_and_more() -> None:
    """Everything of the paper's study with the same settings, sub-batches of every pairwise probe, and baselines across
    tasks."""
    more, paper = Study.parse(preset("reproduction")), Study.parse(preset("paper"))
    assert set(paper.choices) < set(more.choices)
    assert set(paper.datasets) <= set(more.datasets)
    assert (more.seeds, more.layers, more.limit) == (5, "last", None)
    assert more.options == {"auto": {"exemplars": False}}
    added = {str(choice) for choice in more.choices} - {str(choice) for choice in paper.choices}
    assert {
        f"{name}@{entry.sub_batch}:same-task"
        for name, entry in OBJECTIVES.items()
        if entry.sub_batch != "none"
    } <= added
    assert {"random:across-tasks", "pca:across-tasks", "prompt-list:single"} <= added
    assert set(more.datasets) - set(paper.datasets) == {"reviews-letters"}


def test_quick_preset_is_part_of_the_paper_preset() -> None:
    """What is seen in minutes is a corner of what is seen in hours."""
    quick, paper = Study.parse(preset("quick")), Study.parse(preset("paper"))
    assert set(quick.choices) <= set(paper.choices)
    assert quick.limit is not None
    assert quick.limit <= 10


def test_dataset_options_are_part_of_the_study(tmp_path: Path) -> None:
    """They are checked before anything is read, come back from the study's file, and are compared on resuming."""
    entries = preset("quick") | {
        "dataset_options": {"entsalience": {"words": "none"}, "reviews": {"words": 25}}
    }
    study = Study.parse(entries)
    assert study.dataset_options == {"entsalience": {"words": None}, "reviews": {"words": 25}}
    path = tmp_path / "study.toml"
    path.write_text(study.to_toml(), encoding="utf-8")
    assert Study.load(path) == study
    other = Study.parse(entries | {"dataset_options": {}}).fingerprint()
    assert study.fingerprint()["dataset_options.reviews.words"] == 25
    assert study.fingerprint() != other
    for bad, message in (
        ({"entsaliance": {"words": 9}}, "did you mean 'entsalience'"),
        ({"entsalience": {"wrds": 9}}, "did you mean 'words'"),
        ({"entsalience": {"words": 0}}, "must be at least 1"),
        ({"entsalience": 9}, "must be a table"),
    ):
        with pytest.raises(CcrankError, match=message):
            Study.parse(entries | {"dataset_options": bad})


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_a_study_survives_its_file(name: str, tmp_path: Path) -> None:
    """Written as TOML and read again, a study has the same fingerprint."""
    entries = preset(name) | {
        "options": {"prompt-pair": {"calibration": "none"}, "triplet": {"margin": 0.3, "epochs": 7}},
        "template": ['single=The "{item}" is {slot}'],
        "reader": {"chat": True},
    }
    study = Study.parse(entries)
    path = tmp_path / "study.toml"
    path.write_text(study.to_toml(), encoding="utf-8")
    assert Study.load(path) == study
    assert Study.load(path).fingerprint() == study.fingerprint()


json_values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**60), 2**60),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), json_values))
def test_toml_is_read_back(table: dict[str, Any]) -> None:
    """Any keys and plain values come back from the TOML that is written."""

    class Text:
        def read_text(self, encoding: str) -> str:
            return to_toml({"outer": {"inner": table, "x": 1}})

    found = parse_toml(Text())  # type: ignore[arg-type]
    assert found["outer"].get("inner", {}) == table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prompt-pair", ["prompt-pair"]),
        ("prompt-list:single", ["prompt-list:single"]),
        ("triplet", ["triplet:same-task"]),
        ("sup-ccs", ["sup-ccs:same-task", "sup-ccs:leave-one-out", "sup-ccs:across-tasks"]),
        ("pca", ["pca"]),
        ("pca@embeddings", ["pca@embeddings"]),
        ("triplet@embeddings:across-tasks", ["triplet@embeddings:across-tasks"]),
        ("margin@pairs", ["margin@pairs:same-task"]),
        ("ccs-pair@pairs:same-task", ["ccs-pair@pairs:same-task"]),
        ("triplet@triples", ["triplet@triples:same-task"]),
    ],
)
def test_choices(text: str, expected: list[str]) -> None:
    """A method without a split gets those that make sense for it."""
    assert [str(choice) for choice in MethodSpec.parse(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "prompt-pair:same-task",
        "prompt-pair:single",
        "prompt-list:across-tasks",
        "triplet:single",
        "triplet:sideways",
        "triplet:leave-one-out",
        "ccs-pair@embeddings",
        "triplet@slot",
        "triplet@pairs",
        "ordreg@pairs",
        "prompt-pair@pairs",
        "margin@pairs:across-tasks",
        "probe",
    ],
)
def test_wrong_choices_are_refused(text: str) -> None:
    """What no study can run is refused when it is named, with the offending text."""
    with pytest.raises(CcrankError):
        MethodSpec.parse(text)


@pytest.mark.parametrize(
    "entries",
    [
        {"datasets": []},
        {"seeds": 0},
        {"layers": "first"},
        {"limit": -1},
        {"models": ["a", "a"]},
        {"models": ["auto"]},
        {"options": {"margin": {"epochs": 3}}},
        {"options": {"triplet": {"layer": "all"}}},
        {"options": {"triplet": {"epohcs": 3}}},
        {"reader": {"colour": "red"}},
        {"what": 1},
    ],
)
def test_wrong_studies_are_refused(entries: dict[str, Any]) -> None:
    """A study that could not run is refused before anything is read."""
    with pytest.raises(CcrankError):
        Study.parse({"datasets": ["synthfacts"], "methods": ["triplet"], **entries})


def test_where_it_runs_is_not_what_it_computes() -> None:
    """Device and portion size may change between runs of one study; precision may not."""
    base = {"datasets": ["synthfacts"], "methods": ["triplet"]}
    plain = Study.parse(base).fingerprint()
    assert Study.parse({**base, "reader": {"device": "cpu", "batch_tokens": 64}}).fingerprint() == plain
    assert Study.parse({**base, "reader": {"dtype": "bfloat16"}}).fingerprint() != plain
    assert Study.parse({**base, "template": ["single={item}: {slot}"]}).fingerprint() != plain


def test_grid_is_the_whole_product_with_readings_side_by_side(task_files: tuple[str, str]) -> None:
    """Every model × dataset × method × split once, and units that share states are neighbours."""
    methods = ("prompt-pair", "triplet", "ccs-pair", "pca", "sup-ccs", "pca@embeddings", "length", "ordreg")
    study = Study(("a", "b"), (*task_files, "synthfacts"), methods)
    sets = load_task_sets(study)
    units = plan_units(study, sets)
    assert set(sets) == {"first", "second", "synthfacts"}
    assert [one.kind for one in sets.values()] == ["other", "other", "facts"]
    wanted = {(model, dataset, choice) for model in "ab" for dataset in sets for choice in study.choices}
    assert {(unit.model, unit.dataset, unit.choice) for unit in units} == wanted
    assert len(units) == len(wanted) == len({unit.digest for unit in units})
    groups = [unit.group for unit in units]
    changes = 1 + sum(before != after for before, after in pairwise(groups))
    assert changes == len(set(groups))


def test_one_task_has_no_other_tasks(task_files: tuple[str, str]) -> None:
    """A dataset of a single task has no units across tasks."""
    study = Study(("a",), (task_files[0],), ("triplet", "triplet:across-tasks"), limit=1)
    assert [str(unit.choice) for unit in plan_units(study, load_task_sets(study))] == ["triplet:same-task"]


def test_two_datasets_of_one_name_are_refused(task_files: tuple[str, str], tmp_path: Path) -> None:
    """Results are kept by the dataset's name, so two must not share it; nor may one be missing."""
    twin = tmp_path / "other" / "first.jsonl"
    twin.parent.mkdir()
    twin.write_bytes(Path(task_files[0]).read_bytes())
    with pytest.raises(CcrankError, match="first"):
        load_task_sets(Study(("a",), (task_files[0], str(twin)), ("pca",)))
    with pytest.raises(CcrankError, match="wikilist"):
        load_task_sets(Study(("a",), ("wikilist",), ("pca",)))


@given(st.integers(1, 60), st.integers(1, 80))
def test_spread_takes_evenly(count: int, limit: int) -> None:
    """min(limit, count) different tasks in order, from the first; gaps, that to the end too, differ by at most one."""
    chosen = spread(list(range(count)), limit)  # type: ignore[arg-type]
    assert len(chosen) == min(limit, count)
    assert chosen[0] == 0  # type: ignore[comparison-overlap]
    gaps = {after - before for before, after in pairwise([*chosen, count])}  # type: ignore[list-item,operator]
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


def test_a_changed_task_changes_the_digest(task_files: tuple[str, str]) -> None:
    """One changed gold value is another dataset."""
    study = Study(("a",), task_files, ("pca",))
    before = load_task_sets(study)["first"].digest
    path = Path(task_files[0])
    path.write_text(path.read_text(encoding="utf-8").replace("red", "pink", 1), encoding="utf-8")
    after: TaskSet = load_task_sets(study)["first"]
    assert after.digest != before


def test_a_variant_sets_its_option_and_keeps_those_of_the_method():
    """`prompt-point@expected` is the expected rating beside the most likely one, calibrated alike in one study."""
    study = Study.parse(
        {
            "datasets": ["synthfacts"],
            "methods": ["prompt-point", "prompt-point@expected"],
            "options": {"prompt-point": {"calibration": "mean"}},
        }
    )
    plain, expected = (choice.parse_options(study.options[choice.name]) for choice in study.choices)
    assert plain == {"calibration": "mean"}
    assert expected == {"calibration": "mean", "score": "expected"}
    assert [choice.label for choice in study.choices] == ["prompt-point", "prompt-point@expected"]
    with pytest.raises(CcrankError, match="prompt-point@expected, ccs-pair@pairs"):
        MethodSpec.parse("prompt-list@expected")
    [kernel] = MethodSpec.parse("sup-ccs@rbf:across-tasks")
    assert (kernel.label, kernel.parse_options({})) == ("sup-ccs@rbf", {"features": "rbf"})


def test_folds_of_items_replace_those_of_tasks_or_come_beside_them():
    """`folds` concerns training across tasks alone."""
    methods = ("triplet", "triplet:across-tasks", "sup-ccs:leave-one-out")
    splits = {
        folds: [choice.split for choice in Study(("m",), ("synthfacts",), methods, folds=folds).choices]
        for folds in ("tasks", "items", "both")
    }
    assert splits["tasks"] == ["same-task", "across-tasks", "leave-one-out"]
    assert splits["items"] == ["same-task", "across-items", "leave-one-out"]
    assert splits["both"] == ["same-task", "across-tasks", "across-items", "leave-one-out"]
    with pytest.raises(CcrankError, match="folds must be tasks, items or both"):
        Study(("m",), ("synthfacts",), methods, folds="halves")
