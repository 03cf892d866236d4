"""The page in a real browser, on a tiny model: type, rank, label, drag, compare, export, share, and what goes wrong."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

pytest.importorskip("fastapi", reason="the server needs the extra `server`")
pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")

from chromium import CHROMIUM, FLAGS, PATIENCE
from page_browser import ROOT, Opened, open_page, page_tool, served
from playwright import sync_api as playwright
from tiny import tiny_reader

from ccrank.confidence import Confidence, Features
from ccrank.criteria.understanding import criterion_of, understand
from ccrank.errors import CcrankError
from ccrank.methods.adjectives import in_best_sense
from ccrank.methods.baselines import query_of
from ccrank.models.remote.remote_reader import no_states
from ccrank.request import UNDIRECTED
from ccrank.server.app import create_app
from ccrank.server.routes import ranking as rank_routes
from ccrank.server.settings import ServerSettings
from ccrank.task import Task

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)"
)
ITEMS = ["Russia", "Chad", "Peru", "Monaco", "Brazil", "Canada", "Kenya", "Malta", "Japan"]
DOUBT = ("deviation", "rank_low", "rank_high")
"""Columns that a ranking without labels has too."""
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"double\" & 'single'",
    "العربية: عنصر",
    "{{ 7 * 7 }} ${7 * 7}",
]
Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield one
        one.close()


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    (folder / "<b> & c").mkdir()
    (folder / "<b> & c" / "100% ?#.html").write_text(
        "<!doctype html><title>A study</title><h1>A study</h1>", encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def address(studies: Path) -> Iterator[str]:
    """A server on a tiny model, without a cache."""
    settings = ServerSettings(reports=str(studies), max_items=500)
    with served(create_app(settings, {"tiny": tiny_reader()})) as found:
        yield found


@pytest.fixture
def opener(browser: Any, address: str) -> Iterator[Open]:
    """Opens the page in a window of its own."""
    pages: list[Opened] = []

    def opening(path: str = "", **more: Any) -> Opened:
        pages.append(open_page(browser, address + path, **more))
        return pages[-1]

    yield opening
    for one in pages:
        one.page.context.close()


def answer_of(address: str, **body: Any) -> Any:
    """What the server says to a request outside the browser."""
    import httpx

    return httpx.post(address + "v1/rank", json=body, timeout=120).json()


def saved(opened: Opened, button: str) -> str:
    """The text of the file that a button saves."""
    with opened.page.expect_download() as waiting:
        opened.page.click(button)
    return Path(waiting.value.path()).read_bytes().decode("utf-8")


def test_type_and_rank(opener: Open, address: str):
    """What is typed is ranked as the server ranks it: order, scores, headline and what the criterion means."""
    opened = opener()
    opened.type(ITEMS, "least expensive", category="country")
    opened.page.wait_for_selector("#understood:has-text('Cheapest first: from expensive to cheap')")
    order = opened.rank()
    expected = answer_of(address, items=ITEMS, by="least expensive", category="country")
    assert order == [row["item"] for row in expected["items"]]
    shown = [float(text.replace("−", "-")) for text in opened.page.locator(".score b").all_text_contents()]
    assert shown == pytest.approx([row["score"] for row in expected["items"]], abs=0.006)
    assert opened.page.inner_text("#answer-title") == "By price, cheapest first"
    assert opened.page.locator("#confidence").is_visible() == (expected["confidence"] is not None)
    assert opened.page.locator("#warnings li").count() == len(expected["warnings"])
    assert opened.complaints == []


def test_dots_stand_where_the_scores_are(opener: Open):
    """On the scale of a row, a higher score stands farther to the right, and equal steps are equally wide."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.rank()
    places = opened.page.locator("#rows .strip").evaluate_all(
        "strips => strips.map(strip => Number(strip.style.getPropertyValue('--x')))"
    )
    scores = [float(text.replace("−", "-")) for text in opened.page.locator(".score b").all_text_contents()]
    assert places == sorted(places, reverse=True)
    slopes = [
        (places[0] - x) / (scores[0] - y)
        for x, y in zip(places[1:], scores[1:], strict=True)
        if scores[0] - y > 0.3
    ]
    assert slopes == pytest.approx([slopes[0]] * len(slopes), rel=0.05)


