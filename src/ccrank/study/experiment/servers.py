"""Models behind servers in a study: their names, the methods that they cannot run, and opening them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from ccrank.errors import CcrankError
from ccrank.methods.registry import methods_without_states
from ccrank.models import ReadingCache
from ccrank.models.load.known_models import StatusCallback
from ccrank.models.remote import Address, Client, RemoteReader, is_remote
from ccrank.models.remote.server import served_model
from ccrank.study.experiment.method_spec import MethodSpec
from ccrank.study.experiment.study import Study
from ccrank.study.experiment.units import TaskSet, Unit


@dataclass(frozen=True)
class LeftOutMethod:
    """A method that a study leaves out for a model behind a server."""

    model: str
    choice: MethodSpec
    datasets: tuple[str, ...]
    """The datasets on which it would read hidden states."""
    everywhere: bool
    """Whether these are all datasets of the study."""

    def __str__(self) -> str:
        return str(self.choice) if self.everywhere else f"{self.choice} (on {', '.join(self.datasets)})"


def with_names(study: Study) -> Study:
    """The study with every model named; a server whose address names no model is asked for its model.

    Results are stored under a model's name, and tomorrow the same address may lead to another model.
    """
    return replace(study, models=tuple(map(_named, study.models)))


def _named(model: str) -> str:
    if not is_remote(model):
        return model
    address = Address.parse(model)
    if address.model is not None:
        return model
    try:
        name, _ = served_model(Client(address))
    except CcrankError as error:
        raise CcrankError(
            f"{address.name} names no model, and its server was asked which one it has: {error}"
        ) from None
    return f"{model.removesuffix('#')}#{name}"


def unsupported(study: Study, sets: Mapping[str, TaskSet]) -> list[LeftOutMethod]:
    """The methods that need hidden states, for each model that gives none."""
    methods = []
    for model in filter(is_remote, study.addresses):
        for choice in study.choices:
            options = choice.parse_options(study.options.get(choice.name, {}))
            names = tuple(
                name for name, task_set in sets.items() if choice.method.reads_states(task_set.tasks, options)
            )
            if names:
                methods.append(LeftOutMethod(model, choice, names, len(names) == len(sets)))
    return methods


def check_methods(study: Study, sets: Mapping[str, TaskSet], left_out: Sequence[LeftOutMethod]) -> None:
    """Refuse a study whose methods a server cannot run, unless it leaves them out; something must remain."""
    for model, methods in _by_model(left_out).items():
        everything = sum(len(method.datasets) for method in methods) == len(study.choices) * len(sets)
        if everything or not study.skip_unsupported:
            remedy = ", or add --skip-unsupported (skip_unsupported = true in a study's file)"
            raise CcrankError(
                f"{model} is behind a server, which gives no hidden states, and {', '.join(map(str, methods))} "
                f"need{'s' if len(methods) == 1 else ''} them; give --methods of {', '.join(methods_without_states())}"
                f"{'' if everything else remedy}"
            )


def notices(left_out: Sequence[LeftOutMethod]) -> list[str]:
    """What a user should know of the methods that were left out, a line for each model."""
    return [
        f"{model} is behind a server, which gives no hidden states; left out for it: {', '.join(map(str, methods))}"
        for model, methods in _by_model(left_out).items()
    ]


def _by_model(left_out: Sequence[LeftOutMethod]) -> dict[str, list[LeftOutMethod]]:
    return {model: list(methods) for model, methods in groupby(left_out, key=attrgetter("model"))}


def without(units: Sequence[Unit], left_out: Sequence[LeftOutMethod]) -> list[Unit]:
    """The units that remain."""
    gone = {(method.model, method.choice, dataset) for method in left_out for dataset in method.datasets}
    return [unit for unit in units if (unit.model, unit.choice, unit.dataset) not in gone]


def open_server(address: str, cache: ReadingCache, say: StatusCallback) -> RemoteReader:
    """A model behind a server, which is checked for changes after each block of readings."""
    return RemoteReader.open(address, cache=cache, check_after=0.0, say=say)
