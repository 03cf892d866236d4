"""Checkpoints on disk to models that can be trusted."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from safetensors.torch import load_file, save_file
from tiny import FAMILIES, pair_prompts, random_model, save_model, tiny_config, tiny_model, tokenizer_of

from ccrank.errors import CcrankError
from ccrank.models import Reader, load_model
from ccrank.models.load import transformers_settings
from ccrank.models.load.loading import form_of
from ccrank.models.load.transformers_settings import choose_device, choose_dtype
from ccrank.models.load.weights import tensor_names, weight_files
from ccrank.reader_options import ReaderOptions
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad"))


def change_config(folder, drop=(), **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name in drop:
        config.pop(name, None)
    path.write_text(json.dumps({**config, **changes}))


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def logits_of(loaded):
    return Reader(loaded).read(pair_prompts(TASK, loaded.form), candidates=["Yes", "No"]).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_reads_as_the_one_in_memory(family, tmp_path):
    """Every family: saved and loaded by its folder's name the readings are the same, and nothing counts as missing."""
    loaded = tiny_model(family)
    again = load_model(str(save_model(loaded, tmp_path)))
    assert again.form == loaded.form
    assert again.missing_head == ()
    # No figures: `transformers` gives Qwen's tokenizer class, which parts them, to any saved model of that family.
    wish = {"candidates": ["Yes", "No", "larger"], "layers": "all", "items": True}
    ours, theirs = (Reader(one).read(pair_prompts(TASK, loaded.form), **wish) for one in (again, loaded))
    for name in ("logits", "states", "item_states"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-5)


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
VALUES = [0, -1, 10**9, 10**30, 1.5, "x", None, [], {}, True]


@pytest.mark.parametrize(
    "key",
    [
        "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "head_dim", "hidden_size", "vocab_size",
        "max_position_embeddings", "pad_token_id", "bos_token_id", "rms_norm_eps", "rope_parameters", "hidden_act",
        "model_type", "architectures", "dtype", "quantization_config", "auto_map", "layer_types",
    ],
)  # fmt: skip
def test_any_value_in_a_configuration(saved_llama, key):
    """Each value is read or refused with an error of ours: neither another exception nor a model without end."""
    for value in VALUES:
        change_config(saved_llama, **{key: value})
        reads_or_refuses(saved_llama)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "special_tokens_map.json",
    ],
)
def test_any_content_of_a_file(saved_llama, name):
    """JSON nested without end, JSON of another kind, and what is none."""
    for content in (DEEP, b"[" * 100_000, b"", b"null", b"[]", b"1", b'"x"', b"{}", b"\xff\xfe", b"NaN"):
        (saved_llama / name).write_bytes(content)
        reads_or_refuses(saved_llama)


@pytest.mark.parametrize(
    "key", ["version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "model"]
)
def test_any_value_in_a_tokenizer(saved_llama, key):
    """The errors of the tokenizers library are plain exceptions; some mistakes show only where a text is split."""
    path = saved_llama / "tokenizer.json"
    own = json.loads(path.read_text())
    for value in VALUES:
        path.write_text(json.dumps({**own, key: value}))
        reads_or_refuses(saved_llama)
    path.write_text(json.dumps(own))
    settings = saved_llama / "tokenizer_config.json"
    for value in VALUES:
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "model_max_length": value}))
        reads_or_refuses(saved_llama)


@pytest.fixture
def saved_llama(tmp_path):
    return Path(save_model(tiny_model("llama"), tmp_path))


def reads_or_refuses(folder):
    try:
        reader = Reader(load_model(str(folder)))
        reader.read(pair_prompts(TASK, reader.form), candidates=["Yes", "No"])
    except CcrankError:
        pass


