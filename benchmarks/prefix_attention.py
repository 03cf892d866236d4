"""Attention over prefix trees in two steps, as cascade attention and Hydragen do it, against one additive mask.

    python benchmarks/prefix_attention.py            # small shapes on a CPU, those of a 7B model on a GPU

All branches of a tree attend to its trunk, the prefix that all prompts of a task share, without a mask: one dense
product for each row. Among themselves they attend with a mask that is as small as the branches are. The two results are
merged by their log-sum-exp:

    o = (e^{l₁} o₁ + e^{l₂} o₂) / (e^{l₁} + e^{l₂})

The trunk attends to itself causally. Trees are those of the pairs of 8 items after a context; queries, keys and values
are random. Outputs are compared with those of the mask before any time is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ccrank.lm.layout import Batch, Layout
from ccrank.lm.ragged import Ragged
from ccrank.lm.tree import Sorted
from ccrank.lm.tree_masks import visible

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Queries, keys, values (B, heads, T, d) and a mask (B, 1, T, T) to outputs and log-sum-exps (B, heads, T)."""


@dataclass(frozen=True)
class Trees:
    """B rows of T nodes, each a tree with a trunk of P nodes."""

    ends: Tensor
    """(B, T) one past each node's last descendant."""
    trunk: int
    """P"""

    @classmethod
    def of(cls, batch: Batch, device: str) -> Trees:
        """The trees of a batch; the trunk is that of the row with the shortest one."""
        assert batch.ends is not None
        alone = batch.ends != batch.lengths[:, None]  # nodes of which not all others are descendants
        return cls(torch.as_tensor(batch.ends, device=device), int(alone.argmax(axis=1).min()))

    def mask(self, dtype: torch.dtype, first: int = 0) -> Tensor:
        """(B, 1, T − first, T − first) what is added to the scores of the nodes from `first` on.

        The memory of a row is a multiple of 8 entries long, as kernels want it.
        """
        seen = visible(self.ends)[:, first:, first:]
        length = seen.shape[-1]
        room = torch.zeros((len(seen), 1, length, -(-length // 8) * 8), dtype=dtype, device=seen.device)
        mask = room[..., :length]
        mask.masked_fill_(~seen[:, None], torch.finfo(dtype).min)
        return mask


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The reference: all nodes with one mask."""
    return scaled_dot_product_attention(query, key, value, attn_mask=mask)


def in_two_steps(
    query: Tensor, key: Tensor, value: Tensor, trunk: int, mask: Tensor, branches: Attend
) -> Tensor:
    """(B, heads, T, d) the same, with the attention to the trunk apart.

    Parameters
    ----------
    query, key, value
        (B, heads, T, d)
    trunk
        P
    mask
        (B, 1, T − P, T − P) of the branches.
    branches
        Attends among branches.
    """
    parts = [(one[:, :, :trunk], one[:, :, trunk:]) for one in (query, key, value)]
    (trunk_query, query), (trunk_key, key), (trunk_value, value) = parts
    own = scaled_dot_product_attention(trunk_query, trunk_key, trunk_value, is_causal=True)
    first, first_sum = without_mask(query, trunk_key, trunk_value)
    second, second_sum = branches(query, key, value, mask)
    share = torch.sigmoid(first_sum - second_sum)[..., None].to(first.dtype)
    return torch.cat([own, second + share * (first - second)], dim=2)


def without_mask(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to all keys, with its log-sum-exp."""
    aten = torch.ops.aten
    if query.device.type == "cuda":
        output, sums = aten._scaled_dot_product_flash_attention(query, key, value)[:2]
    else:
        output, sums = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)
    return output, sums[..., : query.shape[2]]


def by_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Masked attention with its log-sum-exp, by the kernel that PyTorch has for masks."""
    aten = torch.ops.aten
    if query.device.type == "cuda":
        wide = mask.expand(-1, query.shape[1], -1, -1)
        output, sums = aten._scaled_dot_product_efficient_attention(query, key, value, wide, True)[:2]
    else:
        output, sums = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, attn_mask=mask)
    return output, sums[..., : query.shape[2]]


def by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The same by plain matrix products."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2) + mask
    sums = torch.logsumexp(scores.float(), dim=-1)
    return torch.exp(scores - sums[..., None].to(scores.dtype)) @ value, sums


BRANCHES: dict[str, Attend] = {"kernel": by_kernel, "products": by_products}


@torch.inference_mode()
def measure(tokens: Ragged, heads: int, width: int, budget: int, device: str) -> None:
    """Compare and print, for the largest pass that reading these sequences needs.

    Parameters
    ----------
    tokens
        The prompts of whole tasks.
    heads, width
        Of the attention: (B, heads, T, width).
    budget
        Tokens per pass.
    device
        "cpu" or "cuda".
    """
    layout = Layout.trees(Sorted(tokens), budget)
    batch = max(layout.batches(budget), key=lambda one: one.tokens.size)
    trees, (rows, length) = Trees.of(batch, device), batch.tokens.shape
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    generator = torch.Generator(device).manual_seed(0)
    query, key, value = (
        torch.randn((rows, heads, length, width), generator=generator, device=device, dtype=dtype)
        for _ in range(3)
    )
    mask, small = trees.mask(dtype), trees.mask(dtype, trees.trunk)
    print(
        f"attention of {rows} trees of {length} nodes, {trees.trunk} of them in the trunk; {heads} heads, {dtype}"
    )
    expected = masked(query, key, value, mask)
    plain = seconds(lambda: masked(query, key, value, mask), device)
    print(f"  one mask: {1e3 * plain:.2f} ms a layer")
    for name, branches in BRANCHES.items():
        try:
            found = in_two_steps(query, key, value, trees.trunk, small, branches)
        except RuntimeError as error:
            print(f"  in two steps, branches by {name}: not possible here ({str(error).splitlines()[0]})")
            continue
        difference = agreement(found, expected, batch)
        taken = seconds(
            lambda branches=branches: in_two_steps(query, key, value, trees.trunk, small, branches),  # type: ignore[misc]
            device,
        )
        print(
            f"  in two steps, branches by {name}: {1e3 * taken:.2f} ms a layer, {taken / plain:.0%} of one mask; "
            f"largest difference {difference:.1e}"
        )


def agreement(found: Tensor, expected: Tensor, batch: Batch) -> float:
    """The largest difference at nodes that are no padding; raises an error unless it is within rounding."""
    used = torch.as_tensor(np.arange(batch.tokens.shape[1]) < batch.lengths[:, None], device=found.device)
    difference = float((found - expected).float().abs().amax(dim=(1, 3))[used].max())
    most = 1e-4 if found.dtype == torch.float32 else 5e-2
    if not difference < most:
        raise SystemExit(f"attention in two steps differs by {difference} from that with one mask")
    return difference


def seconds(work: Callable[[], Any], device: str, repeats: int = 20) -> float:
    """Of one call: CPU time on a CPU, else the time of the device."""
    work()
    if device == "cpu":
        start = time.process_time()
        for _ in range(repeats):
            work()
        return (time.process_time() - start) / repeats
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def made_up_pairs(tasks: int, contexts: Sequence[int], items: int = 8, longest: int = 1) -> Ragged:
    """Tokens like those of the ordered pairs of items after contexts of these lengths in turn; items have up to
    `longest` tokens."""
    generator = np.random.default_rng(0)

    def some(count: int) -> list[int]:
        return [int(token) for token in generator.integers(1000, 20_000, count)]

    start, middle, end = some(4), some(2), some(1)  # "In terms of size, is", "larger than", "?"
    found: list[list[int]] = []
    for task in range(tasks):
        trunk = some(contexts[task % len(contexts)])
        names = [some(int(length)) for length in generator.integers(1, longest + 1, items)]
        found += [
            [*trunk, *start, *names[first], *middle, *names[second], *end]
            for first in range(items)
            for second in range(items)
            if first != second
        ]
    return Ragged.of(found)


def main() -> None:
    if torch.cuda.is_available():
        measure(made_up_pairs(128, [400]), heads=32, width=128, budget=32768, device="cuda")
    else:
        torch.set_num_threads(1)
        measure(made_up_pairs(4, [400]), heads=4, width=64, budget=4096, device="cpu")


if __name__ == "__main__":
    main()
