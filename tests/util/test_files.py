"""Files that are made to cost much."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ccrank.errors import CcrankError
from ccrank.study.results.schema import save_unit, unit_failures, unit_rows
from ccrank.util.files import parse_toml


@pytest.mark.parametrize(
    "text",
    ["a." * 30_000 + "a = 1", "x = {" + "a." * 30_000 + "a = 1}", "a = " + "[" * 100_000],
    ids=["key", "inline-key", "lists"],
)
def test_deep_toml_is_refused_at_once(tmp_path: Path, text: str):
    """A key of 60 kB took half a minute and 3 GB."""
    path = tmp_path / "deep.toml"
    path.write_text(text)
    start = time.process_time()
    with pytest.raises(CcrankError, match="is not valid TOML"):
        parse_toml(path)
    assert time.process_time() - start < 2


def test_dots_in_a_text_are_no_key(tmp_path: Path):
    """Long texts with many sentences are read."""
    path = tmp_path / "long.toml"
    text = "One sentence. " * 900
    path.write_text(f'text = "{text}"\nmore = """{text}\n{text}"""')
    assert parse_toml(path)["text"] == text


def test_a_folder_may_be_named_like_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """pyarrow takes a relative path with a colon for a URL."""
    monkeypatch.chdir(tmp_path)
    unit = Path("openai:http:/host/unit.parquet")
    unit.parent.mkdir(parents=True)
    save_unit(unit, [], {"task": "reason"})
    assert unit_failures(unit) == {"task": "reason"}
    assert unit_rows(unit) == []
