"""On every family: tree = padded = one by one = plain `transformers`."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import CAUSAL, FAMILIES, VARIANTS, pair_prompts, tiny_model

from ccrank.models import Reader
from ccrank.models.engine.graphs import GraphedPasses, Recorded
from ccrank.models.load.catalog import families
from ccrank.task import Criterion, Task

TASKS = [
    Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad", "Monaco"), id="countries"),
    Task(
        Criterion("height"),
        ("the old stone bridge", "the new glass tower", "a fox"),
        context="The quick brown fox jumps over the lazy dog. Most students selected blue.",
        id="with context",
    ),
]


def all_pairs(form, tasks=TASKS):
    return [prompt for task in tasks for prompt in pair_prompts(task, form)]


@pytest.fixture(scope="module", params=[*FAMILIES, *VARIANTS])
def loaded(request):
    return tiny_model(request.param)


def test_every_family_of_the_catalog_is_read_here():
    """Each family that hub ids are offered of is among those whose paths are compared, in its form."""
    offered = {
        (form, kind) for form, table in families().items() for kind, own in table.items() if own.get("hub")
    }
    tested = {(tiny_model(family).form, family) for family in FAMILIES}
    assert offered <= tested


def test_the_variants_differ_from_their_family():
    """Rescaled positions and another activation change the numbers, so that they are really tested."""
    for name, (family, _) in VARIANTS.items():
        loaded, plain = tiny_model(name), tiny_model(family)
        prompts = all_pairs(loaded.form)[:2]
        ours, theirs = (Reader(one).read(prompts, candidates=["Yes", "No"]).logits for one in (loaded, plain))
        assert np.abs(ours - theirs).max() > 1e-2


def paths_of(loaded):
    return ("tree", "padded", "one") if loaded.form == "causal" else ("padded", "one")


def test_all_paths_agree(loaded):
    """Every way of reading gives the same logits and states, at the slot and at the item, to 1e-4."""
    prompts = all_pairs(loaded.form)
    readings = [
        Reader(loaded, path=path, batch_tokens=192).read(
            prompts, candidates=["Yes", "No", "larger"], layers="all", items=True
        )
        for path in paths_of(loaded)
    ]
    for other in readings[:-1]:
        for name in ("logits", "states", "item_states"):
            ours, theirs = getattr(other, name), getattr(readings[-1], name)
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)
    assert readings[-1].logits.std() > 1e-2
    assert np.isfinite(readings[-1].logits).all()


def plain_outputs(loaded, reader, prompt, candidates):
    """One prompt through the model's own forward pass, all of it."""
    [encoded] = reader.prompt_tokenizer.encode([prompt], [candidates], items=True)
    ids = torch.tensor([encoded.tokens])
    with torch.inference_mode():
        if loaded.form == "encoder_decoder":
            decoder = torch.tensor([encoded.decoder])
            output = loaded.model(input_ids=ids, decoder_input_ids=decoder, output_hidden_states=True)
            return encoded, output.logits[0], output.decoder_hidden_states, output.encoder_hidden_states
        output = loaded.model(input_ids=ids, output_hidden_states=True)
    return encoded, output.logits[0], output.hidden_states, output.hidden_states


def log_probability_of_the_rest(loaded, encoded, answer):
    """Of the tokens after an answer's first: there are none, except of Marian's, which end with </s>."""
    if len(answer) == 1:
        return 0.0
    assert loaded.name == "tiny-marian"
    with torch.inference_mode():
        decoder = torch.tensor([(*encoded.decoder, *answer[:-1])])
        logits = loaded.model(torch.tensor([encoded.tokens]), decoder_input_ids=decoder).logits[0]
    rest = logits.log_softmax(-1)[len(encoded.decoder) :]
    return float(rest[range(len(rest)), list(answer[1:])].sum())


def test_states_and_logits_are_those_of_transformers(loaded):
    """Hidden states equal `transformers`' own, layer for layer, and logits the model's own at the slot."""
    prompts = all_pairs(loaded.form)[-4:]
    reader = Reader(loaded)
    layers = range(reader.depth + 1)
    readings = reader.read(prompts, candidates=["Yes", "No"], layers=layers, items=True)
    for row, prompt in enumerate(prompts):
        encoded, logits, states, item_states = plain_outputs(loaded, reader, prompt, ("Yes", "No"))
        expected = [
            logits[encoded.slot, answer[0]] + log_probability_of_the_rest(loaded, encoded, answer)
            for answer in encoded.answers
        ]
        np.testing.assert_allclose(readings.logits[row], expected, atol=1e-4)
        for column, layer in enumerate(layers):
            np.testing.assert_allclose(
                readings.states[row, column], states[layer][0, encoded.slot], atol=1e-4
            )
            np.testing.assert_allclose(
                readings.item_states[row, column], item_states[layer][0, encoded.item], atol=1e-4
            )


