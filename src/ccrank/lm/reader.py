"""Reading language models: `Reader.read(prompts, candidates=…, layers=…)`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm.budget import token_budget
from ccrank.lm.cache import ReadingCache
from ccrank.lm.engine import EngineLike, EngineOutput, Point
from ccrank.lm.engine_factory import make_engine
from ccrank.lm.hub import Say
from ccrank.lm.loading import LoadedModel, load_model
from ccrank.lm.plan import Plan
from ccrank.lm.prompt_tokenizer import PromptTokenizer, TokenizedPrompt
from ccrank.lm.reading import Cost, Readings
from ccrank.lm.tree import distinct_tokens
from ccrank.prompts import Form, Prompt
from ccrank.reader_options import ReaderOptions

CHUNK = 4096
"""Prompts that are tokenized and packed together: bounds memory, and is far more than a prefix tree benefits from."""

Progress = Callable[[int], None]
"""Called with the number of distinct tokens just read, those found in the cache included."""


class Reader:
    """Reads candidate logits and hidden states at the answer slots of prompts, computing each distinct prefix once.

    Parameters
    ----------
    loaded
        The model with its tokenizer, from `load_model`; `Reader.open` does both.
    batch_tokens
        Tokens per forward pass; "auto" takes what fits in memory.
    cache
        Where readings are stored on disk; None stores none.
    chat
        Wrap prompts in the model's chat template.
    truncate
        Cut contexts that exceed the model's window from their middle, instead of raising an error.
    path
        "tree" (for causal models that support it), "padded", "one" (one by one), or "auto". All give the same numbers.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_tokens: str | int = "auto",
        cache: ReadingCache | None = None,
        chat: bool = False,
        truncate: bool = False,
        path: str = "auto",
    ) -> None:
        self.loaded = loaded
        self.cache = cache
        self.spent = Cost()
        """The total cost of all readings so far."""
        config = loaded.model.config
        start = getattr(config, "decoder_start_token_id", None)
        self.prompt_tokenizer = PromptTokenizer(
            loaded.tokenizer,
            loaded.form,
            bos=loaded.bos,
            decoder_start=() if start is None else (start,),
            window=loaded.window,
            chat=chat,
            truncate=truncate,
        )
        self.engine: EngineLike = make_engine(loaded, token_budget(batch_tokens, loaded.model), path)

    @classmethod
    def open(
        cls,
        name: str = "default",
        options: ReaderOptions | None = None,
        *,
        cache: ReadingCache | None = None,
        say: Say = lambda _: None,
    ) -> Reader:
        """Load a model by name and make a reader of it.

        Parameters
        ----------
        name
            A short name (`ccrank models list`), a hub id, a folder or a .gguf file.
        options
            How the model is loaded and read; see `ReaderOptions`.
        cache
            Where readings are stored on disk; None stores none.
        say
            Called with a short status message before anything slow.
        """
        chosen = options or ReaderOptions()
        loaded = load_model(
            name,
            device=chosen.device,
            dtype=chosen.dtype,
            allow_pickle=chosen.allow_pickle,
            allow_new_head=chosen.allow_new_head,
            say=say,
        )
        return cls(
            loaded,
            batch_tokens=chosen.batch_tokens,
            cache=cache,
            chat=chosen.chat,
            truncate=chosen.truncate,
        )

    def with_engine(self, engine: EngineLike) -> Reader:
        """The same reader, with its own count of what it spent, whose passes another engine runs.

        Parameters
        ----------
        engine
            For example one that shares passes with other readers of the model.
        """
        other = copy(self)
        other.engine, other.spent = engine, Cost()
        return other

    @property
    def name(self) -> str:
        """The name by which the model was requested."""
        return self.loaded.name

    @property
    def form(self) -> Form:
        """The form of prompt that the model takes."""
        return self.loaded.form

    @property
    def depth(self) -> int:
        """The number of layers; the states of layer 0 are the embeddings, those of layer `depth` the last."""
        return self.engine.backbone.depth

    @property
    def width(self) -> int:
        """The length of a hidden state."""
        config = self.loaded.model.config
        return int(getattr(config, "hidden_size", None) or config.d_model)

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens; None if the model has no limit."""
        return self.loaded.window

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without special tokens.

        Parameters
        ----------
        texts
            Any texts.
        """
        return self.prompt_tokenizer.count(texts)

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        *,
        items: bool = False,
        log_probabilities: bool = False,
        per_token: bool = False,
        progress: Progress | None = None,
    ) -> Readings:
        """Read candidate scores and hidden states at the slot of each prompt.

        Parameters
        ----------
        prompts
            P prompts, rendered for this reader's `form`.
        candidates
            The answers to score: one list for all prompts, or one list per prompt. None scores none.
        layers
            The layers whose hidden states are returned; negative numbers count from the last layer, "all" is every
            layer.
        items
            Also return the states at the last token of each prompt's last item.
        log_probabilities
            Return log-probabilities over the vocabulary instead of logits.
        per_token
            Return the log-probability of each token of a prompt's candidate, of which there must be one: the logits are
            (P, T), NaN after the last token.
        progress
            Called with the number of distinct tokens just read.

        Returns
        -------
        Readings
            Logits (P, C), states (P, L, d) and item states (P, L, d) as requested, and the cost.
        """
        wanted = self._layers(layers)
        answers = _per_prompt(candidates, len(prompts))
        if candidates is not None:
            self._check_head()
        if items and not wanted:
            raise CcrankError("items=True needs at least one layer; pass it in `layers`")
        if per_token and any(len(own) != 1 for own in answers):
            raise CcrankError("per_token=True needs exactly one candidate for each prompt")
        parts: list[_Part] = []
        lengths: list[np.ndarray] = []
        for start in range(0, len(prompts), CHUNK):
            chunk = slice(start, start + CHUNK)
            encoded = self.prompt_tokenizer.encode(prompts[chunk], answers[chunk], items)
            if items:
                _check_items(encoded, prompts[chunk])
            lengths.extend(np.array([len(answer) for answer in one.answers], float) for one in encoded)

            how = {"log_probabilities": log_probabilities or per_token, "per_token": per_token}
            parts.append(self._read_chunk(encoded, wanted, items, how, progress))
        cost = sum((part.cost for part in parts), Cost())
        self.spent += cost
        return Readings(
            logits=_stack_ragged([row for part in parts for row in part.scores])
            if candidates is not None
            else None,
            states=self._stack([row for part in parts for row in part.states], wanted) if wanted else None,
            item_states=self._stack([row for part in parts for row in part.items], wanted) if items else None,
            layers=wanted,
            cost=cost,
            answer_tokens=np.nan_to_num(_stack_ragged(lengths)).astype(int)
            if candidates is not None
            else None,
        )

    def cost_of(
        self, prompts: Sequence[Prompt], candidates: Sequence[str] | Sequence[Sequence[str]] | None = None
    ) -> Cost:
        """The cost of reading these prompts, without running the model.

        Parameters
        ----------
        prompts
            The prompts.
        candidates
            The answers to score, as for `read`.
        """
        encoded = self.prompt_tokenizer.encode(prompts, _per_prompt(candidates, len(prompts)))
        plan = Plan(self.form, self.loaded.tokenizer.mask_token_id)
        for one in encoded:
            plan.add(one, states=candidates is None, items=False, log_probabilities=False)
        return Cost(len(encoded), plan.naive_tokens, self._distinct(plan))

    def _distinct(self, plan: Plan) -> int:
        tokens = [_flat(sequence) for sequence in plan.sequences]
        return distinct_tokens(tokens) if self.form == "causal" else sum(map(len, set(tokens)))

    def _read_chunk(
        self,
        encoded: Sequence[TokenizedPrompt],
        layers: tuple[int, ...],
        items: bool,
        how: Mapping[str, bool],
        progress: Progress | None,
    ) -> _Part:
        plan = Plan(self.form, self.loaded.tokenizer.mask_token_id)
        scorers = [plan.add(one, states=bool(layers), items=items, **how) for one in encoded]
        distinct = self._distinct(plan)
        output, fresh = self._outputs(plan, layers, _in_tokens(progress, distinct))
        cost = Cost(len(encoded), plan.naive_tokens, distinct, fresh)
        scores, states, item_states = [], [], []
        for score, slot, item in scorers:
            scores.append(score(output))
            if layers:
                states.append(output.states[slot])
            if items:
                item_states.append(output.states[item])
        return _Part(scores, states, item_states, cost)

    def _outputs(
        self, plan: Plan, layers: tuple[int, ...], report: Callable[[float], None]
    ) -> tuple[EngineOutput, int]:
        """The output at every point of a plan, from the cache or from the model."""
        keys = [self._keys(plan.sequences[point.sequence], point, layers) for point in plan.points]
        known = {} if self.cache is None else self.cache.get(key for group in keys for key in group)
        missing = [index for index, group in enumerate(keys) if any(key not in known for key in group)]
        sequences = sorted({plan.points[index].sequence for index in missing})
        place = {sequence: position for position, sequence in enumerate(sequences)}
        points = [_moved(plan.points[index], place) for index in missing]
        done = [len(plan.sequences) - len(sequences)]

        def count(more: int) -> None:
            done[0] += more
            report(done[0] / max(1, len(plan.sequences)))

        count(0)
        read = self.engine.run([plan.sequences[index] for index in sequences], points, layers, count)
        if len(missing) == len(plan.points):
            output = read
        else:
            output = EngineOutput(
                [np.zeros(0, np.float32)] * len(keys), np.zeros(len(keys), np.float32), [None] * len(keys)
            )
            for index, group in enumerate(keys):
                if all(key in known for key in group):
                    _unpack(output, index, plan.points[index], [known[key] for key in group], len(layers))
            for position, index in enumerate(missing):
                output.token_logits[index] = read.token_logits[position]
                output.normalisers[index] = read.normalisers[position]
                output.states[index] = read.states[position]
        if self.cache is not None:
            self.cache.put(
                {
                    key: value
                    for index in missing
                    for key, value in zip(
                        keys[index], _values(output, index, plan.points[index]), strict=True
                    )
                }
            )
        return output, read.computed

    def _keys(self, sequence: Any, point: Point, layers: tuple[int, ...]) -> list[bytes]:
        """The cache keys of a point's outputs: the token logits, the normaliser, and one per layer."""
        if self.cache is None:
            return [b"no cache"]
        seen = sequence[: point.position + 1] if self.form == "causal" else sequence
        start = hashlib.blake2b(self.loaded.identity.encode(), digest_size=24)
        start.update(repr((self.form, seen, point.position, point.encoder)).encode())
        # The key says "words" for token ids: renaming it would invalidate all cached readings.
        outputs: list[object] = [("words", point.token_ids)] if point.token_ids else []
        outputs += ["normaliser"] if point.normaliser else []
        outputs += [("layer", layer) for layer in layers] if point.states else []
        keys = []
        for output in outputs:
            one = start.copy()
            one.update(repr(output).encode())
            keys.append(one.digest())
        return keys

    def _layers(self, layers: Iterable[int] | str) -> tuple[int, ...]:
        if isinstance(layers, str):
            if layers != "all":
                raise CcrankError(f"layers must be numbers or 'all', not {layers!r}")
            return tuple(range(self.depth + 1))
        chosen = []
        for layer in layers:
            if not -self.depth - 1 <= layer <= self.depth:
                raise CcrankError(
                    f"there is no layer {layer}: {self.name} has 0 (embeddings) to {self.depth} (last)"
                )
            chosen.append(layer if layer >= 0 else self.depth + 1 + layer)
        return tuple(dict.fromkeys(chosen))

    def _check_head(self) -> None:
        if self.loaded.missing_head:
            raise CcrankError(
                f"the model {self.name} has no language-model head: its checkpoint lacks "
                f"{self.loaded.missing_head[0]}, so its answers would be random. Use a probing method, or choose a "
                "model with a head (to override, pass allow_new_head=True / --allow-new-head)"
            )

    def _stack(self, rows: Sequence[np.ndarray | None], layers: tuple[int, ...]) -> np.ndarray:
        if not rows:
            return np.zeros((0, len(layers), self.width), np.float32)
        return np.stack([row for row in rows if row is not None])


