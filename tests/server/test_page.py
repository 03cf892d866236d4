"""What the server answers to the page: its files, meanings of criteria, questions, first scores and reports."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tiny import tiny_reader

import ccrank
from ccrank.labels import Labels
from ccrank.server.app import create_app
from ccrank.server.routes import pages
from ccrank.server.settings import ServerSettings
from ccrank.server.work import run_request as teaching
from ccrank.server.work.run_request import ReadLists
from server.test_rank import events_of

FILES = Path(pages.__file__).parents[1] / "page"
ITEMS = ["Russia", "Chad", "Peru", "Monaco", "Brazil", "Canada", "Kenya", "Malta", "Japan"]
BODY = {"items": ITEMS, "by": "size", "category": "country"}


def test_the_page_and_all_that_it_names_are_served(client: TestClient):
    """Every file that the pages, their styles and their scripts name is there, with its type."""
    address_of = {"index.html": "/", "docs.html": "/docs", "reports.html": "/reports/"}
    names, seen = [*address_of], set()
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        answer = client.get(address_of.get(name, f"/page/{name}"))
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].split(";")[0] == kinds[Path(name).suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"
        found = re.findall(r'(?:href|src)="(?:\.\./)?page/([\w.]+)"|from "\./([\w.]+)"', answer.text)
        names += [one or other for one, other in found]
    assert seen == {path.name for path in FILES.iterdir()} - {"types.js"}


def test_the_page_is_small_and_names_no_other_host():
    """At most 100 kB of script before compression, and no address of another server in any file."""
    scripts = {path.name: path.stat().st_size for path in FILES.glob("*.js")}
    others = scripts.pop("docs.js") + scripts.pop("reports.js")  # /docs and /reports/ load these
    assert sum(scripts.values()) <= 100_000
    assert others <= 5_000
    for path in FILES.iterdir():
        hosts = set(re.findall(r"https?://[\w.]+", path.read_text(encoding="utf-8")))
        assert hosts <= {"http://www.w3.org"}, path  # the name of SVG, which nothing fetches


def test_the_policy_forbids_all_that_the_page_does_not_need(client: TestClient):
    """Scripts and styles come from the server alone, none is inline, and texts cannot become HTML."""
    policy = client.get("/").headers["content-security-policy"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[one] for one in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy
    page = client.get("/").text
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", page)


@pytest.mark.parametrize("path", ["/docs", "/reports/"])
def test_other_pages_load_nothing_from_elsewhere(client: TestClient, path: str):
    """They have the policy of the page, and no script or style of their own."""
    page = client.get(path)
    assert page.headers["content-security-policy"] == client.get("/").headers["content-security-policy"]
    assert not re.search(r"https?://|<script>|<style|\sstyle=|\son\w+=", page.text)


def test_examples_of_the_schema_are_answered(client: TestClient):
    """Each route with a body has an example that the server takes; /docs offers it."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        if "post" in methods:
            body = methods["post"]["requestBody"]["content"]["application/json"]["example"]
            answer = client.post(path, json=body)
            assert answer.status_code == 200 or answer.json()["error"]["type"] == "unknown_scale"


