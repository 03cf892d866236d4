"""The server of llama.cpp itself, with a tiny model in its own file format.

Runs where `xllamacpp`, whose wheel has the server, is installed here or in the environment of the Python that
CCRANK_LLAMACPP_PYTHON names: it is too large for a dependency of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from completion_server import CANDIDATES, PROMPTS
from tiny import tiny_reader

from ccrank.api import rank_tasks
from ccrank.models.remote import RemoteReader
from ccrank.task import Criterion, Task
from studies.remote import float32_gguf

PYTHON = os.environ.get("CCRANK_LLAMACPP_PYTHON") or (sys.executable if find_spec("xllamacpp") else None)
pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="xllamacpp is not installed; CCRANK_LLAMACPP_PYTHON names a Python that has it"
)
SERVER = Path(__file__).parents[3] / "benchmarks" / "llamacpp_server.py"
WISHES = ["--name", "tiny", "--port", "0", "--slots", "2", "--context", "1024", "--float32"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteReader]:
    """The tiny model behind llama.cpp's server."""
    folder = tmp_path_factory.mktemp("llamacpp")
    float32_gguf.write_gguf(tiny_reader().loaded, folder / "tiny.gguf")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(PYTHON), str(SERVER), str(folder / "tiny.gguf"), *WISHES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = next((line.strip() for line in process.stdout if line.startswith("http://")), None)
        assert url, (folder / "log").read_text()[-2000:]
        yield RemoteReader.open(f"openai:{url}/v1#tiny")
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(600)


def test_scores_equal_those_of_the_local_reader(served: RemoteReader) -> None:
    """The log-probabilities of all candidates are those of the model loaded here, up to rounding."""
    assert served.server.scoring.name.endswith("(logit_bias and grammar)")
    found = served.read(PROMPTS, CANDIDATES)
    expected = tiny_reader().read(PROMPTS, CANDIDATES, log_probabilities=True)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-3)
    np.testing.assert_array_equal(found.answer_tokens, expected.answer_tokens)


def test_tokens_of_one_candidate(served: RemoteReader) -> None:
    """Also token by token."""
    candidates = [["Yes and No"], ["seventy-one"], ["est of all"], ["größer 😁"]]
    found = served.read(PROMPTS, candidates, per_token=True)
    expected = tiny_reader().read(PROMPTS, candidates, per_token=True)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-3)


@pytest.mark.parametrize("method", ["poles", "likelihood", "prompt-pair", "prompt-list"])
def test_rankings(method: str, served: RemoteReader) -> None:
    """Methods give the same scores."""
    task = Task(Criterion("size", poles=("small", "large"), category="country"), ("Russia", "Monaco", "Chad"))
    [found], [expected] = (rank_tasks([task], one, method) for one in (served, tiny_reader()))
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-2)
