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
from contextlib import ExitStack, contextmanager
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
    other_names=("trustpilot-us.jsonl.gz", *(_PUBLISHED_NAME + end for end in ("", ".tmp", ".gz", ".zip"))),
)
_CRITERION = Criterion(
    "sentiment", comparative="more positive", poles=("negative", "positive"), category="review"
)
_STANCE = replace(_CRITERION, name="stance")
_STARS = (1, 2, 3, 4, 5)

Source = Literal["auto", "clothing", "trustpilot"]


def read(
    data_dir: str | Path | None = None,
    *,
    source: Source = "auto",
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
    source: Source = "auto",
    disjoint: bool = False,
    words: int | None = 60,
) -> list[Task]:
    tasks = _stars_by_product(data_dir, source, disjoint, words)
    return [_lettered(_STANCE, "{}: {}", *task) for task in tasks]


def _stars_by_product(
    data_dir: str | Path | None, source: str, disjoint: bool, words: int | None
) -> Iterator[tuple[dict[str, float], str, dict[str, Any]]]:
    """(text → stars, id, about) of each task."""
    if source == "auto":
        source = "clothing" if find(_TRUSTPILOT, data_dir) is None else "trustpilot"
    reviews = (
        _clothing(locate(CLOTHING, data_dir))
        if source == "clothing"
        else _trustpilot(locate(_TRUSTPILOT, data_dir))
    )
    stars_of: dict[str, dict[str, int]] = defaultdict(dict)  # product → text → stars
    for product, stars, text in reviews:
        if shown := normal_form(first_words(text, words)):
            stars_of[product].setdefault(shown, stars)
    for product, stars_by_text in stars_of.items():
        texts = [[text for text, given in stars_by_text.items() if given == stars] for stars in _STARS]
        complete = min(map(len, texts))
        for k in range(complete if disjoint else min(complete, 1)):
            task_id = f"{source}-{product}-{k + 1}" if disjoint else f"{source}-{product}"
            gold = {of_stars[k]: float(stars) for stars, of_stars in zip(_STARS, texts, strict=True)}
            yield gold, task_id, {"source": source, "product": product, "unit": "stars"}


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
    """(product, stars, text) of each review."""
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
    """(company, stars, text) of each review in a file of users, one user per line."""
    try:
        with _lines_of(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield from _reviews_of_user(line, f"{path}, line {number}")
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CcrankError(f"cannot read {path}: {error}; take the file from {_TRUSTPILOT.url}") from None


def _reviews_of_user(line: str, where: str) -> Iterator[tuple[str, int, str]]:
    try:
        try:
            user = json.loads(line)
        except ValueError:
            # The published file is called JSON lines, but its lines are Python literals.
            user = ast.literal_eval(line)
        for review in user.get("reviews") or ():
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
    with ExitStack() as stack:
        stream: Any = stack.enter_context(path.open("rb"))
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(stream))
            names = [name for name in archive.namelist() if Path(name).name.startswith(_PUBLISHED_NAME)]
            if not names:
                raise CcrankError(f"{path} contains no {_PUBLISHED_NAME}; take it from {_TRUSTPILOT.url}")
            stream = stack.enter_context(archive.open(names[0]))
        elif path.suffix == ".gz":
            stream = stack.enter_context(gzip.open(stream))
        yield io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