def test_suggested_poles_are_taken(opener: Open, address: str):
    """A click on a suggestion fills both poles, swapping turns them, and the ranking uses them."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.page.click(".chip >> nth=1")
    low, high = (opened.page.input_value(one) for one in ("#low", "#high"))
    assert low
    assert high
    opened.page.click("#swap")
    assert [opened.page.input_value(one) for one in ("#low", "#high")] == [high, low]
    expected = answer_of(address, items=ITEMS, by="size", poles=[high, low])
    assert opened.rank() == [row["item"] for row in expected["items"]]


def test_another_sense_is_a_click_away(opener: Open, address: str):
    """Beside a ranking by an adjective with several senses stand the poles of the others; one click ranks by them."""
    opened = opener()
    opened.type(ITEMS, "hottest")
    opened.rank()
    chip = opened.page.locator("#warnings .chip").first
    low, high = (chip.text_content() or "").split(" → ")
    expected = [
        row["item"] for row in answer_of(address, items=ITEMS, by="hottest", poles=[low, high])["items"]
    ]
    chip.click()
    opened.page.wait_for_selector("#warnings .chip", state="detached")
    playwright.expect(opened.page.locator("#rows .item")).to_have_text(expected, timeout=PATIENCE)
    assert [opened.page.input_value(one) for one in ("#low", "#high")] == [low, high]


def test_a_misspelt_criterion_is_corrected_with_one_click(opener: Open):
    """The spelling that is asked about is a button below the criterion, and beside a ranking by the misspelt one."""
    opened = opener()
    opened.type(ITEMS, "most beatiful")
    opened.page.wait_for_selector("#understood:has-text('did you mean')")
    opened.rank()
    opened.page.click("#warnings .chip")
    opened.page.wait_for_selector("#answer-title:has-text('By beauty')")
    assert opened.page.input_value("#by") == "most beautiful"
    opened.page.fill("#by", "beatiful")
    opened.page.click("#suggestions .chip:text-is('beautiful')")
    opened.page.wait_for_selector("#understood:has-text('Most beautiful first')")
    assert opened.complaints == []


def test_the_example_runs_with_one_click(opener: Open):
    """The empty page offers examples; one click fills the form and ranks."""
    opened = opener()
    opened.page.click(".example >> nth=0")
    opened.wait_final()
    assert sorted(opened.order()) == sorted(opened.page.input_value("#items").split("\n"))
    assert opened.page.input_value("#by") == "hardness"


def test_documents_are_ranked_for_a_query(opener: Open, address: str):
    """In the mode for a query, documents come in the order of the server, and what needs a criterion is not offered."""
    opened = opener()
    documents = [f"{item} is larger than the old stone bridge" for item in ITEMS]
    opened.page.check("input[value=query]", force=True)
    assert opened.page.locator("#by").is_hidden()
    opened.page.fill("#items", "\n".join(documents))
    opened.page.click("#rank")
    assert "Type the query" in opened.page.inner_text("#error")
    opened.page.fill("#query", "which bridge is old")
    order = opened.rank()
    expected = answer_of(address, items=documents, query="which bridge is old")
    assert order == [row["item"] for row in expected["items"]]
    assert opened.page.inner_text("#answer-title") == "For which bridge is old"
    assert opened.page.locator("#teach, .moves").locator("visible=true").count() == 0
    opened.page.click("#share")
    opened.page.wait_for_selector("#link-box")
    other = opener(opened.page.input_value("#link").removeprefix(address))
    assert other.page.input_value("#query") == "which bridge is old"
    assert opened.complaints == []


def test_hostile_items_are_shown_as_they_are(opener: Open):
    """Tags in items, criteria and labels are text in every view; nothing of them runs."""
    opened = opener()
    opened.type(HOSTILE, "<b>size</b>", category="<i>thing</i>")
    order = opened.rank()
    assert sorted(order) == sorted(HOSTILE)
    for tab in ("signals", "criteria", "methods"):
        opened.page.click(f"#tab-{tab}")
        if tab == "criteria":
            opened.page.fill("#second", HOSTILE[0])
            opened.page.keyboard.press("Enter")
            opened.page.wait_for_selector("svg.scatter")
    opened.page.click("#tab-ranking")
    opened.page.click("#teach .invite button")
    opened.page.click(".option >> nth=0")
    opened.wait_taught(1)
    assert opened.page.evaluate("typeof window.hacked") == "undefined"
    assert opened.page.locator("#result script, #result img, #result b b, #rows i i").count() == 0
    assert opened.complaints == []


def test_a_csv_is_dropped_and_comes_back_with_all_columns(opener: Open):
    """A dropped CSV offers its columns; the exported one has every row and cell of it, in ranked order."""
    rows = [
        [str(number), f"{item}\nin the world", f'a "quoted", cell {number}']
        for number, item in enumerate(ITEMS)
    ]
    rows.append(["99", "", "no item"])
    text = io.StringIO()
    names = ["Rank", "place", "ccrank_rank"]
    csv.writer(text).writerows([names, *rows])
    opened = opener()
    transfer = opened.page.evaluate_handle(
        """text => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], "places.csv", { type: "text/csv" }));
            return transfer;
        }""",
        text.getvalue(),
    )
    for event in ("dragenter", "dragover", "drop"):
        opened.page.dispatch_event("body", event, {"dataTransfer": transfer})
    opened.page.wait_for_selector("#table-choice")
    assert opened.page.locator("#column option").all_text_contents() == names
    opened.page.select_option("#column", label="ccrank_rank")
    opened.page.select_option("#column", label="place")
    assert opened.page.input_value("#items").split("\n") == [f"{item} in the world" for item in ITEMS]
    assert "1 of them without an item" in opened.page.inner_text("#table-note")
    opened.page.fill("#by", "size")
    order = opened.rank()
    table = list(csv.reader(io.StringIO(saved(opened, "#csv"), newline="")))
    assert table[0] == ["ccrank_rank_2", "score", *DOUBT, *names]
    assert [row[6].replace("\n", " ") for row in table[1:-1]] == order
    assert [row[0] for row in table[1:-1]] == [str(rank) for rank in range(1, 10)]
    assert all(int(row[3]) <= int(row[0]) <= int(row[4]) for row in table[1:-1])
    assert table[-1] == ["", "", "", "", "", "99", "", "no item"]
    assert sorted(row[5:] for row in table[1:]) == sorted(rows)


@pytest.mark.parametrize(
    ("name", "content", "items", "words"),
    [
        ("a.jsonl", b'{"text": "an apple", "n": 1}\n\n{"n": 2, "text": "a pear"}\n', "an apple\na pear", ""),
        ("a.json", b'[{"text": "an apple"}, {"text": "a pear", "n": {"m": 2}}]', "an apple\na pear", ""),
        ("a.json", '["Äpfel", "Birnen"]'.encode("utf-8-sig"), "Äpfel\nBirnen", ""),
        ("a.json", b'{"text": "an apple"}', "", "not a JSON array"),
        ("a.jsonl", b'{"text": "an apple"}\n{"text": \n', "", "line 2, is not valid JSON"),
        ("a.csv", "name\nÄpfel\n".encode("cp1252"), "", "not text in UTF-8"),
        ("a.txt", "Äpfel\nBirnen\n".encode("utf-16"), "Äpfel\nBirnen", ""),
        ("a.txt", b"\xfe\xff" + "Äpfel\nBirnen\n".encode("utf-16-be"), "Äpfel\nBirnen", ""),
    ],
)
def test_files_are_read_as_on_the_command_line(
    opener: Open, tmp_path: Path, name: str, content: bytes, items: str, words: str
):
    """JSON and JSON Lines are tables or texts; other encodings and broken JSON are refused, not shown as raw lines."""
    path = tmp_path / name
    path.write_bytes(content)
    opened = opener()
    opened.page.set_input_files("#file", path)
    if words:
        opened.page.wait_for_selector(f"#error:has-text('{words}')")
    else:
        opened.page.wait_for_selector("#count:has-text('2 items')")
    assert opened.page.input_value("#items") == items
    if words:
        opened.page.fill("#items", "a")
        assert opened.page.locator("#error").is_hidden()


def test_one_line_with_commas_is_a_list(opener: Open, tmp_path: Path):
    """One line of three short parts is three items, typed or in a file; a sentence with one comma is not."""
    opened = opener()
    opened.type(["Warm, but dry"], "size")
    opened.page.click("#rank")
    assert "at least two items" in opened.page.inner_text("#error")
    assert opened.page.get_attribute("#items", "aria-invalid") == "true"
    opened.page.fill("#items", "Russia, Chad, Peru")
    assert opened.page.inner_text("#count") == "3 items"
    assert opened.page.locator("#error").is_hidden()
    assert sorted(opened.rank()) == ["Chad", "Peru", "Russia"]
    file = tmp_path / "list.txt"
    file.write_text("pizza; broccoli; candy\n", encoding="utf-8")
    opened.page.set_input_files("#file", str(file))
    assert sorted(opened.rank()) == ["broccoli", "candy", "pizza"]


def test_an_edited_list_is_no_longer_the_table(opener: Open, tmp_path: Path):
    """After a file was opened with the button, editing its items lets the table go."""
    file = tmp_path / "list.csv"
    file.write_text("name;kind\nRussia;country\nChad;country\nPeru;country\n", encoding="utf-8")
    opened = opener()
    opened.page.set_input_files("#file", str(file))
    opened.page.wait_for_selector("#table-choice")
    assert opened.page.input_value("#items") == "Russia\nChad\nPeru"
    opened.page.fill("#items", "Russia\nChad\nPeru\nMalta")
    assert opened.page.locator("#table-choice").is_hidden()
    opened.page.fill("#by", "size")
    opened.rank()
    assert saved(opened, "#csv").splitlines()[0] == ",".join(("rank", "item", "score", *DOUBT))


def test_exports_hold_what_is_shown(opener: Open, address: str):
    """The JSON is the server's answer; the CSV has its ranks, items and scores."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.rank()
    found = json.loads(saved(opened, "#json"))
    expected = answer_of(address, items=ITEMS, by="size")
    assert [one["item"] for one in found["items"]] == [one["item"] for one in expected["items"]]
    assert found["understood"] == expected["understood"]
    table = list(csv.DictReader(io.StringIO(saved(opened, "#csv"), newline="")))
    assert [(int(row["rank"]), row["item"], float(row["score"])) for row in table] == [
        (row["rank"], row["item"], row["score"]) for row in found["items"]
    ]


