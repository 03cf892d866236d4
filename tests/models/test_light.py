"""Models opened without transformers, against transformers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import pair_prompts, save_model, tiny_model

from ccrank.models import Reader, load_model
from ccrank.models.load import light, loading
from ccrank.models.load.light import ATTRIBUTES, LightTokenizer
from ccrank.models.load.light_llama import LightCausalLM, expressible
from ccrank.models.tokenize.by_form import token_rows
from ccrank.reader_options import ReaderOptions
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size", "larger"), ("Russia", "Chad", "Peru", "the tower"), id="sizes")


def opened(tmp_path, monkeypatch, family="llama", dtype="float32", **changes):
    """The same model by transformers, and as every start opens it that can prepare it."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    folder = save_model(tiny_model(family, max_position_embeddings=512, **changes), tmp_path / family)
    with monkeypatch.context() as unprepared:
        unprepared.setattr(loading, "prepare", lambda *given: None)
        full = load_model(str(folder), ReaderOptions(dtype=dtype))
    return full, load_model(str(folder), ReaderOptions(dtype=dtype))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("path", ["tree", "padded", "one"])
def test_readings_are_those_of_transformers(family, dtype, path, tmp_path, monkeypatch):
    """Logits, log-probabilities and states of all layers are the same, whichever way prompts are packed; in bfloat16
    they are about as near to those of float32."""
    full, light = opened(tmp_path, monkeypatch, family, dtype)
    assert isinstance(light.model, LightCausalLM)
    assert not isinstance(full.model, LightCausalLM)
    assert (light.identity, light.form, light.bos, light.window) == (
        full.identity,
        full.form,
        full.bos,
        full.window,
    )
    wanted = {"candidates": ["Yes", "No"], "layers": "all", "items": True, "log_probabilities": True}
    models = [full, light] + [load_model(str(full.folder), ReaderOptions(dtype="float32"))] * (
        dtype == "bfloat16"
    )
    expected, found, *exact = (Reader(one, path=path).read(pair_prompts(TASK), **wanted) for one in models)
    for name in ("logits", "states", "item_states"):
        if exact:
            far = [np.abs(getattr(one, name) - getattr(exact[0], name)).mean() for one in (expected, found)]
            assert far[1] <= 1.5 * far[0]
        else:
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-5)


def test_the_model_gives_the_logits_of_a_plain_forward_pass(tmp_path, monkeypatch):
    """Called like a model of transformers, it returns the same logits, with and without padding."""
    full, light = opened(tmp_path, monkeypatch)
    ids = torch.randint(0, 400, (3, 17), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(17)[None] < torch.tensor([[17], [9], [3]])).long()
    with torch.inference_mode():
        for inputs in ({}, {"attention_mask": mask}, {"attention_mask": torch.ones_like(mask)}):
            expected = full.model(input_ids=ids, **inputs).logits[mask.bool()]
            torch.testing.assert_close(light.model(ids, **inputs).logits[mask.bool()], expected)


