"""Reviews of one product or company, one for each number of stars, as items or under letters in the context.

The paper uses TrustPilot (Hovy et al. 2015); where that file is not available, reviews of women's clothing replace it.
The k-th task of a product consists of its k-th review of each number of stars, in file order; reviews whose text (as
shown) occurred before for this product are skipped. By default only k = 1 is used.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ccrank.errors import CcrankError
from ccrank.study.datasets.dataset import first_words, generator_of, task_of_gold
from ccrank.study.datasets.locate import DataFile, find, locate
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.files import read_text

CLOTHING = DataFile(
    path="reviews/womens-clothing.csv",
    url=(
        "https://raw.githubusercontent.com/MichalSzopinski00/The-Best-Classifier/"
        "31a3d4bdcaf1499e4a8bfc74d4b935280a616d91/womens-ecommerce-clothing-reviews.zip"
    ),
    sha256="bd93cc515747ad1f87b8bc863c9e40da758509e6db6506a96d06976e61e36ee0",
    zipped=".csv",
)
_PUBLISHED_NAME = "united_states.auto-adjusted_gender.geocoded.jsonl"
_TRUSTPILOT = DataFile(
    path="reviews/trustpilot-us.jsonl",
    url=(
        "https://bitbucket.org/lowlands/release/raw/fd60e8b4fbb12f0175e0f26153e289bbe2bfd71c/WWW2015/data/"
        f"{_PUBLISHED_NAME}.zip"
    ),
    sha256=None,
    other_names=(
        "trustpilot-us.jsonl.gz",
        _PUBLISHED_NAME,
        f"{_PUBLISHED_NAME}.tmp",
        f"{_PUBLISHED_NAME}.gz",
        f"{_PUBLISHED_NAME}.zip",
    ),
)
_CRITERION = Criterion(
    "sentiment", comparative="more positive", poles=("negative", "positive"), category="review"
)
_STANCE = replace(_CRITERION, name="stance")
_STARS = (1, 2, 3, 4, 5)

Reviews = Iterable[tuple[str, int, str]]
"""(product, stars, text) of each review."""


def read(
    data_dir: str | Path | None = None,
    *,
    source: Literal["auto", "clothing", "trustpilot"] = "auto",
    form: Literal["inline", "context"] = "inline",
    disjoint: bool = False,
    words: int | None = 60,
) -> list[Task]:
    tasks = _stars_by_product(data_dir, source, disjoint, words)
    if form == "inline":
        return [task_of_gold(_CRITERION, gold, task_id, about=about) for gold, task_id, about in tasks]
    return [_lettered(_CRITERION, "review {}: {}", *task) for task in tasks]


def read_letters(
    data_dir: str | Path | None = None,
    *,
    source: Literal["auto", "clothing", "trustpilot"] = "auto",
    disjoint: bool = False,
    words: int | None = 60,
) -> list[Task]:
    return [
        _lettered(_STANCE, "{}: {}", *task) for task in _stars_by_product(data_dir, source, disjoint, words)
    ]


def _stars_by_product(
    data_dir: str | Path | None, source: str, disjoint: bool, words: int | None
) -> Iterator[tuple[dict[str, float], str, dict[str, Any]]]:
    """(text → stars, id, about) of each task."""
    if source == "auto":
        source = "clothing" if find(_TRUSTPILOT, data_dir) is None else "trustpilot"
    path = locate(_TRUSTPILOT if source == "trustpilot" else CLOTHING, data_dir)
    for product, by_stars in _by_product(_OPEN[source](path), words).items():
        for k in range(min(map(len, by_stars)) if disjoint else 1):
            task_id = f"{source}-{product}-{k + 1}" if disjoint else f"{source}-{product}"
            gold = {texts[k]: float(stars) for stars, texts in zip(_STARS, by_stars, strict=True)}
            yield gold, task_id, {"source": source, "product": product, "unit": "stars"}


def _by_product(reviews: Reviews, words: int | None) -> dict[str, list[list[str]]]:
    """The texts of each product that has reviews of every star, grouped by stars."""
    texts: dict[str, list[list[str]]] = defaultdict(lambda: [[] for _ in _STARS])
    seen: set[tuple[str, str]] = set()
    for product, stars, text in reviews:
        shown = normal_form(first_words(text, words))
        if shown and (product, shown) not in seen:
            seen.add((product, shown))
            texts[product][stars - 1].append(shown)
    return {product: by_stars for product, by_stars in texts.items() if all(by_stars)}


def _lettered(
    criterion: Criterion, line: str, gold: dict[str, float], task_id: str, about: dict[str, Any]
) -> Task:
    """A context of the reviews under letters, in random order, each written as `line`; the items are "review A", ….

    Unlike items elsewhere, the order is not balanced against gold: a method that follows the letters would then
    have a |τ| below chance.
    """
    texts = sorted(gold, key=lambda text: -gold[text])
    generator_of(task_id).shuffle(texts)
    letters = [chr(ord("A") + index) for index in range(len(texts))]
    context = "\n".join(line.format(letter, text) for letter, text in zip(letters, texts, strict=True))
    items = tuple(f"review {letter}" for letter in letters)
    return Task(criterion, items, context, tuple(gold[text] for text in texts), task_id, about)


def _clothing(path: Path) -> Iterator[tuple[str, int, str]]:
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    for row in rows:
        stars = _stars(row.get("Rating"))
        if stars is None or row.get("Clothing ID") is None or row.get("Review Text") is None:
            raise CcrankError(
                f"{path}, line {rows.line_num}: not a review of this dataset, which has a Clothing ID, a Rating "
                f"from 1 to 5 and a Review Text; take the file from {CLOTHING.url}"
            )
        yield row["Clothing ID"], stars, row["Review Text"]


def _trustpilot(path: Path) -> Iterator[tuple[str, int, str]]:
    """The reviews of a file of users, one user per line."""
    try:
        with _lines_of(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield from _reviews_of_user(line, f"{path}, line {number}")
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CcrankError(f"cannot read {path}: {error}; take the file from {_TRUSTPILOT.url}") from None


def _reviews_of_user(line: str, where: str) -> Iterator[tuple[str, int, str]]:
    try:
        for review in _user(line).get("reviews") or ():
            text = review.get("text") or review.get("title") or ""
            text = text if isinstance(text, str) else " ".join(map(str, text))
            stars = _stars(review.get("rating"))
            # A review without a company or stars is skipped.
            if stars is not None and review.get("company_id"):
                yield str(review["company_id"]), stars, text
    except (ValueError, SyntaxError, AttributeError, TypeError, RecursionError, MemoryError) as error:
        raise CcrankError(
            f"{where}: not a TrustPilot user with reviews ({error}); take the file from {_TRUSTPILOT.url}"
        ) from None


def _user(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        # The published file is called JSON lines, but its lines are Python literals.
        return ast.literal_eval(line)


def _stars(value: object) -> int | None:
    """The number of stars, which the files give as a number or as a digit string; None for anything else."""
    try:
        stars = float(str(value))
    except ValueError:
        return None
    return int(stars) if stars in _STARS else None


@contextmanager
def _lines_of(path: Path) -> Iterator[Iterable[str]]:
    """The lines of a file that may be compressed; a few bytes of the published file are not valid UTF-8."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if Path(name).name.startswith(_PUBLISHED_NAME)]
            if not names:
                raise CcrankError(f"{path} contains no {_PUBLISHED_NAME}; take it from {_TRUSTPILOT.url}")
            with archive.open(names[0]) as packed:
                yield io.TextIOWrapper(packed, encoding="utf-8-sig", errors="replace")
    elif path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig", errors="replace") as lines:
            yield lines
    else:
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            yield lines


_OPEN = {"clothing": _clothing, "trustpilot": _trustpilot}