def test_answers_change_the_order(opener: Open):
    """Questions are answered with a click and with keys; labels are listed, exported with intervals, and taken back."""
    opened = opener()
    opened.type(ITEMS, "size")
    before = opened.rank()
    opened.page.click("#teach .invite button")
    assert opened.page.inner_text("#question") == "Which is larger?"
    pairs = []
    for number in range(1, 4):
        one, other = opened.page.locator(".option span").all_text_contents()
        # Against the order: the item that stands lower is said to be higher.
        lower = max((one, other), key=opened.order().index)
        pairs.append((lower, one if lower == other else other))
        if number == 2:
            opened.page.locator(".option").first.focus()
            opened.page.keyboard.press("1" if lower == one else "2")
        else:
            opened.page.locator(".option", has_text=lower).click()
        opened.wait_taught(number)
    after = opened.order()
    assert after != before
    assert sum(after.index(high) < after.index(low) for high, low in pairs) > sum(
        before.index(high) < before.index(low) for high, low in pairs
    )
    rows = list(csv.DictReader(io.StringIO(saved(opened, "#csv"), newline="")))
    assert all(
        float(row["deviation"]) > 0 and 1 <= int(row["rank_low"]) <= int(row["rank_high"]) for row in rows
    )
    for left in (2, 1):
        opened.page.click(".said button >> nth=0")
        opened.wait_taught(left)
    opened.page.click(".said button")
    opened.page.wait_for_selector(".said", state="detached")
    opened.page.wait_for_selector("#teach[aria-busy=false]")
    assert opened.order() == before
    assert opened.complaints == []


def test_about_equal_and_do_not_know_are_answers(opener: Open):
    """Both are answers by button or key, after a click on any part of the card; neither pair is asked about again."""
    opened = opener()
    opened.type(ITEMS, "size")
    before = opened.rank()
    opened.page.click("#teach .invite button")
    opened.page.wait_for_selector(".option:not([disabled])")
    opened.page.wait_for_selector("#teach[aria-busy=false]")
    asked = [opened.page.locator(".option span").all_text_contents()]
    opened.page.keyboard.press("d")
    opened.wait_taught(1)
    assert opened.page.locator(".said li").first.inner_text().startswith(" ? ".join(asked[0]))
    assert opened.order() == before
    asked.append(opened.page.locator(".option span").all_text_contents())
    opened.page.click("text=About equal")
    opened.wait_taught(2)
    assert opened.page.locator(".said li").nth(1).inner_text().startswith(" = ".join(asked[1]))
    opened.page.click("#question")
    opened.page.keyboard.press("1")
    opened.wait_taught(3)
    assert "of all pairs are likely in the right order" in opened.page.inner_text("#sure")
    asked.append(opened.page.locator(".option span").all_text_contents())
    assert len({frozenset(pair) for pair in asked}) == 3
    assert opened.complaints == []


