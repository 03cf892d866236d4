"""Templates as data, and rendering a task's prompts from them."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.criteria.inflection import plural
from ccrank.criteria.lexicon import poles_of
from ccrank.errors import CcrankError, check_kind
from ccrank.prompts.prompt import Form, Piece, Prompt, Role
from ccrank.task import Criterion, Task
from ccrank.util.files import parse_toml
from ccrank.util.text import did_you_mean

CRITERION_FIELDS = ("name", "comparative", "category", "categories", "low", "high", "least", "most")
CONTENT_FIELDS = ("item", "item_a", "item_b", "options", "chosen", "pole")


@dataclass(frozen=True, slots=True)
class Template:
    """One prompt type: the wording for each form of model, and the answers it allows."""

    name: str
    text: str
    masked: str | None = None
    encoder_decoder: str | None = None
    candidates: tuple[str, ...] = ()
    option: str = '"{label}" {item}'
    """The format of one item in a list of options."""
    separator: str = ", "
    """The text between listed options."""
    choice: str = "{label}, "
    """The format in which an item chosen so far is appended."""
    exemplar: str = "a very {pole} {category}"
    """A made-up item of one pole, in place of the item."""

    def notes(self) -> dict[str, Any]:
        """The wording and the answers, as JSON keeps them beside a probe that was fitted on the template."""
        kept = ("text", "masked", "encoder_decoder", "candidates")
        return {name: getattr(self, name) for name in kept if getattr(self, name)}

    def yes_and_no(self) -> tuple[str, str]:
        """The two candidates of a question that is answered by yes or no."""
        if len(self.candidates) != 2:
            raise CcrankError(
                f"template {self.name!r} needs two candidates, for yes and for no, got {list(self.candidates)}"
            )
        return self.candidates[0], self.candidates[1]

    def __post_init__(self) -> None:
        needed = "context" if self.name == "context" else "slot"
        known = {"context"} if self.name == "context" else {*CRITERION_FIELDS, *CONTENT_FIELDS, "slot"}
        if not self.text.strip():
            raise CcrankError(f"template {self.name!r} has an empty text")
        for wording in filter(None, (self.text, self.masked, self.encoder_decoder)):
            if self._fields(wording, known).count(needed) != 1:
                raise CcrankError(f"template {self.name!r} needs {{{needed}}} exactly once: {wording!r}")
        for wording in (self.option, self.choice):
            self._fields(wording, {"label", "item"})
        self._fields(self.exemplar, {"pole", "category"})
        if needed == "slot" and _parse(self.text, self.name)[-1][1] != "slot":
            raise CcrankError(
                f"template {self.name!r}: a causal model reads from left to right, so {{slot}} must come last in "
                f"`text`; put what follows it into `masked` and `encoder_decoder`: {self.text!r}"
            )

    def _fields(self, wording: str, known: set[str]) -> list[str]:
        """The fields of a wording; raises an error for an unknown one."""
        names = [name for _, name in _parse(wording, self.name) if name is not None]
        if unknown := sorted(set(names) - known):
            raise CcrankError(
                f"template {self.name!r} has unknown fields {unknown} in {wording!r}; known are {sorted(known)}. "
                "Write {{ and }} for literal braces"
            )
        return names

    def wording(self, form: Form) -> str:
        """The template's text for one form of model."""
        special = {"masked": self.masked, "encoder_decoder": self.encoder_decoder}.get(form)
        return special or self.text

    def exemplar_of(self, criterion: Criterion, pole: str) -> str:
        """A made-up item such as "a very large country"."""
        return self.exemplar.format(pole=pole, category=criterion.kind)

    def check_fields(self, form: Form, *needed: str) -> None:
        """Raise an error if the template lacks a field that makes its prompts differ between items."""
        wording = self.wording(form)
        if missing := [name for name in needed if f"{{{name}}}" not in wording]:
            raise CcrankError(
                f"template {self.name!r} needs {' and '.join(f'{{{name}}}' for name in missing)}: {wording!r}"
            )

    def render(
        self, task: Task, content: Mapping[str, Sequence[Piece]], form: Form, context: Template
    ) -> Prompt:
        """Fill in the template. User text becomes separate pieces and is never parsed."""
        pieces, fields = _frame(self, task.criterion, task.context, form, context)
        for name, after in fields:
            if name not in content:
                raise CcrankError(
                    f"template {self.name!r} uses {{{name}}}, which this type of prompt does not have; "
                    f"it has {sorted(content)}"
                )
            pieces = (*pieces, *content[name], *after)
        return Prompt(pieces, None, task.id)


