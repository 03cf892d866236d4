"""The page in a real browser: what a reader does with it, with mouse and keys, wide and narrow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, FLAGS, PATIENCE

from study.report.conftest import HOSTILE_ITEMS

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")


pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)"
)


@dataclass
class Opened:
    """The report in a tab, and what the browser noticed while it was open."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of the console, exceptions, and violations of the page's own policy."""
    requests: list[str] = field(default_factory=list)
    """Addresses that the page asked for, other than those inside the page (data:)."""

    def all(self, selector: str) -> list[str]:
        """The texts of all elements that fit."""
        return list(self.page.locator(selector).all_text_contents())

    def rows(self, place: int) -> list[str]:
        """The texts down a column of the summary, in the rows that are shown."""
        return self.all(f"#table-summary tbody tr:not([hidden]) > :nth-child({place + 1})")

    def column(self, head: str) -> int:
        """The place of a column of the summary."""
        return self.all("#table-summary thead th").index(head)

    def sort(self, place: int) -> str | None:
        """Click on the head of a column; how it is then sorted."""
        self.page.locator("#table-summary thead th button").nth(place).click()
        return self.sorted(place)

    def sorted(self, place: int) -> str | None:
        """How a column says that it is sorted."""
        return self.page.locator("#table-summary thead th").nth(place).get_attribute("aria-sort")

    def task_column(self, place: int, part: str) -> list[str]:
        """The texts of one part (".name" or "sup") down one column of the task's table."""
        return self.all(f"#task-table tbody tr > :nth-child({place + 1}) {part}")


Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield one
        one.close()


@pytest.fixture
def open_report(browser: Any, report: Path) -> Iterator[Open]:
    """Opens the report in a window of a width, light or dark."""
    contexts = []

    def opener(width: int = 1280, dark: bool = False) -> Opened:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        opened = Opened(context.new_page())
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on(
            "console",
            lambda said: (
                opened.complaints.append(said.text) if said.type in ("error", "warning", "assert") else None
            ),
        )
        opened.page.on(
            "request",
            lambda sent: opened.requests.append(sent.url) if not sent.url.startswith("data:") else None,
        )
        opened.page.goto(report.resolve().as_uri(), wait_until="load")
        return opened

    yield opener
    for context in contexts:
        context.close()


def test_numbers_sort_both_ways_and_missing_ones_stay_last(open_report: Open) -> None:
    """A click sorts from high to low, a second from low to high; empty cells are last both times."""
    opened = open_report()
    place = opened.column("τ")
    cells = opened.page.locator(f"#table-summary tbody tr > :nth-child({place + 1})")
    for direction in ("descending", "ascending"):
        assert opened.sort(place) == direction
        values = cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")
        numbers = [float(value) for value in values if value != ""]
        assert len(set(numbers)) > 5
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert values[len(numbers) :] == [""] * (len(values) - len(numbers))
        assert "" in values


def test_words_sort_and_only_one_head_says_so(open_report: Open) -> None:
    """Sorting by another column takes the mark from the first."""
    opened = open_report()
    opened.sort(opened.column("τ"))
    place = opened.column("dataset")
    assert opened.sort(place) == "ascending"
    texts = opened.rows(place)
    assert texts == sorted(texts)
    heads = opened.page.locator("#table-summary th[aria-sort]")
    marks = heads.evaluate_all("heads => heads.map(head => head.ariaSort)")
    assert [mark for mark in marks if mark != "none"] == ["ascending"]


def test_sorting_works_from_the_keyboard(open_report: Open) -> None:
    """A head's button takes the focus, and Enter sorts."""
    opened = open_report()
    place = opened.column("|τ|")
    opened.page.locator("#table-summary thead th button").nth(place).focus()
    opened.page.keyboard.press("Enter")
    assert opened.sorted(place) == "descending"