def test_unchanged_files_are_not_sent_again(client: TestClient):
    """A browser that has a file gets 304 without a body; one that has another version gets the file."""
    first = client.get("/page/main.js")
    tag = first.headers["etag"]
    again = client.get("/page/main.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = client.get("/page/main.js", headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize("name", ["none.js", "..%2Fapp.py", "__init__.py", ".", "%2e%2e%2fapp.py"])
def test_only_files_of_the_page_are_served(client: TestClient, name: str):
    """Other names are 404, and paths do not lead out of the folder."""
    assert client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize(
    ("phrase", "poles", "first"),
    [
        ("size", ["small", "large"], "largest first"),
        ("least expensive", ["expensive", "cheap"], "cheapest first"),
        ("price (low to high)", ["expensive", "cheap"], "cheapest first"),
    ],
)
def test_a_criterion_is_understood_as_it_is_typed(
    client: TestClient, phrase: str, poles: list[str], first: str
):
    """The answer has the poles that a ranking would use, the suggestions begin with them, and all point one way."""
    found = client.post("/v1/understand", json={"by": phrase}).json()
    assert (found["poles"], found["first"]) == (poles, first)
    assert found["suggestions"][0] == poles
    for low, high in found["suggestions"]:
        own = ccrank.rank(ITEMS[:2], phrase, poles=(low, high), model=tiny_reader()).understood
        assert own is not None
        assert own.warning is None, (low, high)
    ranked = client.post("/v1/rank", json={"items": ITEMS[:2], "by": phrase}).json()
    assert ranked["understood"]["poles"] == poles


def test_a_doubtful_criterion_says_so_and_a_wordless_one_is_refused(client: TestClient):
    """A criterion without known poles comes with a warning; one without words is 422 with a message."""
    doubtful = client.post("/v1/understand", json={"by": "flumbitude"}).json()
    assert not doubtful["certain"]
    assert "flumbitude" in doubtful["warning"]
    refused = client.post("/v1/understand", json={"by": "!!"})
    assert refused.status_code == 422
    assert "no words" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"orders": [["Chad", "Russia"]]},
        {"orders": [["Chad", "Russia"], ["Malta", "Peru"]], "best": ["Chad"], "Kenya": 1.5, "Japan": 2},
    ],
    ids=["none", "a pair", "mixed"],
)
def test_the_order_beside_a_question_is_that_of_the_library(client: TestClient, labels: dict[str, Any]):
    """/v1/question ranks as `ccrank.rank` does with the same labels: scores, intervals, warnings and details."""
    answer = client.post("/v1/question", json={**BODY, "labels": labels})
    assert answer.status_code == 200, answer.text
    found = answer.json()["ranking"]
    expected = ccrank.rank(ITEMS, "size", category="country", labels=labels, model=tiny_reader()).to_json()
    assert found.keys() == expected.keys()
    by_item = {one["item"]: one for one in found["items"]}
    for row in expected["items"]:
        own = by_item[row["item"]]
        assert own.keys() == row.keys()
        assert own["score"] == pytest.approx(row["score"], abs=1e-4)
    if labels:
        assert found["details"]["labels"]["labels"] == expected["details"]["labels"]["labels"]
        assert all("deviation" in row for row in found["items"])


def test_answers_need_no_second_reading(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    """A list is read once, whether it was ranked with a stream or asked about, and again only if it changes."""
    read: list[Any] = []
    before = teaching.ReadList.read
    monkeypatch.setattr(teaching.ReadList, "read", lambda *given: (read.append(given), before(*given))[1])
    client.post("/v1/rank", json={**BODY, "stream": True, "partial": True})
    assert len(read) == 1
    for labels in ({}, {"orders": [["Chad", "Russia"]]}, {"orders": [["Russia", "Chad"]]}):
        assert client.post("/v1/question", json={**BODY, "labels": labels}).status_code == 200
    assert len(read) == 1
    client.post("/v1/question", json={**BODY, "items": ITEMS[:-1]})
    client.post("/v1/question", json={**BODY, "poles": ["low", "high"]})
    assert len(read) == 3


def test_the_server_keeps_no_answers(client: TestClient):
    """The same request has the same answer, whatever was asked in between."""
    one = {**BODY, "labels": {"orders": [["Chad", "Russia"]], "unknown": [["Peru", "Malta"]]}}
    other = {**BODY, "labels": {"orders": [["Monaco", "Japan"], ["Peru", "Malta"]]}}
    first = client.post("/v1/question", json=one).json()
    second = client.post("/v1/question", json=other).json()
    assert client.post("/v1/question", json=one).json() == first
    assert client.post("/v1/question", json=other).json() == second
    assert first["ranking"]["items"] != second["ranking"]["items"]


def test_questions_are_about_two_items_and_come_to_an_end(client: TestClient):
    """Each question names two different items that were not asked about, until the answers settle the order; how sure
    it is then is said. Another client, who answered nothing, is asked as the first one was at the start."""
    start = client.post("/v1/question", json=BODY).json()
    assert start["right_pairs"] is None
    assert not start["good_enough"]
    labels: dict[str, list[list[str]]] = {"orders": [], "equal": [], "unknown": []}
    while True:
        found = client.post("/v1/question", json={**BODY, "labels": labels}).json()
        if found["question"] is None:
            break
        assert found["question"]["question"] == "Which is larger?"
        pair = found["question"]["items"]
        asked = [set(one) for given in labels.values() for one in given]
        assert len(set(pair)) == 2
        assert set(pair) not in asked
        labels["unknown" if len(asked) == 1 else "orders"].append(sorted(pair))
    assert found["right_pairs"] > 0.95
    assert found["good_enough"]
    order = [row["item"] for row in found["ranking"]["items"]]
    assert sum(one < other for one, other in pairwise(order)) >= len(ITEMS) - 2
    assert client.post("/v1/question", json=BODY).json()["question"] == start["question"]


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("size", "Which is larger?"),
        ("least expensive", "Which is cheaper?"),
        ("population", "Which is more populous?"),
        ("number of legs", "Which is higher in number of legs?"),
    ],
)
def test_the_question_is_in_words(client: TestClient, by: str, words: str):
    """The question asks for the higher item in the words of the criterion."""
    found = client.post("/v1/question", json={"items": ITEMS, "by": by}).json()
    assert found["question"]["question"] == words