def test_t5_with_a_head_of_its_own(tmp_path):
    """T5 v1.1's head is not its embedding, and its states are not scaled before it: both as in the checkpoint."""
    loaded = tiny_model("t5")
    save_model(loaded, tmp_path)
    head = torch.nn.Linear(32, 300, bias=False)
    change_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": head.weight.detach()}))
    change_config(tmp_path, drop=["scale_decoder_outputs"], tie_word_embeddings=False)
    again = load_model(str(tmp_path))
    assert again.missing_head == ()
    reader = Reader(again)
    prompts = pair_prompts(TASK, "encoder_decoder")
    readings = reader.read(prompts, candidates=["Yes", "No"], layers=[-1])
    for row, encoded in enumerate(reader.prompt_tokenizer.encode(prompts, [("Yes", "No")] * len(prompts))):
        words = head.weight[[answer[0] for answer in encoded.answers]].detach().numpy()
        np.testing.assert_allclose(readings.logits[row], words @ readings.states[row, 0], atol=1e-4)
    np.testing.assert_allclose(readings.states, Reader(loaded).read(prompts, layers=[-1]).states, atol=1e-5)


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
@pytest.mark.parametrize("own_head", [True, False])
def test_debertas_own_head_is_found_whatever_the_config_says(family, own_head, tmp_path):
    """A checkpoint with DeBERTa's original head gives its logits, although the config does not name the head."""
    if own_head and Version(transformers.__version__) < Version("5.20"):
        pytest.skip("this version of transformers cannot load such a head; the error says so")
    loaded = tiny_model(family, legacy=not own_head)
    assert hasattr(loaded.model, "lm_predictions") == own_head
    save_model(loaded, tmp_path)
    change_config(tmp_path, drop=["legacy"])
    again = load_model(str(tmp_path))
    assert again.missing_head == ()
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), atol=1e-5)
    prompts = pair_prompts(TASK, "masked")[:1]
    [encoded] = Reader(loaded).prompt_tokenizer.encode(prompts, [("Yes", "No")])
    with torch.inference_mode():
        plain = loaded.model(input_ids=torch.tensor([encoded.tokens])).logits[0, encoded.slot]
    np.testing.assert_allclose(
        logits_of(again)[0], plain[[answer[0] for answer in encoded.answers]], atol=1e-4
    )


def test_threads_that_load_at_once_change_nothing(tmp_path):
    """A load replaces what initializes weights, in the whole process: made meanwhile or later, a model has the same
    weights."""
    folder = str(save_model(tiny_model("bert"), tmp_path))
    wanted = tiny_model("marian").model.state_dict()
    before = transformers.PreTrainedModel.init_weights, torch.nn.init.normal_
    with ThreadPoolExecutor(2) as threads:
        loads = [threads.submit(load_model, folder) for _ in range(40)]
        made = [tiny_model("marian").model.state_dict() for _ in range(40)]
        for load in loads:
            load.result()
    assert (transformers.PreTrainedModel.init_weights, torch.nn.init.normal_) == before
    for found in (*made, tiny_model("marian").model.state_dict()):
        for name, weights in wanted.items():
            assert torch.equal(found[name], weights), name


def test_a_model_without_a_head_is_probed_but_not_prompted(tmp_path):
    """A bare BertModel: prompting is refused with the reason, states are the model's own, and one may insist."""
    bare = random_model(lambda: transformers.BertModel(tiny_config("bert")))
    bare.save_pretrained(tmp_path)
    tokenizer_of("bert").save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    reader = Reader(loaded)
    prompts = pair_prompts(TASK, "masked")
    with pytest.raises(CcrankError, match=r"no language-model head: its checkpoint lacks cls\.predictions"):
        reader.read(prompts, candidates=["Yes", "No"])
    readings = reader.read(prompts[:1], layers=[1, 3])
    [encoded] = reader.prompt_tokenizer.encode(prompts[:1], [()])
    with torch.inference_mode():
        states = bare(input_ids=torch.tensor([encoded.tokens]), output_hidden_states=True).hidden_states
    for column, layer in enumerate((1, 3)):
        np.testing.assert_allclose(readings.states[0, column], states[layer][0, encoded.slot], atol=1e-5)
    insisted = Reader(load_model(str(tmp_path), ReaderOptions(allow_new_head=True)))
    assert np.isfinite(insisted.read(prompts, candidates=["Yes", "No"]).logits).all()


def test_a_bare_causal_model_whose_head_is_not_its_embedding(tmp_path):
    """A LlamaModel without its head is not prompted; GPT-2's head is its embedding, so a bare GPT2Model may be."""
    for family, bare in (("llama", transformers.LlamaModel), ("gpt2", transformers.GPT2Model)):
        folder = tmp_path / family
        bare(tiny_config(family)).save_pretrained(folder)
        tokenizer_of(family).save_pretrained(folder)
        assert bool(load_model(str(folder)).missing_head) == (family == "llama")


def test_sharded_weights(tmp_path):
    """Weights in many files are read as those in one."""
    loaded = tiny_model("llama")
    save_model(loaded, tmp_path, max_shard_size="20KB")
    assert len(weight_files(tmp_path, False)) > 2
    np.testing.assert_allclose(logits_of(load_model(str(tmp_path))), logits_of(loaded), atol=1e-5)


