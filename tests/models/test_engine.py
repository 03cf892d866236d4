"""How models are run: out of memory, families that are not listed, threads, half precision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tiny import SMALL, byte_tokenizer, pair_prompts, random_model, tiny_model

from ccrank.errors import CcrankError
from ccrank.models import Reader
from ccrank.models.load.loading import LoadedModel
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad", "the old stone bridge"))


class Crowded:
    """Makes a backbone run out of memory above a number of token places."""

    def __init__(self, reader, most, error):
        self.sizes = []
        for backbone in filter(None, (reader.engine.backbone, getattr(reader.engine, "encoder", None))):
            original = backbone.rows

            def rows(inputs, places, layers, original=original):
                size = inputs["input_ids"].numel()
                if size > most:
                    raise error
                self.sizes.append(size)
                return original(inputs, places, layers)

            backbone.rows = rows


@pytest.fixture
def no_collection(monkeypatch):
    """Collecting garbage after each failure takes most of a second in a process full of tests."""
    monkeypatch.setattr("gc.collect", lambda: 0)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    MemoryError(),
]


@pytest.mark.parametrize(
    ("family", "path", "error"),
    [
        ("llama", "tree", OUT_OF_MEMORY[0]),
        ("llama", "padded", OUT_OF_MEMORY[1]),
        ("bert", "auto", OUT_OF_MEMORY[2]),
        ("t5", "auto", OUT_OF_MEMORY[1]),
    ],
)
def test_out_of_memory_halves_the_budget(family, path, error, no_collection):
    """Too large a batch is tried again in halves: the same readings, no prompt lost, and none read twice."""
    loaded = tiny_model(family)
    prompts = pair_prompts(TASK, loaded.form)
    arguments = {"candidates": ["Yes", "10"], "layers": [1, -1]}
    plain = Reader(loaded).read(prompts, **arguments)
    reader = Reader(loaded, path=path, batch_tokens=2048)
    crowded = Crowded(reader, 60, error)
    tokens = []
    readings = reader.read(prompts, **arguments, progress=tokens.append)
    assert reader.engine.halvings > 0
    assert max(crowded.sizes) <= 60
    np.testing.assert_allclose(readings.logits, plain.logits, atol=1e-4)
    np.testing.assert_allclose(readings.states, plain.states, atol=1e-4)
    assert sum(tokens) == readings.cost.distinct_tokens


def test_the_last_resort_is_one_by_one(no_collection):
    """A context that fits memory once, but not as a tree with its questions, is still read."""
    loaded = tiny_model("llama")
    task = Task(TASK.criterion, TASK.items, context="the quick brown fox jumps over " * 5)
    prompts = pair_prompts(task, "causal")
    plain = Reader(loaded).read(prompts, candidates=["Yes", "No"])
    reader = Reader(loaded, batch_tokens=1024)
    longest = max(len(one.tokens) for one in reader.prompt_tokenizer.encode(prompts, [()] * len(prompts)))
    crowded = Crowded(reader, longest, OUT_OF_MEMORY[1])
    readings = reader.read(prompts, candidates=["Yes", "No"])
    np.testing.assert_allclose(readings.logits, plain.logits, atol=1e-4)
    assert max(crowded.sizes) == longest


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_too_little_memory_for_one_prompt_is_said(family, no_collection):
    """If not even one sequence fits, the error states the remedy; other errors are not swallowed."""
    loaded = tiny_model(family)
    reader = Reader(loaded)
    Crowded(reader, 3, OUT_OF_MEMORY[0])
    with pytest.raises(CcrankError, match="not enough memory for one sequence"):
        reader.read(pair_prompts(TASK, loaded.form), candidates=["Yes", "No"])
    reader = Reader(loaded)
    Crowded(reader, 3, RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        reader.read(pair_prompts(TASK, loaded.form), candidates=["Yes", "No"])


def unlisted_config(family):
    t = transformers
    grouped = {**SMALL, "num_key_value_heads": 2, "vocab_size": 420}
    return {
        "phi": lambda: t.PhiConfig(**SMALL, vocab_size=420),
        "mistral": lambda: t.MistralConfig(**grouped, sliding_window=6),
        "bloom": lambda: t.BloomConfig(vocab_size=420, hidden_size=32, n_layer=3, n_head=4),
        "falcon": lambda: t.FalconConfig(
            vocab_size=420, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, alibi=True
        ),
        "gptj": lambda: t.GPTJConfig(
            vocab_size=420, n_positions=1024, n_embd=32, n_layer=3, n_head=4, rotary_dim=4
        ),
        "gemma2": lambda: t.Gemma2Config(**grouped, head_dim=8, sliding_window=6, query_pre_attn_scalar=8),
        "cohere": lambda: t.CohereConfig(**grouped, logit_scale=0.3),
        "stablelm": lambda: t.StableLmConfig(**grouped),
        # Half of the layers look 256 places back in the batch, wherever a tree has put the tokens.
        "gpt_neo": lambda: t.GPTNeoConfig(
            vocab_size=420,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            max_position_embeddings=1024,
            window_size=256,
        ),
        "mamba": lambda: t.MambaConfig(vocab_size=420, hidden_size=32, num_hidden_layers=2, state_size=4),
    }[family]()


def unlisted_model(family):
    config = unlisted_config(family)
    model = random_model(lambda: transformers.AutoModelForCausalLM.from_config(config))
    return LoadedModel(family, None, model, byte_tokenizer(), "causal", family)


TAKES_THE_TREE = {
    "phi": True,
    "mistral": True,
    "bloom": False,
    "falcon": False,
    "gpt_neo": False,
    "mamba": False,
}


@pytest.mark.parametrize(
    "family",
    ["phi", "mistral", "bloom", "falcon", "gptj", "gemma2", "cohere", "stablelm", "gpt_neo", "mamba"],
)
def test_families_that_are_not_listed(family):
    """The check at load time takes the tree only where it gives the same numbers; they agree with one by one."""
    loaded = unlisted_model(family)
    items = tuple(f"{word} {place}" for word in ("the tower", "a fox", "blue") for place in range(4))
    prompts = pair_prompts(Task(TASK.criterion, items))
    arguments = {"candidates": ["Yes", "No"], "layers": [1, -1]}
    reader = Reader(loaded)
    if family in TAKES_THE_TREE:
        assert reader.engine.tree == TAKES_THE_TREE[family]
    ours, plain = reader.read(prompts, **arguments), Reader(loaded, path="one").read(prompts, **arguments)
    np.testing.assert_allclose(ours.logits, plain.logits, atol=2e-4)
    np.testing.assert_allclose(ours.states, plain.states, atol=2e-4)
    if not reader.engine.tree:
        with pytest.raises(CcrankError, match="do not support prefix trees"):
            Reader(loaded, path="tree")


def test_short_passes_do_not_hide_that_a_tree_differs():
    """With passes of 256 tokens, as where little memory is free, a model that needs more than the tree gives is found
    out too, and long prompts get the numbers of one by one."""
    loaded = unlisted_model("gpt_neo")
    prompts = pair_prompts(Task(TASK.criterion, ("fox", "dog", "sea"), context="the fox and the dog " * 60))
    reader = Reader(loaded, batch_tokens=256)
    assert not reader.engine.tree
    ours = reader.read(prompts, candidates=["Yes", "No"])
    plain = Reader(loaded, path="one").read(prompts, candidates=["Yes", "No"])
    np.testing.assert_allclose(ours.logits, plain.logits, atol=2e-4)


def test_layers_that_a_tree_mask_cannot_describe_are_read_padded():
    """Chunked attention looks back to the start of its chunk; short tries would not show it, so it is not tried."""
    loaded = unlisted_model("phi")
    loaded.model.config.layer_types = ["chunked_attention", "full_attention", "full_attention"]
    assert not Reader(loaded).engine.tree


@pytest.mark.parametrize("family", ["llama", "mpt", "bert", "t5"])
def test_threads_may_share_a_model(family):
    """Readers of one model on several threads give the same readings as separately."""
    loaded = tiny_model(family)
    prompts = pair_prompts(TASK, loaded.form)
    lists = [["Yes", "No"], ["10", "larger"], ["No"], ["Yes", "10", "2"]] * 6
    alone = [Reader(loaded).read(prompts, candidates=one, layers=[1]) for one in lists]
    readers = [Reader(loaded), Reader(loaded, path="padded")]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(
                lambda job: readers[job[0] % 2].read(prompts, candidates=job[1], layers=[1]),
                enumerate(lists),
            )
        )
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-4)
        np.testing.assert_allclose(ours.states, theirs.states, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "bert", "t5"])
def test_half_precision(family):
    """In bfloat16 the readings are near those in float32, and come back as float32."""
    loaded = tiny_model(family)
    prompts = pair_prompts(TASK, loaded.form)
    arguments = {"candidates": ["Yes", "No"], "layers": [1]}
    full = Reader(loaded).read(prompts, **arguments)
    half = Reader(replace(loaded, model=tiny_model(family).model.to(torch.bfloat16))).read(
        prompts, **arguments
    )
    assert half.logits.dtype == half.states.dtype == np.float32
    assert np.abs(half.states - full.states).max() < 0.1 * np.abs(full.states).max()
    assert np.corrcoef(half.logits.ravel(), full.logits.ravel())[0, 1] > 0.97
