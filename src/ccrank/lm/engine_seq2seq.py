"""Reading encoder-decoder models: each distinct input through the encoder once, its answers through the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ccrank.lm.backbone import Backbone
from ccrank.lm.engine import Engine, layers_needed, read_points
from ccrank.lm.layout import Batch, Layout
from ccrank.lm.points import EngineOutput, Inputs, Points
from ccrank.lm.transfer import to_device


@dataclass
class Seq2SeqEngine(Engine):
    """An engine whose inputs have two sides; rows are the encoder's, `backbone` is that of the decoder."""

    encoder: Backbone | None = None

    def _layout(self, inputs: Inputs) -> Layout:
        assert inputs.sources is not None
        return Layout.padded(inputs.sources)

    def _row_of(self, layout: Layout, inputs: Inputs) -> np.ndarray:
        assert inputs.source_of is not None
        return inputs.source_of

    def _columns(self, layout: Layout, points: Points) -> np.ndarray:
        return points.position

    @torch.inference_mode()
    def _read(
        self,
        batch: Batch,
        inputs: Inputs,
        points: Points,
        chosen: np.ndarray,
        row: np.ndarray,
        column: np.ndarray,
        indices: np.ndarray,
        layers: Sequence[int],
        output: EngineOutput,
    ) -> None:
        assert self.encoder is not None
        at_encoder = points.encoder[chosen]
        flat = (row * batch.tokens.shape[1] + column)[at_encoder]
        places, arguments, _ = self._arguments(batch, flat)
        arguments.pop("use_cache", None)
        # The decoder needs the encoder's last layer; encoder states alone need only the requested layers.
        top = [] if at_encoder.all() else [self.encoder.depth]
        asked = sorted({*(layers if at_encoder.any() else ()), *top})
        rows, encoded = self.encoder.rows(arguments, places, asked)
        output.computed += int(batch.lengths.sum())
        if at_encoder.any():
            read_points(points, chosen[at_encoder], indices, rows, layers, None, self.encoder.depth, output)
        if not at_encoder.all():
            states, mask = encoded.last_hidden_state, arguments["attention_mask"]
            decoded, rows_of = chosen[~at_encoder], row[~at_encoder]
            per_pass = max(1, self.budget // states.shape[1])
            for start in range(0, len(decoded), per_pass):
                part = slice(start, start + per_pass)
                self._decode(
                    states, mask, inputs, points, decoded[part], rows_of[part], indices, layers, output
                )

    def _decode(
        self,
        states: Tensor,
        mask: Tensor,
        inputs: Inputs,
        points: Points,
        chosen: np.ndarray,
        row: np.ndarray,
        indices: np.ndarray,
        layers: Sequence[int],
        output: EngineOutput,
    ) -> None:
        """Run the decoder for some points, each with its own encoder output."""
        decoders = inputs.tokens.take(points.sequence[chosen])
        tokens = decoders.padded()
        flat = np.arange(len(tokens)) * tokens.shape[1] + points.position[chosen]
        ids, sources, places = to_device((tokens, row, flat), states.device)
        arguments = {
            "input_ids": ids,
            "encoder_hidden_states": states[sources],
            "encoder_attention_mask": mask[sources],
            "use_cache": False,
        }
        asked = layers_needed(points, chosen, layers, self.backbone.depth)
        rows, _ = self.backbone.rows(arguments, places, asked)
        read_points(points, chosen, indices, rows, layers, self.head, self.backbone.depth, output)
        output.computed += len(decoders.flat)
