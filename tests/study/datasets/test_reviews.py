"""Reviews: one per star, inline or in the context, from clothing or TrustPilot."""

from __future__ import annotations

import csv
import gzip
import json
import zipfile

import numpy as np
import pytest
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.errors import CcrankError
from ccrank.study.datasets import load_dataset

PUBLISHED = "united_states.auto-adjusted_gender.geocoded.jsonl"


def write_clothing(folder, rows):
    (folder / "reviews").mkdir(exist_ok=True)
    with (folder / "reviews" / "womens-clothing.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["", "Clothing ID", "Review Text", "Rating"])
        writer.writerows([place, *row] for place, row in enumerate(rows))


def users(companies=("shop.example",), rating=str):
    """Users in the published form, each with one review of each company."""
    for stars in (3, 1, 5, 2, 4):
        reviews = [
            {
                "company_id": company,
                "rating": rating(stars),
                "title": "A title",
                "text": [f"It's {stars} for {company}.", "Second sentence."],
                "date": "2013-10-21T06:39:08.000+00:00",
            }
            for company in companies
        ]
        yield {
            "item_type": "user",
            "user_id": str(stars),
            "gender": "F",
            "birth_year": 1970,
            "reviews": reviews,
        }


def stars_of(task):
    """Stars by review text, in either form."""
    texts = task.items
    if task.context is not None:
        texts = [line.split(": ", 1)[1] for line in task.context.splitlines()]
    return dict(zip(texts, task.values, strict=True))


def test_clothing_takes_the_first_unseen_review_of_each_star(tmp_path):
    """Per product the first review of each star; repeats, empty texts and products without all stars go."""
    rows = [("7", f"text {stars}", stars) for stars in (5, 4, 3, 2)]
    rows += [("7", "text 5", 1), ("7", " ", 1), ("7", "text  1", 1), ("7", "later 1", 1), ("8", "only", 3)]
    write_clothing(tmp_path, rows)
    (task,) = load_dataset("reviews", tmp_path)
    assert stars_of(task) == {f"text {stars}": float(stars) for stars in range(1, 6)}
    assert task.order[0] == "text 5"


def test_disjoint_uses_each_review_once(tmp_path):
    """Disjoint tasks share no review, and there are as many as the rarest star allows."""
    write_clothing(
        tmp_path, [("7", f"text {s} {k}", s) for s in range(1, 6) for k in range(3 if s == 2 else 4)]
    )
    tasks = load_dataset("reviews", tmp_path, disjoint=True)
    assert [task.id for task in tasks] == ["clothing-7-1", "clothing-7-2", "clothing-7-3"]
    assert len({item for task in tasks for item in task.items}) == 15
    assert len(load_dataset("reviews", tmp_path)) == 1


def test_context_form_holds_the_same_reviews(data_dir):
    """Both forms contain the same texts and stars; the letters of the reviews do not follow the stars."""
    if not (data_dir / "reviews" / "womens-clothing.csv").is_file():
        pytest.skip(f"no clothing reviews in {data_dir}")
    inline = load_dataset("reviews", data_dir, source="clothing")
    lettered = load_dataset("reviews", data_dir, source="clothing", form="context")
    assert len(inline) == len(lettered)
    first_letter = []
    for plain, task in zip(inline, lettered, strict=True):
        assert stars_of(task) == stars_of(plain)
        assert task.items == ("review A", "review B", "review C", "review D", "review E")
        assert [line.split(":")[0] for line in task.context.splitlines()] == list(task.items)
        first_letter.append(task.values[0])
    assert set(first_letter) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_letters_are_the_papers_form_of_the_same_reviews(tmp_path):
    """`reviews-letters`: the context is "A: …" lines, the items "review A" …, the criterion stance; each letter has the
    stars of its text."""
    write_clothing(tmp_path, [("7", f"text {stars} {k}", stars) for stars in range(1, 6) for k in range(2)])
    for options in ({}, {"disjoint": True}, {"words": 2}):
        inline = load_dataset("reviews", tmp_path, **options)
        tasks = load_dataset("reviews-letters", tmp_path, **options)
        assert [task.id for task in tasks] == [task.id for task in inline]
        for task, plain in zip(tasks, inline, strict=True):
            assert task.criterion.name == "stance"
            assert stars_of(task) == stars_of(plain)
            letters = [line.split(": ")[0] for line in task.context.splitlines()]
            assert letters == ["A", "B", "C", "D", "E"]
            assert task.items == tuple(f"review {letter}" for letter in letters)


@pytest.mark.parametrize(
    "method", ["prompt-pair", "prompt-point", "prompt-list", "triplet", "ccs-pair", "pca"]
)
def test_letters_can_be_ranked_by_the_papers_methods(tmp_path, method):
    """Prompts and probes take the lettered form: every item gets a finite score."""
    rows = [("7", f"warm {'dark ' * stars}tower", stars) for stars in range(1, 6)]
    write_clothing(tmp_path, rows)
    tasks = load_dataset("reviews-letters", tmp_path)
    options = {"epochs": 3} if method in ("triplet", "ccs-pair") else {}
    [ranking] = rank_tasks(tasks, tiny_reader(), method, options=options)
    assert len(ranking.scores) == 5
    assert np.isfinite(ranking.scores).all()


def test_words_cut_reviews_and_keep_them_apart(tmp_path):
    """`words` cuts each review; reviews that are the same once cut are not used twice."""
    rows = [("7", f"same {'start' if stars < 3 else stars} {stars}", stars) for stars in range(1, 6)]
    write_clothing(tmp_path, rows)
    assert len(load_dataset("reviews", tmp_path, words=3)) == 1
    assert load_dataset("reviews", tmp_path, words=2) == []


def writers():
    literal = "\n".join(map(repr, users()))
    as_json = "\n".join(json.dumps(user) for user in users())

    def zipped(path, text):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"__MACOSX/._{PUBLISHED}.tmp", "junk")
            archive.writestr(f"{PUBLISHED}.tmp", text)

    def gzipped(path, text):
        path.write_bytes(gzip.compress(text.encode()))

    def plain(path, text):
        path.write_text(text, encoding="utf-8")

    return [
        pytest.param("trustpilot-us.jsonl", plain, as_json, id="json"),
        pytest.param("trustpilot-us.jsonl", plain, literal, id="literals"),
        pytest.param("trustpilot-us.jsonl.gz", gzipped, as_json, id="gzip"),
        pytest.param(f"{PUBLISHED}.tmp", plain, literal, id="published"),
        pytest.param(f"{PUBLISHED}.zip", zipped, literal, id="published zip"),
    ]