def test_no_layer_above_the_highest_needed_is_run(loaded):
    """If only states of layer 1 are requested, neither the second layer nor the head runs."""
    reader = Reader(loaded)
    ran = []
    stack = list(dict.fromkeys(reader.engine.backbone.layers))  # ALBERT's layers share modules
    hooks = [
        module.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
        for index, module in enumerate(stack)
    ]
    if reader.engine.head.decoder is not None:
        hooks.append(reader.engine.head.decoder.register_forward_pre_hook(lambda *_: ran.append("head")))
    try:
        reader.read(all_pairs(loaded.form)[:3], layers=[1])
    finally:
        for hook in hooks:
            hook.remove()
    assert ran == [0]


def test_the_head_computes_the_candidates_alone(loaded):
    """The last matrix product has as many rows as prompts and as many columns as candidates, not the vocabulary."""
    reader = Reader(loaded)
    if reader.prompt_tokenizer.translates:
        pytest.skip("an answer has two tokens or more, so its log-probability takes the whole vocabulary")
    shapes = []
    head = reader.engine.head
    original = head.logits
    head.logits = lambda rows, words=None: shapes.append(original(rows, words).shape) or original(rows, words)
    prompts = all_pairs(loaded.form)[:5]
    reader.read(prompts, candidates=["Yes", "No"])
    assert {shape[1] for shape in shapes} == {2}
    assert sum(shape[0] for shape in shapes) == 5


@pytest.mark.parametrize("family", CAUSAL)
def test_tree_with_blocks_of_any_size(family):
    """However small the blocks that the tree is split into, the readings stay the same."""
    loaded = tiny_model(family)
    prompts = all_pairs("causal")
    whole = Reader(loaded, path="tree", batch_tokens=4096).read(
        prompts, candidates=["Yes", "No"], layers=[-1]
    )
    for budget in (16, 40, 90):
        part = Reader(loaded, path="tree", batch_tokens=budget).read(
            prompts, candidates=["Yes", "No"], layers=[-1]
        )
        np.testing.assert_allclose(part.logits, whole.logits, atol=1e-4)
        np.testing.assert_allclose(part.states, whole.states, atol=1e-4)
        assert part.cost.distinct_tokens == whole.cost.distinct_tokens <= part.cost.computed_tokens
    assert whole.cost.computed_tokens < whole.cost.prompt_tokens / 2


class StandIn:
    """Stands for a graph: keeps the inputs of its first pass and runs them again with what was copied there."""

    def __init__(self, passes, arguments, layers):
        self.passes, self.layers = passes, layers
        self.inputs = deepcopy(arguments)
        self.everything = torch.arange(arguments["input_ids"].numel())
        self.states, _ = passes.backbone.rows(self.inputs, self.everything, layers)

    def replay(self):
        fresh, _ = self.passes.backbone.rows(self.inputs, self.everything, self.layers)
        for layer, states in fresh.items():
            self.states[layer].copy_(states)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt2"])
def test_replayed_passes_give_the_same(family, monkeypatch):
    """Passes of rounded lengths that are replayed with new inputs give the readings of plain passes."""

    def record(self, arguments, layers):
        one = StandIn(self, arguments, layers)
        return Recorded(one, one.inputs, one.everything, one.states)

    monkeypatch.setattr(GraphedPasses, "_record", record)
    loaded = tiny_model(family)
    plain = Reader(loaded, path="tree")
    reader = Reader(loaded, path="tree")
    reader.engine.graphs = GraphedPasses(reader.engine.backbone)
    for part in (slice(0, 6), slice(6, 12), slice(2, 8), slice(12, 18)):
        prompts = all_pairs("causal")[part]
        arguments = {"candidates": ["Yes", "No"], "layers": [1, -1], "items": True}
        ours, theirs = reader.read(prompts, **arguments), plain.read(prompts, **arguments)
        np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-4)
        np.testing.assert_allclose(ours.states, theirs.states, atol=1e-4)
        np.testing.assert_allclose(ours.item_states, theirs.item_states, atol=1e-4)
    assert reader.engine.graphs._graphs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_replayed_passes_on_a_gpu_give_the_same(family):
    """True graphs, again and again while other tensors come and go: a graph keeps what it reads."""
    loaded = tiny_model(family)
    loaded = replace(loaded, model=loaded.model.to("cuda"))
    plain, reader = Reader(loaded, path="tree"), Reader(loaded, path="tree")
    plain.engine.graphs = None
    assert reader.engine.graphs is not None
    for turn in range(12):
        prompts = all_pairs("causal")[turn % 4 : turn % 4 + 6]
        arguments = {"candidates": ["Yes", "No"], "layers": [1, -1], "items": True}
        ours, theirs = reader.read(prompts, **arguments), plain.read(prompts, **arguments)
        for name in ("logits", "states", "item_states"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-3)
        torch.arange(10_000 * (turn + 1), device="cuda").neg_()
    assert reader.engine.graphs._graphs
