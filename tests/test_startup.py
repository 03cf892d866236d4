"""What a command imports: start-up is mostly imports, and counting them does not depend on how busy the machine is."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from tiny import save_model, tiny_model

REPORT = """
import json, sys
from ccrank.cli import main
sys.argv = ["ccrank", *sys.argv[2:]]
path = open({path!r}, "w")
try:
    main()
except SystemExit as leaving:
    assert not leaving.code, leaving.code
json.dump(sorted(sys.modules), path)
path.close()
"""
HEAVY = ("torch", "transformers", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "sklearn", "jinja2")
"""What takes long to import, each more than 50 ms."""
UNNEEDED = (
    *(
        "transformers",
        "scipy.stats",
        "scipy.optimize",
        "pandas",
        "pyarrow",
        "matplotlib",
        "sklearn",
        "PIL",
    ),
    *(
        "accelerate",
        "huggingface_hub",
        "gguf",
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed.tensor",
        "ray",
    ),
    *(() if version("torch").startswith("2.6.") else ("sympy",)),  # which torch 2.6 imports
)
"""What ranking a list does not need."""


def modules_of(folder: Path, *arguments: str) -> list[str]:
    """The modules that are imported when a command ends."""
    path = folder / "modules.json"
    code = REPORT.format(path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", code, "ccrank", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["rank", "--help"], ["bench", "--help"], ["--version"], ["label", "--help"]]
)
def test_help_imports_nothing_heavy(arguments, tmp_path):
    """Help and the version need the command parser alone."""
    found = modules_of(tmp_path, *arguments)
    assert {name.split(".")[0] for name in found}.isdisjoint(HEAVY)
    assert not any(name.startswith(("ccrank.io", "ccrank.criteria")) for name in found)
    assert len(found) < 650


def test_ranking_with_a_prepared_model_imports_no_transformers(tmp_path, monkeypatch):
    """The second start with a model needs torch and neither transformers, nor scipy.stats, pandas, pyarrow or the
    compiler of torch; the first start, with transformers, gives the same scores."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    folder = save_model(tiny_model("llama", max_position_embeddings=512), tmp_path / "model")
    ranked = tmp_path / "ranked.json"
    arguments = ["rank", "Russia", "Chad", "Peru", "Monaco", "Brazil", "--by", "size", "--no-cache"]
    arguments += ["--model", str(folder), "--out", str(ranked)]
    assert "transformers" in modules_of(tmp_path, *arguments)
    first = json.loads(ranked.read_text())
    found = modules_of(tmp_path, *arguments)
    assert "torch" in found
    unneeded = [name for name in UNNEEDED if name in found]
    assert unneeded == []
    second = json.loads(ranked.read_text())
    assert [one["item"] for one in second["items"]] == [one["item"] for one in first["items"]]
    scores = [[one["score"] for one in result["items"]] for result in (first, second)]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-6)
