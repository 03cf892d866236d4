"""The server of llama.cpp itself, with a tiny model in its own file format.

Runs where `xllamacpp`, whose wheel has the server, is installed here or in the environment of the Python that
CCRANK_LLAMACPP_PYTHON names: it is too large for a dependency of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest

from ccrank.api import rank_tasks
from ccrank.lm import Reader
from ccrank.remote import RemoteReader
from ccrank.task import Criterion, Task
from completion_server import CANDIDATES, PROMPTS
from tiny import tiny_reader

PYTHON = os.environ.get("CCRANK_LLAMACPP_PYTHON") or (sys.executable if find_spec("xllamacpp") else None)
pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="xllamacpp is not installed; CCRANK_LLAMACPP_PYTHON names a Python that has it"
)
SERVER = """
import sys
import xllamacpp

wish = xllamacpp.CommonParams()
wish.model.path, wish.model_alias = sys.argv[1], {"tiny"}
wish.hostnames, wish.port, wish.n_parallel, wish.n_ctx = ["127.0.0.1"], 0, 2, 1024
wish.cpuparams.n_threads = wish.cpuparams_batch.n_threads = 1
wish.cache_type_k = wish.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
wish.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(wish)
print(server.listening_address, flush=True)
sys.stdin.read()  # until the test is over
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteReader]:
    """The tiny model behind llama.cpp's server."""
    folder = tmp_path_factory.mktemp("llamacpp")
    write_gguf(tiny_reader(), folder / "tiny.gguf")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(PYTHON), "-c", SERVER, str(folder / "tiny.gguf")],
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
        process.wait(60)


def write_gguf(reader: Reader, path: Path) -> None:
    """A tiny Llama with its byte-level tokenizer, in float32."""
    model, tokenizer = reader.loaded.model, reader.loaded.tokenizer
    config = model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    fast = json.loads(tokenizer.backend_tokenizer.to_str())
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    names += [f"[unused {number}]" for number in range(len(names), config.vocab_size)]
    kinds = [
        gguf.TokenType.CONTROL
        if name in tokenizer.all_special_tokens
        else gguf.TokenType.UNUSED
        if name.startswith("[unused")
        else gguf.TokenType.NORMAL
        for name in names
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges(
        [one if isinstance(one, str) else " ".join(one) for one in fast["model"]["merges"]]
    )
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(False)
    places = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        count = heads if "q_proj" in name else groups if "k_proj" in name else 0
        if count:  # llama.cpp rotates neighbours, transformers halves
            halves = values.reshape(count, 2, len(values) // count // 2, -1)
            values = halves.swapaxes(1, 2).reshape(values.shape)
        place = places.get_name(name, try_suffixes=(".weight",))
        assert place is not None, name
        writer.add_tensor(place, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