_Frame = tuple[tuple[Piece, ...], tuple[tuple[str, tuple[Piece, ...]], ...]]
"""What all prompts of a task share: the first pieces, and each field that differs with the pieces after it."""


@lru_cache(maxsize=8)
def _frame(
    template: Template, criterion: Criterion, task_context: str | None, form: Form, context: Template
) -> _Frame:
    """The frame of a template, for a criterion and a context."""
    poles = poles_of(criterion)
    words = {
        "name": criterion.name,
        "comparative": criterion.comparative_phrase,
        "category": criterion.kind,
        "categories": plural(criterion.kind),
        "low": poles.low[0],
        "high": poles.high[0],
        "least": poles.least,
        "most": poles.most,
    }
    first: list[Piece] = []
    fields: list[tuple[str, list[Piece]]] = []
    for literal, name in _parse(context.text, "context") if task_context else ():
        first += _written(literal) if name is None else _written(task_context or "", "context")
    for literal, name in _parse(template.wording(form), template.name):
        after = fields[-1][1] if fields else first
        if name is None or name == "slot":
            after.append(Piece(literal, "text" if name is None else "slot"))
        elif name in words:
            after += _written(words[name], "criterion")
        else:
            fields.append((name, []))
    return tuple(first), tuple((name, tuple(after)) for name, after in fields)


@dataclass(frozen=True, slots=True)
class Templates:
    """The set of templates in use: the packaged ones with a user's changes applied."""

    by_name: Mapping[str, Template]

    def __getitem__(self, name: str) -> Template:
        check_kind("a template", name, str, "a name")
        try:
            return self.by_name[name]
        except KeyError:
            raise CcrankError(
                f"no template {name!r}; {did_you_mean(name, self.by_name)}there are {sorted(self.by_name)}"
            ) from None

    def pair(
        self, task: Task, first: int, second: int, form: Form = "causal", template: str = "pair"
    ) -> Prompt:
        """ItemPair: asks whether the first item has more of the criterion than the second."""
        content = {"item_a": _item(task, first), "item_b": _item(task, second)}
        return self[template].render(task, content, form, self["context"])

    def single(self, task: Task, index: int, form: Form = "causal", template: str = "single") -> Prompt:
        """ItemSingle: one item and the criterion."""
        return self[template].render(task, {"item": _item(task, index)}, form, self["context"])

    def exemplar(self, task: Task, text: str, form: Form = "causal", template: str = "single") -> Prompt:
        """ItemSingle with an exemplar in place of the item: "a very large country"."""
        return self[template].render(task, {"item": _written(text, "item")}, form, self["context"])

    def pole(self, task: Task, word: str, form: Form = "causal", template: str = "such-as") -> Prompt:
        """A prompt about one pole of the criterion, whose answers are the items themselves."""
        return self[template].render(task, {"pole": _written(word, "criterion")}, form, self["context"])

    def list(
        self,
        task: Task,
        shown: Sequence[int],
        chosen: Sequence[int] = (),
        form: Form = "causal",
        template: str = "list",
    ) -> Prompt:
        """ItemList: `shown` are the items as listed, `chosen` the positions in that list chosen so far."""
        wording = self[template]
        labels = option_labels(len(shown), task.items)
        options: list[Piece] = []
        for position, index in enumerate(shown):
            if position:
                options += _written(wording.separator)
            options += _filled(wording.option, wording.name, labels[position], _item(task, index))
        taken: list[Piece] = []
        for position in chosen:
            taken += _filled(wording.choice, wording.name, labels[position], _item(task, shown[position]))
        return wording.render(
            task, {"options": tuple(options), "chosen": tuple(taken)}, form, self["context"]
        )


def _filled(wording: str, name: str, label: str, item: tuple[Piece, ...]) -> Iterator[Piece]:
    """The pieces of one option of a list."""
    for literal, part in _parse(wording, name):
        yield from _written(literal) if part is None else _written(label) if part == "label" else item


