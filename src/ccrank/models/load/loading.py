"""Loading a model from its folder with the right class and head, refusing weights that were newly initialised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models.load.hub import ANY_REVISION, find_model
from ccrank.models.load.known_models import FoundModel, StatusCallback
from ccrank.models.load.light import open_prepared, prepare
from ccrank.models.load.light_llama import LightCausalLM
from ccrank.models.load.transformers_settings import (
    _placement,
    choose_device,
    choose_dtype,
    quantization,
    quiet_transformers,
)
from ccrank.models.load.weights import (
    check_weights,
    fetch_again,
    tensor_names,
    weight_files,
    weights_facts,
    weights_identity,
)
from ccrank.models.products import use_fastest_products
from ccrank.prompts import Form
from ccrank.reader_options import SERVER_PREFIX
from ccrank.util.files import parse_toml

MAX_LAYERS = 10_000
MAX_SAID = 2000
"""Characters of a library's message that are passed on."""


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
    weights: Mapping[str, Any] = field(default_factory=dict)
    """Where the weights are from, with hashes and precision; see `weights_facts`."""

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
        adds_it = self.tokenizer("x", add_special_tokens=True)["input_ids"][:1] == [token]
        return (token,) if adds_it or declared or self.family.get("bos") else ()

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
    return parse_toml(resources.files("ccrank.models.load") / "families.toml")


def load_model(
    name: str = "default",
    *,
    device: str = "auto",
    dtype: str = "auto",
    allow_pickle: bool = False,
    allow_new_head: bool = False,
    quantize: str = "no",
    device_map: str = "no",
    revision: str = ANY_REVISION,
    say: StatusCallback = lambda _: None,
) -> LoadedModel:
    """Load a model by name; a checkpoint that lacks weights outside the head raises an error."""
    if name.startswith(SERVER_PREFIX):
        raise CcrankError(
            f"a model behind a server ({SERVER_PREFIX}…) works with `ccrank rank`, `bench` and `serve`, and in Python, "
            "by methods that need log-probabilities only; here ccrank must load the model itself: give a hub id, a "
            "folder or a .gguf file"
        )
    found = find_model(name, allow_pickle=allow_pickle, revision=revision, say=say)
    name, folder = found.name, found.folder
    files = weight_files(folder, allow_pickle)
    check_weights(files, folder)
    where = choose_device(device)
    precision = choose_dtype(dtype, where)
    quantized, quantized_as = quantization(quantize, where, precision)
    placed = _placement(device_map, where, quantized is not None)
    say(f"loading {name}")
    # On a GPU, `transformers` chooses among attention kernels.
    light = where.type == "cpu" and quantized is None and placed is None
    if light and (opened := open_prepared(folder, files, precision)):
        return _prepared(found, files, *opened)
    from transformers import AutoConfig

    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            _check_sizes(config)
            tokenizer = _tokenizer(folder)
            form = form_of(config)
            if families().get(form, {}).get(config.model_type, {}).get("own_head"):
                config.legacy = "lm_predictions.lm_head.dense.weight" not in tensor_names(files)
            model, missing = _weights(
                folder,
                form,
                config=config,
                dtype=precision,
                use_safetensors=None if allow_pickle else True,
                **({} if quantized is None else {"quantization_config": quantized}),
                **({} if placed is None else {"device_map": placed}),
            )
        except CcrankError:
            raise
        # Damaged files can raise any exception; the tokenizers raise plain `Exception`.
        except Exception as error:
            raise CcrankError(
                f"the model {name} in {folder} cannot be loaded: {str(error)[:MAX_SAID] or type(error).__name__}\n"
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
    # The first load, too, gives the prepared model: the numbers of all loads are the same to the last bit.
    prepared = light and not missing and prepare(folder, files, model, tokenizer)
    if prepared and (opened := open_prepared(folder, files, precision)):
        return _prepared(found, files, *opened)
    if light:
        use_fastest_products(model)
    identity = _identity(folder, files, model)
    if quantized_as:
        identity += f"-{quantized_as}"
    computed_in = f"{_precision(model)}, weights {quantized_as}" if quantized_as else _precision(model)
    facts = weights_facts(found, files, computed_in)
    return LoadedModel(name, folder, model, tokenizer, form, identity, () if allow_new_head else head, facts)


def _prepared(found: FoundModel, files: list[Path], model: LightCausalLM, tokenizer: Any) -> LoadedModel:
    use_fastest_products(model)
    identity = _identity(found.folder, files, model)
    facts = weights_facts(found, files, _precision(model))
    return LoadedModel(found.name, found.folder, model, tokenizer, "causal", identity, weights=facts)


def _check_sizes(config: Any) -> None:
    """Refuse a configuration that would make a model without end before its weights are looked at."""
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", ()))):
        for name in ("num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"):
            count = getattr(part, name, None)
            if isinstance(count, int) and count > MAX_LAYERS:
                raise CcrankError(f"config.json states {count:,} layers ({name}), more than {MAX_LAYERS:,}")


def _identity(folder: Path, files: list[Path], model: Any) -> str:
    return f"{weights_identity(folder, files)}-{_precision(model)}"


def _precision(model: Any) -> str:
    return str(model.dtype).removeprefix("torch.")


def _weights(folder: Path, form: Form, **options: Any) -> tuple[Any, list[str]]:
    """The model, and the names of the weights that its files lack."""
    import transformers

    kind = {
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
        "encoder_decoder": transformers.AutoModelForSeq2SeqLM,
    }[form]
    model, info = kind.from_pretrained(folder, output_loading_info=True, trust_remote_code=False, **options)
    return model, sorted(info["missing_keys"])


def _tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder. `transformers` chooses its class by the model's family, and makes one that knows
    special tokens alone, without an error, where the family's file is not there: an ALBERT with BERT's vocab.txt."""
    from transformers import AutoTokenizer, BertTokenizerFast

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not _knows_words(tokenizer) and (folder / "vocab.txt").is_file():
        other = BertTokenizerFast.from_pretrained(folder)
        tokenizer = other if _knows_words(other) else tokenizer
    if _knows_words(tokenizer):
        tokenizer("a")  # some mistakes in its files show only here
        return tokenizer
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
