"""Loading a model from its folder with the right class and head, refusing weights that were newly initialised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ccrank.errors import CcrankError
from ccrank.lm.hf_logging import quiet_transformers
from ccrank.lm.hub import Say, locate, weights_identity
from ccrank.lm.light import open_prepared, prepare
from ccrank.lm.quantize import quantization
from ccrank.paths import cache_folder
from ccrank.prompts import Form
from ccrank.toml import parse_toml

DEVICE_MAPS = ("no", "auto", "balanced", "sequential")
SERVER_PREFIX = "openai:"
"""Before the URL of a server that has loaded the model; see `ccrank.remote`."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer and metadata."""

    name: str
    folder: Path | None
    model: Any
    tokenizer: Any
    form: Form
    identity: str
    """Identifies the exact weights; two models with the same identity give the same readings."""
    missing_head: tuple[str, ...] = ()
    """Weights of the head that the checkpoint lacks; such a model can be probed but not prompted."""

    @property
    def family(self) -> Mapping[str, Any]:
        """The entry of `families.toml` for this model type; empty for an unlisted one."""
        return families().get(self.form, {}).get(self.model.config.model_type, {})

    @property
    def bos(self) -> tuple[int, ...]:
        """The BOS token if the model was trained with one, else empty."""
        token = self.tokenizer.bos_token_id
        if self.form != "causal" or token is None:
            return ()
        declared = getattr(self.model.config, "ccrank_bos", None)
        own = self.tokenizer("x", add_special_tokens=True)["input_ids"][:1] == [token]
        return (token,) if own or declared or self.family.get("bos") else ()

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens; None if the model has no limit."""
        config = self.model.config
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            limit = getattr(config, name, None)
            # T5's positions are relative: its `n_positions` is the length that it was trained on.
            if isinstance(limit, int) and (self.form != "encoder_decoder" or self.family.get("translates")):
                # RoBERTa-like models start counting positions after the padding index.
                embeddings = getattr(self.model.base_model, "embeddings", None)
                padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
                return limit if padding is None else limit - padding - 1
        return None


@cache
def families() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The table of model families, by form and `model_type`."""
    return parse_toml(resources.files("ccrank.lm") / "families.toml")


