"""Cache keys: the text that they are a digest of is fixed, however they are computed."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from tiny import pair_prompts, tiny_model

from ccrank.models import Reader
from ccrank.models.cache.reading_keys import reading_keys
from ccrank.models.engine.plan import ReadingPlan, Wish
from ccrank.task import Criterion, Task

CONTEXT = "the fox and the dog and the bridge " * 6


def plain_keys(identity, form, inputs, points, index, layers):
    """The keys of one point as the first version of the cache made them; people have readings stored under them."""
    sequence, position = int(points.sequence[index]), int(points.position[index])
    tokens = tuple(inputs.tokens[sequence].tolist())
    if form == "causal":
        seen = tokens[: position + 1]
    elif form == "masked":
        seen = tokens
    else:
        seen = (tuple(inputs.sources[int(inputs.source_of[sequence])].tolist()), tokens)
    start = hashlib.blake2b(identity.encode(), digest_size=24)
    start.update(repr((form, seen, position, bool(points.encoder[index]))).encode())
    outputs = []
    if points.asked[index] >= 0:
        outputs.append(("words", points.token_sets[points.asked[index]]))
    outputs += ["normaliser"] if points.normaliser[index] else []
    outputs += [("layer", layer) for layer in layers] if points.states[index] else []
    keys = []
    for output in outputs:
        one = start.copy()
        one.update(repr(output).encode())
        keys.append(one.digest())
    return keys


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
@pytest.mark.parametrize("context", [None, CONTEXT])
def test_keys_are_those_of_the_first_version(family, context):
    """Cached readings stay valid: for tokens, normalisers, states, items, short and long prompts."""
    loaded = tiny_model(family, max_position_embeddings=512)
    task = Task(Criterion("size", "larger"), ("Russia", "Chad", "the old stone bridge", "a"), context)
    prompts = pair_prompts(task, loaded.form) * 2
    encoder = Reader(loaded).prompt_tokenizer
    encoded = encoder.encode(prompts, [("Yes", "10", "No")] * len(prompts), items=True)
    plan = ReadingPlan(encoded, loaded.form, loaded.tokenizer.mask_token_id, Wish((1,), items=True))
    layers = (3, 1)
    keys = reading_keys("these weights", loaded.form, plan.inputs, plan.points, layers)
    assert len(keys) == len(plan.points) > 40
    for index, group in enumerate(keys):
        assert group == plain_keys("these weights", loaded.form, plan.inputs, plan.points, index, layers)
    assert len({len(group) for group in keys}) > 1


def test_the_first_token_alone_has_a_key_too():
    """A sequence of one token is written as Python writes a tuple of one."""
    loaded = tiny_model("llama")
    prompts = pair_prompts(Task(Criterion("size", "larger"), ("a", "b")))
    encoded = Reader(loaded).prompt_tokenizer.encode(prompts, [()] * 2)
    plan = ReadingPlan(encoded, "causal", None, Wish((1,)))
    points = plan.points.take(np.array([0, 1]), plan.points.sequence)
    points.position[:] = [0, 1]
    for index, group in enumerate(reading_keys("w", "causal", plan.inputs, points, (1,))):
        assert group == plain_keys("w", "causal", plan.inputs, points, index, (1,))
