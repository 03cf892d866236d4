"""What is stored about a model when `transformers` first loads it, so that later starts do not need `transformers`.

The tokenizer is stored as `transformers` builds it, the configuration with all its defaults. Both are stored only if
`LightCausalLM` gives the same numbers as the model of `transformers`, which is tried on the model itself. The weights
are not copied: the model's own files are mapped into memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open

from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.lm.light.llama import ARCHITECTURES, LightCausalLM, expressible
from ccrank.lm.light.tokenizer import LightTokenizer, attributes_of
from ccrank.paths import cache_folder

FORMAT = 1
"""Increased when what is stored changes, so that older files are not used."""
MADE_WITH = ("torch", "transformers", "tokenizers")
TOLERANCE = 1e-4
TRIED_TOKENS = 24


def _note(folder: Path, files: Sequence[Path]) -> Path:
    """Where the model's notes are stored: the name depends on the files of the model and on the versions of
    libraries."""
    described: list[object] = [FORMAT, *(f"{name} {metadata.version(name)}" for name in MADE_WITH)]
    for path in sorted({*files, *folder.glob("*.json"), *folder.glob("*.jinja"), *folder.glob("*.model")}):
        status = path.stat()
        described.append((str(path.resolve()), status.st_size, status.st_mtime_ns))
    return cache_folder("prepared", hashlib.sha256(repr(described).encode()).hexdigest()[:32] + ".json")


def open_prepared(
    folder: Path, files: Sequence[Path], dtype: torch.dtype
) -> tuple[LightCausalLM, LightTokenizer] | None:
    """The model and the tokenizer, without `transformers`; None if the model has not been prepared.

    Parameters
    ----------
    folder
        The model's folder.
    files
        Its files of weights.
    dtype
        The precision.
    """
    note = _note(folder, files)
    if not note.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        stored = json.loads(note.read_bytes())
        backend = Tokenizer.from_str(stored["tokenizer"])
        tokenizer = LightTokenizer(backend, stored["attributes"], folder)
        config = SimpleNamespace(**stored["config"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a damaged note is made again
    return LightCausalLM.of_weights(config, _weights(files)).to(dtype).eval(), tokenizer


def prepare(folder: Path, files: Sequence[Path], model: Any, tokenizer: Any) -> bool:
    """Store what `open_prepared` needs, if the model can be opened so; returns whether it can.

    Parameters
    ----------
    folder
        The model's folder.
    files
        Its files of weights.
    model
        The model of `transformers`, with all its weights from these files.
    tokenizer
        The tokenizer of `transformers`.
    """
    if type(model).__name__ not in ARCHITECTURES or not getattr(tokenizer, "is_fast", False):
        return False
    if any(path.suffix != ".safetensors" for path in files):
        return False
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    if not expressible(SimpleNamespace(**config)) or not _same_numbers(
        model, SimpleNamespace(**config), files
    ):
        return False
    backend = tokenizer.backend_tokenizer
    note = _note(folder, files)
    stored = {"config": config, "attributes": attributes_of(tokenizer), "tokenizer": backend.to_str()}
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(note, json.dumps(stored))
    except (OSError, CcrankError):
        return False  # a read-only cache costs time, not correctness
    return True


def _weights(files: Sequence[Path]) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for path in files:
        with safe_open(path, framework="pt") as stored:
            weights.update((name, stored.get_tensor(name)) for name in stored.keys())  # noqa: SIM118
    return weights


@torch.inference_mode()
def _same_numbers(model: Any, config: SimpleNamespace, files: Sequence[Path]) -> bool:
    """Whether states and logits agree on a sequence, in the precision of the model."""
    try:
        light = LightCausalLM.of_weights(config, _weights(files)).to(model.dtype).to(model.device).eval()
    except (RuntimeError, KeyError):
        return False  # the checkpoint has other names
    most = min(config.vocab_size, 1000)
    ids = torch.tensor([[(7 * place + 3) % most for place in range(TRIED_TOKENS)]], device=model.device)
    expected, found = model(input_ids=ids, use_cache=False).logits, light(ids).logits
    assert found is not None
    scale = 1 + float(expected.abs().max())
    tolerance = TOLERANCE if model.dtype == torch.float32 else 5e-2
    return float((expected - found).abs().max()) <= tolerance * scale
