"""The registry of methods; names are the same in Python, on the command line and in tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from types import NoneType
from typing import Any, Literal

from ccrank.errors import CcrankError, check_kind
from ccrank.methods import baselines
from ccrank.methods import query_likelihood as relevance
from ccrank.methods.labelfree import rankers as labelfree
from ccrank.methods.labelfree.combine import describe_signals
from ccrank.methods.plugins import load_installed_plugins
from ccrank.methods.probe_pipeline import rankers as probes
from ccrank.methods.probing.objectives import (
    LOSS_SETTINGS,
    OBJECTIVES,
    Objective,
    check_loss,
    default_settings,
    objective_of,
    own_options,
)
from ccrank.methods.prompting import listwise, pairwise, pointwise
from ccrank.methods.prompting.asking import describe_consistency
from ccrank.models.prompter import Prompter
from ccrank.ranking import Answer, ItemScores
from ccrank.task import Task
from ccrank.util.text import did_you_mean

Family = Literal["label-free", "prompting", "probing", "supervised", "baseline"]
RankTasks = Callable[..., list[Answer]]
"""(tasks, prompter, **options) → one Answer per task."""
ReadsStates = Callable[[Sequence[Task], Mapping[str, Any]], bool]
"""(tasks, options) → whether hidden states are read for them."""
Describe = Callable[[Mapping[str, float], Mapping[str, Any]], list[str]]
"""(consistency, details) of a ranking → phrases that describe it."""
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _never(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    return False


def _always(tasks: Sequence[Task], options: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class Method:
    """A ranking method and its properties."""

    name: str
    summary: str
    run: RankTasks
    family: Family
    directed: bool
    """Whether it gives the direction: higher scores mean more."""
    calls: str
    """Model calls as a function of N, as in the paper's table of complexity."""
    pools: bool = False
    """Whether it fits something on all tasks of a criterion, so that a task's answer depends on the others."""
    consistency: str | None = None
    """The entry of an answer's consistency that is stored in results; None if there is none."""
    describe: Describe = describe_consistency
    objective: Objective | None = None
    """The objective of a probe. Studies read states once for all probes that share them."""
    cost_name: str | None = None
    """The row of `ccrank cost` shared with methods that have the same prompts; the method's name if None."""
    prompts: Callable[[int], float] = float
    """The approximate number of prompts for N items, for time estimates."""
    repeats_option: str | None = None
    """The option with the number of times that a list is read, if any."""
    reads_states: ReadsStates = _never
    """Whether it needs hidden states, which models behind a server do not give."""
    itemwise: bool = False
    """Whether a score depends on its item alone."""
    fits_scale: bool = False
    """Whether it finds constants of a list with which other items are scored."""

    @property
    def scores_others(self) -> bool:
        """Whether its scale can score items that it was not fitted on."""
        return self.itemwise or self.fits_scale

    @property
    def options(self) -> dict[str, Any]:
        """The options that the method takes, with their defaults."""
        defaults = inspect.getfullargspec(self.run).kwonlydefaults or {}
        return defaults if self.objective is None else {**defaults, **default_settings(self.name)}

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options as a user wrote them, converted to the types of the defaults; unknown ones raise an error."""
        known = self.options
        parsed = {}
        for name, value in given.items():
            key = str(name).replace("-", "_")
            if key not in known:
                raise CcrankError(
                    f"{self.name} has no option {name!r}; {did_you_mean(key, known)}it has "
                    f"{', '.join(sorted(known)) or 'none'} (see `ccrank methods {self.name}`)"
                )
            if key != "labels":  # the one option that is more than a word or a number
                check_kind(
                    f"{self.name}: {name}", value, (str, PathLike, Real, NoneType), "a word or a number"
                )
            parsed[key] = _like(value, known[key], f"{self.name}: {name}")
        return parsed

    def to_json(self) -> dict[str, Any]:
        """The method's entry in a list of methods."""
        names = ("name", "summary", "family", "directed", "calls", "options")
        return {name: getattr(self, name) for name in names}


def _like(value: Any, default: Any, where: str) -> Any:
    """An option's value as the type of its default."""
    if isinstance(default, (int, float)) and not isinstance(value, str):
        check_kind(where, value, Real, "a number")
    elif isinstance(default, bool):
        if value.lower() not in WORDS:
            raise CcrankError(f"{where} must be yes or no, not {value!r}")
        return WORDS[value.lower()]
    elif isinstance(default, (int, float)):
        try:
            return type(default)(value)
        except ValueError:
            raise CcrankError(f"{where} must be a number, not {value!r}") from None
    return value


