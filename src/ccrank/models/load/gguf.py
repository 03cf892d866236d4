"""Converting GGUF files, with a tokenizer that is verified: up to 5.17, `transformers` makes a wrong one for Gemma."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from ccrank.errors import CcrankError
from ccrank.models.load.catalog import StatusCallback
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
        except Exception as error:  # damaged files can raise any
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
NORMAL, UNKNOWN, USER_DEFINED, BYTE = 1, 2, 4, 6
"""Types of tokens in a GGUF file. Those of type 3 (control) and 5 (unused) are never made by merging."""


def verify_tokenizer(fields: Mapping[str, Any], folder: Path) -> None:
    """Replace the tokenizer in a folder if one that merges the vocabulary of the GGUF file by rank splits otherwise."""
    kind = fields.get("tokenizer.ggml.model")
    if kind is None or kind.contents() != "llama" or "tokenizer.ggml.merges" in fields:
        return
    # Runs of blanks are stored as such, all other blanks as "▁".
    tokens = [
        "▁" * len(token) if " " in token and not token.strip(" ") else token
        for token in fields["tokenizer.ggml.tokens"].contents()
    ]
    types = np.array(fields["tokenizer.ggml.token_type"].contents())
    normal, unknown, user_defined = (
        [tokens[index] for index in np.flatnonzero(np.isin(types, kinds))]
        for kinds in ((NORMAL, USER_DEFINED), UNKNOWN, USER_DEFINED)
    )
    path = str(folder / "tokenizer.json")
    rebuilt = Tokenizer.from_file(path)
    rebuilt.model = BPE(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=list(merges(normal)),
        unk_token=next((token for token in (*unknown, "<unk>") if token in tokens), None),
        fuse_unk=True,
        byte_fallback=BYTE in types,
    )
    rebuilt.add_tokens([AddedToken(token, normalized=False) for token in user_defined])
    right = rebuilt.encode(SAMPLE, add_special_tokens=False).ids
    if _sample_ids(folder) != right:
        rebuilt.save(path)
        if _sample_ids(folder) != right:
            raise CcrankError(
                f"transformers {metadata.version('transformers')} makes a wrong tokenizer of this GGUF file; install "
                "another version (5.22 works for Gemma 3), or convert the file on another machine and pass the folder "
                "as --model"
            )


def merges(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The pairs of tokens that are merged, first ones first: in the order of the tokens that they make."""
    known = set(tokens)
    for token in tokens:
        for cut in range(1, len(token)):
            if token[:cut] in known and token[cut:] in known:
                yield token[:cut], token[cut:]


def _sample_ids(folder: Path) -> list[int]:
    """The sample text as token ids, by the tokenizer that `transformers` opens."""
    from transformers import AutoTokenizer

    from ccrank.models.load.transformers_settings import quiet_transformers

    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder)
    return list(tokenizer(SAMPLE, add_special_tokens=False)["input_ids"])