def test_questions_go_on_after_the_order_is_good_enough(opener: Open):
    """Answers by the alphabet: at some point the order is good enough, more is asked on demand, and it ends in the
    alphabet when every order follows from the answers."""
    opened = opener()
    opened.type(ITEMS[:5], "size")
    opened.rank()
    opened.page.click("#teach .invite button")
    enough = False
    for number in range(1, 12):
        opened.page.wait_for_selector("#teach[aria-busy=false]")
        if opened.page.locator("text=Ask more").count():
            assert "Good enough" in opened.page.inner_text("#teach .invite")
            opened.page.click("text=Ask more")
            enough = True
        options = opened.page.locator(".option span").all_text_contents()
        if not options:
            break
        opened.page.keyboard.press(str(1 + options.index(min(options))))
        opened.wait_taught(number)
    assert "No question is left" in opened.page.inner_text("#teach .invite")
    assert opened.order() == sorted(ITEMS[:5])
    assert enough or number > 4


def test_drag_an_item_to_where_it_belongs(opener: Open):
    """Dragging the last item to the top says that it is above the first; it stays there, and no other item moves."""
    opened = opener()
    opened.type(ITEMS, "size")
    before = opened.rank()
    last = opened.page.locator("#rows .row").last
    handle = last.locator(".handle")
    handle.scroll_into_view_if_needed()
    opened.wait_still()
    start, first = handle.bounding_box(), opened.page.locator("#rows .row").first.bounding_box()
    assert start is not None
    assert first is not None
    opened.page.mouse.move(start["x"] + 5, start["y"] + 5)
    opened.page.mouse.down()
    steps = 30
    for step in range(steps + 1):
        y = start["y"] + (first["y"] - 10 - start["y"]) * step / steps
        opened.page.mouse.move(start["x"] + 5, y)
    assert opened.order()[0] == before[-1]
    opened.page.mouse.up()
    opened.wait_taught(1)
    said = opened.page.locator(".said li").first.inner_text()
    assert said.startswith(f"{before[-1]} > {before[0]}")
    assert opened.order() == [before[-1], *before[:-1]]
    assert opened.complaints == []


CORRECTIONS = """async ([items, steps, seed]) => {
    const { labelOfMove, withLabel, onTheWire } = await import('/page/labels.js');
    const { call } = await import('/page/api.js');
    const draw = number => {
        seed = (seed * 1664525 + 1013904223) % 4294967296;
        return Math.floor(number * seed / 4294967296);
    };
    const ask = labels => call('v1/question', { items, by: 'size', labels: onTheWire(labels) });
    let labels = [], found = await ask(labels);
    const moved = [];
    for (let step = 0; step < steps; step++) {
        if (draw(2) && found.question) {
            const [one, other] = found.question.items;
            labels = withLabel(labels, { kind: 'pair', items: draw(2) ? [one, other] : [other, one] });
            found = await ask(labels);
        } else {
            const order = found.ranking.items.map(row => row.item);
            const [item] = order.splice(draw(order.length), 1);
            const place = draw(items.length);
            order.splice(place, 0, item);
            labels = withLabel(labels, labelOfMove(item, order), order);
            found = await ask(labels);
            moved.push([item, place, found.ranking.items.findIndex(row => row.item === item)]);
        }
    }
    return moved;
}"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_placed_item_stays_whatever_was_said_before(opener: Open, seed: int):
    """After answers and moves that contradict each other, an item still stays at the place where it is put."""
    for item, place, found in opener().page.evaluate(CORRECTIONS, [ITEMS, 30, seed]):
        assert found == place, item


def handle_of(opened: Opened) -> str | None:
    """The item whose handle has the focus."""
    return opened.page.evaluate("document.activeElement.closest('li')?.dataset.item ?? null")


def test_move_an_item_by_keys_and_by_buttons(opener: Open):
    """Arrow keys on a handle move an item, at any pace; Escape takes it back, Enter keeps it; buttons do the same."""
    opened = opener()
    opened.type(ITEMS, "size")
    before = opened.rank()
    handle = opened.page.locator("#rows .row").nth(3).locator(".handle")
    handle.focus()
    opened.page.keyboard.press("ArrowUp")
    assert opened.order()[2] == before[3]
    opened.page.keyboard.press("Escape")
    assert opened.order() == before
    assert opened.page.locator(".said").count() == 0
    handle.focus()
    opened.page.keyboard.press("ArrowUp")
    opened.page.wait_for_timeout(1500)
    assert opened.page.locator(".said").count() == 0
    opened.page.keyboard.press("ArrowUp")
    assert handle_of(opened) == before[3]
    opened.page.keyboard.press("Enter")
    opened.wait_taught(1)
    assert (
        opened.page.locator(".said li")
        .first.inner_text()
        .startswith(f"{before[0]} > {before[3]} > {before[1]}")
    )
    assert opened.order() == [before[0], before[3], *before[1:3], *before[4:]]
    assert handle_of(opened) == before[3]
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Escape")
    assert opened.order() == [before[0], before[3], *before[1:3], *before[4:]]
    row = opened.page.locator("#rows .row").nth(5)
    name = row.locator(".item").inner_text()
    row.hover()
    row.locator("[data-move=down]").click()
    opened.wait_taught(2)
    assert name in opened.page.locator(".said li").nth(1).inner_text()


def test_a_link_holds_the_input_and_nothing_leaves(opener: Open, address: str):
    """The link of a ranking with a label opens with the same input and gives the same order; requests never hold it."""
    opened = opener()
    opened.type([*ITEMS, "Côte d’Ivoire – 象牙海岸"], "size", category="country", low="tiny", high="huge")
    opened.rank()
    handle = opened.page.locator("#rows .row").nth(4).locator(".handle")
    handle.focus()
    opened.page.keyboard.press("ArrowUp")
    opened.page.keyboard.press("Enter")
    opened.wait_taught(1)
    order = opened.order()
    opened.page.click("#share")
    opened.page.wait_for_selector("#link-box")
    link = opened.page.input_value("#link")
    assert link.startswith(f"{address}#in=")
    assert not any("in=" in request for request in opened.requests)
    other = opener(link.removeprefix(address))
    assert other.page.input_value("#items") == opened.page.input_value("#items")
    assert [other.page.input_value(one) for one in ("#by", "#low", "#high", "#category")] == [
        "size",
        "tiny",
        "huge",
        "country",
    ]
    other.page.click("#rank")
    other.wait_taught(1)
    assert other.order() == order
    assert other.complaints == []


def test_a_link_holds_the_method(opener: Open, address: str):
    """A link that was made with another method opens with it, whether or not the page knows the methods already."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.page.click("#more summary")
    opened.page.select_option("#method", "poles")
    opened.rank()
    opened.page.click("#share")
    opened.page.wait_for_selector("#link-box")
    fragment = opened.page.input_value("#link").removeprefix(address)
    assert opener(fragment).page.input_value("#method") == "poles"
    later = opener()
    later.page.evaluate("fragment => { location.hash = fragment }", fragment)
    later.page.wait_for_selector("#note")
    assert later.page.input_value("#method") == "poles"


