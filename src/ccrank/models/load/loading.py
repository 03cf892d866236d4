"""Loading a model from its folder with the right class and head, refusing weights that were newly initialised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models.load.catalog import FoundModel, StatusCallback, families
from ccrank.models.load.hub import find_model
from ccrank.models.load.light import open_prepared, prepare
from ccrank.models.load.transformers_settings import (
    choose_device,
    choose_dtype,
    placement,
    quantization,
    quiet_transformers,
)
from ccrank.models.load.weights import (
    fetch_again,
    tensor_names,
    weight_files,
    weights_facts,
    weights_identity,
)
from ccrank.models.products import use_fastest_products
from ccrank.models.tokenize.by_form import token_rows
from ccrank.prompts import Form
from ccrank.reader_options import SERVER_PREFIX, ReaderOptions

MAX_LAYERS = 10_000
MAX_REASON = 2000  # characters of a library's message that are passed on


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
        [row] = token_rows(self.tokenizer, ["x"], special=True, offsets=False)
        return (token,) if row.ids[:1] == [token] or declared or self.family.get("bos") else ()

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


def load_model(
    name: str = "default", options: ReaderOptions | None = None, *, say: StatusCallback = lambda _: None
) -> LoadedModel:
    """Load a model by name; a checkpoint that lacks weights outside the head raises an error."""
    chosen = options or ReaderOptions()
    if name.startswith(SERVER_PREFIX):
        raise CcrankError(
            f"a model behind a server ({SERVER_PREFIX}…) works with `ccrank rank`, `bench` and `serve`, and in Python, "
            "by methods that need log-probabilities only; here ccrank must load the model itself: give a hub id, a "
            "folder or a .gguf file"
        )
    found = find_model(name, allow_pickle=chosen.allow_pickle, revision=chosen.revision, say=say)
    files = weight_files(found.folder, chosen.allow_pickle)
    where = choose_device(chosen.device)
    precision = choose_dtype(chosen.dtype, where)
    quantized, quantized_as = quantization(chosen.quantize, where, precision)
    placed = placement(chosen.device_map, where, quantized is not None)
    say(f"loading {found.name}")
    # On a GPU, `transformers` chooses among attention kernels.
    light = where.type == "cpu" and quantized is None and placed is None
    form: Form = "causal"
    head: tuple[str, ...] = ()
    opened = open_prepared(found.folder, files, precision) if light else None
    if opened is None:
        settings = {"dtype": precision, "quantization_config": quantized, "device_map": placed}
        model, tokenizer, form, missing = _with_transformers(found, files, chosen.allow_pickle, settings)
        head = _missing_head(found.name, model, form, missing)
        model = (model.to(where) if placed is None else model).eval()
        # The first load, too, gives the prepared model: the numbers of all loads are the same to the last bit.
        prepared = prepare(found.folder, files, model, tokenizer) if light and not missing else None
        opened = prepared or (model, tokenizer)
    if light:
        use_fastest_products(opened[0])
    computed_in = str(opened[0].dtype).removeprefix("torch.")
    identity = f"{weights_identity(found.folder, files)}-{computed_in}"
    if quantized_as:
        identity, computed_in = f"{identity}-{quantized_as}", f"{computed_in}, weights {quantized_as}"
    facts = weights_facts(found, files, computed_in)
    head = () if chosen.allow_new_head else head
    return LoadedModel(found.name, found.folder, *opened, form, identity, head, facts)


def _with_transformers(
    found: FoundModel, files: list[Path], allow_pickle: bool, settings: Mapping[str, Any]
) -> tuple[Any, Any, Form, list[str]]:
    """The model, its tokenizer, its form, and the names of the weights that its files lack."""
    import transformers

    with quiet_transformers():
        try:
            config = transformers.AutoConfig.from_pretrained(found.folder, trust_remote_code=False)
            _check_sizes(config)
            tokenizer = _tokenizer(found.folder)
            form = form_of(config)
            if families()[form].get(config.model_type, {}).get("own_head"):
                config.legacy = "lm_predictions.lm_head.dense.weight" not in tensor_names(files)
            kind = {
                "causal": transformers.AutoModelForCausalLM,
                "masked": transformers.AutoModelForMaskedLM,
                "encoder_decoder": transformers.AutoModelForSeq2SeqLM,
            }[form]
            model, info = kind.from_pretrained(
                found.folder,
                config=config,
                use_safetensors=None if allow_pickle else True,
                output_loading_info=True,
                trust_remote_code=False,
                **settings,
            )
        except CcrankError:
            raise
        # Damaged files can raise any exception; the tokenizers raise plain `Exception`.
        except Exception as error:
            reason = str(error)[:MAX_REASON] or type(error).__name__
            raise CcrankError(
                f"the model {found.name} in {found.folder} cannot be loaded: {reason}\n"
                f"If its files are damaged or incomplete: {fetch_again(found.folder)}"
            ) from None
    return model, tokenizer, form, sorted(info["missing_keys"])


def _missing_head(name: str, model: Any, form: Form, missing: Sequence[str]) -> tuple[str, ...]:
    """The weights of the head among those that a checkpoint lacks; an error if it lacks others."""
    prefix = "" if form == "encoder_decoder" else f"{model.base_model_prefix}."
    body = [key for key in missing if key.startswith(prefix) and not key.startswith("lm_head")]
    needed = [key for key in body if ".pooler." not in key]
    if needed:
        raise CcrankError(
            f"the checkpoint {name} lacks {len(needed)} weights of the model's body, such as {needed[0]}: "
            "it belongs to another architecture or is damaged"
        )
    return tuple(key for key in missing if key not in body)


def _check_sizes(config: Any) -> None:
    """Refuse a configuration that would make a model without end before its weights are looked at."""
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", ()))):
        for name in ("num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"):
            count = getattr(part, name, None)
            if isinstance(count, int) and count > MAX_LAYERS:
                raise CcrankError(f"config.json states {count:,} layers ({name}), more than {MAX_LAYERS:,}")
        if isinstance(getattr(part, "pad_token_id", None), bool):  # torch 2.6 fails only when it reads
            raise CcrankError(f"config.json states {part.pad_token_id} as pad_token_id, which is no token")


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
