"""The registry: names, options and their types."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from tiny import save_model, tiny_model, tiny_reader

from ccrank.api import rank_tasks
from ccrank.cli import main
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import write_tasks
from ccrank.methods.estimate import expected_cost
from ccrank.methods.registry import METHODS, Method, get_method, register
from ccrank.prompts import load_templates
from ccrank.ranking import Answer
from ccrank.study.datasets import load_dataset
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size"), ("tower", "queue", "dry"), values=(2.0, 3.0, 1.0))


def test_names_and_functions_form_a_grid():
    """A way of asking has the name of its function, so that one is found from the other."""
    for name, method in METHODS.items():
        assert name == method.name
        assert method.summary
        assert method.calls
        assert method.run.__doc__
        if method.family == "prompting":
            assert name == method.run.__name__.replace("_", "-")


def test_the_calls_of_auto_are_those_that_it_reads():
    """The number of prompts of every packaged task is in the range that is stated, and both ends of it are reached."""
    low, high = map(int, re.findall(r"N \+ (\d+)", METHODS["auto"].calls))
    templates, found = load_templates(), set()
    for name in ("synthfacts", "worldlists", "everyday", "synthcontext"):
        for task in load_dataset(name):
            count = expected_cost(task, tiny_reader(), METHODS["auto"], templates).prompts
            if task.context:
                assert count == 4
            else:
                found.add(count - len(task.items))
    assert (min(found), max(found)) == (low, high)


def test_directed_methods_are_those_that_are_given_the_direction():
    """Prompts and labels name the high pole; a probe without labels finds an order of unknown direction."""
    assert {name for name, method in METHODS.items() if method.directed} == {
        *("auto", "anchored", "poles", "likelihood", "axis", "query-likelihood", "first-stage"),
        *("prompt-pair", "prompt-point", "prompt-list"),
        *("sup-ccs-pair", "sup-ccs", "sup-margin", "sup-triplet", "sup-ordreg"),
    }
    by_triplet, by_twin = (
        rank_tasks([TASK], tiny_reader(), name, options={"epochs": 1})[0]
        for name in ("triplet", "sup-triplet")
    )
    assert not by_triplet.directed
    assert by_twin.directed


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.objective])
def test_probes_default_to_the_papers_settings(name):
    """The last layer's states of ItemSingle, 200 epochs of Adam, the best of five seeds, trained on the task itself."""
    assert get_method(name).options == {
        "layer": "last",
        "template": "single",
        "position": "slot",
        "seeds": 5,
        "epochs": 200,
        "learning_rate": 1e-3,
        "margin": 0.2,
        "weight_decay": 0.0,
        "optimiser": "adam",
        "initial": "uniform",
        "consistency": "squared",
        "features": "linear",
        "sub_batch": "none",
        "protocol": "same-task",
    }


def test_unknown_methods_are_refused():
    """The message has the value and the known names."""
    with pytest.raises(CcrankError, match=r"unknown method 'magic'; .*choose one of auto, .*ccrank methods"):
        get_method("magic")


def test_options_are_those_of_the_function():
    """With their defaults; arguments passed by the caller are not options."""
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
        (
            {"shuffle": "3"},
            r"no option 'shuffle'; did you mean 'shuffles'\? it has aggregate, calibration, direction, seed, shuffles",
        ),
        ({"shuffles": "many"}, "prompt-list: shuffles must be a number, not 'many'"),
        ({"shuffles": ""}, "must be a number, not ''"),
        ({"progress": "1"}, "no option 'progress'"),
        ({"tasks": "1"}, "no option 'tasks'"),
        ({"calibration": ["mean"]}, "prompt-list: calibration must be a word or a number, not list"),
    ],
)
def test_wrong_options_are_refused(given, message):
    """The message has the method, the option and the value."""
    with pytest.raises(CcrankError, match=message):
        get_method("prompt-list").parse_options(given)


def test_yes_or_no():
    """A switch is not a number."""
    with pytest.raises(CcrankError, match="scale must be yes or no, not '2'"):
        get_method("prompt-point").parse_options({"scale": "2"})


def test_a_new_method_is_one_function_and_one_line(monkeypatch, tmp_path, ccrank_command):
    """A registered method can be used to rank, in studies, summaries, listings and costs; no other code has its
    name."""
    run = ccrank_command

    def toy(tasks, prompter, *, sign: float = 1.0):
        """Vowels first."""
        for task in tasks:
            prompter.read(prompter.singles(task), ["a"])
        return [
            Answer(
                np.array([sign * sum(letter in "aeiou" for letter in item) for item in task.items]),
                {"vowels": 0.25},
            )
            for task in tasks
        ]

    monkeypatch.setitem(METHODS, "toy", METHODS["length"])  # so that it is gone after the test
    del METHODS["toy"]
    register(
        Method(
            "toy", "counts vowels", toy, "baseline", directed=True, calls="N",
            consistency="vowels", describe=lambda consistency, details: [f"{consistency['vowels']} vowels"],
        )
    )  # fmt: skip
    with pytest.raises(CcrankError, match="there is a method 'toy' already"):
        register(get_method("toy"))

    [ranking] = rank_tasks([TASK], tiny_reader(), "toy")
    assert ranking.items == ("queue", "tower", "dry")
    [ranking] = rank_tasks([TASK], tiny_reader(), "toy", options={"sign": "-1"})
    assert ranking.items == ("dry", "tower", "queue")
    out = run("rank", *TASK.items, "--by", "size", "--method", "toy")
    assert "toy on " in out
    assert "0.25 vowels" in out

    write_tasks([TASK], tmp_path / "tasks.jsonl")
    study = tmp_path / "study"
    run(
        "bench",
        "--datasets",
        str(tmp_path / "tasks.jsonl"),
        "--methods",
        "toy,length",
        "--out",
        str(study),
        models=True,
    )
    [entry] = json.loads(run("results", str(study), "--method", "toy", "--json", model=False))
    assert (entry["family"], entry["tau"], entry["consistency"]) == ("baseline", pytest.approx(1.0), 0.25)
    assert "toy" in (study / "report.html").read_text(encoding="utf-8")
    rows = json.loads(run("cost", "--items", "3", "--json"))
    assert [row["calls"] for row in rows if row["method"] == "toy"] == [3]
    assert "counts vowels" in run("methods", "toy", model=False)


@pytest.fixture
def ccrank_command(monkeypatch, capsys, tmp_path):
    """Runs a command that must succeed, on the tiny model where one is asked for, and gives its output."""
    folder = tmp_path / "tiny"
    loaded = tiny_model("llama", max_position_embeddings=512)
    save_model(loaded, folder)

    def run(*arguments, model=True, models=False):
        extra = ["--models", str(folder)] if models else ["--model", str(folder)] if model else []
        monkeypatch.setattr(sys, "argv", ["ccrank", *arguments, *extra])
        capsys.readouterr()
        main()
        return capsys.readouterr().out

    return run