@pytest.mark.parametrize("fragment", ["#in=abc", "#in=" + "A" * 200])
def test_a_damaged_link_says_so(opener: Open, fragment: str):
    """A link that cannot be read leaves an empty form and says what to do."""
    opened = opener(fragment)
    opened.page.wait_for_selector("#error:has-text('This link cannot be read')")
    assert opened.page.input_value("#items") == ""


def test_cancel_stops_the_work(opener: Open, monkeypatch: pytest.MonkeyPatch):
    """Cancel ends the work in the server, keeps the input, and the next ranking runs."""
    ended = threading.Event()

    def endless(request: Any, reader: Any, watch: Any, *more: Any) -> Any:
        watch.partial({ITEMS[0]: 0.5, ITEMS[1]: -0.5})
        try:
            while True:
                reader.engine.ticket.check()
                time.sleep(0.02)
        finally:
            ended.set()

    opened = opener()
    opened.type(ITEMS, "size")
    with monkeypatch.context() as patch:
        patch.setattr(rank_routes, "ranking_kept", endless)
        opened.page.click("#rank")
        # First scores are shown as such: two items have a place, the others wait.
        opened.page.wait_for_selector("#rows:not(.final) .row.read >> nth=1")
        assert opened.order()[:2] == ITEMS[:2]
        assert opened.page.locator("#rows .row:not(.read)").count() == len(ITEMS) - 2
        assert not ended.is_set()
        opened.page.click("#cancel")
        opened.page.wait_for_selector("#answer-title:has-text('Cancelled')")
        assert ended.wait(PATIENCE / 1000)
    assert opened.page.locator("#cancel").is_hidden()
    assert sorted(opened.rank()) == sorted(ITEMS)


@pytest.mark.parametrize(
    ("items", "by", "field", "words"),
    [
        (["one"], "size", "items", "at least two items"),
        (ITEMS, "", "by", "Type a criterion"),
    ],
)
def test_what_is_missing_is_said_at_once(opener: Open, items: list[str], by: str, field: str, words: str):
    """An incomplete form sends nothing, names what is missing and puts the focus there."""
    opened = opener()
    opened.type(items, by)
    opened.page.click("#rank")
    assert words in opened.page.inner_text("#error")
    assert opened.page.evaluate("document.activeElement.id") == field
    assert not any("v1/rank" in one for one in opened.requests)


def test_the_server_s_errors_are_shown_in_words(opener: Open):
    """Refusals are shown with their reason and a remedy, and go away when the next ranking works."""
    opened = opener()
    opened.type(ITEMS, "!!!")
    opened.page.click("#rank")
    opened.page.wait_for_selector("#error:has-text('has no words')")
    opened.type([f"item {number}" for number in range(501)], "size")
    opened.page.click("#rank")
    opened.page.wait_for_selector("#error:has-text('501 items')")
    assert "fewer" in opened.page.inner_text("#error")
    opened.type(ITEMS, "size")
    opened.rank()
    assert opened.page.locator("#error").is_hidden()


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (429, {"Retry-After": "7"}, "Try again in 7 s"),
        (401, {}, "asks for an API key"),
        (500, {}, "The server's log says more"),
        (None, {}, "does not answer"),
    ],
)
def test_failures_of_the_server_say_what_to_do(
    opener: Open, status: int | None, headers: dict[str, str], words: str
):
    """Each kind of failure has a sentence with a remedy, and the page stays usable."""
    opened = opener()

    def fail(route: Any) -> None:
        if status is None:
            route.abort()
        else:
            route.fulfill(status=status, headers=headers, json={"error": {"type": "x", "message": "no"}})

    opened.page.route("**/v1/rank", fail)
    opened.type(ITEMS, "size")
    opened.page.click("#rank")
    opened.page.wait_for_selector("#error")
    assert words in opened.page.inner_text("#error")
    opened.page.unroute("**/v1/rank")
    assert sorted(opened.rank()) == sorted(ITEMS)


