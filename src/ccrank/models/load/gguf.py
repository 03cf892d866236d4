"""Converting GGUF files, with a tokenizer that is verified and rebuilt where `transformers` makes a wrong one.

A GGUF file stores a SentencePiece vocabulary without its merges: the token that comes first in the file is merged
first. Some versions of `transformers` (5.17 for Gemma) write another kind of model, and texts are split into single
characters. The weights are right then, and every answer is at chance.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models.load.known_models import StatusCallback
from ccrank.models.load.weights import CONVERTED_BY, remembered_sha256


def convert_gguf(path: Path, into: Path, say: StatusCallback) -> None:
    """Convert a GGUF file once to a folder of float32 safetensors with its tokenizer, which loads much faster."""
    import torch
    from gguf import GGUFReader
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ccrank.models.load.transformers_settings import quiet_transformers

    say(f"converting {path.name} (about half a minute, once)")
    with quiet_transformers():
        try:
            options = {"gguf_file": path.name, "local_files_only": True}
            model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **options)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **options)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OSError,
            ImportError,
            RuntimeError,
            struct.error,
        ) as error:
            raise CcrankError(
                f"{path} cannot be read as a GGUF model ({path.stat().st_size:,} bytes; {error}); "
                "if the file is incomplete, download it again"
            ) from None
    tokenizer.save_pretrained(into)
    stored = GGUFReader(path)
    fields: Mapping[str, Any] = stored.fields
    verify_tokenizer(fields, into)
    config = model.config.to_dict()
    # Keys that depend on the machine or the date are removed: the same weights must have the same identity everywhere.
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version"):
        config.pop(key, None)
    config.update(architectures=[type(model).__name__], dtype="float32")
    if (add_bos := fields.get("tokenizer.ggml.add_bos_token")) is not None:
        config["ccrank_bos"] = bool(add_bos.contents())
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tensors = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    versions = {name: metadata.version(name) for name in ("transformers", "tokenizers", "gguf")}
    made_from = {
        "file": path.name,
        "sha256": remembered_sha256(path.resolve()),
        "precision": _gguf_precision(stored),
    }
    note = {"converted_by": versions, "made_from": made_from}
    (into / CONVERTED_BY).write_text(json.dumps(note, indent=1))
    (into / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True, default=str))


def _gguf_precision(reader: Any) -> str:
    """The quantization type that the file states, such as Q4_K_M, or else the type of most weights."""
    from gguf import LlamaFileType

    stated = reader.fields.get("general.file_type")
    if stated is not None and stated.contents() in {kind.value for kind in LlamaFileType}:
        return str(LlamaFileType(stated.contents()).name).removeprefix("MOSTLY_")
    counts: Counter[str] = Counter()
    for tensor in reader.tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    return str(counts.most_common(1)[0][0])


SAMPLE = "The largest country in the world is Russia, and the capital of Germany is Berlin. 3 apples cost 12 dollars."
BLANK = "▁"
NORMAL, UNKNOWN, USER_DEFINED, BYTE = 1, 2, 4, 6
"""Types of tokens in a GGUF file. Those of type 3 (control) and 5 (unused) are never made by merging."""


def verify_tokenizer(fields: Mapping[str, Any], folder: Path) -> None:
    """Compare the tokenizer in a folder with the vocabulary of its GGUF file, and rebuild it if texts are split
    differently.
    """
    kind = fields.get("tokenizer.ggml.model")
    if kind is None or kind.contents() != "llama" or "tokenizer.ggml.merges" in fields:
        return
    tokens = [_spelled(token) for token in fields["tokenizer.ggml.tokens"].contents()]
    types: Sequence[int] = fields["tokenizer.ggml.token_type"].contents()
    ranks = {
        token: rank
        for rank, (token, token_type) in enumerate(zip(tokens, types, strict=True))
        if token_type in (NORMAL, USER_DEFINED)
    }
    if _agrees(folder, ranks):
        return
    path = folder / "tokenizer.json"
    stored = json.loads(path.read_text())
    known = {added["content"] for added in stored["added_tokens"]}
    stored["added_tokens"] += [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": False,
        }
        for index, (token, token_type) in enumerate(zip(tokens, types, strict=True))
        if token_type == USER_DEFINED and token not in known
    ]
    stored["model"] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": _unknown(tokens, types),
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": BYTE in types,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": [list(pair) for pair in merges(ranks)],
    }
    path.write_text(json.dumps(stored, ensure_ascii=False))
    if not _agrees(folder, ranks):
        import transformers

        raise CcrankError(
            f"transformers {transformers.__version__} makes a wrong tokenizer of this GGUF file; install another "
            "version (5.22 works for Gemma 3), or convert the file on another machine and pass the folder as --model"
        )


def merges(ranks: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """The pairs of tokens that are merged, first ones first."""
    for token in sorted(ranks, key=ranks.__getitem__):
        for cut in range(1, len(token)):
            if token[:cut] in ranks and token[cut:] in ranks:
                yield token[:cut], token[cut:]


def merged(text: str, ranks: Mapping[str, int]) -> list[str]:
    """A text split as SentencePiece BPE does: of all adjacent pairs, the one with the lowest rank is merged first."""
    pieces = list(text)
    while True:
        pairs = [
            (ranks[left + right], index)
            for index, (left, right) in enumerate(pairwise(pieces))
            if left + right in ranks
        ]
        if not pairs:
            return pieces
        _, index = min(pairs)
        pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]


def _agrees(folder: Path, ranks: Mapping[str, int]) -> bool:
    """Whether the tokenizer, as `transformers` opens it, splits a sample text right, with or without a first blank."""
    from transformers import AutoTokenizer

    from ccrank.models.load.transformers_settings import quiet_transformers

    text = SAMPLE.replace(" ", BLANK)
    if not set(text) <= ranks.keys():
        return True  # a vocabulary without these letters is not checked
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    token_ids = tokenizer(SAMPLE, add_special_tokens=False)["input_ids"]
    return any(
        token_ids == [ranks[piece] for piece in merged(spelled, ranks)] for spelled in (text, BLANK + text)
    )


def _spelled(token: str) -> str:
    """Runs of blanks are stored as such, all other blanks as "▁"."""
    return BLANK * len(token) if " " in token and not token.strip(" ") else token


def _unknown(tokens: Sequence[str], types: Sequence[int]) -> str | None:
    return next((token for token, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None) or (
        "<unk>" if "<unk>" in tokens else None
    )
