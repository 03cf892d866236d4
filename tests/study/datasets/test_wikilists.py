"""WikiLists: direction, wording, the cut to 10."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from ccrank.errors import CcrankError
from ccrank.study.datasets import get_dataset, load_dataset

HEADER = "Full name,Category,Criterion,Ordering,Reference,Type,Theme,List\n"


@pytest.fixture(scope="module")
def tasks(data_dir):
    if not (data_dir / get_dataset("wikilists").files[0].path).is_file():
        pytest.skip(f"no WikiLists in {data_dir}")
    return {task.id: task for task in load_dataset("wikilists", data_dir)}


@pytest.mark.parametrize(
    ("task_id", "higher", "lower"),
    [
        ("countries-by-size", "Russia", "Algeria"),
        ("chemicals-by-melting-point-highest-to-lowest", "Tungsten", "Silver"),
        ("chemicals-by-boiling-point", "Cadmium", "Helium"),
        ("chemical-elements-by-atomic-number", "Neon", "Hydrogen"),
        ("materials-by-hardness-on-mohs-scale", "Fluorite", "Talc"),
        ("planets-in-the-solar-system-by-distance-from-the-sun", "Neptune", "Mercury"),
        ("planets-in-the-solar-system-by-size", "Jupiter", "Mercury"),
        ("platonic-solids-by-number-of-faces", "Icosahedron", "Tetrahedron"),
        ("presidents-of-the-us", "Andrew Jackson", "George Washington"),
        ("olympic-summer-games-host-cities-by-year", "Helsinki", "Athens"),
        ("list-of-time-periods-in-history", "Iron Age", "Precambrian"),
        ("oldest-reigning-monarchs", "Louis XIV", "Victoria"),
        ("mountains-by-height", "Lhotse", "Makalu"),
    ],
)
def test_more_of_the_quantity_is_higher(tasks, task_id, higher, lower):
    """Known facts: the item that has more of the named quantity has the higher value."""
    value = dict(zip(tasks[task_id].items, tasks[task_id].values, strict=True))
    assert value[higher] > value[lower]


def test_turning_reverses_the_15_lists_and_no_other(tasks, data_dir):
    """`turn=False` reverses gold, poles and comparative of the lists whose Ordering points down, and no others."""
    plain = {task.id: task for task in load_dataset("wikilists", data_dir, turn=False)}
    turned = [key for key in tasks if plain[key].order != tasks[key].order]
    assert Counter(tasks[key].about["ordering"] for key in turned) == {
        "earlier": 10,
        "lower": 2,
        "closer": 1,
        "softer": 1,
        "less": 1,
    }
    for key, task in tasks.items():
        other = plain[key]
        if key in turned:
            assert other.order == task.order[::-1]
            assert other.criterion.poles == task.criterion.poles[::-1]
            assert other.criterion.comparative != task.criterion.comparative
        else:
            assert other == task


def test_first_of_the_file_is_highest_or_lowest(tasks, data_dir):
    """Gold is the file's own order of its first entries, whole or reversed: nothing is reordered."""
    path = data_dir / get_dataset("wikilists").files[0].path
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [task.about["title"] for task in tasks.values()] == [row["Full name"] for row in rows]
    for row, task in zip(rows, tasks.values(), strict=True):
        entries = [" ".join(entry.split()) for entry in row["List"].split(",")]
        known = [entries.index(item) for item in task.order if item in entries]
        assert known in (sorted(known), sorted(known, reverse=True))
        assert len(known) >= len(task.items) - 2  # mended names are not in the file


def test_wording_is_written_for_every_list(tasks):
    """No list of the file falls back on generic wording, and poles differ."""
    for task in tasks.values():
        assert task.criterion.poles
        assert "in terms of" not in task.criterion.comparative
        assert len(task.items) <= 10


def test_commas_in_brackets_and_repeats(tasks):
    """A comma in brackets does not end an entry; a host city that comes twice counts once."""
    assert "No. 6 (Violet, Green and Red) by Mark Rothko" in tasks["most-expensive-paintings-sold"].items
    assert len(tasks["olympic-summer-games-host-cities-by-year"].items) == 10


def test_a_new_list_gets_the_generic_phrase(tmp_path):
    """A list whose criterion is not in the wording gets the paper's phrase; lists of fewer than 4 are dropped."""
    (tmp_path / "wikilists").mkdir()
    path = tmp_path / "wikilists" / "WikiLists Rankings.csv"
    path.write_text(
        HEADER + 'Dogs by bark,dog,loudness,higher,,,,"a,b, a ,c,,d"\nCats,cat,size,larger,,,,"a,b,c"\n',
        "utf-8",
    )
    (task,) = load_dataset("wikilists", tmp_path)
    assert task.order == ("a", "b", "c", "d")
    assert task.criterion.comparative_phrase == "higher in terms of loudness"
    assert task.criterion.poles is None


def test_a_wrong_file_is_refused(tmp_path):
    """A file without the columns, or not UTF-8, is refused by name."""
    (tmp_path / "wikilists").mkdir()
    path = tmp_path / "wikilists" / "WikiLists Rankings.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(CcrankError, match="no column 'Full name'"):
        load_dataset("wikilists", tmp_path)
    path.write_bytes(b"Full name\n\xe9\n")
    with pytest.raises(CcrankError, match="offset 10"):
        load_dataset("wikilists", tmp_path)
    with pytest.raises(CcrankError, match="turn must be one of"):
        load_dataset("wikilists", tmp_path, turn="no")