def load_model(
    name: str = "default",
    *,
    device: str = "auto",
    dtype: str = "auto",
    allow_pickle: bool = False,
    allow_new_head: bool = False,
    quantize: str = "no",
    device_map: str = "no",
    trust_remote_code: bool = False,
    say: Say = lambda _: None,
) -> LoadedModel:
    """Load a model by name; a checkpoint that lacks weights other than those of the head raises an error.

    Parameters
    ----------
    name
        A short name (`ccrank models list`), a hub id, a folder or a .gguf file.
    device
        "auto" (CUDA, then Apple's GPU, then the CPU), "cpu", "cuda", "cuda:1", "mps".
    dtype
        "auto" (float32 on a CPU, bfloat16 on a GPU), "float32", "bfloat16" or "float16".
    allow_pickle
        Open pickled weights, which can run arbitrary code.
    allow_new_head
        Report no missing head weights (`LoadedModel.missing_head`), so that the model can be prompted anyway.
    quantize
        "no", "int8" or "int4": weights of fewer bits; see `ccrank.lm.quantize`.
    device_map
        "no", or how `transformers` spreads a model over several devices: "auto", "balanced", "sequential".
    trust_remote_code
        Passed to `transformers`.
    say
        Called with a short status message before anything slow.
    """
    if name.startswith(SERVER_PREFIX):
        raise CcrankError(
            f"a model behind a server ({SERVER_PREFIX}…) works with `ccrank rank`, `bench` and `serve`, and in Python, "
            "by methods that need log-probabilities only; here ccrank must load the model itself: give a hub id, a "
            "folder or a .gguf file"
        )
    folder = locate(name, allow_pickle=allow_pickle, say=say)
    files = weight_files(folder, allow_pickle)
    check_weights(files, folder)
    where = choose_device(device)
    precision = choose_dtype(dtype, where)
    quantized, quantized_as = quantization(quantize, where, precision)
    placed = _placement(device_map, where, quantized is not None)
    say(f"loading {name}")
    # On a GPU, `transformers` chooses among attention kernels.
    light = where.type == "cpu" and not trust_remote_code and quantized is None and placed is None
    if light and (opened := open_prepared(folder, files, precision)):
        identity = _identity(folder, files, opened[0])
        return LoadedModel(name, folder, *opened, "causal", identity)
    from transformers import AutoConfig

    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
            tokenizer = _tokenizer(folder, trust_remote_code)
            form = form_of(config)
            if families().get(form, {}).get(config.model_type, {}).get("own_head"):
                config.legacy = "lm_predictions.lm_head.dense.weight" not in tensor_names(files)
            model, missing = _weights(
                folder, config, form, precision, allow_pickle, trust_remote_code, quantized, placed
            )
        except (
            ValueError,
            LookupError,
            AttributeError,
            TypeError,
            OSError,
            ImportError,
            RuntimeError,
            SafetensorError,
        ) as error:
            raise CcrankError(
                f"the model {name} in {folder} cannot be loaded: {error}\n"
                f"If its files are damaged or incomplete: {fetch_again(folder)}"
            ) from None
    body = [
        key for key in missing if key.startswith(f"{model.base_model_prefix}.") or form == "encoder_decoder"
    ]
    head = tuple(key for key in missing if key not in body or key.startswith("lm_head"))
    body = [key for key in body if key not in head and ".pooler." not in key]
    if body:
        raise CcrankError(
            f"the checkpoint {name} lacks {len(body)} weights of the model's body, such as {body[0]}: "
            "it belongs to another architecture or is damaged"
        )
    if placed is None:
        model = model.to(where)
    model = model.eval()
    if light and not missing:
        prepare(folder, files, model, tokenizer)
    identity = _identity(folder, files, model)
    if quantized_as:
        identity += f"-{quantized_as}"
    return LoadedModel(name, folder, model, tokenizer, form, identity, () if allow_new_head else head)


def _identity(folder: Path, files: list[Path], model: Any) -> str:
    return f"{weights_identity(folder, files)}-{str(model.dtype).removeprefix('torch.')}"


def _placement(device_map: str, where: torch.device, quantized: bool) -> Any:
    """What `transformers` takes as `device_map`; None if the model is moved to its device after loading."""
    if device_map not in DEVICE_MAPS:
        raise CcrankError(f"unknown device map {device_map!r}; choose {', '.join(DEVICE_MAPS)}")
    if device_map != "no":
        if find_spec("accelerate") is None:
            raise CcrankError(
                f"--device-map {device_map} needs the package accelerate: pip install accelerate"
            )
        return device_map
    return {"": where} if quantized else None  # quantized weights cannot be moved


def _weights(
    folder: Path,
    config: Any,
    form: Form,
    dtype: torch.dtype,
    allow_pickle: bool,
    trust: bool,
    quantized: Any = None,
    placed: Any = None,
) -> tuple[Any, list[str]]:
    import transformers

    kind = {
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
        "encoder_decoder": transformers.AutoModelForSeq2SeqLM,
    }[form]
    model, info = kind.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        output_loading_info=True,
        trust_remote_code=trust,
        use_safetensors=None if allow_pickle else True,
        **({} if quantized is None else {"quantization_config": quantized}),
        **({} if placed is None else {"device_map": placed}),
    )
    return model, sorted(info["missing_keys"])


