"""Which way a model is read: by prefix tree, padded, or one by one."""

from __future__ import annotations

import numpy as np

from ccrank.errors import CcrankError
from ccrank.lm.backbone import Backbone, Head
from ccrank.lm.engine import Engine, Point, TreeMasks
from ccrank.lm.engine_seq2seq import Seq2SeqEngine
from ccrank.lm.loading import LoadedModel


def make_engine(loaded: LoadedModel, budget: int, path: str) -> Engine:
    """The engine for a model; "auto" takes the tree wherever it is known, or found, to give the same numbers."""
    if path not in ("auto", "tree", "padded", "one"):
        raise CcrankError(f"a reader's path is auto, tree, padded or one, not {path!r}")
    model = loaded.model
    head = None if loaded.missing_head else Head(model)
    most_rows = 1 if path == "one" else None
    if loaded.form == "encoder_decoder":
        config = model.config
        decoder = Backbone(model.decoder, getattr(config, "num_decoder_layers", None) or config.num_layers)
        encoder = Backbone(model.encoder, config.num_layers)
        return Seq2SeqEngine(model, decoder, head, budget, most_rows=most_rows, encoder=encoder)
    backbone = Backbone(model.base_model, model.config.num_hidden_layers)
    engine = Engine(model, backbone, head, budget, most_rows=most_rows)
    if loaded.form == "causal" and path in ("auto", "tree"):
        masks = _tree_masks(loaded)
        tree = Engine(model, backbone, head, budget, tree=True, masks=masks)
        takes = loaded.family.get("tree")
        if takes is None:
            takes = _same_numbers(tree, Engine(model, backbone, head, budget, most_rows=1))
        if takes:
            return tree
        if path == "tree":
            raise CcrankError(f"{model.config.model_type} models do not take a prefix tree; use another path")
    return engine


def _tree_masks(loaded: LoadedModel) -> TreeMasks:
    config = loaded.model.config
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    alibi = loaded.model.base_model if loaded.family.get("alibi") else None
    if "sliding_attention" in kinds:
        return TreeMasks({kind: window if kind == "sliding_attention" else None for kind in kinds}, alibi)
    return TreeMasks({"": None if kinds else window}, alibi)


def _same_numbers(tree: Engine, plain: Engine) -> bool:
    """Whether a family that ccrank does not know takes a prefix tree: try it on three short branching sequences."""
    most = min(tree.model.config.vocab_size, 1000)
    stem = tuple((7 * place + 3) % most for place in range(6))
    sequences = [
        (*stem, 11 % most, 12 % most),
        (*stem, 13 % most),
        (*stem[:3], 17 % most, 19 % most, 23 % most),
    ]
    points = [Point(index, len(sequence) - 1, states=True) for index, sequence in enumerate(sequences)]
    layers = (tree.backbone.depth,)
    try:
        packed = np.stack(
            [state for state in tree.run(sequences, points, layers).states if state is not None]
        )
    except (RuntimeError, TypeError, ValueError, AttributeError):
        return False
    single = np.stack([state for state in plain.run(sequences, points, layers).states if state is not None])
    tolerance = 1e-3 if str(tree.model.dtype) == "torch.float32" else 5e-2
    return bool(np.abs(packed - single).max() <= tolerance * (1 + np.abs(single).max()))
