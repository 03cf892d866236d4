"""POST /v1/score: the scores of the scale, within the limits of the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tiny import tiny_reader

from ccrank import fit
from ccrank.errors import CcrankError
from ccrank.server.app import create_app
from ccrank.server.settings import ServerSettings

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "Cuba", "Japan", "France")


@pytest.fixture
def scales(tmp_path: Path) -> dict[str, object]:
    """Three scales as files: one with labels, one of a single signal."""
    made = {
        "size": fit(ITEMS, "size", model=tiny_reader()),
        "bare": fit(ITEMS, "size", model=tiny_reader(), method="poles"),
        "told": fit(ITEMS, "size", model=tiny_reader(), labels={"Russia": 3.0, "Chad": 1.0}),
    }
    for name, scale in made.items():
        scale.save(tmp_path / f"{name}.scale")
    return made


def serving(tmp_path: Path, *names: str, **settings: object) -> TestClient:
    given = tuple(f"{name}={tmp_path / name}.scale" for name in names)
    app = create_app(ServerSettings(scales=given, **settings), {"tiny": tiny_reader()})
    return TestClient(app, base_url="http://localhost")


def test_scores_are_those_of_the_scale(scales, tmp_path):
    """Known and new items, one or several, in their order and with repeats; deviations by several signals or labels."""
    texts = ["Mali", "Russia", "Mali ", "Togo"]
    with serving(tmp_path, "size", "bare", "told") as client:
        listed = client.get("/v1/scales").json()["data"]
        assert [(one["id"], one["model"], one["items"], one["deviations"]) for one in listed] == [
            ("size", "tiny", 9, True),
            ("bare", "tiny", 9, False),
            ("told", "tiny", 9, True),
        ]
        for name, scale in scales.items():
            reply = client.post("/v1/score", json={"items": texts, "scale": name})
            assert reply.status_code == 200, reply.text
            found = reply.json()
            assert [line["item"] for line in found["items"]] == texts
            expected = scale.score(texts)
            np.testing.assert_allclose([line["score"] for line in found["items"]], expected.values, atol=1e-4)
            assert all(("deviation" in line) == (name != "bare") for line in found["items"])
        first = client.post("/v1/score", json={"items": ["Mali"]}).json()
        assert first["scale"] == "size"
        assert "/v1/score" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"items": []}, 422, "items"),
        ({"items": [""]}, 422, "empty"),
        ({"items": ["a", 3]}, 422, "items"),
        ({"items": ["a"], "scale": "none"}, 404, "unknown scale 'none'; this server has size"),
        ({"items": ["a"], "by": "age"}, 422, "by"),
        ({"items": ["a"] * 30}, 413, "30 items; this server takes up to 20"),
        ({"items": ["a" * 500]}, 413, "item 1 has 500 characters"),
    ],
)
def test_bad_requests_are_refused(scales, tmp_path, body, status, message):
    """The status and the message say what is wrong."""
    with serving(tmp_path, "size", max_items=20, max_characters=400) as client:
        reply = client.post("/v1/score", json=body)
    assert reply.status_code == status, reply.text
    assert message in reply.text


def test_scales_are_checked_at_the_start(scales, tmp_path, client):
    """Another model, a name that is missing or given twice; without any scale the route says how to give one."""
    assert "start it with --scale NAME=FILE" in client.post("/v1/score", json={"items": ["a"]}).text
    file = tmp_path / "size.scale"
    for given, message in (
        ((str(file),), "give NAME=FILE"),
        ((f"a={file}", f"a={file}"), "is given twice"),
        ((f"a={tmp_path / 'none'}",), "there is no file"),
    ):
        with pytest.raises(CcrankError, match=message):
            create_app(ServerSettings(scales=given), {"tiny": tiny_reader()})
    with pytest.raises(CcrankError, match="this server has other; serve it with --model"):
        create_app(ServerSettings(scales=(f"a={file}",)), {"other": tiny_reader("gpt2")})
