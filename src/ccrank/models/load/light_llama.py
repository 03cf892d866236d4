"""The Llama architecture (Llama, Qwen2) in plain PyTorch, with the names and the operations of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccrank.models.products import UninitialisedLinear

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
"""Class of `transformers` → model type."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a forward pass, with the names that `transformers` uses."""

    last_hidden_state: Tensor
    logits: Tensor | None = None


def expressible(config: SimpleNamespace) -> bool:
    """Whether this module implements everything that a configuration asks for."""
    rotary = config.rope_parameters
    return (
        config.model_type in ARCHITECTURES.values()
        and config.hidden_act == "silu"
        and (rotary.get("rope_type"), rotary.get("partial_rotary_factor", 1.0)) == ("default", 1.0)
        and {*(getattr(config, "layer_types", None) or ())} <= {"full_attention"}
    )


BLOCK = 64  # queries that are computed at once where there is a mask


@dataclass(frozen=True, slots=True)
class Block:
    """Queries, the keys that they attend to, and the mask between them (batch or 1, 1, queries, keys)."""

    queries: slice
    keys: Tensor
    mask: Tensor


class RMSNorm(nn.Module):
    """x / √(mean x² + ε), times a weight; the norm is taken in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, states: Tensor) -> Tensor:
        exact = states.to(torch.float32)
        length = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        inverse = length.square_().div_(exact.shape[-1]).add_(self.epsilon).rsqrt_()
        normed: Tensor = (exact * inverse).to(states.dtype).mul_(self.weight)
        return normed


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        qwen = config.model_type == "qwen2"
        bias, width = qwen or bool(getattr(config, "attention_bias", False)), config.hidden_size
        self.head_width = _head_width(config)
        self.grouped = config.num_attention_heads > config.num_key_value_heads
        inner, keys = (
            count * self.head_width for count in (config.num_attention_heads, config.num_key_value_heads)
        )
        self.q_proj = UninitialisedLinear(width, inner, bias=bias)
        self.k_proj = UninitialisedLinear(width, keys, bias=bias)
        self.v_proj = UninitialisedLinear(width, keys, bias=bias)
        self.o_proj = UninitialisedLinear(inner, width, bias=bias and not qwen)

    def forward(
        self, states: Tensor, blocks: Sequence[Block] | None, rotation: tuple[Tensor, Tensor]
    ) -> Tensor:
        batch, length, _ = states.shape
        query, key, value = (
            project(states).view(batch, length, -1, self.head_width)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key, value = (
            states.transpose(1, 2) for states in (_rotate(query, *rotation), _rotate(key, *rotation), value)
        )  # (batch, heads, length, head width)
        attend = partial(functional.scaled_dot_product_attention, enable_gqa=self.grouped)
        if blocks is None:
            mixed = attend(query, key, value, is_causal=length > 1)
        else:
            mixed = torch.cat(
                [
                    attend(
                        query[:, :, block.queries], key[:, :, block.keys], value[:, :, block.keys], block.mask
                    )
                    for block in blocks
                ],
                dim=2,
            )
        output: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return output


class FeedForward(nn.Module):
    """down(silu(gate(x)) · up(x))."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, getattr(config, "mlp_bias", False)
        self.gate_proj = UninitialisedLinear(width, inner, bias=bias)
        self.up_proj = UninitialisedLinear(width, inner, bias=bias)
        self.down_proj = UninitialisedLinear(inner, width, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        gates = functional.silu(self.gate_proj(states), inplace=True)
        output: Tensor = self.down_proj(gates.mul_(self.up_proj(states)))
        return output


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a norm before it and a residual around it."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, states: Tensor, blocks: Sequence[Block] | None, rotation: tuple[Tensor, Tensor]
    ) -> Tensor:
        states = self.self_attn(self.input_layernorm(states), blocks, rotation).add_(states)
        output: Tensor = self.mlp(self.post_attention_layernorm(states)).add_(states)
        return output


