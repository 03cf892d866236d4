"""Cache keys of readings, and outputs to and from the cache's vectors.

A key is a digest of the weights, the form of the model, the tokens that the reading depends on, the position, and what
is read there. Its text is fixed: a change would invalidate all cached readings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ccrank.models.engine.read_targets import EngineOutput, Inputs, Points
from ccrank.models.tokenize.ragged import Ragged
from ccrank.prompts import Form

BLOCK = 32
"""Tokens after which the state of a digest is kept, so that a common prefix is digested once."""


def reading_keys(
    identity: str, form: Form, inputs: Inputs, points: Points, layers: Sequence[int]
) -> list[list[bytes]]:
    """For each point the keys of its outputs: the token logits, the normaliser, and one per layer."""
    start = hashlib.blake2b(identity.encode(), digest_size=24)
    start.update(f"({form!r}, ".encode())
    heads: dict[bytes, hashlib.blake2b] = {}
    # The key says "words" for token ids, as it did in the first version.
    asked = [repr(("words", token_ids)).encode() for token_ids in points.token_sets]
    states = [repr(("layer", layer)).encode() for layer in layers]
    keys = []
    for sequence, position, set_number, normaliser, with_states, encoder in zip(
        points.sequence.tolist(),
        points.position.tolist(),
        points.asked.tolist(),
        points.normaliser.tolist(),
        points.states.tolist(),
        points.encoder.tolist(),
        strict=True,
    ):
        if form == "causal":
            digest = _digest_of(inputs.tokens, sequence, position + 1, start, heads)
        else:
            digest = start.copy()
            digest.update(_spelled(inputs, sequence).encode())
        digest.update(f", {position}, {encoder})".encode())
        outputs = [asked[set_number]] if set_number >= 0 else []
        if normaliser:
            outputs.append(b"'normaliser'")
        if with_states:
            outputs += states
        keys.append(list(_finished(digest, outputs)))
    return keys


def _digest_of(
    tokens: Ragged, sequence: int, length: int, start: hashlib.blake2b, heads: dict[bytes, hashlib.blake2b]
) -> hashlib.blake2b:
    """The digest after the first `length` tokens of a sequence, written as a tuple."""
    first = int(tokens.starts[sequence])
    if length == 1:
        digest = start.copy()
        digest.update(f"({int(tokens.flat[first])},)".encode())
        return digest
    known = (length - 1) // BLOCK * BLOCK
    head = tokens.flat[first : first + known].tobytes()
    if head not in heads:
        heads[head] = start.copy()
        heads[head].update(b"(")
        if known:
            heads[head].update(f"{_listed(tokens.flat[first : first + known])}, ".encode())
    digest = heads[head].copy()
    digest.update(f"{_listed(tokens.flat[first + known : first + length])})".encode())
    return digest


def _listed(tokens: np.ndarray) -> str:
    return str(tokens.tolist())[1:-1]


def _spelled(inputs: Inputs, sequence: int) -> str:
    """An input as written in a key: its tokens, for an encoder-decoder model on both sides."""
    tokens = tuple(inputs.tokens[sequence].tolist())
    if inputs.sources is None or inputs.source_of is None:
        return repr(tokens)
    return repr((tuple(inputs.sources[int(inputs.source_of[sequence])].tolist()), tokens))


def _finished(digest: hashlib.blake2b, outputs: Sequence[bytes]) -> Iterator[bytes]:
    for number, output in enumerate(outputs):
        last = digest if number == len(outputs) - 1 else digest.copy()
        last.update(output)
        yield last.digest()


def vectors_of(
    output: EngineOutput, points: Points, keys: Sequence[Sequence[bytes]], chosen: np.ndarray
) -> dict[bytes, np.ndarray]:
    """What was read at the `chosen` points, as entries of the cache."""
    entries: dict[bytes, np.ndarray] = {}
    starts = output.logit_starts.tolist()
    wanted = (array[chosen].tolist() for array in (points.asked, points.normaliser, points.states))
    for index, asked, normaliser, states in zip(chosen.tolist(), *wanted, strict=True):
        group, column = keys[index], 0
        if asked >= 0:
            entries[group[0]] = output.logits[starts[index] : starts[index + 1]]
            column = 1
        if normaliser:
            entries[group[column]] = output.normalisers[index : index + 1]
            column += 1
        if states and output.states is not None:
            entries.update(zip(group[column:], output.states[output.state_row[index]], strict=True))
    return entries


def merged(
    points: Points,
    keys: Sequence[Sequence[bytes]],
    known: Mapping[bytes, np.ndarray],
    missing: np.ndarray,
    read: EngineOutput,
) -> EngineOutput:
    """The outputs of all points: from `read` where they were missing, else from the cache."""
    output = EngineOutput.empty(points)
    output.computed = read.computed
    output.store_part(missing, points.states[missing], read)
    cached = np.ones(len(points), bool)
    cached[missing] = False
    for index in np.flatnonzero(cached).tolist():
        values = [known[key] for key in keys[index]]
        if points.asked[index] >= 0:
            output.logits[output.logit_starts[index] : output.logit_starts[index + 1]] = values.pop(0)
        if points.normaliser[index]:
            output.normalisers[index] = values.pop(0)[0]
        if points.states[index]:
            output.store_states(np.array([index]), np.stack(values)[None])
    return output
