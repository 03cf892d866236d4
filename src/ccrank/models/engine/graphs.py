"""Replaying small forward passes as CUDA graphs.

A small pass takes less time on a GPU than its few hundred kernels take to launch. A pass whose shape occurs again is
therefore recorded once and replayed with new inputs. Lengths are rounded up, so that shapes do repeat; the additional
positions are padding. If recording fails, the passes run as before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ccrank.models.engine.backbone import Backbone

log = logging.getLogger(__name__)

MAX_TOKENS = 4096  # larger passes keep the GPU busy by themselves
STEP = 64  # lengths are rounded up to multiples of this
MAX_GRAPHS = 32  # shapes that are kept; each takes memory for the states of its layers


def rounded(length: int) -> int:
    """The length that a short row is padded to.

    >>> rounded(65)
    128
    """
    return -(-length // STEP) * STEP


@dataclass(frozen=True)
class Recorded:
    """A recorded pass. It reads and writes the memory of these tensors, so they live as long as the graph."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Any]
    read_at: Tensor  # all flat positions
    states: dict[int, Tensor]


class GraphedPasses:
    """Records and replays passes of one backbone on a CUDA device."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.enabled = True
        self._seen: set[Any] = set()
        self._graphs: dict[Any, Recorded] = {}

    def rows(
        self, arguments: dict[str, Any], read_at: Tensor, layers: Sequence[int]
    ) -> dict[int, Tensor] | None:
        """As `Backbone.rows`, without its output; None if this pass should run without a graph."""
        shape = tuple(arguments["input_ids"].shape)
        if not self.enabled or shape[0] * shape[1] > MAX_TOKENS:
            return None
        key = (shape, tuple(layers))
        if key not in self._graphs:
            if key not in self._seen:
                self._seen.add(key)  # a shape that occurs once is not worth recording
                return None
            if len(self._graphs) >= MAX_GRAPHS:
                return None
            try:
                self._graphs[key] = self._record(arguments, layers)
            except (RuntimeError, ValueError) as error:
                log.debug("CUDA graphs are not used: %s", error)
                self.enabled = False
                torch.cuda.synchronize()
                return None
        recorded = self._graphs[key]
        for new, kept in zip(tree_leaves(arguments), tree_leaves(recorded.inputs), strict=True):
            if isinstance(new, Tensor):
                kept.copy_(new)
        recorded.graph.replay()
        return {layer: recorded.states[layer][read_at] for layer in layers}

    def _record(self, arguments: dict[str, Any], layers: Sequence[int]) -> Recorded:
        inputs = tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, arguments)
        everything = torch.arange(arguments["input_ids"].numel(), device=arguments["input_ids"].device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries allocate their workspaces in the first passes
            for _ in range(2):
                self.backbone.rows(inputs, everything, layers)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            states, _ = self.backbone.rows(inputs, everything, layers)
        return Recorded(graph, inputs, everything, states)
