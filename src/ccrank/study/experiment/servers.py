"""Models behind servers in a study: which of them are meant, what they cannot run, and how they are opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ccrank.errors import CcrankError
from ccrank.experiment.choice import Choice
from ccrank.experiment.study import Study
from ccrank.experiment.units import TaskSet, Unit
from ccrank.lm import ReadingCache
from ccrank.lm.hub import Say
from ccrank.remote import Address, Client, RemoteReader, is_remote
from ccrank.remote.reader import METHODS
from ccrank.remote.server import served_model


@dataclass(frozen=True)
class LeftOut:
    """A method that a study leaves out for a model behind a server."""

    model: str
    choice: Choice
    datasets: tuple[str, ...]
    """Where it would read hidden states."""
    everywhere: bool
    """Whether these are all datasets of the study."""

    def __str__(self) -> str:
        return str(self.choice) if self.everywhere else f"{self.choice} (on {', '.join(self.datasets)})"


def with_names(study: Study) -> Study:
    """The study with every model named; a server whose address names none is asked which one it has.

    Results are stored under a model's name, and tomorrow the same address may lead to another model.

    Parameters
    ----------
    study
        Any study.
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


def unsupported(study: Study, sets: Mapping[str, TaskSet]) -> list[LeftOut]:
    """The methods that need hidden states, for each model that gives none.

    Parameters
    ----------
    study
        The study.
    sets
        Its tasks.
    """
    found = []
    for model in filter(is_remote, study.addresses):
        for choice in study.choices:
            options = choice.parse_options(study.options.get(choice.name, {}))
            needed = tuple(
                name for name, one in sets.items() if choice.method.reads_states(one.tasks, options)
            )
            if needed:
                found.append(LeftOut(model, choice, needed, len(needed) == len(sets)))
    return found


def check_methods(study: Study, sets: Mapping[str, TaskSet], left_out: Sequence[LeftOut]) -> None:
    """Refuse a study whose methods a server cannot run, unless it leaves them out; something must remain.

    Parameters
    ----------
    study
        The study.
    sets
        Its tasks.
    left_out
        What `unsupported` gives.
    """
    for model in dict.fromkeys(one.model for one in left_out):
        own = [one for one in left_out if one.model == model]
        everything = sum(len(one.datasets) for one in own) == len(study.choices) * len(sets)
        if everything or not study.skip_unsupported:
            remedy = (
                ""
                if everything
                else ", or add --skip-unsupported (skip_unsupported = true in a study's file)"
            )
            raise CcrankError(
                f"{model} is behind a server, which gives no hidden states, and {', '.join(map(str, own))} "
                f"need{'s' if len(own) == 1 else ''} them; give --methods of {', '.join(METHODS)}{remedy}"
            )


def notices(left_out: Sequence[LeftOut]) -> list[str]:
    """What a user should know of the methods that were left out, a line for each model.

    Parameters
    ----------
    left_out
        What `unsupported` gives.
    """
    return [
        f"{model} is behind a server, which gives no hidden states; left out for it: "
        + ", ".join(str(one) for one in left_out if one.model == model)
        for model in dict.fromkeys(one.model for one in left_out)
    ]


def without(units: Sequence[Unit], left_out: Sequence[LeftOut]) -> list[Unit]:
    """The units that remain.

    Parameters
    ----------
    units
        All units of a study.
    left_out
        What `unsupported` gives.
    """
    gone = {(one.model, one.choice, dataset) for one in left_out for dataset in one.datasets}
    return [unit for unit in units if (unit.model, unit.choice, unit.dataset) not in gone]


def open_server(address: str, cache: ReadingCache, say: Say) -> RemoteReader:
    """A model behind a server, which is asked after each block of readings whether it is the same still.

    Parameters
    ----------
    address
        openai:URL#NAME
    cache
        Where readings are stored.
    say
        Called with a short status message before anything slow.
    """
    return RemoteReader.open(address, cache=cache, check_after=0.0, say=say)
