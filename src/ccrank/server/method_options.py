"""Options of methods that come from a request: of the right type, and not too much work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccrank.errors import CcrankError
from ccrank.methods.registry import Method
from ccrank.task import is_finite_number

RANGES: dict[str, tuple[float, float]] = {
    "seeds": (1, 32),
    "epochs": (1, 2000),
    "shuffles": (1, 64),
    "window": (2, 100),
    "passage": (16, 8192),
    "pairs": (1, 1000),
    "seed": (0, 2**31 - 1),
    "ridge": (1e-6, 1e6),
    "learning_rate": (1e-6, 10),
    "margin": (1e-6, 1e3),
    "weight_decay": (0, 1e3),
}
"""The values that an option may have. Some multiply the work; others make numbers that are not finite."""
WORDS_OR_NUMBERS = ("pairs", "layer")
"""Options whose default is a word and that take a whole number too."""
LONGEST = 200
"""Characters of an option that is a text."""


def checked_options(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, parsed; an error for a wrong type or an extreme value."""
    if "labels" in given:
        raise CcrankError('labels are not an option; send them as "labels" beside the items')
    for name, value in given.items():
        if isinstance(value, str) and len(value) > LONGEST:
            raise CcrankError(f"option {name[:40]!r} has {len(value):,} characters; it takes up to {LONGEST}")
    parsed = method.parse_options(given)
    for name, value in parsed.items():
        _check_type(f"{method.name}: {name}", name, value, method.options[name])
        number = value
        if isinstance(value, str) and name in WORDS_OR_NUMBERS and value.lstrip("-").isdecimal():
            number = int(value[:20])
        if isinstance(number, int | float) and not isinstance(number, bool):
            low, high = RANGES.get(name, (-1e6, 1e6))
            if not low <= number <= high:
                raise CcrankError(f"{method.name}: {name} is {number!r:.40}; it takes {low:g} to {high:g}")
    return parsed


def _check_type(where: str, name: str, value: Any, default: Any) -> None:
    if isinstance(value, bool) or isinstance(default, bool):
        fits = isinstance(value, bool) and isinstance(default, bool)
    elif isinstance(default, int):
        fits = isinstance(value, int)
    elif isinstance(default, float):
        fits = is_finite_number(value)
    elif name in WORDS_OR_NUMBERS:
        fits = isinstance(value, str | int)
    else:
        fits = isinstance(value, str) or (value is None and default is None)
    if not fits:
        raise CcrankError(f"{where} takes no {value!r:.40}; its default is {default!r}")


def prompts_needed(method: Method, options: Mapping[str, Any], count: int) -> float:
    """About how many prompts a method reads for a list."""
    repeats = options.get(method.repeats_option or "", 1)
    pairs = str(options.get("pairs", "auto"))
    if pairs == "all":
        return float(count * (count - 1))
    if pairs.isdecimal():
        return float(2 * count * int(pairs))
    return float(method.prompts(count) * repeats)
