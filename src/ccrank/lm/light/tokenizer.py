"""A fast tokenizer without `transformers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

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

    Any attribute not listed in `ATTRIBUTES` is that of the tokenizer of `transformers`, which is then loaded.

    Parameters
    ----------
    backend
        The tokenizer in the form of the package `tokenizers`.
    attributes
        The values of `ATTRIBUTES`.
    folder
        The model's folder, from which `transformers` can load its tokenizer.
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
        """Token ids, and offsets if wanted, of one text or of several; nothing is padded or cut.

        Parameters
        ----------
        text
            One text, or several.
        add_special_tokens
            Add the tokens that the model expects at the start and at the end.
        return_offsets_mapping
            Also return the characters (start, end) of each token.
        **ignored
            What `transformers` would need to be given to return no more than this.
        """
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
        """Id → token, for tokens that are no result of the tokenizer's training."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a token; that of the unknown token, if there is one, for others.

        Parameters
        ----------
        token
            The token.
        """
        found: int | None = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if found is None else found  # type: ignore[attr-defined, no-any-return]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The tokens of some ids.

        Parameters
        ----------
        ids
            Token ids.
        """
        return [self.backend_tokenizer.id_to_token(one) for one in ids]

    @cached_property
    def full(self) -> Any:
        """The tokenizer of `transformers`."""
        from transformers import AutoTokenizer

        from ccrank.lm.hf_logging import quiet_transformers

        with quiet_transformers():
            return AutoTokenizer.from_pretrained(self.folder)

    def __getattr__(self, name: str) -> Any:
        # A copy or an unpickled object asks for special methods before it has any attribute.
        if name.startswith("__") or "folder" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.full, name)


def attributes_of(tokenizer: Any) -> dict[str, Any]:
    """The values of `ATTRIBUTES` for a tokenizer of `transformers`.

    Parameters
    ----------
    tokenizer
        The tokenizer.
    """
    return {name: getattr(tokenizer, name, None) for name in ATTRIBUTES}