@pytest.mark.parametrize(
    "changes", [{"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}, {"head_dim": 12}]
)
def test_variants_of_the_architecture_are_covered(changes, tmp_path, monkeypatch):
    """Tied embeddings, biases and heads of any width give the logits of transformers."""
    full, light = opened(tmp_path, monkeypatch, **changes)
    assert isinstance(light.model, LightCausalLM)
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        torch.testing.assert_close(light.model(ids).logits, full.model(input_ids=ids).logits)
    assert (light.model.lm_head.weight is light.model.model.embed_tokens.weight) == bool(
        changes.get("tie_word_embeddings")
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
        {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
        {"model_type": "gpt2"},
    ],
)
def test_what_the_architecture_lacks_is_left_to_transformers(changes):
    """Another activation, scaled rotary positions, attention windows and other families are refused."""
    plain = {
        "model_type": "llama",
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    assert expressible(SimpleNamespace(**plain))
    assert not expressible(SimpleNamespace(**{**plain, **changes}))


def test_a_family_without_a_light_twin_is_opened_by_transformers(tmp_path, monkeypatch):
    """Nothing is stored for it, and the second start is like the first."""
    _, second = opened(tmp_path, monkeypatch, "gpt_neox")
    assert not isinstance(second.model, LightCausalLM)
    assert not list((tmp_path / "cache").glob("prepared/*"))


def test_numbers_that_differ_are_noticed(tmp_path, monkeypatch):
    """If the light model does not reproduce the model's logits, it is not used."""
    rotate = light.LightCausalLM.forward
    monkeypatch.setattr(light.LightCausalLM, "forward", lambda self, ids: rotate(self, ids.flip(1)))
    _, second = opened(tmp_path, monkeypatch)
    assert not isinstance(second.model, LightCausalLM)


def test_changed_files_are_prepared_again(tmp_path, monkeypatch):
    """New weights or another tokenizer in the same folder are read, not what was stored of the old ones."""
    _, light = opened(tmp_path, monkeypatch)
    save_model(tiny_model("llama", seed=1, max_position_embeddings=512), light.folder)
    with monkeypatch.context() as unprepared:
        unprepared.setattr(loading, "prepare", lambda *given: None)
        again = load_model(str(light.folder))
    assert not isinstance(again.model, LightCausalLM)
    assert again.identity != light.identity
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        for _ in range(2):
            found = load_model(str(light.folder)).model(ids).logits
            torch.testing.assert_close(found, again.model(input_ids=ids).logits)


def test_a_damaged_note_is_made_again(tmp_path, monkeypatch):
    """A note that was cut off is ignored and replaced."""
    _, light = opened(tmp_path, monkeypatch)
    [note] = (tmp_path / "cache" / "prepared").iterdir()
    note.write_text(note.read_text()[:100])
    assert isinstance(load_model(str(light.folder)).model, LightCausalLM)
    json.loads(note.read_text())


def test_the_tokenizer_is_that_of_transformers(tmp_path, monkeypatch):
    """Ids, offsets and attributes agree; an attribute that is not stored is that of the full tokenizer."""
    full, light = opened(tmp_path, monkeypatch)
    texts = ["Is Russia larger than Canada?", " a  b\n", "naïve 🙂 <s> x", ""]
    assert isinstance(light.tokenizer, LightTokenizer)
    for special in (False, True):
        rows = token_rows(light.tokenizer, texts, special=special, offsets=True)
        expected = full.tokenizer(texts, add_special_tokens=special, return_offsets_mapping=True)
        assert [row.ids for row in rows] == expected["input_ids"]
        assert [row.offsets for row in rows] == [list(map(tuple, row)) for row in expected["offset_mapping"]]
        plain = token_rows(light.tokenizer, texts, special=special, offsets=False)
        assert [row.ids for row in plain] == expected["input_ids"]
        assert light.tokenizer(texts, add_special_tokens=special)["input_ids"] == expected["input_ids"]
    for name in (*ATTRIBUTES, "added_tokens_decoder"):
        assert str(getattr(light.tokenizer, name)) == str(getattr(full.tokenizer, name, None))
    assert light.tokenizer.convert_ids_to_tokens([5, 300]) == full.tokenizer.convert_ids_to_tokens([5, 300])
    assert light.tokenizer.convert_tokens_to_ids("<s>") == full.tokenizer.convert_tokens_to_ids("<s>")
    assert len(light.tokenizer) == len(full.tokenizer)
    assert light.tokenizer.decode([50, 60]) == full.tokenizer.decode([50, 60])


@pytest.mark.real
def test_the_default_model_reads_the_same_without_transformers(default_reader):
    """On the default model, logits and states equal those that transformers computes."""
    import transformers

    folder = default_reader.loaded.folder
    load_model("default")
    light = load_model("default")
    assert isinstance(light.model, LightCausalLM)
    full = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([light.tokenizer("The size of Russia is")["input_ids"]])
    with torch.inference_mode():
        torch.testing.assert_close(light.model(ids).logits, full(input_ids=ids).logits, rtol=1e-5, atol=1e-4)
