"""Write the weights of a Llama model, as ccrank loads them, to a .gguf file in float32.

    python -m studies.remote.float32_gguf smollm2-float32.gguf [--model default]

llama.cpp's server then computes with the numbers that ccrank computes with, so that `remote.py` compares the
ways of reading and not the precision of weights. The default model's own .gguf file has
weights of four bits; this one has them expanded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from ccrank.errors import CcrankError
from ccrank.models.load.loading import LoadedModel, load_model
from ccrank.reader_options import ReaderOptions

SPLITS: Mapping[str, str] = {"ByteLevel": "gpt-2", "Digits ByteLevel": "smollm"}
"""How a tokenizer cuts a text before merging → llama.cpp's name for it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--model", default="default", help="as ccrank's --model")
    arguments = parser.parse_args()
    loaded = load_model(arguments.model, ReaderOptions(device="cpu", dtype="float32"))
    count = write_gguf(loaded, arguments.out)
    print(f"{arguments.out}: {count} tensors, {arguments.out.stat().st_size:,} bytes")


def write_gguf(loaded: LoadedModel, path: Path) -> int:
    """Write a model with its tokenizer; returns the number of tensors."""
    config, tokenizer = loaded.model.config, loaded.tokenizer
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if config.model_type != "llama" or kind != "default":
        raise CcrankError(
            f"{loaded.name} is a {config.model_type} model (rope_type: {kind}); only Llama models with plain rotary "
            "positions can be written"
        )
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(loaded.name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, config.vocab_size)
    writer.add_add_bos_token(bool(loaded.bos))
    tensors = gguf_tensors(loaded)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(tensors)


def gguf_tensors(loaded: LoadedModel) -> dict[str, np.ndarray]:
    """The weights under llama.cpp's names, in its order of rows."""
    config = loaded.model.config
    places = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tensors = {}
    for name, tensor in loaded.model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue  # llama.cpp takes the embeddings where there is no output matrix
        values = tensor.float().numpy()
        for kind, count in heads.items():
            if kind in name:
                values = neighbours(values, count)
        place = places.get_name(name, try_suffixes=(".weight",))
        if place is None:
            raise CcrankError(f"{loaded.name} has the tensor {name}, for which llama.cpp has no name")
        tensors[place] = np.ascontiguousarray(values)
    return tensors


def neighbours(values: np.ndarray, heads: int) -> np.ndarray:
    """The rows of a query or key matrix in llama.cpp's order: it rotates rows 2i and 2i + 1 of a head together,
    `transformers` rows i and i + d/2."""
    halves = values.reshape(heads, 2, len(values) // heads // 2, -1)  # (heads, half, row, width)
    return halves.swapaxes(1, 2).reshape(values.shape)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, size: int) -> None:
    fast = json.loads(tokenizer.backend_tokenizer.to_str())
    split = fast["pre_tokenizer"] or {"type": "none"}
    kinds = " ".join(one["type"] for one in split.get("pretokenizers", [split]))
    if fast["model"]["type"] != "BPE" or fast["normalizer"] is not None or kinds not in SPLITS:
        raise CcrankError(
            f"the tokenizer is {fast['model']['type']} after {kinds}; only byte-level BPE without a normalizer can be "
            "written"
        )
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = {
        *tokenizer.all_special_tokens,
        *(one["content"] for one in fast["added_tokens"] if one["special"]),
    }
    types = [gguf.TokenType.CONTROL if name in special else gguf.TokenType.NORMAL for name in names]
    unused = range(len(names), size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLITS[kinds])
    writer.add_token_list([*names, *(f"[unused {number}]" for number in unused)])
    writer.add_token_types([*types, *(gguf.TokenType.UNUSED for _ in unused)])
    writer.add_token_merges(
        [one if isinstance(one, str) else " ".join(one) for one in fast["model"]["merges"]]
    )
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)


if __name__ == "__main__":
    main()
