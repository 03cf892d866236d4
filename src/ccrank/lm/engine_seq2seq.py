"""Reading encoder-decoder models: each distinct input through the encoder once, its answers through the decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccrank.lm.backbone import Backbone
from ccrank.lm.engine import Engine, EngineOutput, Point, read_points
from ccrank.lm.layout import Layout, padded_layouts
from ccrank.lm.tree import Tokens

Sides = tuple[Tokens, Tokens]
"""The encoder's and the decoder's tokens."""


@dataclass
class Seq2SeqEngine(Engine):
    """An engine whose sequences are (encoder tokens, decoder tokens); `backbone` is that of the decoder."""

    encoder: Backbone | None = None

    def _length(self, sequence: Sides) -> int:
        return max(map(len, sequence))

    def _layouts(self, sequences: Sequence[Sides]) -> Iterator[Layout]:
        """Batches of distinct encoder inputs; `members` are all sequences with these inputs."""
        inputs = list(dict.fromkeys(source for source, _ in sequences))
        users: dict[Tokens, list[int]] = {source: [] for source in inputs}
        for index, (source, _) in enumerate(sequences):
            users[source].append(index)
        for layout in padded_layouts(inputs, self.budget, self.most_rows):
            members = [index for source in layout.members for index in users[inputs[source]]]
            row_of = [row for row, source in enumerate(layout.members) for _ in users[inputs[source]]]
            self._decoders = [sequences[index][1] for index in members]
            self._rows = row_of
            yield Layout(
                layout.tokens,
                layout.positions,
                layout.lengths,
                tuple(members),
                tuple(layout.places[row] for row in row_of),
            )

    @torch.inference_mode()
    def _read(
        self,
        layout: Layout,
        members: Sequence[int],
        by_sequence: dict[int, list[int]],
        points: Sequence[Point],
        layers: Sequence[int],
        output: EngineOutput,
    ) -> None:
        assert self.encoder is not None
        device = self.model.device
        ids = torch.as_tensor(layout.tokens, device=device)
        mask = torch.as_tensor(
            np.arange(ids.shape[1])[None, :] < layout.lengths[:, None], device=device
        ).long()
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}

        at_encoder = [
            (index, int(places[points[index].position]))
            for member, places in zip(members, layout.places, strict=True)
            for index in by_sequence[member]
            if points[index].encoder
        ]
        at_decoder = [
            (index, row)
            for row, member in enumerate(members)
            for index in by_sequence[member]
            if not points[index].encoder
        ]
        # The decoder needs the encoder's last layer; encoder states alone need only the requested layers.
        top = [self.encoder.depth] if at_decoder else []
        flat = torch.as_tensor([place for _, place in at_encoder], dtype=torch.long, device=device)
        asked = sorted({*(layers if at_encoder else ()), *top})
        rows, encoded = self.encoder.rows(inputs, flat, asked)
        output.computed += int(layout.lengths.sum())
        if at_encoder:
            read_points(
                points, [index for index, _ in at_encoder], rows, layers, None, self.encoder.depth, output
            )
        if at_decoder:
            self._decode(encoded.last_hidden_state, mask, at_decoder, points, layers, output)

    def _decode(
        self,
        states: Tensor,
        mask: Tensor,
        at_decoder: Sequence[tuple[int, int]],
        points: Sequence[Point],
        layers: Sequence[int],
        output: EngineOutput,
    ) -> None:
        """Run the decoder in batches within the budget, each row with its own encoder output."""
        device = states.device
        per_pass = max(1, self.budget // states.shape[1])
        for start in range(0, len(at_decoder), per_pass):
            part = at_decoder[start : start + per_pass]
            decoders = [self._decoders[row] for _, row in part]
            length = max(map(len, decoders))
            ids = np.zeros((len(part), length), dtype=np.int64)
            for row, tokens in enumerate(decoders):
                ids[row, : len(tokens)] = tokens
            sources = torch.as_tensor([self._rows[row] for _, row in part], device=device)
            inputs = {
                "input_ids": torch.as_tensor(ids, device=device),
                "encoder_hidden_states": states[sources],
                "encoder_attention_mask": mask[sources],
                "use_cache": False,
            }
            flat = [row * length + points[index].position for row, (index, _) in enumerate(part)]
            wanted = [index for index, _ in part]
            heads = any(points[index].token_ids or points[index].normaliser for index in wanted)
            asked = {*layers} if any(points[index].states for index in wanted) else set()
            if heads:
                asked.add(self.backbone.depth)
            rows, _ = self.backbone.rows(inputs, torch.as_tensor(flat, device=device), sorted(asked))
            read_points(points, wanted, rows, layers, self.head, self.backbone.depth, output)
            output.computed += sum(map(len, decoders))
