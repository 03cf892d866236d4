"""The page about speed: its tables and its figure are those of the measured numbers."""

from __future__ import annotations

import json
import sys

import pytest
from scripts import load_benchmark

RATES = {
    "threads": 2,
    "torch float32 GFLOP/s": 220.0,
    "fastest float32 GFLOP/s": 500.0,
    "bfloat16 GFLOP/s": 900.0,
    "memory GB/s": 20.0,
}


def row(reader: str, seconds: float, computed: int) -> dict[str, object]:
    """What `reading.py` writes of one reader."""
    return {
        "dataset": "wikilists",
        "reader": reader,
        "seconds": seconds,
        "cpu_seconds": 2 * seconds,
        "computed_tokens": computed,
        "distinct_tokens": 1000,
        "passes": 4,
        "operations_per_token": 200_000_000,
        "of_peak": 0.4 / seconds,
        "difference": 1e-5,
    }


def test_numbers_are_put_into_the_page_and_the_figure(tmp_path, monkeypatch, capsys) -> None:
    """Ratios are those to ccrank in float32; prose stays, and a page without a section for a table is refused."""
    script = load_benchmark("roofline")
    rows = [row("ccrank, float32", 0.5, 1024), row("padded", 3.0, 4000)]
    (tmp_path / "reading.json").write_text(json.dumps({"machine": RATES, "rows": rows}))
    page, figure = tmp_path / "speed.md", tmp_path / "roofline.png"
    sections = [f"<!-- generated: {name} -->\nold\n<!-- end: {name} -->" for name in ("machine", "reading")]
    page.write_text("\n\n".join(["# Prose", *sections, "More."]))
    arguments = ["roofline", str(tmp_path / "reading.json"), "--page", str(page), "--figure", str(figure)]
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("# Prose")
    assert text.endswith("More.")
    assert "| 500 GFLOP/s |" in text
    assert "| WikiLists | ccrank, float32 | 1,024 | 0.5 s | 1.0 s | 1.0 | 2,000 | 80% |  |" in text
    assert "| WikiLists | transformers, padded | 4,000 | 3.0 s | 6.0 s | 6.0 | 333 | 13% | 1e-05 |" in text
    assert figure.read_bytes().startswith(b"\x89PNG")
    page.write_text(sections[0])
    with pytest.raises(ValueError, match="reading"):
        script.main()
