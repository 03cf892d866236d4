"""The registry of methods; names are the same in Python, on the command line and in tables."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ccrank.errors import CcrankError
from ccrank.labelfree import rankers as labelfree
from ccrank.labelfree.answers import describe_signals
from ccrank.labelfree.requests import (
    anchored_requests,
    auto_requests,
    axis_requests,
    likelihood_requests,
    poles_requests,
)
from ccrank.lm.reading import Request
from ccrank.probe_pipeline import rankers as probes
from ccrank.probing import baselines
from ccrank.probing.objectives import Objective, objective_of
from ccrank.prompting import (
    describe_pairs,
    describe_ratings,
    describe_shuffles,
    list_requests,
    pair_requests,
    pairs_asked,
    point_requests,
    prompt_list,
    prompt_pair,
    prompt_point,
)
from ccrank.prompts import Form, Templates
from ccrank.ranking import Answer
from ccrank.relevance.first_stage import first_stage
from ccrank.relevance.query_likelihood import (
    describe_relevance,
    query_likelihood,
    query_likelihood_requests,
)
from ccrank.task import Task

Family = Literal["label-free", "prompting", "probing", "supervised", "baseline"]
Run = Callable[..., list[Answer]]
"""(tasks, reader, templates, *, progress, **options) → one Answer per task."""
Requests = Callable[[Task, Form, Templates], list[Request]]
"""(task, form, templates) → the prompts and candidates that are read."""
ReadsStates = Callable[[Sequence[Task], Mapping[str, Any]], bool]
"""(tasks, options) → whether hidden states are read for them."""
Describe = Callable[[Mapping[str, float], Mapping[str, Any]], list[str]]
"""(consistency, details) of a ranking → phrases that describe it."""


def _no_phrases(consistency: Mapping[str, float], details: Mapping[str, Any]) -> list[str]:
    return []


def _never(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    return False


def _always(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class Method:
    """A ranking method and its properties."""

    name: str
    summary: str
    run: Run
    family: Family
    directed: bool
    """Whether it gives the direction: higher scores mean more."""
    calls: str
    """Model calls as a function of N, as in the paper's table of complexity."""
    requests: Requests
    """The prompts of a task, for `ccrank cost`."""
    pools: bool = False
    """Whether it fits something on all tasks of a criterion, so that a task's answer depends on the others."""
    consistency: str | None = None
    """The entry of an answer's consistency that is stored in results; None if there is none."""
    describe: Describe = _no_phrases
    objective: Objective | None = None
    """The objective of a probe. Studies read states once for all probes that share them."""
    cost_name: str | None = None
    """The row of `ccrank cost` shared with methods that have the same prompts; the method's name if None."""
    prompts: Callable[[int], float] = float
    """The approximate number of prompts for N items, for time estimates."""
    repeats_option: str | None = None
    """The option with the number of times that `requests` are read, if any."""
    reads_states: ReadsStates = _never
    """Whether it needs hidden states, which models behind a server do not give."""
    for_studies: bool = True
    """Whether a study can run it; a method that needs a probe file cannot."""

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
        """Options as a user wrote them, converted to the types of the defaults; unknown ones raise an error.

        Parameters
        ----------
        given
            Option → value; values may be text, as on a command line.
        """
        known = self.options
        parsed = {}
        for name, value in given.items():
            key = name.replace("-", "_")
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise CcrankError(
                    f"{self.name} has no option {name!r}; {hint}it has {', '.join(sorted(known)) or 'none'} "
                    f"(see `ccrank methods {self.name}`)"
                )
            parsed[key] = _like(value, known[key], f"{self.name}: {name}")
        return parsed

    def to_json(self) -> dict[str, Any]:
        """What a list of methods says of it."""
        return {
            "name": self.name,
            "summary": self.summary,
            "family": self.family,
            "directed": self.directed,
            "calls": self.calls,
            "options": dict(self.options),
        }


def _like(value: Any, default: Any, where: str) -> Any:
    if not isinstance(value, str) or default is None or isinstance(default, str):
        return value
    if isinstance(default, bool):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise CcrankError(f"{where} must be yes or no, not {value!r}")
        return words[value.lower()]
    try:
        return type(default)(value)
    except ValueError:
        raise CcrankError(f"{where} must be a number, not {value!r}") from None


def _probe(name: str, summary: str, calls: str = "N") -> Method:
    objective = objective_of(name)
    paired = objective.prompt == "pair"
    return Method(
        name,
        summary,
        probes.probe_method(name),
        family="supervised" if objective.supervised else "probing" if objective.loss else "baseline",
        directed=objective.supervised,
        calls=calls,
        requests=probes.pair_requests if paired else probes.single_requests,
        consistency="seeds_agree",
        describe=probes.describe_seeds,
        objective=objective,
        cost_name="probes on ItemPair states" if paired else "probes on ItemSingle states",
        prompts=(lambda count: 1.5 * count * count) if paired else float,
        reads_states=_always,
    )


