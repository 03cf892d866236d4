"""`prompt-point`: a rating from 0 to 10 for one item at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import calibrate, read_groups, reference_prompts
from ccrank.models.prompter import Prompter
from ccrank.ranking import Answer
from ccrank.task import Task

RATINGS = tuple(str(number) for number in range(11))


def prompt_point(
    tasks: Sequence[Task],
    prompter: Prompter,
    *,
    score: str = "argmax",
    calibration: str = "none",
    scale: bool = True,
    template: str | None = None,
) -> list[Answer]:
    """Prompt for each item's rating.

    The defaults are the paper's: the most likely rating, ties broken by its logit, with the scale named in the prompt.
    `score="expected"` is the probability-weighted mean of the ratings, best with a calibration ("mean", "contextual",
    "batch", "pmi").
    """
    if score not in RATERS:
        raise CcrankError(f"score must be 'argmax' or 'expected', not {score!r}")
    name = template or ("single-scale" if scale else "single")
    candidates = prompter.templates[name].candidates or RATINGS
    values = _numbers(candidates, name)
    prompter.check_fields(name, "item")
    asked = [prompter.singles(task, name) for task in tasks]
    groups = [[*prompts, *reference_prompts(prompts[0], calibration)] for prompts in asked]
    logits, costs = read_groups(prompter, groups, candidates)
    answers = []
    for task, table, cost in zip(tasks, logits, costs, strict=True):
        count = len(task.items)
        calibrated = calibrate(table[:count], calibration, table[count:])
        scores = RATERS[score](calibrated, values)
        best = values[calibrated.argmax(axis=1)]
        consistency = {"distinct_ratings": len(set(best)) / min(count, len(values))}
        answers.append(Answer(task.criterion.sign * scores, consistency, cost))
    return answers


def argmax_ratings(logits: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The paper's score: the most likely rating, plus a tie-break < ½ that orders items of the same rating by its
    logit. (N, R), (R,) -> (N,)"""
    choice = logits.argmax(axis=1)
    confidence = logits[np.arange(len(logits)), choice]
    levels, level = np.unique(confidence, return_inverse=True)
    gap = np.diff(np.sort(values)).min()
    return np.asarray(values[choice] + gap * level / (2 * len(levels)))


def expected_ratings(logits: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Σ_r p(r | item) · r, p over the ratings. (N, R), (R,) -> (N,)"""
    return np.asarray(softmax(logits, axis=1) @ values)


RATERS = {"argmax": argmax_ratings, "expected": expected_ratings}


def _numbers(candidates: Sequence[str], template: str) -> np.ndarray:
    try:
        values = np.array([float(rating) for rating in candidates])
    except ValueError:
        raise CcrankError(f"template {template!r}: ratings must be numbers, got {list(candidates)}") from None
    if len(set(values)) < max(2, len(values)) or not np.isfinite(values).all():
        raise CcrankError(
            f"template {template!r}: two or more different, finite ratings are needed, got {list(candidates)}"
        )
    return values
