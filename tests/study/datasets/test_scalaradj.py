"""ScalarAdj: one word per level, identical scales merged."""

from __future__ import annotations

import pytest

from ccrank.errors import CcrankError
from ccrank.study.datasets import load_dataset


@pytest.fixture
def folder(tmp_path):
    for collection in ("crowd", "demelo", "wilkinson"):
        rankings = tmp_path / "scalaradj" / collection / "gold_rankings"
        rankings.mkdir(parents=True)
        (rankings / "short.rankings").write_text("0\tone\n1\ttwo\n2\tthree")
    return tmp_path


def test_levels_ties_and_twins(folder):
    """Weakest first for any order of lines; the first word of a level is kept; a duplicate scale is dropped."""
    crowd = folder / "scalaradj" / "crowd" / "gold_rankings"
    (crowd / "a-bXX.rankings").write_text("1\tbig || large\n0\tsizeable\n\n2\thuge\n3\tcolossal")
    demelo = folder / "scalaradj" / "demelo" / "gold_rankings"
    (demelo / "c-dXX.rankings").write_text("0\tsizeable\n1\tbig\n2\thuge\n3\tcolossal || vast\n")
    (task,) = load_dataset("scalaradj", folder)
    assert task.id == "crowd-a-bXX"
    assert task.order == ("colossal", "huge", "big", "sizeable")


def test_a_broken_or_missing_part_is_named(folder):
    """A line without a level and a collection without files are refused by name."""
    crowd = folder / "scalaradj" / "crowd" / "gold_rankings"
    (crowd / "bad.rankings").write_text("0\tsmall\nbig\n")
    with pytest.raises(CcrankError, match=r"bad\.rankings, line 2: 'big'"):
        load_dataset("scalaradj", folder)
    (crowd / "bad.rankings").unlink()
    (folder / "scalaradj" / "wilkinson" / "gold_rankings" / "short.rankings").unlink()
    with pytest.raises(CcrankError, match=r"no rankings in .*wilkinson"):
        load_dataset("scalaradj", folder)
