"""A forward pass that returns selected layers, positions and token ids only.

`transformers` computes the hidden states of all layers at all positions and the logits of all positions over the whole
vocabulary. Here hooks store the requested rows, the pass stops after the highest layer needed, and the model's own head
runs on the requested rows, with its output matrix reduced to the requested token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccrank.errors import CcrankError
from ccrank.models.load.light_llama import LightCausalLM
from ccrank.models.products import linear


class _StopForward(Exception):  # noqa: N818 (control flow, not an error)
    """Raised inside a forward pass after the highest layer needed."""


class Backbone:
    """A model's stack of layers, without its head."""

    def __init__(self, module: nn.Module, layer_count: int) -> None:
        self.module = module
        self.layers = _layer_list(module, layer_count)
        self.depth = layer_count
        self._outputs: dict[nn.Module, list[int]] = {}
        for index, layer in enumerate(self.layers):
            self._outputs.setdefault(layer, []).append(index + 1)
        self.options = {"use_cache": False} if "use_cache" in signature(module.forward).parameters else {}
        """Arguments of each pass."""

    def rows(
        self, inputs: dict[str, Any], read_at: Tensor, layers: Sequence[int]
    ) -> tuple[dict[int, Tensor], Any]:
        """Run the stack; return the states of each requested layer at the flat positions (batch × length), and the
        output.

        Layer 0 is the input of the first layer and layer i the output of the i-th. The last one is the output of the
        stack, after the final norm. The indices are as in `hidden_states` of `transformers`.
        """
        kept: dict[int, Tensor] = {}
        top = max(layers, default=self.depth)

        def keep(index: int, states: Tensor) -> None:
            kept[index] = _rows_at(states, read_at)
            if index == top:
                raise _StopForward

        with ExitStack() as hooks:
            below = {index for index in layers if index < self.depth}
            for module in dict.fromkeys(self.layers[max(index - 1, 0)] for index in below):
                hooks.enter_context(_watching(module, self._outputs[module], below, keep))
            try:
                output = self.module(**inputs, **self.options)
            except _StopForward:
                return kept, None
        final = output.last_hidden_state
        if self.depth in layers:
            kept[self.depth] = _rows_at(final, read_at)
        return kept, output


