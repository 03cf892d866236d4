"""The registry: names, options and their types."""

from __future__ import annotations

import pytest

from ccrank.errors import CcrankError
from ccrank.methods import METHODS, get_method


def test_names_and_functions_form_a_grid():
    """A way of asking has the name of its function, so that one is found from the other."""
    for name, method in METHODS.items():
        assert name == method.name
        assert method.summary
        assert method.calls
        assert method.run.__doc__
        if name.startswith("prompt-"):
            assert name == method.run.__name__.replace("_", "-")


def test_unknown_methods_are_refused():
    """The message has the value and the known names."""
    with pytest.raises(CcrankError, match=r"no method 'magic'; there are auto, .*ccrank methods"):
        get_method("magic")


def test_options_are_those_of_the_function():
    """With their defaults; what the caller passes beside them is no option."""
    assert get_method("prompt-point").options == {
        "score": "argmax",
        "calibration": "none",
        "scale": True,
        "template": None,
    }


@pytest.mark.parametrize(
    ("method", "given", "parsed"),
    [
        ("prompt-list", {"shuffles": "7"}, {"shuffles": 7}),
        ("prompt-list", {"shuffles": 7}, {"shuffles": 7}),
        ("prompt-point", {"scale": "No"}, {"scale": False}),
        ("prompt-point", {"scale": "true", "template": "mine"}, {"scale": True, "template": "mine"}),
        ("prompt-pair", {"pairs": "12"}, {"pairs": "12"}),
        ("prompt-pair", {}, {}),
    ],
)
def test_texts_become_the_types_of_the_defaults(method, given, parsed):
    """As a command line gives them, and as Python does."""
    assert get_method(method).parse_options(given) == parsed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shuffle": "3"}, r"no option 'shuffle'; it has aggregate, calibration, seed, shuffles"),
        ({"shuffles": "many"}, "prompt-list: shuffles is a number, not 'many'"),
        ({"shuffles": ""}, "is a number, not ''"),
        ({"progress": "1"}, "no option 'progress'"),
        ({"tasks": "1"}, "no option 'tasks'"),
    ],
)
def test_wrong_options_are_refused(given, message):
    """The message has the method, the option and the value."""
    with pytest.raises(CcrankError, match=message):
        get_method("prompt-list").parse_options(given)


def test_yes_or_no():
    """A switch is not a number."""
    with pytest.raises(CcrankError, match="scale is yes or no, not '2'"):
        get_method("prompt-point").parse_options({"scale": "2"})