def option_labels(count: int, items: Iterable[str] = ()) -> tuple[str, ...]:
    """Labels A, B, … for up to 26 options, else 1, 2, …

    Items that are told apart by such letters themselves have numbers as well, since `"A" review C, "B" review A` would
    contradict itself; not if some end in those numbers.

    >>> option_labels(3, ["review A", "review B", "review C"])
    ('1', '2', '3')
    """
    letters, numbers = string.ascii_uppercase, tuple(str(number) for number in range(1, count + 1))
    ends = [item.split()[-1] for item in items if item.split()]
    lettered = len({*ends} & {*letters[: len(ends)]}) > 1 and {*ends}.isdisjoint(numbers)
    return numbers if count > len(letters) or lettered else tuple(letters[:count])


def load_templates(overrides: Path | str | None = None, changes: Iterable[str] = ()) -> Templates:
    """The packaged templates with a user's changes.

    Parameters
    ----------
    overrides
        A TOML file of templates that override the packaged ones.
    changes
        Single templates, each as NAME=TEXT; they override those of the file.

    Examples
    --------
    >>> load_templates(changes=["single={item} is {slot}"])["single"].wording("masked")
    '{item} is {slot}'
    """
    tables: dict[str, dict[str, Any]] = {name: dict(table) for name, table in _shipped().items()}
    if overrides is not None:
        for name, table in parse_toml(Path(overrides)).items():
            if not isinstance(table, dict):
                raise CcrankError(f"{overrides}: {name!r} must be a table, such as [{name}] with text = …")
            _lay_over(tables, name, table)
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise CcrankError(
                f"a template must have the form NAME=TEXT, such as 'single={{item}} is {{slot}}', got {change!r}"
            )
        _lay_over(tables, name.strip(), {"text": text})
    return Templates({name: _template(name, table) for name, table in tables.items()})


def check_named(templates: Templates, changes: Iterable[str], options: Iterable[Mapping[str, Any]]) -> None:
    """Raise an error for an option that names no template, and for a new template that no option names."""
    named = {
        name
        for table in options
        for key in ("template", "wordings")
        for name in re.split(r"[\s,]+", str(table.get(key) or ""))
        if name
    }
    for name in named:
        templates[name]
    for name in {change.partition("=")[0].strip() for change in changes} - named - set(_shipped()):
        raise CcrankError(
            f"--template {name}: there is no template of this name, and no option uses a new one; "
            f"{did_you_mean(name, _shipped())}known are {', '.join(_shipped())}"
        )


def _lay_over(tables: dict[str, dict[str, Any]], name: str, table: Mapping[str, Any]) -> None:
    """Update a template; a new `text` also removes the old wordings for other forms of model."""
    old = tables.get(name, {})
    if "text" in table:
        old = {key: value for key, value in old.items() if key not in ("masked", "encoder_decoder")}
    tables[name] = {**old, **table}


def _template(name: str, table: Mapping[str, Any]) -> Template:
    known = {field.name for field in fields(Template)} - {"name"}
    if unknown := sorted(set(table) - known):
        raise CcrankError(f"template {name!r} has unknown keys {unknown}; known are {sorted(known)}")
    if "text" not in table:
        raise CcrankError(f"template {name!r} has no text")
    values = dict(table)
    for key, value in values.items():
        if key == "candidates":
            if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
                raise CcrankError(f"template {name!r}: candidates must be a list of texts, got {value!r}")
            values[key] = tuple(value)
        elif not isinstance(value, str):
            raise CcrankError(f"template {name!r}: {key} must be text, got {value!r}")
    return Template(name, **values)


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    return parse_toml(resources.files("ccrank.prompts") / "templates.toml")


@lru_cache(maxsize=1024)
def _parse(wording: str, template: str) -> tuple[tuple[str, str | None], ...]:
    """A wording as literals (text, None) and fields ("", name), in order."""
    parts: list[tuple[str, str | None]] = []
    try:
        for literal, name, spec, conversion in string.Formatter().parse(wording):
            if literal:
                parts.append((literal, None))
            if name is not None:
                if spec or conversion or not name:
                    raise ValueError("fields are plain names such as {item}")
                parts.append(("", name))
    except ValueError as error:
        raise CcrankError(f"template {template!r} cannot be parsed: {error} in {wording!r}") from None
    return tuple(parts)


def _item(task: Task, index: int) -> tuple[Piece, ...]:
    return _written(task.items[index].strip(), "item")


def _written(text: str, role: Role = "text") -> tuple[Piece, ...]:
    """A piece; none where there is no text."""
    return (Piece(text, role),) if text else ()