class Stack(nn.Module):
    """Embeddings, layers and the final norm."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        shape = (config.vocab_size, config.hidden_size)
        # Given weights, no random ones are drawn: on a device without data that would import the compiler.
        self.embed_tokens = nn.Embedding(*shape, _weight=torch.empty(shape))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        # Not a buffer: casting a model to bfloat16 would cast the frequencies too.
        steps = torch.arange(0, _head_width(config), 2, dtype=torch.float, device="cpu")
        self.frequencies = 1.0 / (config.rope_parameters["rope_theta"] ** (steps / _head_width(config)))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """States (batch, length, width) after the final norm.

        `attention_mask` is (batch, length), 1 for tokens and 0 for padding on the right, or an additive mask
        (batch, 1, length, length).
        """
        states = self.embed_tokens(input_ids)
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        rotation = self._rotation(position_ids, states.dtype)
        mask = _causal(attention_mask)
        blocks = None if mask is None else _blocks(mask)
        for layer in self.layers:
            states = layer(states, blocks, rotation)
        return Output(self.norm(states))

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines (batch, length, 1, head width) and sines (batch, length, 1, head width / 2) of the rotary angles."""
        angles = (positions[..., None].float() * self.frequencies.to(positions.device))[:, :, None]
        cosines = angles.cos()
        return torch.cat((cosines, cosines), dim=-1).to(dtype), angles.sin().to(dtype)


class LightCausalLM(nn.Module):
    """A causal language model that `Reader` reads like one of `transformers`, with the names of its configuration."""

    base_model_prefix = "model"

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.model = Stack(config)
        self.lm_head = UninitialisedLinear(config.hidden_size, config.vocab_size, bias=False)

    @classmethod
    def of_weights(cls, config: SimpleNamespace, weights: dict[str, Tensor]) -> LightCausalLM:
        """A model that uses these tensors as they are: nothing is initialised or copied."""
        with torch.device("meta"):
            model = cls(config)
        tied = getattr(config, "tie_word_embeddings", False)
        if tied:
            weights = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
        model.load_state_dict(weights, assign=True)
        if tied:
            model.lm_head.weight = model.model.embed_tokens.weight
        return model.requires_grad_(False)

    @property
    def base_model(self) -> Stack:
        """The stack of layers, without the head."""
        return self.model

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self.lm_head.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.lm_head.weight.device

    def get_output_embeddings(self) -> UninitialisedLinear:
        """The matrix that maps states to logits."""
        return self.lm_head

    def forward(self, input_ids: Tensor, **inputs: Any) -> Output:
        """Logits (batch, length, vocabulary), from the inputs of `Stack`."""
        states = self.model(input_ids, **inputs).last_hidden_state
        return Output(states, self.lm_head(states))


def _head_width(config: SimpleNamespace) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    (low, high), rotated = states.chunk(2, dim=-1), states * cosines
    to_low, to_high = rotated.chunk(2, dim=-1)
    to_low.addcmul_(high, sines, value=-1)
    to_high.addcmul_(low, sines)
    return rotated


def _blocks(mask: Tensor) -> list[Block]:
    """Blocks of queries with the keys that they attend to, from a mask (batch or 1, 1, length, length)."""
    seen = (mask if mask.dtype == torch.bool else mask == 0).any(dim=(0, 1))
    blocks = []
    for start in range(0, len(seen), BLOCK):
        queries = slice(start, start + BLOCK)
        keys = seen[queries].any(dim=0).nonzero()[:, 0]
        blocks.append(Block(queries, keys, mask[:, :, queries][..., keys]))
    return blocks


def _causal(mask: Tensor | None) -> Tensor | None:
    """The mask for the attention kernel; None stands for plain causal attention."""
    if mask is None or mask.dim() == 4:
        return mask
    if bool(mask.all()):
        return None
    length = mask.shape[1]
    below = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
    return below[None, None] & mask.bool()[:, None, None, :]
