"""Criterion and Task: what to rank and by which criterion, with validation."""

from ccrank.task.checks import is_blank, is_finite_number, normal_form
from ccrank.task.criterion import Criterion, relevance_to
from ccrank.task.task import Task, by_criterion, check_text

__all__ = [
    "Criterion",
    "Task",
    "by_criterion",
    "check_text",
    "is_blank",
    "is_finite_number",
    "normal_form",
    "relevance_to",
]
