"""The prompts of each label-free method, as its cost counts them."""

from __future__ import annotations

from ccrank.labelfree.signals import likelihood_prompts, pole_prompts, wordings_of, written_prompts
from ccrank.lm.reading import Request
from ccrank.prompts import Form, Templates
from ccrank.relevance.query_likelihood import query_likelihood_requests
from ccrank.task import Task


def auto_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `auto`: pole words and states in one reading, then items as answers."""
    if task.query is not None:
        return query_likelihood_requests(task, form, templates)
    likely = likelihood_requests(task, form, templates)
    return likely if task.context else [written_prompts(task, form, templates), *likely]


def anchored_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `anchored`: like `auto`, with states even if there is a context."""
    return [written_prompts(task, form, templates), *likelihood_requests(task, form, templates)]


def poles_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `poles`."""
    return [pole_prompts(task, form, templates)]


def axis_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `axis`."""
    prompts, _ = pole_prompts(task, form, templates, with_exemplars=True)
    return [(prompts, None)]


def likelihood_requests(task: Task, form: Form, templates: Templates) -> list[Request]:
    """The prompts of `likelihood`."""
    return [(likelihood_prompts(task, form, templates, wordings_of(task)), task.items)]