def test_a_key_is_sent_as_a_bearer_token(opener: Open):
    """A key that was typed goes with every request, and is gone with the tab."""
    opened = opener()
    opened.page.click("#more summary")
    with opened.page.expect_request("**/v1/models") as waiting:
        opened.page.fill("#key", "secret-key")
        opened.page.keyboard.press("Tab")
    assert waiting.value.headers["authorization"] == "Bearer secret-key"
    assert opened.page.evaluate("JSON.stringify(localStorage)").find("secret-key") < 0


def test_signals_are_compared(opener: Open, address: str):
    """The view of signals has each item's rank by each signal, those that differ most first."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.rank()
    opened.page.click("#tab-signals")
    heads = opened.page.locator("table.signals thead th").all_text_contents()
    signals = answer_of(address, items=ITEMS, by="size")["details"]["signals"]
    assert heads == ["Item", "On the scale", *signals, "Apart"]
    apart = []
    for row in opened.page.locator("table.signals tbody tr").all():
        item = row.locator("th").inner_text()
        ranks = [int(text) for text in row.locator("td.number").all_text_contents()[:-1]]
        for name, rank in zip(signals, ranks, strict=True):
            own = signals[name]
            assert rank == 1 + sum(other > own[item] for other in own.values())
        apart.append(max(ranks) - min(ranks))
    assert apart == sorted(apart, reverse=True)


def test_two_criteria_are_a_scatter_plot(opener: Open, address: str):
    """Each item is a point; the table beside it has the ranks by both criteria, and τ is that of scipy."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.rank()
    opened.page.click("#tab-criteria")
    opened.page.fill("#second", "price")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("svg.scatter")
    assert opened.page.locator("svg.scatter circle").count() == len(ITEMS)
    both = [answer_of(address, items=ITEMS, by=by) for by in ("size", "price")]
    scores = [{row["item"]: row["score"] for row in one["items"]} for one in both]
    tau = kendalltau([scores[0][item] for item in ITEMS], [scores[1][item] for item in ITEMS]).statistic
    text = opened.page.inner_text("#plot .lead").replace("−", "-")
    assert f"τ = {f'{tau:+.2f}' if round(tau, 2) else '0.00'};" in text
    opened.page.fill("#items", "Russia\nChad\nPeru")
    opened.rank()
    assert opened.page.locator("svg.scatter").count() == 0  # it was about another list
    opened.page.fill("#items", "\n".join(ITEMS))
    opened.rank()
    opened.page.click("#tab-criteria")
    assert opened.page.input_value("#second") == "price"
    opened.page.focus("#second")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("svg.scatter")
    ranks = [{row["item"]: row["rank"] for row in one["items"]} for one in both]
    opened.page.click("#plot summary")
    for row in opened.page.locator("#plot tbody tr").all():
        item = row.locator("th").inner_text()
        assert [int(text) for text in row.locator("td").all_text_contents()] == [one[item] for one in ranks]


@pytest.mark.parametrize("width", [1280, 390])
def test_names_in_the_plot_are_apart_and_beside_their_points(opener: Open, width: int):
    """At any width no two names overlap, none leaves the picture, and each is nearest to its own point."""
    opened = opener(width=width)
    opened.type([f"{item} and its {word}" for item in ITEMS for word in ("old hills", "people")], "size")
    opened.rank()
    opened.page.click("#tab-criteria")
    opened.page.fill("#second", "price")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("svg.scatter")
    box = "all => all.map(one => one.getBoundingClientRect()).map(({ x, y, right, bottom }) => [x, y, right, bottom])"
    plot, names, points = (
        opened.page.locator(f"svg.scatter{part}").evaluate_all(box) for part in ("", " .label", " circle")
    )
    texts = opened.page.locator("svg.scatter .label").all_text_contents()
    titles = opened.page.locator("svg.scatter circle title").all_text_contents()
    assert len(names) > 6
    for text, (left, top, right, bottom) in zip(texts, names, strict=True):
        assert plot[0][0] <= left < right <= plot[0][2], text
        assert plot[0][1] <= top < bottom <= plot[0][3], text

        def gap(point: list[float], inside: tuple[float, ...] = (left, top, right, bottom)) -> float:
            x, y = (point[0] + point[2]) / 2, (point[1] + point[3]) / 2
            across, down = max(inside[0] - x, 0, x - inside[2]), max(inside[1] - y, 0, y - inside[3])
            return float(np.hypot(across, down))

        own = titles.index(next(title for title in titles if title.startswith(text.rstrip("…"))))
        assert gap(points[own]) <= min(map(gap, points)) + 1, text
    for place, one in enumerate(names):
        for other in names[:place]:
            apart = (
                one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] - 3 or other[1] >= one[3] - 3
            )
            assert apart, (one, other)


def test_only_methods_that_work_are_offered(opener: Open, address: str):
    """By a criterion and for a query, the form offers three plain methods and others; each of them ranks."""
    opened = opener()
    opened.page.click("#more summary")
    for mode, asked in (("criterion", {"by": "size"}), ("query", {"query": "a large country"})):
        opened.page.check(f"input[value={mode}]", force=True)
        plain = opened.page.locator("#method > option")
        assert plain.count() == 3
        names = opened.page.locator("#method option").evaluate_all("all => all.map(one => one.value)")
        assert ("query-likelihood" in names) == (mode == "query")
        for name in names:
            assert "items" in answer_of(address, items=ITEMS[:4], method=name, **asked), name
    opened.page.select_option("#method", "query-likelihood")
    opened.page.check("input[value=criterion]", force=True)
    assert opened.page.input_value("#method") == "auto"


