"""The checks of studies/other_forms/real_forms.py, on tiny models in place of real ones."""

from __future__ import annotations

from tiny import tiny_model

from ccrank.io.taskfiles import read_tasks
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task
from studies.other_forms import real_forms as script

TASKS = [Task(Criterion("size", "larger", ("small", "large")), ("Russia", "Canada", "Chad", "Monaco"))]


def largest(output):
    """The numbers of the lines that compare ways of reading."""
    lines = [
        line for line in output.splitlines() if line.startswith(("prompts read one", "plain transformers"))
    ]
    assert len(lines) == 2
    return [float(cell) for line in lines for cell in line.split()[-3:]]


def test_translations_are_ranked_and_compared(capsys):
    """Padded, one by one and plain transformers agree, and every list of translations gets a τ."""
    rows = [["the old tower", "Yes", "No Yes", "larger"], ["a quick fox", "blue", "red blue", "tower"]]
    script.translation(tiny_model("marian"), rows)
    output = capsys.readouterr().out
    assert max(largest(output)) < 1e-3
    assert "its own English sentence" in output


def test_gaps_are_filled_and_compared(capsys, monkeypatch):
    """The same for a masked model, on the prompts of a file of tasks, with its likeliest words."""
    monkeypatch.setattr(script, "read_tasks", lambda path: TASKS)
    monkeypatch.setattr(script, "load_templates", lambda path: load_templates())
    script.masked(tiny_model("albert"), [["the {slot} of Brazil is high.", "size", "height"]])
    output = capsys.readouterr().out
    assert max(largest(output)) < 1e-3
    assert "of 1 sentences" in output


def test_the_korean_example_is_whole():
    """Every Korean task has gold without ties, and every template of the methods is Korean and takes its words."""
    templates = load_templates(script.KOREAN / "templates.toml")
    tasks = read_tasks(script.KOREAN / "tasks.jsonl")
    assert len(tasks) == 12
    for task in tasks:
        assert len(set(task.values)) == len(task.items) >= 5
        low, high = task.criterion.poles
        texts = [
            templates.pair(task, 0, 1, "masked").text,
            templates.single(task, 0, "masked").text,
            templates.single(task, 0, "masked", "single-scale").text,
            templates.single(task, 0, "masked", "poles").text,
            templates.list(task, range(len(task.items)), (), "masked").text,
            *(
                templates.pole(task, low, "masked", name).text
                for name in ("such-as", "considered", "list-of")
            ),
        ]
        for text in texts:
            # Labels of options and nothing else may be Latin.
            assert not any("a" <= letter <= "z" for letter in text)
        assert (
            templates["poles"].exemplar_of(task.criterion, high) == f"매우 {high} {task.criterion.category}"
        )
