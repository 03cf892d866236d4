"""Criterion and Task: what to rank and by which criterion, with validation."""

from ccrank.task.checks import check_length, is_blank, is_finite_number, normal_form
from ccrank.task.criterion import MAX_PHRASE, Criterion, Understood, relevance_to
from ccrank.task.task import Task, by_criterion, check_text

__all__ = [
    "MAX_PHRASE",
    "Criterion",
    "Task",
    "Understood",
    "by_criterion",
    "check_length",
    "check_text",
    "is_blank",
    "is_finite_number",
    "normal_form",
    "relevance_to",
]