def test_complaints_of_the_other_views_go_when_they_are_heeded(opener: Open):
    """What is missing for a comparison is said, until something is typed or chosen."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.rank()
    opened.page.click("#tab-criteria")
    opened.page.click("#panel-criteria button")
    assert "second criterion" in opened.page.inner_text("#plot")
    opened.page.fill("#second", "p")
    assert opened.page.inner_text("#plot") == ""
    opened.page.click("#tab-methods")
    opened.page.uncheck("input[value=prompt-point]")
    opened.page.click("#panel-methods button[type=submit]")
    assert "two methods" in opened.page.inner_text("#compared")
    opened.page.check("input[value=prompt-pair]")
    assert opened.page.inner_text("#compared") == ""


def test_methods_are_compared_side_by_side(opener: Open, address: str):
    """The table has the rank of each item by each chosen method; a method that fails says why beside the others."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.rank()
    opened.page.click("#tab-methods")
    chosen = ("auto", "prompt-point", "poles")
    opened.page.click("#panel-methods summary")
    for box in opened.page.locator("input[name=compared]").all():
        box.set_checked(box.get_attribute("value") in chosen)
    opened.page.click("#panel-methods button[type=submit]")
    opened.page.wait_for_selector("#status:has-text('3 methods compared')", state="attached")
    for place, name in enumerate(chosen):
        expected = {
            row["item"]: row["rank"]
            for row in answer_of(address, items=ITEMS, by="size", method=name)["items"]
        }
        for row in opened.page.locator("table.methods tbody tr").all():
            assert int(row.locator("td").nth(place).inner_text()) == expected[row.locator("th").inner_text()]


def test_tabs_and_form_work_from_the_keyboard(opener: Open):
    """Ctrl+Enter ranks; arrow keys go through the tabs, which show one view each."""
    opened = opener()
    opened.type(ITEMS, "size")
    opened.page.focus("#by")
    opened.page.keyboard.press("Control+Enter")
    opened.wait_final()
    opened.page.focus("#tab-ranking")
    for name in ("signals", "criteria", "methods", "ranking"):
        opened.page.keyboard.press("ArrowRight")
        assert opened.page.evaluate("document.activeElement.id") == f"tab-{name}"
        assert opened.page.locator("[role=tabpanel]:visible").get_attribute("id") == f"panel-{name}"


def test_reports_are_linked_and_open(opener: Open):
    """Where the server has reports, the page links them, and a study's report opens, whatever its name."""
    opened = opener()
    opened.page.click("#reports-link")
    opened.page.click(".reports a:has-text('<b> & c/100% ?#')")
    opened.page.wait_for_selector("h1:has-text('A study')")


def test_the_docs_have_every_route_and_send_requests(opener: Open, address: str):
    """Each route of the schema with its fields, their types and its answers; a form shows what the server answers."""
    import httpx

    schema = httpx.get(address + "openapi.json").json()
    opened = opener()
    opened.page.goto(address + "docs")
    opened.page.wait_for_selector("#routes section")
    headings = opened.page.locator("#routes h2").all_inner_texts()
    assert headings == [
        f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods
    ]
    rank = opened.page.locator("section", has_text="POST /v1/rank")
    lines = [line for line in rank.first.locator("li").all_inner_texts() if line[0].isalpha()]
    fields = schema["components"]["schemas"]["StreamBody"]["properties"]
    assert [line.split()[0] for line in lines] == [*fields]
    assert "items list of string The texts to rank; equal ones are tied." in lines
    assert any(line.startswith("labels object or list, optional ") for line in lines)
    understand = opened.page.locator("section", has_text="POST /v1/understand")
    understand.locator("button").click()
    understand.locator("pre", has_text='"cheapest first"').wait_for()
    understand.locator("textarea").fill("{")
    understand.locator("button").click()
    understand.locator("pre", has_text="400").wait_for()
    assert len(opened.complaints) == 1  # of the browser, about the status


def test_a_long_list_shows_its_top_first(opener: Open):
    """Of 310 items the first 300 are shown, and all on request."""
    opened = opener()
    opened.type([f"item {number}" for number in range(310)], "size")
    opened.page.click("#rank")
    opened.wait_final()
    assert opened.page.locator("#rows .row:visible").count() == 300
    opened.page.click("#show-all")
    assert opened.page.locator("#rows .row:visible").count() == 310


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_every_view_fits_is_quiet_and_accessible(opener: Open, address: str, width: int, dark: bool):
    """No sideways scroll, no complaint, no request to another host, and axe-core finds nothing serious, in any view."""
    axe = page_tool("axe-core/axe.min.js")
    opened = opener(width=width, dark=dark, bypass_csp=axe is not None)

    def check(view: str) -> None:
        opened.wait_still()  # colours in transition have no contrast yet
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, view
        if axe is None:
            return
        if not opened.page.evaluate("'axe' in window"):
            opened.page.evaluate(axe.read_text(encoding="utf-8"))
        found = opened.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"]])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], view

    check("empty")
    opened.page.click("#rank")
    check("incomplete")
    opened.type([*ITEMS, "a much longer item that goes on for more than one line of a narrow window"], "size")
    opened.page.wait_for_selector(".chip")
    opened.rank()
    opened.page.click("#teach .invite button")
    opened.page.click(".option >> nth=0")
    opened.wait_taught(1)
    check("ranking")
    opened.page.click("#tab-signals")
    check("signals")
    opened.page.click("#tab-criteria")
    opened.page.fill("#second", "price")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("svg.scatter")
    check("criteria")
    opened.page.click("#tab-methods")
    opened.page.click("#panel-methods button[type=submit]")
    opened.page.wait_for_selector("#status:has-text('methods compared')", state="attached")
    check("methods")
    for path, selector in (("docs", "#routes section"), ("reports/", "#reports li")):
        opened.page.goto(address + path)
        opened.page.wait_for_selector(selector)
        check(path)
    assert opened.complaints == []
    assert all(one.startswith((address, "blob:")) for one in opened.requests)