def test_filters_narrow_the_rows_together(open_report: Open) -> None:
    """Words and a column's choice both hold; the count says so; clearing brings all rows back."""
    opened = open_report()
    everything = opened.rows(0)
    words = opened.page.locator("#table-summary [data-filter]")
    words.fill("PROMPT synth-facts")
    assert set(opened.rows(0)) == {"prompt-pair", "prompt-point", "prompt-list"}
    model = opened.column("model")
    choice = opened.page.locator(f"#table-summary [data-filter-column='{model}']")
    choice.select_option("small-lm-1B")
    assert set(opened.rows(model)) == {"small-lm-1B"}
    assert len(opened.rows(0)) == 3
    assert opened.all("#table-summary [data-count]") == [f"3 of {len(everything)} rows"]
    words.fill("")
    choice.select_option("")
    assert opened.rows(0) == everything


def test_the_first_task_shows_hostile_items_as_they_are(open_report: Open) -> None:
    """Tags, quotes, emoji and right-to-left text are shown as text, and nothing of it ran."""
    opened = open_report()
    assert sorted(opened.task_column(1, ".name")) == sorted(HOSTILE_ITEMS)
    [title] = opened.all("#task-title")
    assert title.startswith('synth-facts: <b>"task" & 1</b>')
    assert opened.page.evaluate("typeof window.hacked") == "undefined"
    arabic = next(item for item in HOSTILE_ITEMS if item.startswith("ال"))
    name = opened.page.locator(".name", has_text=arabic).first
    assert name.evaluate("element => getComputedStyle(element).direction") == "rtl"


def test_tasks_are_searched_and_chosen(open_report: Open) -> None:
    """A search leaves the tasks that fit; choosing one shows each method's order with gold ranks and τ."""
    opened = open_report()
    opened.page.fill("#task-search", "synth-context")
    assert opened.all("#task-select option") == [f"synth-context-{number}" for number in range(3)]
    opened.page.select_option("#task-select", index=2)
    assert "synth-context-2" in opened.all("#task-title")[0]
    heads = opened.all("#task-table thead th")
    assert heads[:2] == ["rank", "gold"]
    assert len(heads) == 2 + 15
    assert all("τ" in head for head in heads[2:])
    gold = opened.task_column(1, "sup")
    assert gold == [str(rank) for rank in range(1, 7)]
    assert sorted(opened.task_column(5, "sup")) == gold
    opened.page.select_option("#task-setting", "across-tasks")
    assert len(opened.all("#task-table thead th")) == 2 + 11
    opened.page.fill("#task-search", "no such task")
    assert opened.all("#task-title") == ["No matching task"]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True), (390, False)])
def test_the_page_is_quiet_alone_and_fits(open_report: Open, report: Path, width: int, dark: bool) -> None:
    """No complaint in the console, no request but for the file itself, every image shown, no sideways scroll."""
    opened = open_report(width, dark)
    assert opened.page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.evaluate("innerWidth") == width
    assert opened.complaints == []
    assert opened.requests == [report.resolve().as_uri()]


def test_complaints_and_requests_are_noticed(open_report: Open) -> None:
    """What the page must not do would be seen if it did: an exception, an error in the console, a request."""
    opened = open_report()
    opened.page.evaluate("() => { console.error('said'); setTimeout(() => { throw new Error('thrown') }) }")
    opened.page.evaluate("() => { new Image().src = 'other.png' }")

    def noticed() -> bool:
        seen = [any(word in one for one in opened.complaints) for word in ("said", "thrown")]
        return all(seen) and len(opened.complaints) + len(opened.requests) > 3

    end = time.monotonic() + PATIENCE / 1000
    while not noticed():
        assert time.monotonic() < end, (opened.complaints, opened.requests)
        opened.page.wait_for_timeout(20)


def test_dark_and_light_both_have_contrast(open_report: Open) -> None:
    """Text stands out from its ground by 7 to 1 in both schemes, and the grounds differ."""
    grounds = []
    for dark in (False, True):
        body = open_report(dark=dark).page.locator("body")
        colours = body.evaluate("(e => (s => [s.color, s.backgroundColor])(getComputedStyle(e)))")
        light = [luminance(colour) for colour in colours]
        assert (max(light) + 0.05) / (min(light) + 0.05) >= 7
        grounds.append(colours[1])
    assert grounds[0] != grounds[1]


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