@pytest.mark.parametrize(("name", "write", "text"), writers())
def test_trustpilot_in_all_its_forms(tmp_path, name, write, text):
    """JSON lines, the published Python literals, packed or not, under either name: the same task."""
    (tmp_path / "reviews").mkdir()
    write(tmp_path / "reviews" / name, text)
    for source in ("trustpilot", "auto"):
        (task,) = load_dataset("reviews", tmp_path, source=source)
        assert task.id == "trustpilot-shop.example"
        assert stars_of(task) == {
            f"It's {stars} for shop.example. Second sentence.": float(stars) for stars in range(1, 6)
        }


def test_trustpilot_odd_fields(tmp_path):
    """Integer ratings and text as one string are read; reviews without stars or company are skipped."""
    (tmp_path / "reviews").mkdir()
    everyone = list(users(("a.example", "b.example"), rating=int))
    everyone[0]["reviews"][0]["text"] = "one string"
    everyone[1]["reviews"][1]["rating"] = None
    everyone += [{"user_id": "x"}, {"reviews": None}, {"reviews": [{"rating": "5", "text": ["no company"]}]}]
    path = tmp_path / "reviews" / "trustpilot-us.jsonl"
    path.write_text("\n\n".join(map(json.dumps, everyone)), encoding="utf-8")
    (task,) = load_dataset("reviews", tmp_path)
    assert task.id == "trustpilot-a.example"
    assert stars_of(task)["one string"] == 3.0


def test_errors_name_the_file_and_the_remedy(tmp_path):
    """No file, a line that is no user, a row without stars, wrong options: each is said with what to do."""
    (tmp_path / "reviews").mkdir()
    with pytest.raises(CcrankError, match=r"no .*womens-clothing\.csv; put it at .* published at https"):
        load_dataset("reviews", tmp_path)
    with pytest.raises(
        CcrankError, match=r"trustpilot-us\.jsonl; put it at .* published at https://bitbucket"
    ):
        load_dataset("reviews", tmp_path, source="trustpilot")
    write_clothing(tmp_path, [("7", "text", 6)])
    with pytest.raises(CcrankError, match=r"womens-clothing\.csv, line 2: not a review"):
        load_dataset("reviews", tmp_path)
    path = tmp_path / "reviews" / "trustpilot-us.jsonl"
    for line in ("{'reviews': ", "[1, 2]", "__import__('os').getcwd()", '{"reviews": [3]}'):
        path.write_text(f"\n{line}\n")
        with pytest.raises(CcrankError, match=r"trustpilot-us\.jsonl, line 2: not a TrustPilot user"):
            load_dataset("reviews", tmp_path)
    path.rename(path.with_name("trustpilot-us.jsonl.gz"))
    with pytest.raises(CcrankError, match=r"cannot read .*trustpilot-us\.jsonl\.gz"):
        load_dataset("reviews", tmp_path)
    for option, value in (("form", "list"), ("source", "yelp"), ("disjoint", "yes"), ("words", 0)):
        with pytest.raises(CcrankError, match=f"{option} .*{value}"):
            load_dataset("reviews", tmp_path, **{"source": "clothing", option: value})
