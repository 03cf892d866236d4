"""The public interface is documented: every parameter of every public function has an entry in its docstring."""

from __future__ import annotations

import inspect
import re
from types import FunctionType

import pytest

import ccrank
from ccrank import aggregate, metrics
from ccrank.lm import Reader, load_model
from ccrank.probing import Probe
from ccrank.probing.fits import fit_each, fit_pool
from ccrank.prompts import load_templates
from ccrank.taskfiles import read_items, read_tasks, write_tasks

FUNCTIONS = {
    function.__qualname__: function
    for function in (
        *(getattr(ccrank, name) for name in ccrank.__all__),
        *(getattr(metrics, name) for name in metrics.__all__),
        *(getattr(aggregate, name) for name in aggregate.__all__),
        *(fit_each, fit_pool, load_model, load_templates, read_items, read_tasks, write_tasks),
    )
    if inspect.isfunction(function)
}
METHODS = {
    f"{owner.__name__}.{name}": getattr(owner, name)
    for owner in (ccrank.Criterion, ccrank.Ranking, ccrank.Task, Probe, Reader)
    for name, member in vars(owner).items()
    if isinstance(member, (FunctionType, classmethod)) and (name == "__call__" or not name.startswith("_"))
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


@pytest.mark.parametrize("owner", [ccrank.Criterion, ccrank.Task, Probe, Reader])
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
