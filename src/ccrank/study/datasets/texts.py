"""Entities of news articles by salience, and documents by relevance to a query.

**EntSalience** (Trani et al. 2016, SEL). Readers graded each entity of an article from 1 to 3. The grades are means, so
most articles have several entities with the same grade. One is kept per grade: the one that the whole article mentions
most often, the first listed among equals. The choice does not depend on the option `words`, so runs with a long and a
short context rank the same items.

**CISI** has 35 queries about library and information science, each with the first 30 abstracts that BM25 finds. The
file has one JSON object per line: id, query, items (title and first 100 words), values (1 = relevant) and bm25, the
scores by which they were found (k1 0.9, b 0.4, over the whole collection). The items are shuffled here; their ids are
their ranks by BM25.
"""

from __future__ import annotations

import gzip
import html
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ccrank.errors import CcrankError
from ccrank.study.datasets.dataset import MIN_ITEMS, first_words, shuffled, task_of_gold
from ccrank.study.datasets.locate import DataFile, locate
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.files import json_lines, read_text

_RAW = (
    "https://raw.githubusercontent.com/dexter/dexter-datasets/8a933bfce43ba0238d3b9e2ca065d41c22205cf5/"
    "entity-saliency"
)
ARTICLES = DataFile(
    path="entsalience/saliency-dataset.json",
    url=f"{_RAW}/saliency-dataset.json",
    sha256="489971b04c3b9e0bf4d787395794af1fc27e542a56a2f9797de383bf0f1e3ae1",
)
# The articles identify entities by number; their names are in the comments of the feature file.
NAMES = DataFile(
    path="entsalience/saliency.svm.gz",
    url=f"{_RAW}/saliency.svm.gz",
    sha256="0c42273cbc0bea0b0d4b726d61b03aa935ead6777f894abced9945a860ecae3f",
)
_SALIENCE = Criterion("salience", comparative="more salient", poles=("minor", "major"), category="entity")
CANDIDATES = DataFile(
    path="cisi/candidates.jsonl", url="https://ir.dcs.gla.ac.uk/resources/test_collections/cisi/", sha256=None
)


def read_entsalience(data_dir: str | Path | None = None, *, words: int | None = 150) -> list[Task]:
    articles, names = locate(ARTICLES, data_dir), locate(NAMES, data_dir)
    titles, mentions = _entities(names)
    tasks: list[Task] = []
    for number, line in enumerate(read_text(articles).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            article = json.loads(line)
            text = _text(article["document"])
            gold = _gold(article["saliency"], text, titles, mentions)
            task_id, title = f"article-{article['docId']:03d}", article["title"]
        except (ValueError, KeyError, TypeError) as error:
            raise CcrankError(
                f"{articles}, line {number}: not an article of this dataset ({error!r}); "
                f"take the file from {ARTICLES.url}"
            ) from None
        if len(gold) >= MIN_ITEMS:
            context = first_words(text, words)
            tasks.append(task_of_gold(_SALIENCE, gold, task_id, context, about={"title": title}))
    return tasks


def _entities(path: Path) -> tuple[dict[int, str], dict[int, set[str]]]:
    """Readable title, and the surface forms that mention it (see `_marked`), by entity number."""
    titles: dict[int, str] = {}
    mentions: dict[int, set[str]] = defaultdict(set)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                mention, number, title = line.rsplit("#\t", 1)[1].rstrip("\n").split("\t")
                titles.setdefault(int(number), normal_form(title.replace("_", " ")))
                mentions[int(number)].add(_marked(mention))
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise CcrankError(
            f"{path} is not the feature file of this dataset ({error}); take it from {NAMES.url}"
        ) from None
    return titles, mentions


def _text(document: list[dict[str, Any]]) -> str:
    """Headline and body as one paragraph; without the dateline."""
    parts = {part["name"]: part.get("value") or "" for part in document}
    headline = parts.get("headline", "").strip()
    if headline and headline[-1] not in ".?!":
        headline += "."
    body = (parts[name] for name in sorted(parts) if name.startswith("body"))
    return " ".join(html.unescape(" ".join((headline, *body))).split())


def _gold(
    graded: list[dict[str, Any]], text: str, titles: dict[int, str], mentions: dict[int, set[str]]
) -> dict[str, float]:
    """Grade by name, one entity per grade."""
    by_grade: dict[float, list[int]] = defaultdict(list)
    for entry in graded:
        if entry["entityid"] in titles:
            by_grade[float(entry["score"])].append(entry["entityid"])
    marked = _marked(text)

    def mentioned(number: int) -> int:
        forms = mentions[number] | {_marked(titles[number])}
        return sum(marked.count(form) for form in forms if form)

    # `max` returns the first of equals.
    return {titles[max(numbers, key=mentioned)]: grade for grade, numbers in by_grade.items()}


def _marked(text: str) -> str:
    """The words in lower case, each surrounded by blanks, so that a surface form is counted as whole words."""
    return "".join(f" {word} " for word in re.findall(r"\w+", text.lower()))


def read_cisi(
    data_dir: str | Path | None = None, *, half: Literal["all", "choose", "report"] = "all"
) -> list[Task]:
    """`half=choose` has the queries with even places in the file, the first being 0; `half=report` the others."""
    path = locate(CANDIDATES, data_dir)
    lines = json_lines(read_text(path), str(path))
    tasks = [_task_of_query(value, f"{path}, line {number}") for number, _, value in lines]
    return tasks if half == "all" else tasks[("choose", "report").index(half) :: 2]


def _task_of_query(value: Any, where: str) -> Task:
    try:
        task = Task.parse(_without_repeats(value))
    except CcrankError as error:
        raise CcrankError(f"{where}: {error}") from None
    if task.query is None or task.values is None or task.first_stage is None:
        raise CcrankError(f"{where}: needs a query, values and bm25")
    ranks = shuffled(range(1, len(task.items) + 1), task.id)
    aligned = zip(task.items, task.values, task.first_stage, strict=True)
    rows = dict(enumerate(aligned, start=1))
    items, values, scores = zip(*(rows[rank] for rank in ranks), strict=True)
    return replace(task, items=items, values=values, first_stage=scores, item_ids=tuple(map(str, ranks)))


def _without_repeats(value: Any) -> Any:
    """The object with each item once, at its first place; it is relevant if one of its copies was judged so."""
    aligned = ("items", "values", "bm25")
    if not isinstance(value, dict) or not all(isinstance(value.get(name), list) for name in aligned):
        return value
    if len({len(value[name]) for name in aligned}) > 1:
        return value
    copies: dict[str, list[tuple[Any, Any, Any]]] = defaultdict(list)
    for row in zip(*(value[name] for name in aligned), strict=True):
        copies[normal_form(str(row[0]))].append(row)
    kept = [(rows[0][0], max(row[1] for row in rows), rows[0][2]) for rows in copies.values()]
    return {**value, **{name: [row[column] for row in kept] for column, name in enumerate(aligned)}}
