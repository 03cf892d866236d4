"""One forward pass through any transformer, kept to what is asked: chosen layers, chosen positions, chosen token ids.

`transformers` computes the hidden states of all layers at all positions and logits of all positions over the whole
vocabulary. Here hooks keep the asked rows as they pass by, the pass stops behind the highest layer needed, and the
model's own head runs on the asked rows with its last matrix cut down to the asked token ids.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccrank.errors import CcrankError


class _Enough(Exception):  # noqa: N818 (a signal, not an error)
    """Raised inside a forward pass once the highest layer needed has been seen."""


class Backbone:
    """The stack of layers that a model's head stands on."""

    def __init__(self, module: nn.Module, layer_count: int) -> None:
        self.module = module
        self.layers = _layer_list(module, layer_count)
        self.depth = layer_count
        self._accepts = set(inspect.signature(module.forward).parameters)

    def takes(self, name: str) -> bool:
        """Whether the module's forward has a parameter of that name."""
        return name in self._accepts

    def rows(
        self, inputs: dict[str, Any], places: Tensor, layers: Sequence[int]
    ) -> tuple[dict[int, Tensor], Any]:
        """Run the stack; return for each layer asked the states at the flat places (batch × length), and the output.

        Layer 0 is what enters the first layer, layer i what leaves the i-th, and the last one is the stack's final
        output, after its closing norm: `hidden_states` of `transformers`, index for index.
        """
        kept: dict[int, Tensor] = {}
        top = max(layers, default=self.depth)

        def keep(index: int, states: Tensor) -> None:
            kept[index] = states.reshape(-1, states.shape[-1])[places]
            if index == top:
                raise _Enough

        with ExitStack() as hooks:
            for index in sorted(set(layers)):
                if index < self.depth:
                    hooks.enter_context(_watching(self.layers, index, keep))
            try:
                output = self.module(**inputs)
            except _Enough:
                return kept, None
        final = output.last_hidden_state
        if self.depth in layers:
            kept[self.depth] = final.reshape(-1, final.shape[-1])[places]
        return kept, output


class Head:
    """The way from final states to logits, run on chosen rows and chosen token ids alone."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.decoder = None if hasattr(model, "lm_predictions") else model.get_output_embeddings()
        # OPT and T5 call the decoder inside their base model; the others the base model itself.
        base = model if hasattr(model, "encoder") and hasattr(model, "decoder") else model.base_model
        self.stack = getattr(base, "decoder", base)

    def logits(self, rows: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """(n, d) final states to (n, token_ids) logits in float32; of the whole vocabulary if none are given."""
        if self.decoder is None:
            return self._deberta_logits(rows, token_ids).float()
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

        states = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=rows[None])
        states.cache_params = None  # recurrent models hand on their cache under this name
        ids = torch.zeros((1, 1), dtype=torch.long, device=rows.device)
        inputs: dict[str, Any] = {"input_ids": ids}
        if self.stack is not self.model.base_model and hasattr(self.model, "encoder"):
            inputs = {"encoder_outputs": (rows[None],), "decoder_input_ids": ids}
        with ExitStack() as swaps:
            # The model's own forward goes around the stack, so its scalings and soft caps are not written again here.
            swaps.enter_context(_swapped(self.stack, lambda *args, **kwargs: states))
            if token_ids is not None:
                swaps.enter_context(_swapped(self.decoder, _few_tokens(self.decoder, token_ids)))
            logits: Tensor = self.model(**inputs).logits[0].float()
        return logits

    def _deberta_logits(self, rows: Tensor, token_ids: Tensor | None) -> Tensor:
        """DeBERTa's own head takes the word embeddings as an argument instead of owning a last matrix."""
        head = self.model.lm_predictions.lm_head
        matrix, bias = self.model.base_model.embeddings.word_embeddings.weight, head.bias
        states = head.LayerNorm(head.transform_act_fn(head.dense(rows)))
        return functional.linear(
            states, *((matrix, bias) if token_ids is None else (matrix[token_ids], bias[token_ids]))
        )

    def log_normaliser(self, rows: Tensor, chunk: int = 256) -> Tensor:
        """(n,) log of the sum of exponentiated logits over the vocabulary, a few rows at a time."""
        parts = [torch.logsumexp(self.logits(part), dim=-1) for part in rows.split(chunk)]
        return torch.cat(parts) if parts else rows.new_zeros(0, dtype=torch.float32)


def _layer_list(module: nn.Module, count: int) -> nn.ModuleList:
    for child in module.modules():
        if isinstance(child, nn.ModuleList) and len(child) == count:
            return child
    raise CcrankError(f"{type(module).__name__} has no list of {count} layers that ccrank knows how to watch")


@contextmanager
def _watching(layers: nn.ModuleList, index: int, keep: Callable[[int, Tensor], None]) -> Iterator[None]:
    def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keep(0, args[0] if args else kwargs["hidden_states"])

    def leaving(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        keep(index, output[0] if isinstance(output, tuple) else output)

    handle = (
        layers[0].register_forward_pre_hook(entering, with_kwargs=True)
        if index == 0
        else layers[index - 1].register_forward_hook(leaving)
    )
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _swapped(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    module.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        del module.__dict__["forward"]


def _few_tokens(decoder: Any, token_ids: Tensor) -> Callable[[Tensor], Tensor]:
    bias = getattr(decoder, "bias", None)
    weight, bias = decoder.weight[token_ids], None if bias is None else bias[token_ids]
    return lambda states: functional.linear(states, weight, bias)
