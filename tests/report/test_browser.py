"""The page in a real browser: what a reader does with it, with mouse and keys, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report.browser import Browser, find_chromium
from report.conftest import HOSTILE_ITEMS

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)"
)

ROWS = "[...document.querySelectorAll('#table-summary tbody tr')]"
TEXTS = ROWS + ".filter(r => !r.hidden).map(r => r.cells[{}].textContent)"
VALUES = ROWS + ".map(r => r.cells[{}].dataset.value)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    one = Browser(CHROMIUM, tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    browser.open(report, 1280)
    return browser


def column(page: Browser, head: str) -> int:
    heads = page.evaluate("[...document.querySelectorAll('#table-summary thead th')].map(h => h.textContent)")
    return int(heads.index(head))


def click(page: Browser, place: int) -> str:
    head = f"document.querySelectorAll('#table-summary thead th')[{place}]"
    page.evaluate(f"{head}.querySelector('button').click()")
    return str(page.evaluate(f"{head}.getAttribute('aria-sort')"))


def set_value(page: Browser, selector: str, value: str, event: str) -> None:
    act = f"e.value = {value!r}; e.dispatchEvent(new Event({event!r}))"
    page.evaluate(f"(e => {{ {act} }})(document.querySelector({selector!r}))")


def task_column(page: Browser, place: int, part: str) -> list[str]:
    """The texts of one part (".name" or "sup") down one column of the task's table."""
    rows = "[...document.querySelectorAll('#task-table tbody tr')]"
    return list(page.evaluate(f"{rows}.map(r => r.cells[{place}].querySelector({part!r}).textContent)"))


def task_heads(page: Browser) -> list[str]:
    return list(
        page.evaluate("[...document.querySelectorAll('#task-table thead th')].map(h => h.textContent)")
    )


def test_numbers_sort_both_ways_and_missing_ones_stay_last(page: Browser) -> None:
    """A click sorts from high to low, a second from low to high; empty cells are last both times."""
    place = column(page, "τ")
    for direction in ("descending", "ascending"):
        assert click(page, place) == direction
        values: list[Any] = page.evaluate(VALUES.format(place))
        numbers = [float(value) for value in values if value != ""]
        assert len(set(numbers)) > 5
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert values[len(numbers) :] == [""] * (len(values) - len(numbers))
        assert "" in values


def test_words_sort_and_only_one_head_says_so(page: Browser) -> None:
    """Sorting by another column takes the mark from the first."""
    click(page, column(page, "τ"))
    place = column(page, "Dataset")
    assert click(page, place) == "ascending"
    texts = page.evaluate(TEXTS.format(place))
    assert texts == sorted(texts)
    marks = page.evaluate(
        "[...document.querySelectorAll('#table-summary th[aria-sort]')].map(h => h.ariaSort)"
    )
    assert [mark for mark in marks if mark != "none"] == ["ascending"]


def test_sorting_works_from_the_keyboard(page: Browser) -> None:
    """A head's button takes the focus, and Enter sorts."""
    place = column(page, "|τ|")
    page.evaluate(f"document.querySelectorAll('#table-summary thead button')[{place}].focus()")
    page.press("Enter", 13)
    head = f"document.querySelectorAll('#table-summary thead th')[{place}]"
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"


def test_filters_narrow_the_rows_together(page: Browser) -> None:
    """Search terms and a column's filter both apply; the count reflects it; clearing restores all rows."""
    everything = page.evaluate(TEXTS.format(0))
    set_value(page, "#table-summary [data-filter]", "PROMPT synth-facts", "input")
    narrowed = page.evaluate(TEXTS.format(0))
    assert set(narrowed) == {"prompt-pair", "prompt-point", "prompt-list"}
    model = column(page, "Model")
    set_value(page, f"#table-summary [data-filter-column='{model}']", "small-lm-1B", "change")
    assert set(page.evaluate(TEXTS.format(model))) == {"small-lm-1B"}
    assert len(page.evaluate(TEXTS.format(0))) == 3
    count = page.evaluate("document.querySelector('#table-summary [data-count]').textContent")
    assert count == f"3 of {len(everything)} rows"
    set_value(page, "#table-summary [data-filter]", "", "input")
    set_value(page, f"#table-summary [data-filter-column='{model}']", "", "change")
    assert page.evaluate(TEXTS.format(0)) == everything


def test_the_first_task_shows_hostile_items_as_they_are(page: Browser) -> None:
    """Tags, quotes, emoji and right-to-left text are shown as text, and nothing of it ran."""
    names = task_column(page, 1, ".name")
    assert sorted(names) == sorted(HOSTILE_ITEMS)
    assert page.evaluate("document.querySelector('#task-title').textContent").startswith(
        'synth-facts: <b>"task" & 1</b>'
    )
    assert page.evaluate("typeof window.hacked") == "undefined"
    arabic = next(item for item in HOSTILE_ITEMS if item.startswith("ال"))
    direction = page.evaluate(
        f"getComputedStyle([...document.querySelectorAll('.name')].find(e => e.textContent === {arabic!r})).direction"
    )
    assert direction == "rtl"


def test_tasks_are_searched_and_chosen(page: Browser) -> None:
    """A search leaves the tasks that fit; choosing one shows each method's order with gold ranks and τ."""
    set_value(page, "#task-search", "synth-context", "input")
    options = page.evaluate("[...document.querySelector('#task-select').options].map(o => o.text)")
    assert options == [f"synth-context-{number}" for number in range(3)]
    value = page.evaluate("document.querySelector('#task-select').options[2].value")
    set_value(page, "#task-select", str(value), "change")
    assert "synth-context-2" in page.evaluate("document.querySelector('#task-title').textContent")
    heads = task_heads(page)
    assert heads[:2] == ["rank", "gold"]
    assert len(heads) == 2 + 15
    assert all("τ" in head for head in heads[2:])
    gold = task_column(page, 1, "sup")
    assert gold == [str(rank) for rank in range(1, 7)]
    other = task_column(page, 5, "sup")
    assert sorted(other) == gold
    set_value(page, "#task-setting", "across-tasks", "change")
    assert len(task_heads(page)) == 2 + 11
    set_value(page, "#task-search", "no such task", "input")
    assert page.evaluate("document.querySelector('#task-title').textContent") == "No matching task"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True), (390, False)])
def test_the_page_is_quiet_alone_and_fits(browser: Browser, report: Path, width: int, dark: bool) -> None:
    """No errors in the console, no requests other than the file, every image shown, no horizontal scrolling."""
    browser.open(report, width, dark=dark)
    assert browser.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("innerWidth") == width
    assert browser.complaints() == []
    assert browser.requests() == [report.resolve().as_uri()]


def test_dark_and_light_both_have_contrast(browser: Browser, report: Path) -> None:
    """Text has a contrast of at least 7:1 in both colour schemes, and the backgrounds differ."""
    grounds = []
    for dark in (False, True):
        browser.open(report, 1280, dark=dark)
        colours = browser.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
        light = [luminance(colour) for colour in colours]
        assert (max(light) + 0.05) / (min(light) + 0.05) >= 7
        grounds.append(colours[1])
    assert grounds[0] != grounds[1]


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
