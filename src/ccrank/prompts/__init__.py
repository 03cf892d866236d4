"""Rendering tasks as prompts: templates as data, rendering, answer slots."""

from ccrank.prompts.prompt import Form, Piece, Prompt, broken_up, plain_answers, plain_prompts
from ccrank.prompts.templates import Template, Templates, check_named, load_templates, option_labels

__all__ = [
    "Form",
    "Piece",
    "Prompt",
    "Template",
    "Templates",
    "broken_up",
    "check_named",
    "load_templates",
    "option_labels",
    "plain_answers",
    "plain_prompts",
]