def _in_tokens(progress: Progress | None, total: int) -> Callable[[float], None]:
    """Turns shares of a chunk that is read, from 0 to 1, into tokens for `progress`."""
    reported = [0]

    def report(share: float) -> None:
        if progress is not None and (tokens := int(share * total) - reported[0]) > 0:
            reported[0] += tokens
            progress(tokens)

    return report


class _Part:
    """The result of one chunk of prompts."""

    def __init__(self, scores: list[np.ndarray], states: list[Any], items: list[Any], cost: Cost) -> None:
        self.scores, self.states, self.items, self.cost = scores, states, items, cost


def _per_prompt(
    candidates: Sequence[str] | Sequence[Sequence[str]] | None, count: int
) -> list[tuple[str, ...]]:
    if candidates is None:
        return [()] * count
    if not candidates and count:
        raise CcrankError("the list of candidates is empty; give at least one, or None for states only")
    texts = [isinstance(one, str) for one in candidates]
    if isinstance(candidates, str) or any(texts) != all(texts):
        raise CcrankError(
            f"candidates must be a list of texts, or one such list per prompt, not {candidates!r:.80}"
        )
    if all(texts):
        return [tuple(map(str, candidates))] * count
    if len(candidates) != count:
        raise CcrankError(
            f"{len(candidates)} lists of candidates for {count} prompts; give one list per prompt"
        )
    return [tuple(one) for one in candidates]


