"""Choosing how a model is read: by prefix tree, padded, or one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.models.capacity import FASTEST_ON_CPU
from ccrank.models.engine.backbone import Backbone, Head
from ccrank.models.engine.engine import Engine, Seq2SeqEngine
from ccrank.models.engine.graphs import GraphedPasses
from ccrank.models.engine.layout import ROW_TOKENS
from ccrank.models.engine.read_targets import Inputs, Points
from ccrank.models.engine.tree_masks import TreeMasks
from ccrank.models.load.loading import LoadedModel
from ccrank.models.tokenize.ragged import Ragged


def make_engine(loaded: LoadedModel, budget: int, path: str) -> Engine:
    """The engine for a model; "auto" uses the tree wherever it is known, or verified, to give the same numbers."""
    if path not in ("auto", "tree", "padded", "one"):
        raise CcrankError(f"a reader's path must be auto, tree, padded or one, not {path!r}")
    model = loaded.model
    head = None if loaded.missing_head else Head(model)
    most_rows = 1 if path == "one" else None
    if loaded.form == "encoder_decoder":
        encoder, decoder = _two_sides(loaded)
        return Seq2SeqEngine(model, decoder, head, budget, most_rows=most_rows, encoder=encoder)
    depth = getattr(model.config, "num_hidden_layers", None)
    if not isinstance(depth, int):
        raise CcrankError(f"the configuration of {loaded.name} does not state the number of layers")
    backbone = Backbone(model.base_model, depth)
    engine = Engine(model, backbone, head, budget, most_rows=most_rows)
    if loaded.form == "causal" and path in ("auto", "tree"):
        masks = _tree_masks(loaded)
        graphs = GraphedPasses(backbone) if model.device.type == "cuda" and masks.alibi is None else None
        tree = Engine(model, backbone, head, budget, tree=True, masks=masks, graphs=graphs)
        takes = loaded.family.get("tree")
        if takes is None:
            # With little memory passes are short; a long row would be split and say nothing about long prompts.
            takes = _known_layers(model.config) and _same_numbers(
                replace(tree, budget=max(budget, FASTEST_ON_CPU)),
                Engine(model, backbone, head, budget, most_rows=1),
            )
        if takes:
            return tree
        if path == "tree":
            raise CcrankError(
                f"{model.config.model_type} models do not support prefix trees; use path='padded'"
            )
    return engine


def _two_sides(loaded: LoadedModel) -> tuple[Backbone, Backbone]:
    """The encoder and the decoder of an encoder-decoder model."""
    model, config = loaded.model, loaded.model.config
    if loaded.family.get("translates"):
        base = model.base_model
        return Backbone(base.encoder, config.encoder_layers), Backbone(base.decoder, config.decoder_layers)
    if not all(hasattr(model, side) for side in ("encoder", "decoder")) or not getattr(
        config, "num_layers", 0
    ):
        raise CcrankError(
            f"{config.model_type} models are not supported; of encoder-decoder models only T5 with its variants and "
            "Marian are"
        )
    depth = getattr(config, "num_decoder_layers", None) or config.num_layers
    return Backbone(model.encoder, config.num_layers), Backbone(model.decoder, depth)


def _tree_masks(loaded: LoadedModel) -> TreeMasks:
    config = loaded.model.config
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    alibi = loaded.model.base_model if loaded.family.get("alibi") else None
    if "sliding_attention" in kinds:
        windows = {kind: window if kind == "sliding_attention" else None for kind in kinds}
        return TreeMasks(windows, alibi=alibi)
    return TreeMasks({"": None if kinds else window}, alibi=alibi)


def _known_layers(config: Any) -> bool:
    """Whether each layer attends to the full prefix or to a window, which is all that a tree mask can express."""
    return set(getattr(config, "layer_types", None) or ()) <= {"full_attention", "sliding_attention"}


def _same_numbers(tree: Engine, plain: Engine) -> bool:
    """Whether an unlisted model family supports prefix trees: compares both paths on sequences with a common prefix.

    The row is longer than 256 tokens, so that a model that uses row indices instead of depths (GPT-Neo attends to
    256 positions in every other layer) differs at the end of the row. The common prefix is more than a quarter of a
    row, so that the row is not split (see `pack`).
    """
    most = min(tree.model.config.vocab_size, 1000)
    length = min(
        ROW_TOKENS // 4 + 8, (getattr(tree.model.config, "max_position_embeddings", None) or ROW_TOKENS) - 16
    )
    stem = tuple((7 * index + 3) % most for index in range(length))
    sequences = [
        (*stem[: length - 3 * (branch % 2)], *((11 * branch + 13 * index + 5) % most for index in range(8)))
        for branch in range(34)
    ]
    inputs, layers = Inputs(Ragged.of(sequences)), (tree.backbone.depth,)
    everything = Points.at(np.arange(len(sequences)), inputs.lengths - 1)
    # Only a few sequences are read one by one; the tree gets all of them, so that its row is long.
    compared = inputs.ordered.order[[0, 1, -2, -1]]
    few = Points.at(compared, inputs.lengths[compared] - 1)
    try:
        packed = tree.run(inputs, everything, layers).collect().states_at(compared)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError):
        return False
    single = plain.run(inputs, few, layers).collect().states_at(np.arange(len(few)))
    tolerance = 1e-3 if str(tree.model.dtype) == "torch.float32" else 5e-2
    return bool(np.abs(packed - single).max() <= tolerance * (1 + np.abs(single).max()))