def test_modules_agree_with_python(opener: Open):
    """CSV as Python's csv reads and writes it, τ as scipy has it, and the labels of a move."""
    opened = opener()
    rows = [["a", "b"], ['say "hi"', "x,y"], ["line\nbreak", ""], [" blank ", "é\t;"], ["\r\n", "0"]]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    parsed = opened.page.evaluate(
        "async text => (await import('/page/csv.js')).parseCsv(text)", text.getvalue()
    )
    assert parsed == rows
    written = opened.page.evaluate("async rows => (await import('/page/csv.js')).writeCsv(rows)", rows)
    assert list(csv.reader(io.StringIO(written, newline=""))) == rows
    for delimiter in ";\t|":
        joined = "\n".join(delimiter.join(row) for row in [["x", "y"], ["1", "2"]])
        assert opened.page.evaluate(
            "async text => (await import('/page/csv.js')).parseCsv(text)", joined
        ) == [["x", "y"], ["1", "2"]]
    a, b = [3, 1, 2, 2, 5, 0.5], [1, 2, 2, 3, 4, 0]
    tau = opened.page.evaluate("async ([a, b]) => (await import('/page/stats.js')).tau(a, b)", [a, b])
    assert tau == pytest.approx(kendalltau(a, b).statistic)
    move = (
        "async ([labels, item, after]) => { const { labelOfMove, withLabel } = await import('/page/labels.js');"
        " return withLabel(labels, labelOfMove(item, after), after); }"
    )
    one = opened.page.evaluate(move, [[], "d", list("adbc")])
    assert one == [{"kind": "move", "item": "d", "above": "a", "below": "b"}]
    # Items of which a later move contradicts what was said keep the places that the user now sees, the lowest first.
    two = opened.page.evaluate(move, [[*one, {"kind": "pair", "items": ["a", "c"]}], "a", list("dbca")])
    assert two == [
        {"kind": "move", "item": "a", "above": "c", "below": ""},
        {"kind": "move", "item": "c", "above": "b", "below": "a"},
        {"kind": "move", "item": "d", "above": "", "below": "b"},
    ]
    three = opened.page.evaluate(move, [two, "a", list("dbac")])
    assert three == [
        {"kind": "move", "item": "d", "above": "", "below": "b"},
        {"kind": "move", "item": "c", "above": "a", "below": ""},
        {"kind": "move", "item": "a", "above": "b", "below": "c"},
    ]
    said = [{"kind": "move", "item": "c", "above": "b", "below": ""}, {"kind": "pair", "items": ["b", "a"]}]
    assert opened.page.evaluate(move, [said, "b", list("dabce")]) == [
        {"kind": "move", "item": "c", "above": "b", "below": "e"},
        {"kind": "move", "item": "b", "above": "a", "below": "c"},
        {"kind": "move", "item": "a", "above": "d", "below": "b"},
    ]
    wire = "async labels => (await import('/page/labels.js')).onTheWire(labels)"
    said = [*one, {"kind": "pair", "items": ["a", "b"]}, {"kind": "unknown", "items": ["b", "c"]}]
    assert opened.page.evaluate(wire, said) == {
        "orders": [["a", "b"]],
        "unknown": [["b", "c"]],
        "moves": [["d", "below", "a"], ["d", "above", "b"]],
    }


def test_messages_have_no_words_of_the_command_line(opener: Open):
    """What the library says of criteria, confidence, methods and models has no flag and no Python in it on the page."""
    doubtful = ("flumbitude", "safety less", "battery less legs", "driest")
    said = [understand(phrase).warning or "" for phrase in doubtful]
    scores = np.zeros(1 + len(understand("driest").alternatives))
    said.append(in_best_sense(criterion_of("driest"), scores.tolist()).understood.warning)
    said += [UNDIRECTED, str(no_states("a model"))]
    for category in (False, True):
        features = Features(5, -0.1, 0.6, "name", "lexicon", category, 1.0)
        said.append(Confidence("low", 0.4, features).warning())
    with pytest.raises(CcrankError) as refused:
        query_of(Task(criterion_of("size"), tuple(ITEMS)))
    said.append(str(refused.value))
    assert any("--" in text for text in said)
    page = opener().page
    for text in said:
        plain = page.evaluate("async text => (await import('/page/api.js')).plain(text)", text)
        assert not re.search(r"--|\w=", plain), plain


def test_types_hold():
    """The scripts pass TypeScript's checker, by the types in their comments."""
    compiler = page_tool("typescript/bin/tsc")
    if compiler is None or shutil.which("node") is None:
        pytest.skip("no TypeScript here (make page-tools)")
    done = subprocess.run(
        ["node", str(compiler), "-p", str(ROOT / "jsconfig.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.real
def test_the_default_model_ranks_an_example(browser: Any, default_reader: Any):
    """Thirty foods by the default model: broccoli comes before candy, first scores are shown on the way."""
    with served(create_app(ServerSettings(), {"default": default_reader})) as address:
        opened = open_page(browser, address)
        opened.page.click(".example >> nth=1")
        opened.wait_final()
        order = opened.order()
        opened.page.context.close()
    assert len(order) == 30
    assert order.index("broccoli") < order.index("candy")
    assert order.index("spinach") < order.index("doughnut")
