"""Opening a known model without `transformers`, whose import takes longer than ranking a short list.

When `transformers` first loads a model, the tokenizer is stored as `transformers` builds it, the configuration with all
its defaults. Both are stored only if `LightCausalLM` gives the same numbers as the model of `transformers`, which is
tried on the model itself. The weights are not copied: the model's own files are mapped into memory.
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
from safetensors import safe_open
from tokenizers import Tokenizer

from ccrank.errors import CcrankError
from ccrank.models.load.light_llama import ARCHITECTURES, LightCausalLM, expressible
from ccrank.util.files import cache_folder, write_atomically

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
    """The model and the tokenizer, without `transformers`; None if the model has not been prepared."""
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
    """Store what `open_prepared` needs, if the model can be opened so; returns whether it can."""
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


ATTRIBUTES = (
    "all_special_tokens",
    "bos_token",
    "bos_token_id",
    "chat_template",
    "eos_token",
    "eos_token_id",
    "mask_token",
    "mask_token_id",
    "pad_token",
    "pad_token_id",
    "unk_token",
    "unk_token_id",
)
"""What is taken from the tokenizer of `transformers` besides its tokens."""


class LightTokenizer:
    """Calls the tokenizer that `transformers` would call, with the attributes that it would have.

    An attribute that is not in `ATTRIBUTES` is taken from the tokenizer of `transformers`, which is then loaded from
    the model's folder. `attributes` are the values of `ATTRIBUTES`.
    """

    is_fast = True

    def __init__(self, backend: Tokenizer, attributes: Mapping[str, Any], folder: Path) -> None:
        self.backend_tokenizer = backend
        self.folder = folder
        for name in ATTRIBUTES:
            setattr(self, name, attributes[name])

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        add_special_tokens: bool = True,
        return_offsets_mapping: bool = False,
        **ignored: Any,
    ) -> dict[str, Any]:
        """Token ids, and offsets if wanted, of one text or of several; nothing is padded or cut."""
        texts = [text] if isinstance(text, str) else list(text)
        # Without offsets another function is called, which is several times as fast.
        backend = self.backend_tokenizer
        encode = backend.encode_batch if return_offsets_mapping else backend.encode_batch_fast
        rows = encode(texts, add_special_tokens=add_special_tokens)
        found: dict[str, Any] = {"input_ids": [row.ids for row in rows]}
        if return_offsets_mapping:
            found["offset_mapping"] = [row.offsets for row in rows]
        return {name: values[0] for name, values in found.items()} if isinstance(text, str) else found

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Id → added token."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a token; for a token that is not in the vocabulary the id of the unknown token, if there is one."""
        found: int | None = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if found is None else found  # type: ignore[attr-defined, no-any-return]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The tokens of some ids."""
        return [self.backend_tokenizer.id_to_token(one) for one in ids]

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


def attributes_of(tokenizer: Any) -> dict[str, Any]:
    """The values of `ATTRIBUTES` for a tokenizer of `transformers`."""
    return {name: getattr(tokenizer, name, None) for name in ATTRIBUTES}