class Head:
    """Maps final states to logits, for selected rows and token ids only."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.decoder = None if hasattr(model, "lm_predictions") else model.get_output_embeddings()
        # OPT and T5 call the decoder inside their base model; the others call the base model itself.
        base = model if hasattr(model, "encoder") and hasattr(model, "decoder") else model.base_model
        self.stack = getattr(base, "decoder", base)
        self._ids: tuple[tuple[int, ...], Tensor] | None = None

    def token_ids(self, ids: tuple[int, ...], device: torch.device) -> Tensor:
        """Token ids on the device; the last ones are kept, because most batches request the same."""
        if self._ids is None or self._ids[0] != ids or self._ids[1].device != device:
            self._ids = ids, torch.as_tensor(ids, device=device)
        return self._ids[1]

    def logits(self, rows: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Logits (n, token_ids) in float32 of final states (n, d); of the whole vocabulary if no ids are given."""
        if self.decoder is None:
            return self._deberta_logits(rows, token_ids).float()
        if getattr(self.model, "final_logits_bias", None) is not None:
            return self._biased_logits(rows, token_ids).float()
        if isinstance(self.model, LightCausalLM):
            return _few_tokens(self.decoder, slice(None) if token_ids is None else token_ids)(rows).float()
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

        states = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=rows[None])
        states.cache_params = None  # recurrent models read their cache from this attribute
        ids = torch.zeros((1, 1), dtype=torch.long, device=rows.device)
        inputs: dict[str, Any] = {"input_ids": ids}
        if self.stack is not self.model.base_model and hasattr(self.model, "encoder"):
            inputs = {"encoder_outputs": (rows[None],), "decoder_input_ids": ids}
        with ExitStack() as swaps:
            # The model's own forward is called with the stack replaced, so its scalings and soft caps apply unchanged.
            swaps.enter_context(_swapped(self.stack, lambda *args, **kwargs: states))
            if token_ids is not None:
                swaps.enter_context(_swapped(self.decoder, _few_tokens(self.decoder, token_ids)))
            logits: Tensor = self.model(**inputs).logits[0].float()
        return logits.to(rows.device)

    def _deberta_logits(self, rows: Tensor, token_ids: Tensor | None) -> Tensor:
        """Logits from DeBERTa's own head, which takes the word embeddings as an argument and has no output matrix."""
        head = self.model.lm_predictions.lm_head
        matrix, bias = self.model.base_model.embeddings.word_embeddings.weight, head.bias
        states = head.LayerNorm(head.transform_act_fn(head.dense(rows)))
        return functional.linear(
            states, *((matrix, bias) if token_ids is None else (matrix[token_ids], bias[token_ids]))
        )

    def _biased_logits(self, rows: Tensor, token_ids: Tensor | None) -> Tensor:
        """Logits of models such as Marian, which add a bias to each token's logit."""
        assert self.decoder is not None
        matrix, bias = self.decoder.weight, self.model.final_logits_bias[0]
        few = slice(None) if token_ids is None else token_ids
        return functional.linear(rows, matrix[few], bias[few].to(matrix.dtype))

    def log_normaliser(self, rows: Tensor, chunk: int = 256) -> Tensor:
        """(n,) log of the sum of exponentiated logits over the vocabulary, computed in chunks of rows."""
        parts = [torch.logsumexp(self.logits(part), dim=-1) for part in rows.split(chunk)]
        return torch.cat(parts) if parts else rows.new_zeros(0, dtype=torch.float32)


def _rows_at(states: Tensor, read_at: Tensor) -> Tensor:
    """The states (B, T, d) at flat positions, on the device of `read_at`: layers may be on several devices."""
    return states.reshape(-1, states.shape[-1])[read_at.to(states.device)].to(read_at.device)


def _layer_list(module: nn.Module, count: int) -> Sequence[nn.Module]:
    """The module that computes each layer; ALBERT has fewer modules than layers, each for a run of layers."""
    for child in module.modules():
        if isinstance(child, nn.ModuleList) and len(child) == count:
            return list(child)
    for child in module.modules():
        groups = getattr(child, "albert_layer_groups", None)
        if groups is not None:
            return [groups[int(index / (count / len(groups)))] for index in range(count)]
    raise CcrankError(
        f"{type(module).__name__} has no list of {count} layers to attach hooks to; this architecture is not supported"
    )


@contextmanager
def _watching(
    module: nn.Module, outputs: Sequence[int], wanted: set[int], keep: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Keep the wanted ones of the layers that a module computes (`outputs`, one per call), and the input of layer 1."""
    calls = iter(outputs)
    entered = not (0 in wanted and outputs[0] == 1)

    def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal entered
        if not entered:
            entered = True
            keep(0, args[0] if args else kwargs["hidden_states"])

    def leaving(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        index = next(calls)
        if index in wanted:
            keep(index, output[0] if isinstance(output, tuple) else output)

    handles = [module.register_forward_hook(leaving)]
    if not entered:
        handles.append(module.register_forward_pre_hook(entering, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _swapped(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    # A model that is spread over several devices has a forward of its own on each module.
    before = module.__dict__.get("forward")
    module.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.forward = before  # type: ignore[method-assign]


def _few_tokens(decoder: Any, token_ids: Tensor | slice) -> Callable[[Tensor], Tensor]:
    bias = getattr(decoder, "bias", None)
    if isinstance(token_ids, Tensor):
        token_ids = token_ids.to(decoder.weight.device)
    weight, bias = decoder.weight[token_ids], None if bias is None else bias[token_ids]
    return lambda states: linear(states.to(weight.device), weight, bias)
