"""Keys of readings in the cache, outputs to and from its vectors, and saving while they come.

The text of a key is fixed: a change would invalidate all cached readings.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ccrank.models.cache.store import ReadingCache
from ccrank.models.engine.read_targets import COLUMNS, EngineOutput, Inputs, Points
from ccrank.prompts import Form

SECONDS_BETWEEN_SAVES = 5.0


def reading_keys(
    identity: str, form: Form, inputs: Inputs, points: Points, layers: Sequence[int]
) -> list[list[bytes]]:
    """For each point the keys of its outputs: the token logits, the normaliser, and one per layer."""
    start = hashlib.blake2b(f"{identity}({form!r}, ".encode(), digest_size=24)
    # The key says "words" for token ids, as it did in the first version.
    asked = [repr(("words", token_ids)) for token_ids in points.token_sets]
    states = [repr(("layer", layer)) for layer in layers]
    keys = []
    columns = [getattr(points, name).tolist() for name in COLUMNS]
    for sequence, position, set_number, normaliser, with_states, encoder in zip(*columns, strict=True):
        tokens = inputs.tokens[sequence].tolist()
        if inputs.sources is not None and inputs.source_of is not None:
            source = inputs.sources[inputs.source_of[sequence]].tolist()
            seen = repr((tuple(source), tuple(tokens)))
        else:
            seen = repr(tuple(tokens[: position + 1] if form == "causal" else tokens))
        digest = _extended(start, f"{seen}, {position}, {encoder})")
        outputs = [asked[set_number]] if set_number >= 0 else []
        outputs += ["'normaliser'"] if normaliser else []
        outputs += states if with_states else []
        keys.append([_extended(digest, output).digest() for output in outputs])
    return keys


def _extended(digest: hashlib.blake2b, text: str) -> hashlib.blake2b:
    extended = digest.copy()
    extended.update(text.encode())
    return extended


def vectors_of(
    output: EngineOutput, points: Points, keys: Sequence[Sequence[bytes]], chosen: np.ndarray
) -> dict[bytes, np.ndarray]:
    """What was read at the `chosen` points, as entries of the cache."""
    entries: dict[bytes, np.ndarray] = {}
    for index in chosen.tolist():
        values: list[np.ndarray] = []
        if points.asked[index] >= 0:
            values.append(output.logits[output.logit_starts[index] : output.logit_starts[index + 1]])
        if points.normaliser[index]:
            values.append(output.normalisers[index : index + 1])
        if points.states[index]:
            values += list(output.states_at(index))
        entries.update(zip(keys[index], values, strict=True))
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


class ReadingSaver:
    """Writes what was read at some points to the cache, each point once; without a cache nothing."""

    def __init__(self, cache: ReadingCache | None, points: Points, keys: Sequence[Sequence[bytes]]) -> None:
        self.cache, self.points, self.keys = cache, points, keys
        self.output: EngineOutput | None = None
        self._unsaved = np.ones(len(points), bool)
        self._last = time.monotonic()

    def look(self, output: EngineOutput) -> None:
        """Take note of what is being read, and save it now and then: work that ends early is not lost."""
        self.output = output
        if self.cache is not None and time.monotonic() - self._last >= SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Save all that was read and is not saved."""
        if self.cache is None or self.output is None:
            return
        self.output.collect()
        fresh = np.flatnonzero(self._unsaved & self.output.done)
        self.cache.put(vectors_of(self.output, self.points, self.keys, fresh))
        self._unsaved[fresh] = False
        self._last = time.monotonic()
