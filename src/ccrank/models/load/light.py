"""Opening a known model without `transformers`, whose import takes longer than ranking a short list.

When `transformers` first loads a model, its tokenizer and configuration are stored, if `LightCausalLM` gives the same
numbers. The weights are not copied: the model's own files are mapped into memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from ccrank.models.load.light_llama import ARCHITECTURES, LightCausalLM, expressible
from ccrank.util.files import cache_folder, remember

FORMAT = 1  # increased when what is stored changes, so that older files are not used
MADE_WITH = ("torch", "transformers", "tokenizers")
TOLERANCE = 1e-4
TRIED_TOKENS = 24


def _note(folder: Path, files: Sequence[Path]) -> Path:
    """Where a model's notes are: the name depends on its files and on the versions of libraries."""
    described: list[object] = [FORMAT, *(f"{name} {metadata.version(name)}" for name in MADE_WITH)]
    for path in sorted({*files, *folder.glob("*.json"), *folder.glob("*.jinja"), *folder.glob("*.model")}):
        status = path.stat()
        described.append((str(path.resolve()), status.st_size, status.st_mtime_ns))
    return cache_folder("prepared", hashlib.sha256(repr(described).encode()).hexdigest()[:32] + ".json")


def open_prepared(
    folder: Path, files: Sequence[Path], dtype: torch.dtype
) -> tuple[LightCausalLM, LightTokenizer] | None:
    """The model and the tokenizer, without `transformers`; None if the model has not been prepared."""
    try:
        stored = json.loads(_note(folder, files).read_bytes())
        backend = Tokenizer.from_str(stored["tokenizer"])
        tokenizer = LightTokenizer(backend, stored["attributes"], folder)
        config = SimpleNamespace(**stored["config"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # there is none, or it is damaged and made again
    return LightCausalLM.of_weights(config, _weights(files)).to(dtype).eval(), tokenizer


def prepare(
    folder: Path, files: Sequence[Path], model: Any, tokenizer: Any
) -> tuple[LightCausalLM, LightTokenizer] | None:
    """Store what `open_prepared` needs, and open the model so; None if that is not possible."""
    if type(model).__name__ not in ARCHITECTURES or not getattr(tokenizer, "is_fast", False):
        return None
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    light = SimpleNamespace(**config)
    safe = all(path.suffix == ".safetensors" for path in files)
    if not safe or not expressible(light) or not _same_numbers(model, light, files):
        return None
    attributes = {name: getattr(tokenizer, name, None) for name in ATTRIBUTES}
    stored = {"config": config, "attributes": attributes, "tokenizer": tokenizer.backend_tokenizer.to_str()}
    remember(_note(folder, files), json.dumps(stored))
    return open_prepared(folder, files, model.dtype)


def _weights(files: Sequence[Path]) -> dict[str, torch.Tensor]:
    return {name: tensor for path in files for name, tensor in load_file(path).items()}


@torch.inference_mode()
def _same_numbers(model: Any, config: SimpleNamespace, files: Sequence[Path]) -> bool:
    """Whether states and logits agree on a sequence, in the precision of the model."""
    try:
        light = LightCausalLM.of_weights(config, _weights(files)).to(model.dtype).to(model.device).eval()
    except (RuntimeError, KeyError):
        return False  # the checkpoint has other names
    most = min(config.vocab_size, 1000)
    ids = torch.tensor([[(7 * index + 3) % most for index in range(TRIED_TOKENS)]], device=model.device)
    expected, computed = model(input_ids=ids, use_cache=False).logits, light(ids).logits
    assert computed is not None
    scale = 1 + float(expected.abs().max())
    tolerance = TOLERANCE if model.dtype == torch.float32 else 5e-2
    return float((expected - computed).abs().max()) <= tolerance * scale


ATTRIBUTES = (
    "all_special_tokens",
    "chat_template",
    *(f"{kind}_token{part}" for kind in ("bos", "eos", "mask", "pad", "unk") for part in ("", "_id")),
)
"""What is taken from the tokenizer of `transformers` besides its tokens."""


class LightTokenizer:
    """What reading needs of a tokenizer of `transformers`; for the rest that one is loaded from the model's folder.

    `attributes` are the values of `ATTRIBUTES`.
    """

    is_fast = True

    def __init__(self, backend: Tokenizer, attributes: Mapping[str, Any], folder: Path) -> None:
        self.backend_tokenizer = backend
        self.folder = folder
        vars(self).update((name, attributes[name]) for name in ATTRIBUTES)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        """As the tokenizer of `transformers`; see `token_rows` for a call that needs no `transformers`."""
        return self.full(*texts, **options)

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Id → added token."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The tokens of some ids."""
        return [self.backend_tokenizer.id_to_token(token_id) for token_id in ids]

    @cached_property
    def full(self) -> Any:
        """The tokenizer of `transformers`."""
        from transformers import AutoTokenizer

        from ccrank.models.load.transformers_settings import quiet_transformers

        with quiet_transformers():
            return AutoTokenizer.from_pretrained(self.folder)

    def __getattr__(self, name: str) -> Any:
        # A copy or an unpickled object asks for special methods before it has any attribute.
        if name.startswith("__") or "folder" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.full, name)