def test_a_missing_shard_is_refused(tmp_path):
    """An index that names a file that is not there: no model, and the reason."""
    save_model(tiny_model("llama"), tmp_path, max_shard_size="20KB")
    weight_files(tmp_path, False)[1].unlink()
    with pytest.raises(CcrankError, match="cannot be loaded"):
        load_model(str(tmp_path))


def test_pickled_weights_only_when_asked_for(tmp_path):
    """A pickle is refused by default; with allow_pickle it gives the same logits. Other .bin files are no weights."""
    loaded = tiny_model("deberta")
    save_model(loaded, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(dict(loaded.model.state_dict()), tmp_path / "pytorch_model.bin")
    torch.save({"learning_rate": 1}, tmp_path / "training_args.bin")
    with pytest.raises(CcrankError, match=r"pytorch_model\.bin.*--allow-pickle"):
        load_model(str(tmp_path))
    again = load_model(str(tmp_path), ReaderOptions(allow_pickle=True))
    assert again.missing_head == ()
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), atol=1e-5)


def test_a_pickle_beside_safetensors_is_not_opened(tmp_path):
    """Where there are safetensors the pickle is left alone, so a poisoned one does nothing."""
    save_model(tiny_model("gpt2"), tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"poison")
    assert load_model(str(tmp_path)).missing_head == ()


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    """A folder with its own modelling code is refused, and its code is not run."""
    save_model(tiny_model("gpt2"), tmp_path)
    trap = tmp_path / "ran"
    (tmp_path / "configuration_evil.py").write_text(f"open({str(trap)!r}, 'w').close()\n")
    change_config(tmp_path, model_type="evil", auto_map={"AutoConfig": "configuration_evil.EvilConfig"})
    with pytest.raises(CcrankError, match="cannot be loaded"):
        load_model(str(tmp_path))
    assert not trap.exists()


