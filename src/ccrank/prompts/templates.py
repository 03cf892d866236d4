"""Templates as data, and rendering a task's prompts from them."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.inflection import plural
from ccrank.lexicon import poles_of
from ccrank.prompts.prompt import Form, Piece, Prompt, Role
from ccrank.task import Criterion, Task
from ccrank.toml import parse_toml

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
    """A made-up item of one pole, which takes the item's place."""

    def notes(self) -> dict[str, Any]:
        """What JSON keeps of the template beside a probe that was fitted on it."""
        words = {"text": self.text, "masked": self.masked, "encoder_decoder": self.encoder_decoder}
        return {key: value for key, value in {**words, "candidates": self.candidates}.items() if value}

    def __post_init__(self) -> None:
        known = {*CRITERION_FIELDS, *CONTENT_FIELDS, "slot"} if self.name != "context" else {"context"}
        if not self.text.strip():
            raise CcrankError(f"template {self.name!r} has an empty text")
        for wording in filter(None, (self.text, self.masked, self.encoder_decoder)):
            used = [name for _, name in _parse(wording, self.name) if name is not None]
            if unknown := sorted(set(used) - known):
                raise CcrankError(
                    f"template {self.name!r} has unknown fields {unknown}; known are {sorted(known)}. "
                    "Write {{ and }} for literal braces"
                )
            needed = "context" if self.name == "context" else "slot"
            if used.count(needed) != 1:
                raise CcrankError(f"template {self.name!r} needs {{{needed}}} exactly once: {wording!r}")
        for wording, allowed in (
            (self.option, ("label", "item")),
            (self.choice, ("label", "item")),
            (self.exemplar, ("pole", "category")),
        ):
            if unknown := sorted({name for _, name in _parse(wording, self.name) if name} - {*allowed}):
                raise CcrankError(
                    f"template {self.name!r}: {wording!r} may contain only {{{allowed[0]}}} and {{{allowed[1]}}}, "
                    f"not {unknown}"
                )
        causal = _parse(self.text, self.name)
        if self.name != "context" and causal[-1][1] != "slot":
            raise CcrankError(
                f"template {self.name!r}: a causal model reads from left to right, so {{slot}} must come last in "
                f"`text`; put what follows it into `masked` and `encoder_decoder`: {self.text!r}"
            )

    def wording(self, form: Form) -> str:
        """The template's text for one form of model."""
        special = {"masked": self.masked, "encoder_decoder": self.encoder_decoder}.get(form)
        return special or self.text

    def exemplar_of(self, criterion: Criterion, pole: str) -> str:
        """A made-up item such as "a very large country".

        Parameters
        ----------
        criterion
            The criterion, which knows what the items are.
        pole
            A word for one of its poles.
        """
        words = {"pole": pole, "category": criterion.kind}
        return "".join(
            literal if name is None else words[name] for literal, name in _parse(self.exemplar, self.name)
        )

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
        pieces, fields = _frames.of(self, task.criterion, task.context, form, context)
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


class _Frames:
    """Remembers the last frame: the prompts of a task are rendered one after another."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Any, ...], _Frame] = ((None,) * 5, ((), ()))

    def of(self, *source: Any) -> _Frame:
        """The frame of these arguments; see `_frame`."""
        known, frame = self._last  # one look-up: another thread may replace it
        if known == source:  # most often the very same objects
            return frame
        frame = _frame(*source)
        self._last = (source, frame)
        return frame


_frames = _Frames()


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
    parts: list[Piece | str] = []
    if task_context:
        for literal, name in _parse(context.text, "context"):
            parts.append(Piece(literal) if name is None else Piece(task_context, "context"))
    for literal, name in _parse(template.wording(form), template.name):
        if name is None:
            parts.append(Piece(literal))
        elif name == "slot":
            parts.append(Piece("", "slot"))
        elif name in words:
            parts.append(Piece(words[name], "criterion"))
        else:
            parts.append(name)
    rows: list[list[Piece]] = [[]]
    names: list[str] = []
    for part in parts:
        if isinstance(part, str):
            names.append(part)
            rows.append([])
        elif part.text or part.role == "slot":
            rows[-1].append(part)
    first, *others = map(tuple, rows)
    return first, tuple(zip(names, others, strict=True))


@dataclass(frozen=True, slots=True)
class Templates:
    """The set of templates in use: the packaged ones with a user's changes applied."""

    by_name: Mapping[str, Template]

    def __getitem__(self, name: str) -> Template:
        try:
            return self.by_name[name]
        except KeyError:
            raise CcrankError(f"no template {name!r}; there are {sorted(self.by_name)}") from None

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
        labels = option_labels(len(shown))
        options: list[Piece] = []
        for place, index in enumerate(shown):
            if place:
                options += _written(wording.separator)
            options += _filled(wording.option, wording.name, labels[place], _item(task, index))
        taken: list[Piece] = []
        for place in chosen:
            taken += _filled(wording.choice, wording.name, labels[place], _item(task, shown[place]))
        return wording.render(
            task, {"options": tuple(options), "chosen": tuple(taken)}, form, self["context"]
        )


def _filled(wording: str, name: str, label: str, item: tuple[Piece, ...]) -> Iterator[Piece]:
    """The pieces of one option of a list."""
    for literal, part in _parse(wording, name):
        yield from _written(literal) if part is None else _written(label) if part == "label" else item


def option_labels(count: int) -> tuple[str, ...]:
    """Labels A, B, … for up to 26 options, else 1, 2, …"""
    if count <= len(string.ascii_uppercase):
        return tuple(string.ascii_uppercase[:count])
    return tuple(str(number) for number in range(1, count + 1))


def load_templates(overrides: Path | str | None = None, changes: Iterable[str] = ()) -> Templates:
    """The packaged templates with a user's changes.

    Parameters
    ----------
    overrides
        A TOML file with the same tables and keys as the packaged file; it may contain only what it changes.
    changes
        Single changes of the form NAME=TEXT, such as "pair=Is {item_a} …"; they are applied after the file.


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


def _lay_over(tables: dict[str, dict[str, Any]], name: str, table: Mapping[str, Any]) -> None:
    """Update a template; a new `text` also replaces the forms it does not name, which would have another wording."""
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
            if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
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