def _tokenizer(folder: Path, trust: bool) -> Any:
    """The tokenizer of a folder. `transformers` chooses its class by the model's family, and makes one that knows
    special tokens alone, without an error, where the family's file is not there: an ALBERT with BERT's vocab.txt."""
    from transformers import AutoTokenizer, BertTokenizerFast

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    if _knows_words(tokenizer):
        return tokenizer
    if (folder / "vocab.txt").is_file() and _knows_words(other := BertTokenizerFast.from_pretrained(folder)):
        return other
    files = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
    raise ValueError(
        f"its tokenizer ({type(tokenizer).__name__}) has no tokens except {len(tokenizer)} special ones, so every "
        f"word would be unknown. Add its vocabulary, such as tokenizer.json, to the files there: {files}"
    )


def _knows_words(tokenizer: Any) -> bool:
    return len(tokenizer) > len(set(tokenizer.all_special_ids))


def form_of(config: Any) -> Form:
    """The form of prompts that a model configuration requires."""
    from transformers.models.auto import modeling_auto

    if getattr(config, "is_encoder_decoder", False):
        return "encoder_decoder"
    for form in ("causal", "masked"):
        if config.model_type in families()[form]:
            return form  # type: ignore[return-value]
    names = " ".join(getattr(config, "architectures", None) or ())
    if "MaskedLM" in names:
        return "masked"
    if "CausalLM" in names or "LMHead" in names:
        return "causal"
    if config.model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "masked"
    if config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "causal"
    raise CcrankError(
        f"{config.model_type} models are neither causal, masked nor encoder-decoder language models"
    )


def weight_files(folder: Path, allow_pickle: bool) -> list[Path]:
    """The files that contain the weights: one, or the shards of an index."""
    if safe := sorted(folder.glob("*.safetensors")):
        return safe
    pickles = sorted(folder.glob("pytorch_model*.bin"))  # others, such as training_args.bin, are not weights
    if pickles and not allow_pickle:
        raise CcrankError(
            f"{folder} has only pickled weights ({pickles[0].name}); opening a pickle can run arbitrary code. "
            "If you trust its source, pass --allow-pickle"
        )
    if not pickles:
        raise CcrankError(f"{folder} has no weights: neither *.safetensors nor pytorch_model*.bin")
    return pickles


def check_weights(files: list[Path], folder: Path) -> None:
    """Refuse weights that are damaged or cut off, as an interrupted copy leaves them: their header says how long a
    file must be.

    Parameters
    ----------
    files
        The files of weights; only .safetensors are checked.
    folder
        The folder of the model.
    """
    for path in files:
        if path.suffix != ".safetensors":
            continue
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise CcrankError(
                f"the weights {path} are damaged or incomplete ({path.stat().st_size:,} bytes; {error}): "
                f"{fetch_again(folder)}"
            ) from None


def fetch_again(folder: Path) -> str:
    """What to do about a model whose files are damaged: fetched models are deleted, others copied again.

    Parameters
    ----------
    folder
        The folder of the model.
    """
    # The hub's cache keeps the files themselves beside the folder of links that it hands out.
    hub = next((parent for parent in folder.parents if parent.name.startswith("models--")), None)
    if hub is not None or folder.is_relative_to(cache_folder("models")):
        return f"delete the folder {hub or folder}; the next run fetches the model again"
    return f"copy or download the model into {folder} again"


def tensor_names(files: list[Path]) -> set[str]:
    """The names of the tensors in a checkpoint, without loading the tensors where the format allows it."""
    names: set[str] = set()
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as stored:
                names.update(stored.keys())
        else:
            names.update(torch.load(path, map_location="meta", weights_only=True))
    return names


def choose_device(device: str) -> torch.device:
    """The requested device; "auto" is a CUDA GPU, else Apple's GPU, else the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise CcrankError(
            f"the device {device!r} cannot be used: {str(error).splitlines()[0]}; choose another, such as cpu, or auto"
        ) from None
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The requested precision; "auto" is float32 on a CPU, bfloat16 on a GPU."""
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise CcrankError(f"unknown precision {dtype!r}; choose auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]
