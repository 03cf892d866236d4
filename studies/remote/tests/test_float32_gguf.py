"""A model written to a .gguf file in float32: its tensors, its tokenizer and its settings are those of the model."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from tiny import tiny_model

from ccrank.errors import CcrankError
from ccrank.models.load.transformers_settings import quiet_transformers
from studies.remote import float32_gguf

TEXTS = ("Is Russia larger than Canada? 10 of 1,234.", "Größe: 日本 😀", "  two blanks\n\tdef main():")


@pytest.fixture(scope="module", params=[False, True], ids=["own-head", "tied-head"])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerFast, Path]:
    """A tiny Llama with fewer heads of keys than of queries, its tokenizer, and its file."""
    loaded = tiny_model("llama", tie_word_embeddings=request.param)
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    float32_gguf.write_gguf(loaded, path)
    return loaded.model, loaded.tokenizer, path


def test_tensors_are_read_back_to_the_last_bit(written: tuple) -> None:
    """`transformers`, which has its own way from llama.cpp's order of rows to that of its modules, finds the weights of
    the model, and no others."""
    model, _, path = written
    with quiet_transformers():
        found = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    own = found.state_dict()
    assert own.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(own[name], tensor), name
    assert {one.tensor_type for one in gguf.GGUFReader(path).tensors} == {gguf.GGMLQuantizationType.F32}


def test_the_model_computes_the_same(written: tuple) -> None:
    """So are its settings: the logits of a text are equal."""
    model, tokenizer, path = written
    ids = torch.tensor([tokenizer(TEXTS[0])["input_ids"]])
    with quiet_transformers(), torch.no_grad():
        found = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
        np.testing.assert_allclose(found(ids).logits, model(ids).logits, atol=1e-5)


def test_the_tokenizer_is_read_back(written: tuple) -> None:
    """Texts have the same tokens, and special tokens are marked as such."""
    _, tokenizer, path = written
    with quiet_transformers():
        found = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TEXTS:
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert found(text, add_special_tokens=False)["input_ids"] == expected
    fields = gguf.GGUFReader(path).fields
    names, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    marked = {name for name, kind in zip(names, types, strict=True) if kind == gguf.TokenType.CONTROL}
    assert marked == set(tokenizer.all_special_tokens)


@pytest.mark.parametrize("family", ["gpt2", "llama-3.2"])
def test_other_models_are_refused(family: str, tmp_path: Path) -> None:
    """A file that llama.cpp would read as another model is not written."""
    with pytest.raises(CcrankError, match="only Llama models with plain rotary positions"):
        float32_gguf.write_gguf(tiny_model(family), tmp_path / "tiny.gguf")
    assert not (tmp_path / "tiny.gguf").exists()
