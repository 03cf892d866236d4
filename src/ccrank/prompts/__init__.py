"""Rendering tasks as prompts: templates as data, rendering, answer slots."""

from ccrank.prompts.prompt import Form, Piece, Prompt
from ccrank.prompts.templates import Template, Templates, load_templates, option_labels

__all__ = ["Form", "Piece", "Prompt", "Template", "Templates", "load_templates", "option_labels"]