def _check_items(encoded: Sequence[TokenizedPrompt], prompts: Sequence[Prompt]) -> None:
    for one, prompt in zip(encoded, prompts, strict=True):
        if one.item is None:
            raise CcrankError(
                f"task {prompt.task!r}: the item's last token cannot be found in {prompt.text[:80]!r}"
            )


def _moved(point: Point, place: dict[int, int]) -> Point:
    return Point(
        place[point.sequence], point.position, point.token_ids, point.normaliser, point.states, point.encoder
    )


def _flat(sequence: Any) -> tuple[int, ...]:
    """The encoder and decoder tokens as one sequence, for counting."""
    return (*sequence[0], -1, *sequence[1]) if sequence and isinstance(sequence[0], tuple) else sequence


def _values(output: EngineOutput, index: int, point: Point) -> list[np.ndarray]:
    values = [output.token_logits[index]] if point.token_ids else []
    values += [output.normalisers[index : index + 1]] if point.normaliser else []
    states = output.states[index]
    values += list(states) if states is not None else []
    return values


def _unpack(output: EngineOutput, index: int, point: Point, values: list[np.ndarray], layers: int) -> None:
    values = list(values)
    if point.token_ids:
        output.token_logits[index] = values.pop(0)
    if point.normaliser:
        output.normalisers[index] = values.pop(0)[0]
    if point.states:
        output.states[index] = np.stack(values) if layers else None


def _stack_ragged(rows: Sequence[np.ndarray]) -> np.ndarray:
    width = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), width), np.nan, np.float32)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table
