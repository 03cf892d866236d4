from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_study import write_study

from ccrank.errors import CcrankError
from ccrank.metrics.chance import Interval
from ccrank.study.report.page_data import Best, Headline
from ccrank.study.report.write_report import page_template, write_report
from ccrank.study.results.load import load_tasks
from ccrank.task import Criterion, Task
from study.report.conftest import HOSTILE_ITEMS, HOSTILE_MODEL, REPORT_FIGURES


class Elements(HTMLParser):
    """Every element with its attributes, and all text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data)


def test_a_report_has_its_files(report: Path) -> None:
    """The page, the summary and each figure in three formats are in the study's folder."""
    assert report.name == "report.html"
    assert (report.parent / "summary.csv").stat().st_size > 0
    names = {path.stem for path in (report.parent / "figures").iterdir()}
    assert names == REPORT_FIGURES
    for name in names:
        for suffix in ("png", "pdf", "svg"):
            assert (report.parent / "figures" / f"{name}.{suffix}").stat().st_size > 0
    assert report.stat().st_size < 5_000_000


def test_nothing_of_the_study_becomes_markup(report: Path) -> None:
    """Names with tags and quotes are on the page as text: the elements are the template's own."""
    page = Elements(report.read_text(encoding="utf-8"))
    tags = [tag for tag, _ in page.found]
    assert tags.count("script") == 2
    assert "i" not in tags
    assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
    for tag, attributes in page.found:
        for name in ("src", "href"):
            if (address := attributes.get(name)) is not None:
                assert address.startswith(("data:", "#")), (tag, address[:80])
    words = "".join(page.words)
    for text in (HOSTILE_MODEL, 'a <b>study" &', "<img src=x onerror=window.hacked=1>", 'bad "quote" & <b>'):
        assert text in words


def test_the_data_of_the_page_hold_the_items_unchanged(report: Path) -> None:
    """What the page's script reads are the study's items, to the character."""
    found = re.search(
        r'<script type="application/json" id="rankings">(.*?)</script>', report.read_text("utf-8"), re.S
    )
    assert found is not None
    data = json.loads(found[1])
    assert tuple(data["tasks"][0]["items"]) == HOSTILE_ITEMS


def test_images_have_words_and_tables_have_captions(report: Path) -> None:
    """Every image has an alternative text, every sortable head a button and its state, every row a head."""
    page = Elements(report.read_text(encoding="utf-8"))
    images = [attributes for tag, attributes in page.found if tag == "img"]
    assert len(images) == len(REPORT_FIGURES)
    assert all(len(one.get("alt") or "") > 20 for one in images)
    heads = [attributes for tag, attributes in page.found if tag == "th" and "aria-sort" in attributes]
    assert heads
    assert all(one.get("scope") == "col" and one["aria-sort"] == "none" for one in heads)
    tags = [tag for tag, _ in page.found]
    assert tags.count("caption") == 3


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about the page; its figures have their own."""
    monkeypatch.setattr("ccrank.study.report.write_report.DRAWINGS", {})


@pytest.mark.parametrize("split", ["across-tasks", "leave-one-out", "same-task"])
def test_one_method_in_any_split_has_a_report(tmp_path: Path, results: pd.DataFrame, split: str) -> None:
    """Supervised probes that are only tested on other tasks have no main setting, and a report without it."""
    runs = (results["method"] == "sup-ccs") & (results["split"] == "same-task") & (results["seed"] == 0)
    results[runs].assign(split=split).to_parquet(tmp_path / "results.parquet")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "sup-ccs" in page


@pytest.mark.usefixtures("without_figures")
def test_results_alone_are_enough(tmp_path: Path, results: pd.DataFrame) -> None:
    """Without tasks, configuration, environment and failures there is still a report."""
    results[results["seed"] == 0].to_parquet(tmp_path / "results.parquet")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert 'id="tasks"' not in page
    assert 'id="failures"' not in page
    assert "There is no config.toml." in page


@pytest.mark.usefixtures("without_figures")
def test_tasks_without_gold_are_shown_but_not_measured(
    tmp_path: Path, results: pd.DataFrame, tasks: list[Task]
) -> None:
    """A study without gold has rankings to look at and no numbers."""
    measures = dict.fromkeys(("tau", "abs_tau", "accuracy", "free_accuracy"), np.nan)
    free = [Task(task.criterion, task.items, task.context, None, task.id, task.about) for task in tasks]
    write_study(tmp_path, results[results["seed"] == 0].assign(**measures), free)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert 'id="task-select"' in page
    assert '"gold":[' not in page


@pytest.mark.usefixtures("without_figures")
def test_a_report_written_again_is_the_same(tmp_path: Path, results: pd.DataFrame, tasks: list[Task]) -> None:
    """The page is a function of the folder's content."""
    write_study(tmp_path, results[results["seed"] == 0], tasks)
    first = write_report(tmp_path).read_bytes()
    assert write_report(tmp_path).read_bytes() == first


def test_the_same_id_in_two_datasets_is_two_tasks(tmp_path: Path, results: pd.DataFrame) -> None:
    """Tasks are known by dataset and id."""
    pair = [
        Task(Criterion("size"), ("a", "b", name), None, (1, 2, 3), "one", {"dataset": name})
        for name in ("x", "y")
    ]
    write_study(tmp_path, results.head(3), pair)
    assert load_tasks(tmp_path)["y", "one"].items == ("a", "b", "y")


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path, results: pd.DataFrame) -> None:
    """The message names what is missing."""
    with pytest.raises(CcrankError, match=r"results\.parquet"):
        write_report(tmp_path)
    results.drop(columns=["tau", "seed"]).to_parquet(tmp_path / "results.parquet")
    with pytest.raises(CcrankError, match=r"'seed', 'tau'"):
        write_report(tmp_path)
    results.head(0).to_parquet(tmp_path / "results.parquet")
    with pytest.raises(CcrankError, match="no rows"):
        write_report(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"not a table")
    with pytest.raises(CcrankError, match="cannot be read"):
        write_report(tmp_path)
    results.head(5).to_parquet(tmp_path / "results.parquet")
    (tmp_path / "failures.jsonl").write_text("{broken\n")
    with pytest.raises(CcrankError, match="line 1: not JSON"):
        write_report(tmp_path)


def test_words_report_results_not_above_chance() -> None:
    """A best method inside the interval of chance is reported as not above chance, one above it is not."""
    inside = Best("poles", "none", "prompting", 0.1, Interval(0.0, -0.2, 0.2), 12)
    above = Best("pca", "none", "baseline", 0.5, Interval(0.3, 0.2, 0.4), 1)
    says = page_template("headlines.html.jinja").module
    directed, free = says.directed(inside), says.free(above)
    assert "not above chance" in directed
    assert "τ\u00a0=\u00a0+0.10" in directed
    assert "not above chance" not in free
    assert "pca (a baseline)" in free
    assert "0.30 (95\u00a0%: 0.20 to 0.40)" in free
    assert "95\u00a0% for the best of 12" in directed
    verdict = says.verdict(
        [Headline("m", "d", 3, inside, above, None), Headline("m", "e", 3, None, above, None)]
    )
    assert verdict == (
        "A directed label-free method is above chance for 0 of 1 combinations of model and dataset; a label-free "
        "method is above chance in |τ| for 2 of 2, and for 2 the best is a baseline."
    )