def _probe(name: str, summary: str) -> Method:
    objective = objective_of(name)
    paired = objective.prompt == "pair"
    return Method(
        name,
        summary,
        probes.probe_method(name),
        family="supervised" if objective.supervised else "probing" if objective.loss else "baseline",
        directed=objective.supervised,
        calls="2N(N−1)" if paired else "N",
        consistency="seeds_agree",
        objective=objective,
        cost_name="probes on ItemPair states" if paired else "probes on ItemSingle states",
        prompts=(lambda count: 1.5 * count * count) if paired else float,
        reads_states=_always,
        fits_scale=not paired,
    )


def _label_free(name: str, summary: str, run: RankTasks, calls: str, **more: Any) -> Method:
    return Method(name, summary, run, "label-free", directed=True, calls=calls, **more)


_SIGNALS: dict[str, Any] = {
    "pools": True,
    "consistency": "signals_agree",
    "describe": describe_signals,
    "fits_scale": True,
}
METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method to the registry, for use in `rank`, studies, tables and the command line.

    Parameters
    ----------
    method
        The method, under a name that is not taken; docs/explanation/architecture.md has an example.
    """
    if method.name in METHODS:
        raise CcrankError(f"there is a method {method.name!r} already; choose another name")
    METHODS[method.name] = method
    return method


def register_objective(
    name: str,
    loss: Callable[..., Any],
    *,
    summary: str = "",
    prompt: Literal["single", "pair"] = "single",
    supervised: bool = False,
    on_logits: bool = False,
    sub_batch: Literal["none", "pairs", "triples"] = "none",
    replace: bool = False,
) -> Method:
    """Add a probe that minimises your own loss. It is then a method like the packaged probes: in `rank`, with seeds,
    layers, splits and initialisations in studies, and in every table, figure and comparison.

    Parameters
    ----------
    name
        The method's name.
    loss
        `loss(scores, mask)` of tensors (..., N): scores in [0, 1], and which of the N items there are, since tasks of
        different N are trained together. It returns one number per task, (...). A supervised loss takes as third
        argument the gold ranks (..., N), 0 for the lowest. For `prompt="pair"` scores belong to the answered prompts
        x⁺₁, x⁻₁, x⁺₂, … . Keyword-only parameters with defaults are options of the method; of the names `margin` and
        `consistency` the study's settings are passed.
    summary
        One line for `ccrank methods`; the first line of the loss's docstring without it.
    prompt
        Which states are probed: of single items, or of ordered pairs answered Yes and No.
    supervised
        Whether the loss takes gold.
    on_logits
        Whether it takes θᵀx + b in place of scores.
    sub_batch
        pairs or triples: also allow training a few items at a time, as NAME@pairs or NAME@triples.
    replace
        Replace an objective registered before under this name, as when a cell of a notebook is run again.
    """
    if not name or any(char in ":@, =" or not char.isprintable() for char in name):
        raise CcrankError(f"an objective's name must have no space, comma or any of : @ =, got {name!r}")
    if replace and name in OBJECTIVES and OBJECTIVES[name].registered:
        del METHODS[name], OBJECTIVES[name]
    if name in METHODS:
        raise CcrankError(f"there is a method {name!r} already; choose another name")
    if sub_batch != "none" and (prompt == "pair" or supervised or on_logits):
        raise CcrankError(
            f"{name}: sub_batch={sub_batch} is for unsupervised losses of scores of single items"
        )
    options = own_options(name, loss)
    settings = tuple(option for option in options if option in LOSS_SETTINGS)
    objective = Objective(
        loss,
        prompt,
        supervised,
        on_logits=on_logits,
        options=settings,
        sub_batch=sub_batch,
        summary=summary or (inspect.getdoc(loss) or f"the objective {name}").partition("\n")[0],
        own={option: default for option, default in options.items() if option not in settings},
        registered=True,
    )
    check_loss(name, objective)
    OBJECTIVES[name] = objective
    return register(_probe(name, objective.summary))


for _method in (
    _label_free(
        "auto", "the signals below combined: the best label-free ranking",
        labelfree.auto, "N + 8 to N + 36",
        reads_states=labelfree.auto_reads_states, **_SIGNALS,
    ),
    _label_free(
        "anchored", "a probe fitted to auto's scores on other tasks of the criterion",
        labelfree.anchored, "N + 8 to N + 36",
        reads_states=_always, **_SIGNALS,
    ),
    _label_free(
        "poles", "the pole words that the model prefers for the item", labelfree.poles, "N",
        itemwise=True,
    ),
    _label_free(
        "likelihood", "how likely the item is as an example of the high pole rather than the low one",
        labelfree.likelihood, "4", fits_scale=True,
    ),
    _label_free(
        "axis", "the item's state between exemplars of both poles", labelfree.axis, "N + 4",
        reads_states=_always, fits_scale=True,
    ),
    _label_free(
        "query-likelihood", "how much more likely a document makes the query",
        relevance.query_likelihood, "3N + 3",
        describe=relevance.describe_relevance,
        prompts=lambda count: 3 * count + 3,
    ),
    Method(
        "prompt-pair", "is A more than B? for ordered pairs, wins counted", pairwise.prompt_pair, "prompting",
        directed=True, calls="N(N−1)", consistency="both_orders_agree",
        prompts=pairwise.pairs_asked,
    ),
    Method(
        "prompt-point", "a rating from 0 to 10 for each item", pointwise.prompt_point, "prompting",
        directed=True, calls="N",
    ),
    Method(
        "prompt-list", "all items as lettered options, picked one by one", listwise.prompt_list, "prompting",
        directed=True, calls="S·N", consistency="shuffles_agree",
        cost_name="prompt-list, one shuffle",
        prompts=lambda count: 3 * count, repeats_option="shuffles",
    ),
    _probe("ccs-pair", "origCCS on ItemPair states: consistent and confident yes and no"),
    _probe("ccs", "origCCS on ItemSingle states, paired in the loss"),
    _probe("margin", "MarginCCR: any two items at least a margin apart"),
    _probe("triplet", "TripletCCR: of any two items one is nearer to a third, by a margin"),
    _probe("ordreg", "OrdRegCCR: ordinal regression to a unique rank each"),
    _probe("sup-ccs-pair", "supervised ccs-pair: cross-entropy on gold"),
    _probe("sup-ccs", "supervised ccs: cross-entropy on gold"),
    _probe("sup-margin", "supervised margin: max-margin on gold"),
    _probe("sup-triplet", "supervised triplet: triplet loss on gold"),
    _probe("sup-ordreg", "supervised ordreg: ordinal regression on gold"),
    _probe("random", "baseline: a random direction in the states"),
    _probe("pca", "baseline: the first principal component of the states"),
    Method(
        "length", "baseline: longer items higher", baselines.item_length, "baseline",
        directed=False, calls="0", prompts=lambda count: 0, itemwise=True,
    ),
    Method(
        "frequency", "baseline: items more likely to the model higher", baselines.item_frequency, "baseline",
        directed=False, calls="N", itemwise=True,
    ),
    Method(
        "first-stage", "baseline: the scores of a first stage, BM25 where none are given",
        baselines.first_stage, "baseline", directed=True, calls="0", prompts=lambda count: 0,
    ),
):  # fmt: skip
    register(_method)


def methods_without_states() -> list[str]:
    """The methods that never read hidden states, so that models behind servers can run them on any task."""
    return [name for name, method in METHODS.items() if method.reads_states is _never]


def get_method(name: str) -> Method:
    """A method by its name."""
    check_kind("method", name, str, "the name of a method")
    if name not in METHODS:
        load_installed_plugins()
    try:
        return METHODS[name]
    except KeyError:
        raise CcrankError(
            f"unknown method {name!r}; {did_you_mean(name, METHODS)}choose one of {', '.join(METHODS)} "
            "(see `ccrank methods`)"
        ) from None


@dataclass(frozen=True)
class ItemwiseScorer:
    """Runs a method on new items, whose scores depend on each item alone."""

    method: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        method = get_method(self.method)
        method.parse_options(self.options)
        if not method.itemwise:
            raise CcrankError(f"{self.method} scores no item by itself")

    def score(self, task: Task, prompter: Prompter) -> ItemScores:
        """The method's own scores."""
        [answer] = get_method(self.method).run([task], prompter, **self.options)
        return ItemScores(answer.scores, cost=answer.cost)