def test_a_checkpoint_without_part_of_the_body_is_refused(tmp_path):
    """A layer's weights missing, or those of another architecture: refused, since they would be random."""
    save_model(tiny_model("llama"), tmp_path)
    change_tensors(tmp_path, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(CcrankError, match=r"lacks 1 weights .* model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(str(tmp_path))


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path):
    """GPT-2's weights under OPT's configuration are not a model."""
    save_model(tiny_model("gpt2"), tmp_path)
    tiny_config("opt").save_pretrained(tmp_path)
    with pytest.raises(CcrankError, match="another architecture or is damaged"):
        load_model(str(tmp_path))


def test_weights_of_another_shape_are_refused(tmp_path):
    """Weights that do not fit the configuration are not resized in silence."""
    save_model(tiny_model("llama"), tmp_path)
    change_config(tmp_path, hidden_size=64)
    with pytest.raises(CcrankError, match="cannot be loaded"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("family", ["llama", "deberta"])
@pytest.mark.parametrize("size", [0, 5, 1000, -1])
def test_a_cut_off_file_is_refused(family, size, tmp_path):
    """A download that stopped half-way is said to be what it is, not a stack trace."""
    save_model(tiny_model(family), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CcrankError, match="damaged or incomplete"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model_type": "nothing"}', '{"model_type": "vit"}'])
def test_a_config_that_makes_no_sense_is_refused(text, tmp_path):
    """A damaged or foreign config.json is refused."""
    save_model(tiny_model("llama"), tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CcrankError):
        load_model(str(tmp_path))


def test_damage_is_named_with_the_remedy(tmp_path, monkeypatch):
    """Weights cut off anywhere: which file, its size, and what to delete or copy, which depends on its origin."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    own = save_model(tiny_model("llama"), tmp_path / "own")
    content = (own / "model.safetensors").read_bytes()
    (own / "model.safetensors").write_bytes(content[:-1])
    hub = tmp_path / "models--org--name"
    for folder, remedy in (
        (own, "copy or download the model into .*own again"),
        (tmp_path / "cache" / "models" / "x", "delete the folder .*cache/models/x; the next run fetches"),
        (hub / "snapshots" / "abc", "delete the folder .*models--org--name; the next run fetches"),
    ):
        if folder != own:
            shutil.copytree(own, folder)
        expected = rf"model\.safetensors are damaged or incomplete \({len(content) - 1:,} bytes.*{remedy}"
        with pytest.raises(CcrankError, match=expected):
            load_model(str(folder))
    (own / "model.safetensors").write_bytes(content)
    (own / "tokenizer.json").write_bytes((own / "tokenizer.json").read_bytes()[:1000])
    with pytest.raises(CcrankError, match=r"cannot be loaded(.|\n)*damaged or incomplete: copy or download"):
        load_model(str(own))


def test_a_folder_without_weights_or_tokenizer_is_refused(tmp_path):
    """What is missing is named."""
    save_model(tiny_model("llama"), tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CcrankError, match="cannot be loaded"):
        load_model(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CcrankError, match="has no weights"):
        load_model(str(tmp_path))


def test_identity_names_the_weights_not_the_place(tmp_path):
    """A copy elsewhere has the same identity; other weights, another config or precision have another."""
    save_model(tiny_model("llama"), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    identity = load_model(str(tmp_path / "a")).identity
    assert load_model(str(tmp_path / "b")).identity == identity
    assert load_model(str(tmp_path / "a"), ReaderOptions(dtype="bfloat16")).identity != identity
    change_tensors(tmp_path / "b", lambda tensors: tensors["model.norm.weight"].add_(1))
    others = {load_model(str(tmp_path / "b")).identity}
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    change_config(tmp_path / "c", rms_norm_eps=0.1)
    others.add(load_model(str(tmp_path / "c")).identity)
    assert len(others) == 2
    assert identity not in others


def test_tensor_names_without_reading_tensors(tmp_path):
    """The names in a file are those of its tensors, nothing else."""
    save_file(
        {"a.b": torch.zeros(3), "c": torch.ones(2)}, tmp_path / "x.safetensors", metadata={"format": "pt"}
    )
    torch.save({"d": torch.zeros(1)}, tmp_path / "x.bin")
    assert tensor_names([tmp_path / "x.safetensors", tmp_path / "x.bin"]) == {"a.b", "c", "d"}


def test_devices_and_precisions():
    """Auto is float32 on a CPU and bfloat16 on a GPU; what does not exist is refused by name."""
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("float16", torch.device("cpu")) == torch.float16
    assert choose_device("cpu") == torch.device("cpu")
    for device in ("toaster", "cuda:99", ""):
        with pytest.raises(CcrankError, match="cannot be used"):
            choose_device(device)
    with pytest.raises(CcrankError, match="'int8'"):
        choose_dtype("int8", torch.device("cpu"))


@pytest.mark.parametrize(
    ("config", "form"),
    [
        (transformers.MistralConfig(), "causal"),
        (transformers.XLMRobertaConfig(), "masked"),
        (transformers.DistilBertConfig(), "masked"),
        (transformers.BartConfig(), "encoder_decoder"),
        (transformers.T5Config(), "encoder_decoder"),
    ],
)
def test_form_of_a_configuration(config, form):
    """Causal, masked or encoder-decoder is derived from the configuration, also for unlisted families."""
    assert form_of(config) == form


def test_what_is_no_language_model_is_refused():
    """A vision model has no form."""
    with pytest.raises(CcrankError, match="vit models are neither"):
        form_of(transformers.ViTConfig())


@pytest.mark.parametrize("family", ["gpt2", "llama", "roberta", "bert", "opt", "mpt", "modernbert"])
def test_the_window_is_what_the_model_takes(family):
    """A sequence as long as the window runs; where positions are learned, one token more does not."""
    loaded = tiny_model(family)
    assert loaded.window is not None
    with torch.inference_mode():
        loaded.model(input_ids=torch.full((1, loaded.window), 7))
    if family in ("gpt2", "roberta", "bert", "opt"):
        with pytest.raises((IndexError, RuntimeError)), torch.inference_mode():
            loaded.model(input_ids=torch.full((1, loaded.window + 1), 7))


def test_bos_where_the_model_was_trained_with_it():
    """BOS for families that need it or tokenizers that add it, and for no masked model."""
    assert tiny_model("gpt2").bos == ()
    assert tiny_model("opt").bos == tiny_model("gemma3_text").bos == (tokenizer_of("opt").bos_token_id,)
    assert tiny_model("roberta").bos == ()
    assert tiny_model("llama", ccrank_bos=True).bos == (tokenizer_of("llama").bos_token_id,)


def test_quantizing_needs_a_package_and_says_which(tmp_path, monkeypatch):
    """Without a package for it, the error names one to install; an unknown kind is refused with its value."""
    folder = save_model(tiny_model("llama"), tmp_path)
    monkeypatch.setattr("ccrank.models.load.transformers_settings.find_spec", lambda name: None)
    with pytest.raises(CcrankError, match=r"--quantize int8 on cpu needs .*torchao.*pip install torchao"):
        load_model(str(folder), ReaderOptions(quantize="int8", device="cpu"))
    with pytest.raises(CcrankError, match="'int3'"):
        load_model(str(folder), ReaderOptions(quantize="int3"))


@pytest.mark.parametrize(
    ("device", "installed", "expected"),
    [
        ("cpu", ("torchao", "bitsandbytes"), "int8-torchao"),
        ("cpu", ("optimum.quanto", "bitsandbytes"), "int8-bitsandbytes"),
        ("cuda", ("torchao", "bitsandbytes"), "int8-bitsandbytes"),
        ("cuda", ("optimum.quanto",), "int8-optimum-quanto"),
    ],
)
def test_the_package_that_suits_the_device_quantizes(device, installed, expected, monkeypatch):
    """bitsandbytes first on CUDA devices, torchao first elsewhere; the package is part of a model's identity."""
    monkeypatch.setattr(transformers_settings, "_installed", lambda name: name in installed)
    monkeypatch.setattr(transformers_settings, "_configuration", lambda module, *_: module)
    found, name = transformers_settings.quantization("int8", torch.device(device), torch.float32)
    assert name == expected
    assert transformers_settings.PACKAGES[found] == expected.removeprefix("int8-")


@pytest.mark.parametrize(("kind", "most"), [("int8", 0.06), ("int4", 0.6)])
def test_quantized_models_read_nearly_as_others(kind, most, tmp_path):
    """With torchao on a CPU: states differ, by little, in all paths alike, and so does the identity of the weights."""
    pytest.importorskip("torchao", reason="an optional package")
    config = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = save_model(tiny_model("llama", **config), tmp_path)
    plain, fewer = (
        load_model(str(folder), ReaderOptions(quantize=one, device="cpu")) for one in ("no", kind)
    )
    assert fewer.identity == f"{plain.identity}-{kind}-torchao"
    tree, one, other = (
        Reader(loaded, path=path).read(pair_prompts(TASK), ["Yes", "No"], layers="all").states
        for loaded, path in ((fewer, "tree"), (fewer, "one"), (plain, "tree"))
    )
    np.testing.assert_allclose(tree, one, atol=1e-4)
    difference = np.abs(tree - other).mean() / np.abs(other).mean()
    assert 0 < difference < most


def test_a_device_map_gives_the_same_readings(tmp_path):
    """A model that is placed by `accelerate` reads as one that is moved to its device."""
    pytest.importorskip("accelerate")
    folder = save_model(tiny_model("llama"), tmp_path)
    prompts = pair_prompts(Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad")))
    plain = Reader(load_model(str(folder), ReaderOptions(device="cpu")))
    spread = Reader(load_model(str(folder), ReaderOptions(device="cpu", device_map="sequential")))
    for reader in (plain, spread):
        reader.read(prompts, candidates=["Yes", "No"])
    ours = spread.read(prompts, candidates=["Yes", "No"], layers="all")
    theirs = plain.read(prompts, candidates=["Yes", "No"], layers="all")
    np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-5)
    np.testing.assert_allclose(ours.states, theirs.states, atol=1e-5)
    with pytest.raises(CcrankError, match="'everywhere'"):
        load_model(str(folder), ReaderOptions(device_map="everywhere"))


def test_the_tokenizer_is_that_of_the_files_and_not_of_the_family(tmp_path):
    """An ALBERT with BERT's vocabulary is read with BERT's tokenizer; `transformers` would take every word for
    unknown."""
    loaded = tiny_model("albert")
    loaded.model.save_pretrained(tmp_path)
    vocabulary = sorted(loaded.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in vocabulary), encoding="utf-8")
    settings = {"do_lower_case": False, "model_max_length": 128}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    again = load_model(str(tmp_path))
    assert (
        again.tokenizer("Is Russia larger?")["input_ids"]
        == loaded.tokenizer("Is Russia larger?")["input_ids"]
    )
    np.testing.assert_allclose(logits_of(again), logits_of(loaded), atol=1e-5)


def test_a_tokenizer_without_words_is_refused(tmp_path):
    """Without any vocabulary `transformers` makes a tokenizer of special tokens alone; it is not used."""
    tiny_model("albert").model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128}))
    with pytest.raises(CcrankError, match="tokenizer"):
        load_model(str(tmp_path))