def test_repeated_items_are_asked_about_once(client: TestClient):
    """A list with an item twice has it twice in the order, with one score, and never against itself."""
    found = client.post("/v1/question", json={**BODY, "items": [*ITEMS, "Chad", " Peru "]}).json()
    rows = [row["item"].strip() for row in found["ranking"]["items"]]
    assert sorted(rows) == sorted([*ITEMS, "Chad", "Peru"])
    assert len(set(found["question"]["items"])) == 2


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"labels": {"orders": [["Chad", "Atlantis"]]}}, 422, "Atlantis"),
        ({"labels": {"orders": [["Chad"]]}}, 422, "at least 2"),
        ({"model": "none"}, 404, "unknown model"),
        ({"items": [f"item {number}" for number in range(4000)]}, 413, "3,000"),
        ({"colour": "red"}, 422, "colour"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_questions_are_refused(client: TestClient, more: dict[str, Any], status: int, words: str):
    """What cannot be asked about is refused before anything is read, with the reason."""
    answer = client.post("/v1/question", json={**BODY, **more})
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_first_scores_are_those_of_the_signals(client: TestClient):
    """Partial scores cover more and more items; the last are the mean of the signals that were read first."""
    answer = client.post("/v1/rank", json={**BODY, "stream": True, "partial": True})
    events = events_of(answer.text)
    partial = [value["scores"] for kind, value in events if kind == "partial"]
    kind, result = events[-1]
    assert kind == "result"
    # Events are sent from time to time, so those in between may be missing; what is sent never shrinks.
    sizes = [len(scores) for scores in partial]
    assert sizes == sorted(sizes)
    plain = client.post("/v1/rank", json=BODY).json()
    assert [row["item"] for row in result["items"]] == [row["item"] for row in plain["items"]]
    assert [row["score"] for row in result["items"]] == pytest.approx(
        [row["score"] for row in plain["items"]], abs=1e-4
    )


def test_a_watcher_sees_every_step():
    """Read in steps, pole scores arrive some items at a time and end with all; then the mean with the axis."""
    from ccrank.api import rank_tasks
    from ccrank.models.reading import PartialProgress
    from ccrank.task import Criterion, Task

    seen: list[dict[str, float]] = []
    tokens: list[int] = []
    # No exemplars were written for this criterion: its signals are means of equal weights.
    task = Task(Criterion("zippiness", poles=("sluggish", "zippy")), tuple(ITEMS))
    watcher = PartialProgress(tokens.append, lambda scores: seen.append(dict(scores)))
    [watched] = rank_tasks([task], tiny_reader(), progress=watcher)
    [plain] = rank_tasks([task], tiny_reader())
    assert np.allclose(watched.scores, plain.scores, atol=1e-4)
    assert sum(tokens) == watched.cost.distinct_tokens
    *steps, last = seen
    assert [len(one) for one in steps] == [4, 9]
    signals = plain.details["signals"]
    assert signals.keys() == {"poles", "axis", "such-as", "considered"}
    assert steps[-1] == pytest.approx(signals["poles"], abs=1e-3)
    mean = {item: (signals["poles"][item] + signals["axis"][item]) / 2 for item in ITEMS}
    assert last == pytest.approx(mean, abs=1e-3)


def test_a_watcher_sees_documents_as_they_are_read():
    """For a query, the scores of documents read so far are their final ones, and the ranking is the plain one."""
    from ccrank.api import rank_tasks
    from ccrank.models.reading import PartialProgress
    from ccrank.task import Task

    seen: list[dict[str, float]] = []
    documents = tuple(
        f"{item} is {'larger ' * place}than the old stone bridge" for place, item in enumerate(ITEMS)
    )
    task = Task.of_query("is Russia larger than Canada", documents)
    watcher = PartialProgress(lambda tokens: None, lambda scores: seen.append(dict(scores)))
    [watched] = rank_tasks([task], tiny_reader(), progress=watcher)
    [plain] = rank_tasks([task], tiny_reader())
    assert np.allclose(watched.scores, plain.scores, atol=1e-4)
    assert watched.details == plain.details
    assert [len(one) for one in seen] == [4, 9]
    final = dict(zip(documents, plain.scores, strict=True))
    for scores in seen:
        assert scores == pytest.approx({item: final[item] for item in scores}, abs=1e-3)


def test_labels_survive_the_way_through_rows():
    """Rows of a table of labels hold all that labels hold."""
    labels = Labels.parse({"a": 1.25, "best": ["b"], "worst": ["c"], "orders": [["d", "e", "f"]]})
    assert Labels.of_rows(labels.rows) == labels


def test_old_lists_make_room_for_new_ones():
    """Lists are dropped when they need too much memory together, the one asked about least recently first, and nothing
    else is kept of them."""

    class Sized:
        size = 10

    lists = ReadLists(max_bytes=25)
    made: list[str] = []

    def read(key: str) -> Any:
        return lists.get(key, lambda: (made.append(key), Sized())[1])  # type: ignore[arg-type, return-value]

    for key in ("a", "b", "a", "c", "a", "b"):
        read(key)
    assert made == ["a", "b", "c", "b"]
    assert len(lists._lists) == 2
    assert not lists._reading


def test_a_list_whose_reading_failed_is_read_again():
    """An error reaches the caller and leaves nothing behind."""
    lists = ReadLists()

    def fail() -> Any:
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        lists.get("a", fail)
    assert lists.get("a", lambda: type("Sized", (), {"size": 1})()) is not None  # type: ignore[arg-type, return-value]


@pytest.fixture
def studies(tmp_path: Path) -> Iterator[tuple[TestClient, Path]]:
    """A server that shows the reports of a folder beside a file that it must not show."""
    folder = tmp_path / "studies"
    (folder / "first").mkdir(parents=True)
    (folder / "first" / "report.html").write_text("<title>first</title>", encoding="utf-8")
    (folder / "a <b> & c.html").write_text("<title>odd</title>", encoding="utf-8")
    (folder / "first" / "results.csv").write_text("secret", encoding="utf-8")
    (tmp_path / "outside.html").write_text("secret", encoding="utf-8")
    (folder / "link.html").symlink_to(tmp_path / "outside.html")
    settings = ServerSettings(reports=str(folder))
    with TestClient(create_app(settings, {"tiny": tiny_reader()}), "http://localhost") as client:
        yield client, folder


def test_reports_are_listed_and_opened(studies: tuple[TestClient, Path]):
    """The list has every report below the folder; each opens, in a sandbox of its own."""
    client, _ = studies
    names = client.get("/v1/page").json()["reports"]
    assert sorted(names) == ["a <b> & c.html", "first/report.html"]
    for name, title in [("first/report.html", "first"), ("a <b> & c.html", "odd")]:
        report = client.get(f"/reports/{quote(name)}")
        assert report.text == f"<title>{title}</title>"
        assert "sandbox" in report.headers["content-security-policy"]
        assert "allow-same-origin" not in report.headers["content-security-policy"]


def test_a_report_whose_name_is_not_utf_8_is_listed_and_opened(studies: tuple[TestClient, Path]):
    """A name of any bytes is a link that leads to its file; links in a circle and unreadable files are no reports."""
    client, folder = studies
    try:
        (folder / os.fsdecode(b"caf\xe9.html")).write_text("<title>latin</title>", encoding="utf-8")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    (folder / "round.html").symlink_to(folder / "round.html")
    [name] = [name for name in client.get("/v1/page").json()["reports"] if name.startswith("caf")]
    assert client.get(f"/reports/{quote(name)}").text == "<title>latin</title>"
    assert client.get("/reports/round.html").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "../outside.html",
        "..%2Foutside.html",
        "%2e%2e/outside.html",
        "first/../../outside.html",
        "link.html",
        "first/results.csv",
        "first",
        "/etc/passwd",
        "//etc/passwd",
        "none.html",
        "first%00.html",
    ],
)
def test_nothing_but_reports_can_be_opened(studies: tuple[TestClient, Path], path: str):
    """Paths out of the folder, links out of it, other files and folders are 404."""
    client, _ = studies
    answer = client.get(f"/reports/{path}")
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_without_a_folder_there_are_no_reports(client: TestClient):
    """The list is empty; the page of reports says how to have some."""
    assert client.get("/v1/page").json()["reports"] == []
    assert client.get("/reports/first/report.html").status_code == 404


def test_a_server_with_keys_shows_no_reports_but_the_page(studies: tuple[TestClient, Path]):
    """A browser opens reports without a key, so they are closed where keys are set; the page itself opens."""
    _, folder = studies
    settings = ServerSettings(reports=str(folder), keys=("secret",))
    with TestClient(create_app(settings, {"tiny": tiny_reader()}), "http://localhost") as client:
        assert client.get("/").status_code == 200
        assert client.get("/reports/first/report.html").status_code == 404
        assert client.post("/v1/question", json=BODY).status_code == 401
        assert client.post("/v1/understand", json={"by": "size"}).status_code == 401
