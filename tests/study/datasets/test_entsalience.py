"""EntSalience: one known entity per grade, the article as context."""

from __future__ import annotations

import gzip
import json

import pytest

from ccrank.errors import CcrankError
from ccrank.study.datasets import get_dataset, load_dataset

NAMES = {1: "New_York", 2: "Paris", 3: "Rome", 4: "Oslo", 5: "Bern_(city)"}


def write(folder, grades, body="Rome and rome. Paris, Oslo &amp; New York"):
    (folder / "entsalience").mkdir(exist_ok=True)
    article = {
        "docId": 7,
        "title": "News",
        "saliency": [{"entityid": number, "score": score} for number, score in grades],
        "document": [
            {"name": "headline", "value": "Cities meet"},
            {"name": "dateline", "value": "May 1"},
            {"name": "body_par_001", "value": "in Bern."},
            {"name": "body_par_000", "value": body},
            {"name": "body_par_002"},
        ],
    }
    (folder / "entsalience" / "saliency-dataset.json").write_text(json.dumps(article) + "\n")
    with gzip.open(folder / "entsalience" / "saliency.svm.gz", "wt", encoding="utf-8") as file:
        for number, name in NAMES.items():
            file.write(f"1.0 qid:1 1:0.5 #\t[{name.split('_')[0].lower()}]\t{number}\t{name}\n")


def test_one_known_entity_per_grade(tmp_path):
    """Of a grade the entity mentioned most is kept; unknown entities go; names are readable; HTML is decoded."""
    write(tmp_path, [(1, 3.0), (2, 2.0), (3, 2.0), (99, 2.5), (4, 1.5), (5, 1.0)])
    (task,) = load_dataset("entsalience", tmp_path)
    assert task.order == ("New York", "Rome", "Oslo", "Bern (city)")
    assert sorted(task.values) == [1.0, 1.5, 2.0, 3.0]
    assert task.context == "Cities meet. Rome and rome. Paris, Oslo & New York in Bern."


def test_first_of_equals_is_kept(tmp_path):
    """Among entities of a grade that are mentioned equally often, the first listed stays."""
    write(tmp_path, [(1, 3.0), (4, 2.0), (2, 2.0), (3, 1.5), (5, 1.0)])
    (task,) = load_dataset("entsalience", tmp_path)
    assert task.order == ("New York", "Oslo", "Rome", "Bern (city)")


def test_fewer_than_four_are_dropped(tmp_path):
    """An article with three grades is no task."""
    write(tmp_path, [(1, 3.0), (2, 2.0), (3, 2.0), (4, 1.5)])
    assert load_dataset("entsalience", tmp_path) == []


def test_words_cut_the_context_and_leave_the_items(data_dir):
    """The option `words` changes the context only, and each short context is a prefix of the long one."""
    if not (data_dir / get_dataset("entsalience").files[0].path).is_file():
        pytest.skip(f"no EntSalience in {data_dir}")
    short = load_dataset("entsalience", data_dir, words=30)
    whole = load_dataset("entsalience", data_dir, words=None)
    for cut, full in zip(short, whole, strict=True):
        assert (cut.items, cut.values, cut.id) == (full.items, full.values, full.id)
        assert full.context.startswith(cut.context.removesuffix(" ..."))
        assert len(cut.context.removesuffix(" ...").split()) == min(30, len(full.context.split()))
        assert "&amp;" not in full.context
        assert "_" not in "".join(full.items)


def test_broken_files_are_named(tmp_path):
    """A line that is no article and a feature file that is no gzip are refused by name."""
    write(tmp_path, [])
    (tmp_path / "entsalience" / "saliency-dataset.json").write_text('\n{"docId": 1}\n')
    with pytest.raises(CcrankError, match=r"saliency-dataset\.json, line 2"):
        load_dataset("entsalience", tmp_path)
    (tmp_path / "entsalience" / "saliency.svm.gz").write_text("plain")
    with pytest.raises(CcrankError, match=r"saliency\.svm\.gz is not the feature file"):
        load_dataset("entsalience", tmp_path)
