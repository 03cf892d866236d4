"""The one registry of methods: a name here is the name in Python, on the command line and in the tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccrank.errors import CcrankError
from ccrank.labelfree import anchored, auto, axis, likelihood, poles
from ccrank.probing.methods import apply_probe, probe_method
from ccrank.probing.surface import item_frequency, item_length
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


def _probe(name: str, summary: str, calls: str = "N", directed: bool = False) -> Method:
    return Method(name, summary, probe_method(name), directed, calls)


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("auto", "the routes below together: the best label-free ranking", auto, True, "N + 8"),
        Method(
            "anchored",
            "a probe fitted to auto's scores on other tasks of the criterion",
            anchored,
            True,
            "N + 8",
        ),
        Method("poles", "which end's word the model would use for the item", poles, True, "N"),
        Method(
            "likelihood",
            "whether the item comes to mind at the high end or the low one",
            likelihood,
            True,
            "4",
        ),
        Method("axis", "where the item's state lies between made-up items of both ends", axis, True, "N + 4"),
        Method(
            "prompt-pair", "is A more than B? for ordered pairs, wins counted", prompt_pair, True, "N(N−1)"
        ),
        Method("prompt-point", "a rating from 0 to 10 for each item", prompt_point, True, "N"),
        Method("prompt-list", "all items as lettered options, picked one by one", prompt_list, True, "S·N"),
        _probe("ccs-pair", "origCCS on ItemPair states: consistent and confident yes and no", "2N(N−1)"),
        _probe("ccs", "origCCS on ItemSingle states, paired in the loss"),
        _probe("margin", "MarginCCR: any two items at least a margin apart"),
        _probe("triplet", "TripletCCR: of any two items one is nearer to a third, by a margin"),
        _probe("ordreg", "OrdRegCCR: ordinal regression to a unique rank each"),
        _probe("sup-ccs-pair", "twin of ccs-pair: cross-entropy on gold", "2N(N−1)", directed=True),
        _probe("sup-ccs", "twin of ccs: cross-entropy on gold", directed=True),
        _probe("sup-margin", "twin of margin: max-margin on gold", directed=True),
        _probe("sup-triplet", "twin of triplet: triplet loss on gold", directed=True),
        _probe("sup-ordreg", "twin of ordreg: ordinal regression on gold", directed=True),
        _probe("random", "baseline: a random direction in the states"),
        _probe("pca", "baseline: the first principal component of the states"),
        Method("length", "baseline: longer items higher", item_length, False, "0"),
        Method("frequency", "baseline: items more likely to the model higher", item_frequency, False, "N"),
        Method("probe", "a probe that was saved before, applied to new items", apply_probe, False, "N"),
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
