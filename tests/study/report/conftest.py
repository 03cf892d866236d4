from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_study import make_results, make_tasks, write_study

from ccrank.study.report.write_report import DRAWINGS, write_report
from ccrank.task import Task

HOSTILE_ITEMS = (
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked = 1'>",
    "\"double\" & 'single' quotes",
    "العربية: عنصر",
    "😀 emoji 👩‍👩‍👧",
    "$x^2$ costs \\$5 {{ config }}",
)
REPORT_FIGURES = {"scales", "cost"}
HOSTILE_MODEL = 'org/<i onclick="window.hacked=1">model</i>'


@pytest.fixture(scope="session")
def tasks() -> list[Task]:
    return make_tasks(np.random.default_rng(1), per_dataset=3)


@pytest.fixture(scope="session")
def results(tasks: list[Task]) -> pd.DataFrame:
    return make_results(np.random.default_rng(2), tasks, seeds=3, layers=(4, 20))


@pytest.fixture(scope="session")
def tasks_by_key(tasks: list[Task]) -> dict[tuple[str, str], Task]:
    return {(str(task.about["dataset"]), task.id): task for task in tasks}


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study whose every name tries to break out of it."""
    tasks = [
        task
        for task in make_tasks(np.random.default_rng(3), per_dataset=3)
        if task.about["dataset"] in ("synth-facts", "synth-context")
    ]
    tasks[0] = replace(
        tasks[0],
        items=HOSTILE_ITEMS,
        id='<b>"task" & 1</b>',
        context="</pre><script>window.hacked = 1</script>",
    )
    results = make_results(
        np.random.default_rng(4), tasks, (HOSTILE_MODEL, "small-lm-1B"), seeds=2, layers=(4, 20)
    )
    folder = write_study(tmp_path_factory.mktemp("studies") / 'a <b>study" &', results, tasks)
    (folder / "config.toml").write_text('# </pre><script>window.hacked = 1</script>\nname = "x"\n')
    with (folder / "failures.jsonl").open("a") as file:
        file.write('{"task": "<img src=x onerror=window.hacked=1>", "error": "bad \\"quote\\" & <b>"}\n')
    with pytest.MonkeyPatch.context() as patch:
        # Enough to see that figures are put into the page; the others are drawn in their own tests.
        kept = {name: draw for name, draw in DRAWINGS.items() if name in REPORT_FIGURES}
        patch.setattr("ccrank.study.report.write_report.DRAWINGS", kept)
        return write_report(folder)
