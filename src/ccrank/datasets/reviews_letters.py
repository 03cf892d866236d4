"""Reviews in the paper's form: the context holds them as "A: …", the items are "review A", the criterion is stance.

Texts, stars and letters are those of `reviews`; only what a model is shown differs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ccrank.datasets import reviews
from ccrank.task import Criterion, Task

_CRITERION = Criterion(
    "stance", comparative="more positive", poles=("negative", "positive"), category="review"
)


def _read(
    data_dir: str | Path | None = None,
    *,
    source: str = "auto",
    disjoint: bool = False,
    words: int | None = 60,
) -> list[Task]:
    return [_task(*one) for one in reviews.stars_by_product(data_dir, source, disjoint, words)]


def _task(gold: dict[str, float], task_id: str, about: dict[str, Any]) -> Task:
    letters, texts = reviews.lettered(gold, task_id)
    context = "\n".join(f"{letter}: {text}" for letter, text in zip(letters, texts, strict=True))
    items = tuple(f"review {letter}" for letter in letters)
    return Task(_CRITERION, items, context, tuple(gold[text] for text in texts), task_id, about)


DATASET = replace(
    reviews.DATASET,
    name="reviews-letters",
    summary="The same five reviews in one context, under letters, by the stance of each",
    departs=(
        'the form is the paper\'s (Table 3): context "A: I endorse this product …", items "review A", criterion '
        "stance. The reviews are those of `reviews`, which differ from the paper's"
    ),
    read=_read,
)
