"""Reading language models: `Reader.read(prompts, candidates=…, layers=…)`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Literal

import numpy as np

from ccrank.errors import CcrankError
from ccrank.models.cache.reading_keys import ReadingSaver, merged, reading_keys
from ccrank.models.cache.store import ReadingCache
from ccrank.models.capacity import token_budget
from ccrank.models.check.verdict_store import require_good
from ccrank.models.engine.engine import EngineLike
from ccrank.models.engine.factory import make_engine
from ccrank.models.engine.plan import (
    Chunk,
    ReadingPlan,
    Wish,
    chunk_ranges,
    in_tokens,
    no_readings,
    readings_of,
)
from ccrank.models.engine.read_targets import EngineOutput
from ccrank.models.load.catalog import AUTO, StatusCallback, best_model
from ccrank.models.load.loading import LoadedModel, load_model
from ccrank.models.reader_like import distinct_layers
from ccrank.models.reading import Cost, Progress, Readings, joined
from ccrank.models.tokenize.prompt_tokenizer import PromptTokenizer
from ccrank.prompts import Form, Prompt
from ccrank.reader_options import ReaderOptions
from ccrank.util import cancellation


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

    gives_states: Literal[True] = True
    behind_server: Literal[False] = False

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
            translates=bool(loaded.family.get("translates")),
        )
        self.engine: EngineLike = make_engine(loaded, token_budget(batch_tokens, loaded.model), path)

    @classmethod
    def open(
        cls,
        name: str = "default",
        options: ReaderOptions | None = None,
        *,
        cache: ReadingCache | None = None,
        check: bool = True,
        say: StatusCallback = lambda _: None,
    ) -> Reader:
        """Load a model by name and make a reader of it.

        Parameters
        ----------
        name
            A short name (`ccrank models list`), a hub id, a folder, a .gguf file, or "auto" for the best model that is
            on this machine and fits in memory.
        options
            How the model is loaded and read; see `ReaderOptions`.
        cache
            Where readings are stored on disk; None stores none.
        check
            Check weights that are loaded for the first time; warn of a model that reads plain text badly as a
            `ModelWarning`.
        say
            Called with a short status message before anything slow.
        """
        chosen = options or ReaderOptions()
        if name == AUTO:
            name, why = best_model(chosen)
            say(why)
        loaded = load_model(name, chosen, say=say)
        reader = cls(
            loaded, batch_tokens=chosen.batch_tokens, cache=cache, chat=chosen.chat, truncate=chosen.truncate
        )
        if check:
            require_good(reader, strict=chosen.strict, say=say)
        return reader

    def with_engine(self, engine: EngineLike) -> Reader:
        """A reader with its own `spent`, whose passes another engine runs, such as one that requests share."""
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
        """The number of tokens of each text, without special tokens."""
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
            Also return the states at the last token of each prompt's last item, NaN for prompts without one.
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
        answers = per_prompt(candidates, len(prompts))
        if candidates is not None:
            self._check_head()
        if items and not wanted:
            raise CcrankError("items=True needs at least one layer; pass it in `layers`")
        if per_token and any(len(texts) != 1 for texts in answers):
            raise CcrankError("per_token=True needs exactly one candidate for each prompt")
        wish = Wish(wanted, candidates is not None, items, log_probabilities or per_token, per_token)
        if not prompts:
            return no_readings(wish, self.width)
        parts: list[Readings] = []
        started: deque[tuple[Chunk, ReadingSaver]] = deque()
        try:
            for start, end in chunk_ranges(prompts):
                chunk = self._prepare(prompts[start:end], answers[start:end], wish)
                cancellation.check()
                keys = [chunk.keys[index] for index in chunk.missing.tolist()] if chunk.keys else []
                started.append((chunk, ReadingSaver(self.cache, chunk.to_read, keys)))
                self._start(*started[-1], progress)
                # A GPU computes this chunk while the results of the one before it are collected.
                if len(started) > 1:
                    parts.append(self._finish(*started[0]))
                    started.popleft()
            parts.append(self._finish(*started[0]))
        except BaseException:  # interrupted: what was read stays in the cache
            for _, saver in started:
                saver.save()
            raise
        readings = joined(parts)
        self.spent += readings.cost
        return readings

    def cost_of(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        **how: bool,
    ) -> Cost:
        """The cost of such a reading with what the cache has, without running the model; `how` is as for `read`."""
        wish = Wish(self._layers(layers), candidates is not None, **how)
        chunk = self._prepare(prompts, per_prompt(candidates, len(prompts)), wish)
        plan, distinct = chunk.plan, chunk.plan.distinct_tokens
        share = len(chunk.needed) / max(1, len(plan.inputs))
        return Cost(len(prompts), plan.naive_tokens, distinct, round(share * distinct))

    def _prepare(self, prompts: Sequence[Prompt], answers: Sequence[tuple[str, ...]], wish: Wish) -> Chunk:
        """Everything about a chunk that needs no model."""
        cancellation.check()
        encoded = self.prompt_tokenizer.encode(prompts, answers, wish.items)
        cancellation.check()
        for index in np.flatnonzero(encoded.items < 0).tolist() if wish.items else ():
            prompt = prompts[index]
            if any(piece.role == "item" for piece in prompt.pieces):
                raise CcrankError(
                    f"task {prompt.task!r}: the item's last token cannot be found in {prompt.text[:80]!r}"
                )
        plan = ReadingPlan(encoded, self.form, self.loaded.tokenizer.mask_token_id, wish)
        cancellation.check()
        points = plan.points
        chunk = Chunk(plan, np.arange(len(points)))
        if self.cache is not None:
            chunk.keys = reading_keys(self.loaded.identity, self.form, plan.inputs, points, wish.layers)
            chunk.known = self.cache.get(key for group in chunk.keys for key in group)
            if chunk.known:
                unknown = [any(key not in chunk.known for key in group) for group in chunk.keys]
                chunk.missing = np.flatnonzero(np.array(unknown, bool))
        return chunk

    def _start(self, chunk: Chunk, saver: ReadingSaver, progress: Progress | None) -> None:
        """Run the model where the cache has no readings."""
        inputs, needed = chunk.plan.inputs, chunk.needed
        report = in_tokens(progress, chunk.plan.distinct_tokens)
        done = len(inputs) - len(needed)

        def count(more: int, output: EngineOutput) -> None:
            nonlocal done
            done += more
            saver.look(output)
            report(done / max(1, len(inputs)))

        report(done / max(1, len(inputs)))
        saver.output = self.engine.run(inputs.take(needed), saver.points, chunk.plan.wish.layers, count)

    def _finish(self, chunk: Chunk, saver: ReadingSaver) -> Readings:
        """The readings of a chunk, those from the cache included; new ones are stored there."""
        assert saver.output is not None
        output, points = saver.output.collect(), chunk.plan.points
        saver.save()
        if len(chunk.missing) < len(points):
            output = merged(points, chunk.keys, chunk.known, chunk.missing, output)
        return readings_of(chunk.plan, output)

    def _layers(self, layers: Iterable[int] | str) -> tuple[int, ...]:
        if isinstance(layers, str):
            if layers != "all":
                raise CcrankError(f"layers must be numbers or 'all', not {layers!r}")
            return tuple(range(self.depth + 1))
        return tuple(distinct_layers(layers, self))

    def _check_head(self) -> None:
        if self.loaded.missing_head:
            raise CcrankError(
                f"the model {self.name} has no language-model head: its checkpoint lacks "
                f"{self.loaded.missing_head[0]}, so its answers would be random. Use a probing method, or choose a "
                "model with a head (to override, pass allow_new_head=True / --allow-new-head)"
            )


def per_prompt(
    candidates: Sequence[str] | Sequence[Sequence[str]] | None, count: int
) -> list[tuple[str, ...]]:
    """The candidates of each prompt, empty if there are none."""
    if candidates is None:
        return [()] * count
    if not candidates and count:
        raise CcrankError("the list of candidates is empty; give at least one, or None for states only")
    are_texts = [isinstance(answers, str) for answers in candidates]
    if isinstance(candidates, str) or any(are_texts) != all(are_texts):
        raise CcrankError(
            f"candidates must be a list of texts, or one such list per prompt, not {candidates!r:.80}"
        )
    if all(are_texts):
        return [tuple(map(str, candidates))] * count
    if len(candidates) != count:
        raise CcrankError(
            f"{len(candidates)} lists of candidates for {count} prompts; give one list per prompt"
        )
    # Prompts with the very same list keep having the very same one, which is handled once.
    lists = {id(answers): tuple(answers) for answers in candidates}
    return [lists[id(answers)] for answers in candidates]