def _label_free(name: str, summary: str, run: Run, calls: str, requests: Requests, **more: Any) -> Method:
    return Method(name, summary, run, "label-free", directed=True, calls=calls, requests=requests, **more)


_SIGNALS: dict[str, Any] = {
    "pools": True,
    "consistency": "signals_agree",
    "describe": describe_signals,
}
METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method to the registry, for use in `rank`, studies, tables and the command line.

    Parameters
    ----------
    method
        The method; its name must be new.
    """
    if method.name in METHODS:
        raise CcrankError(f"there is a method {method.name!r} already; choose another name")
    METHODS[method.name] = method
    return method


for _method in (
    _label_free(
        "auto", "the signals below combined: the best label-free ranking",
        labelfree.auto, "N + 8", auto_requests,
        reads_states=labelfree.auto_reads_states, **_SIGNALS,
    ),
    _label_free(
        "anchored", "a probe fitted to auto's scores on other tasks of the criterion",
        labelfree.anchored, "N + 8", anchored_requests,
        reads_states=_always, **_SIGNALS,
    ),
    _label_free(
        "poles", "the pole words that the model prefers for the item", labelfree.poles, "N", poles_requests
    ),
    _label_free(
        "likelihood", "how likely the item is as an example of the high pole rather than the low one",
        labelfree.likelihood, "4", likelihood_requests,
    ),
    _label_free(
        "axis", "the item's state between exemplars of both poles", labelfree.axis, "N + 4", axis_requests,
        reads_states=_always,
    ),
    _label_free(
        "query-likelihood", "how much more likely a document makes the query",
        query_likelihood, "3N + 3", query_likelihood_requests, describe=describe_relevance,
        prompts=lambda count: 3 * count + 3,
    ),
    Method(
        "prompt-pair", "is A more than B? for ordered pairs, wins counted", prompt_pair, "prompting",
        directed=True, calls="N(N−1)", requests=pair_requests, consistency="both_orders_agree",
        describe=describe_pairs, prompts=pairs_asked,
    ),
    Method(
        "prompt-point", "a rating from 0 to 10 for each item", prompt_point, "prompting",
        directed=True, calls="N", requests=point_requests, describe=describe_ratings,
    ),
    Method(
        "prompt-list", "all items as lettered options, picked one by one", prompt_list, "prompting",
        directed=True, calls="S·N", requests=list_requests, consistency="shuffles_agree",
        describe=describe_shuffles, cost_name="prompt-list, one shuffle",
        prompts=lambda count: 3 * count, repeats_option="shuffles",
    ),
    _probe("ccs-pair", "origCCS on ItemPair states: consistent and confident yes and no", "2N(N−1)"),
    _probe("ccs", "origCCS on ItemSingle states, paired in the loss"),
    _probe("margin", "MarginCCR: any two items at least a margin apart"),
    _probe("triplet", "TripletCCR: of any two items one is nearer to a third, by a margin"),
    _probe("ordreg", "OrdRegCCR: ordinal regression to a unique rank each"),
    _probe("sup-ccs-pair", "supervised ccs-pair: cross-entropy on gold", "2N(N−1)"),
    _probe("sup-ccs", "supervised ccs: cross-entropy on gold"),
    _probe("sup-margin", "supervised margin: max-margin on gold"),
    _probe("sup-triplet", "supervised triplet: triplet loss on gold"),
    _probe("sup-ordreg", "supervised ordreg: ordinal regression on gold"),
    _probe("random", "baseline: a random direction in the states"),
    _probe("pca", "baseline: the first principal component of the states"),
    Method(
        "length", "baseline: longer items higher", baselines.item_length, "baseline",
        directed=False, calls="0", requests=baselines.no_requests, prompts=lambda count: 0,
    ),
    Method(
        "frequency", "baseline: items more likely to the model higher", baselines.item_frequency, "baseline",
        directed=False, calls="N", requests=baselines.frequency_requests,
    ),
    Method(
        "first-stage", "baseline: the scores of a first stage, BM25 where none are given", first_stage, "baseline",
        directed=True, calls="0", requests=baselines.no_requests, prompts=lambda count: 0,
    ),
    Method(
        "probe", "a saved probe, applied to new items", probes.apply_probe, "probing",
        directed=False, calls="N", requests=probes.single_requests,
        cost_name="probes on ItemSingle states", reads_states=_always, for_studies=False,
    ),
):  # fmt: skip
    register(_method)

DEFAULT_METHOD = "auto"
SAVED_PROBE = "probe"
"""The method that applies a saved probe."""


def get_method(name: str) -> Method:
    """A method by its name.

    Parameters
    ----------
    name
        One of `METHODS`.
    """
    try:
        return METHODS[name]
    except KeyError:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise CcrankError(
            f"unknown method {name!r}; {hint}choose one of {', '.join(METHODS)} (see `ccrank methods`)"
        ) from None
