"""The one registry of methods: a name here is the name in Python, on the command line and in the tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.prompting import prompt_list, prompt_pair, prompt_point
from ccrank.ranking import Answer

Run = Callable[..., list[Answer]]
"""(tasks, reader, templates, *, progress, **options) → one Answer per task."""


@dataclass(frozen=True)
class Method:
    """A way to rank."""

    name: str
    summary: str
    run: Run
    directed: bool
    """Whether it knows which end is the high one."""
    calls: str
    """Model calls as a function of N, as in the paper's table of complexity."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that the method takes, with their defaults."""
        parameters = inspect.signature(self.run).parameters.values()
        return {
            one.name: one.default
            for one in parameters
            if one.kind is inspect.Parameter.KEYWORD_ONLY and one.name != "progress"
        }

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options as a user wrote them, made to fit the types of the defaults; unknown ones are refused."""
        known = self.options
        parsed = {}
        for name, value in given.items():
            key = name.replace("-", "_")
            if key not in known:
                raise CcrankError(
                    f"{self.name} has no option {name!r}; it has {', '.join(sorted(known)) or 'none'} "
                    f"(see `ccrank methods {self.name}`)"
                )
            parsed[key] = _like(value, known[key], f"{self.name}: {name}")
        return parsed


def _like(value: Any, default: Any, where: str) -> Any:
    if not isinstance(value, str) or default is None or isinstance(default, str):
        return value
    if isinstance(default, bool):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise CcrankError(f"{where} is yes or no, not {value!r}")
        return words[value.lower()]
    try:
        return type(default)(value)
    except ValueError:
        raise CcrankError(f"{where} is a number, not {value!r}") from None


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            "prompt-pair", "is A more than B? for ordered pairs, wins counted", prompt_pair, True, "N(N−1)"
        ),
        Method("prompt-point", "a rating from 0 to 10 for each item", prompt_point, True, "N"),
        Method("prompt-list", "all items as lettered options, picked one by one", prompt_list, True, "S·N"),
    )
}


def get_method(name: str) -> Method:
    """A method by its name."""
    try:
        return METHODS[name]
    except KeyError:
        raise CcrankError(
            f"no method {name!r}; there are {', '.join(METHODS)} (see `ccrank methods`)"
        ) from None
