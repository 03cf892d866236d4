"""The public interface is documented: every parameter of every public function has an entry in its docstring."""

from __future__ import annotations

import inspect
import re
from types import FunctionType

import pytest

import ccrank

FUNCTIONS = {
    name: getattr(ccrank, name) for name in ccrank.__all__ if inspect.isfunction(getattr(ccrank, name))
}
CLASSES = (
    ccrank.Criterion,
    ccrank.Probe,
    ccrank.Question,
    ccrank.Ranker,
    ccrank.Ranking,
    ccrank.Reader,
    ccrank.Task,
)
METHODS = {
    f"{owner.__name__}.{name}": getattr(owner, name)
    for owner in CLASSES
    for name, member in vars(owner).items()
    if isinstance(member, (FunctionType, classmethod)) and (name == "__call__" or not name.startswith("_"))
    if owner is not ccrank.Reader or name in ("open", "read")  # the members that docs/reference/api.md shows
}


def documented(docstring: str) -> set[str]:
    """The names in the section Parameters: unindented lines, several names separated by commas."""
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n[A-Z]\w+\n-+\n|\n\n\S|\Z)", docstring, re.DOTALL)
    lines = section[1].splitlines() if section else []
    return {name.strip(" *") for line in lines if line[:1].strip() for name in line.split(",")}


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_every_parameter_is_documented(name):
    """The section Parameters lists exactly the parameters of the signature."""
    function = (FUNCTIONS | METHODS)[name]
    parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
    assert documented(inspect.getdoc(function) or "") == parameters


@pytest.mark.parametrize("owner", [ccrank.Criterion, ccrank.Task, ccrank.Probe, ccrank.Reader])
def test_constructors_document_their_parameters(owner):
    """The docstring of a class that users construct lists exactly the parameters of its constructor."""
    assert documented(inspect.getdoc(owner) or "") == set(inspect.signature(owner).parameters)


def test_the_check_notices_a_missing_parameter():
    """Names are read from the section Parameters only; a docstring without one documents nothing."""
    docstring = (
        "What.\n\nParameters\n----------\na, b\n    Two.\n*c\n    Rest.\n\nReturns\n-------\nx\n    y."
    )
    assert documented(docstring) == {"a", "b", "c"}
    assert documented("What.") == set()
