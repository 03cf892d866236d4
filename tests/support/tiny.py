"""Tiny random-weight models of every family, with tokenizers, built in memory: no network, no files."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from ccrank.models import Reader
from ccrank.models.load.loading import LoadedModel, form_of
from ccrank.models.load.transformers_settings import quiet_transformers
from ccrank.prompts import Form, Prompt, load_templates
from ccrank.ranking import Ranking
from ccrank.task import Task

CORPUS = [
    "Is Russia larger than Canada? Yes No. On a scale from 0 to 10, the size of Brazil is 1 2 3 4 5 6 7 8 9 10.",
    'Order by size. Options: "A" Monaco, "B" Chad, "C" Peru. The correct ordering is: A, B, C, D.',
    "The height of the tower is more in terms of height. The quick brown fox jumps over the lazy dog.",
    "Is the old stone bridge taller than the new glass tower? Most students selected blue, followed by red.",
    "Is it? Yes. Is it? No. Yes No larger " * 20,
    "small large low high positive negative warm cold rich poor bright dark",
] * 4

CAUSAL = ("gpt2", "llama", "qwen2", "qwen3", "smollm3", "gemma3_text", "gpt_neox", "opt", "mpt")
MASKED = ("bert", "roberta", "deberta", "deberta-v2", "modernbert", "albert")
SEQ2SEQ = ("t5", "marian")
FAMILIES = CAUSAL + MASKED + SEQ2SEQ
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # The original length is shorter than the prompts, so that positions are rescaled.
    "llama-3.2": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
            "tie_word_embeddings": True,
        },
    ),
    "flan-t5": (
        "t5",
        {
            "feed_forward_proj": "gated-gelu",
            "is_gated_act": True,
            "dense_act_fn": "gelu_new",
            "tie_word_embeddings": False,
        },
    ),
}
"""Models of a family that differ in what a reader could get wrong: family and changes of its configuration."""


@cache
def byte_tokenizer() -> Any:
    """Byte-level BPE as in GPT-2: a word after a blank is another token than at the start."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<s>", "</s>", "<pad>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    mask = AddedToken("<mask>", lstrip=True, special=True)  # as RoBERTa's: it takes the blank before it
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", mask_token=mask
    )


def frequent_pieces(texts: list[str], mark: str = "") -> list[tuple[str, int]]:
    """Pieces of the words of the texts with their counts: characters first, then longer ones, what covers most first.

    `mark` stands before a piece inside a word. Not the trainers of `tokenizers`: for WordPiece and unigram models they
    give another vocabulary in each process, and a test would then read another model each time.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        for word in re.findall(r"▁?(?:\w+|[^\w\s▁])|▁", text):
            for start, end in combinations(range(len(word) + 1), 2):
                counts[(mark if start else "") + word[start:end]] += 1

    def order(piece: str) -> tuple[bool, int, str]:
        length = len(piece.removeprefix(mark))
        return length > 1, -counts[piece] * length * (length > 1), piece

    return [(piece, counts[piece]) for piece in sorted(counts, key=order)]


@cache
def word_tokenizer() -> Any:
    """WordPiece as in BERT, with [CLS] and [SEP] added."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [piece for piece, _ in frequent_pieces(CORPUS, mark="##")]
    vocabulary = {piece: index for index, piece in enumerate([*special, *pieces][:400])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


@cache
def unigram_tokenizer() -> Any:
    """A unigram model as in T5, with sentinels and a final </s>."""
    special = ["<pad>", "</s>", "<unk>", "<extra_id_0>", "<extra_id_1>"]
    pieces = frequent_pieces([f"▁{text.replace(' ', '▁')}" for text in CORPUS])[: 300 - len(special)]
    total = sum(count for _, count in pieces)
    vocabulary = [(token, 0.0) for token in special]
    # Long pieces are likelier than their parts, or every word would be read as characters.
    vocabulary += [(piece, math.log(count / total)) for piece, count in pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    tokenizer.add_special_tokens(special)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=["<extra_id_0>", "<extra_id_1>"],
    )


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def tiny_config(family: str) -> Any:
    """A minimal configuration of the family, with the features that distinguish it."""
    t = transformers
    grouped = {**SMALL, "num_key_value_heads": 2, "vocab_size": 420}
    makers = {
        "gpt2": lambda: t.GPT2Config(vocab_size=420, n_positions=128, n_embd=32, n_layer=3, n_head=4),
        "llama": lambda: t.LlamaConfig(**grouped),
        "qwen2": lambda: t.Qwen2Config(**grouped),
        "qwen3": lambda: t.Qwen3Config(**grouped, head_dim=8),
        "smollm3": lambda: t.SmolLM3Config(
            **grouped, no_rope_layers=[1, 0, 1], pad_token_id=2, bos_token_id=0, eos_token_id=1
        ),
        # A window shorter than the prompts, on some layers: what a tree mask gets wrong first.
        "gemma3_text": lambda: t.Gemma3TextConfig(
            **grouped,
            head_dim=8,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            final_logit_softcapping=5.0,
        ),
        "gpt_neox": lambda: t.GPTNeoXConfig(**SMALL, vocab_size=420),
        "opt": lambda: t.OPTConfig(
            vocab_size=420,
            hidden_size=32,
            ffn_dim=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=128,
        ),
        "mpt": lambda: t.MptConfig(vocab_size=420, d_model=32, n_heads=4, n_layers=3, max_seq_len=128),
        # Two modules for three layers: the first one runs twice.
        "albert": lambda: t.AlbertConfig(**SMALL, vocab_size=400, embedding_size=16, num_hidden_groups=2),
        "bert": lambda: t.BertConfig(**SMALL, vocab_size=400),
        "roberta": lambda: t.RobertaConfig(**SMALL, vocab_size=420, pad_token_id=2),
        "deberta": lambda: t.DebertaConfig(
            **SMALL, vocab_size=400, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0
        ),
        "deberta-v2": lambda: t.DebertaV2Config(
            **SMALL,
            vocab_size=400,
            relative_attention=True,
            position_buckets=8,
            pos_att_type=["c2p", "p2c"],
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            type_vocab_size=0,
        ),
        "modernbert": lambda: t.ModernBertConfig(
            **SMALL,
            vocab_size=400,
            local_attention=8,
            global_attn_every_n_layers=2,
            pad_token_id=0,
            cls_token_id=2,
            sep_token_id=3,
            bos_token_id=2,
            eos_token_id=3,
        ),
        "t5": lambda: t.T5Config(
            vocab_size=300,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=3,
            num_decoder_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        ),
        "marian": lambda: t.MarianConfig(
            vocab_size=300,
            d_model=32,
            encoder_layers=3,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_position_embeddings=128,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
            forced_eos_token_id=1,
        ),
    }
    return makers[family]()


def tokenizer_of(family: str) -> Any:
    """The tokenizer that goes with a tiny model."""
    if family in SEQ2SEQ:
        return unigram_tokenizer()
    return byte_tokenizer() if family in (*CAUSAL, "roberta") else word_tokenizer()


def random_model(make: Callable[[], Any], seed: int = 0, std: float = 0.25) -> Any:
    """A model with weights that depend on the seed alone, whatever other threads draw or load meanwhile."""
    with quiet_transformers():  # a load replaces the functions with which models initialize their weights
        model = make().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:  # Marian's positions are fixed
                parameter.normal_(std=std, generator=generator)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(generator=generator)
    return model


def tiny_model(family: str, seed: int = 0, **changes: Any) -> LoadedModel:
    """A random model of the family, or of a variant. Weights are large enough that a wrong mask or position shows."""
    name = family
    family, own = VARIANTS.get(family, (family, {}))
    config = tiny_config(family)
    for key, value in {**own, **changes}.items():
        setattr(config, key, value)
    form = form_of(config)
    kind = {
        "causal": transformers.AutoModelForCausalLM,
        "masked": transformers.AutoModelForMaskedLM,
        "encoder_decoder": transformers.AutoModelForSeq2SeqLM,
    }[form]
    model = random_model(lambda: kind.from_config(config), seed)
    return LoadedModel(f"tiny-{name}", None, model, tokenizer_of(family), form, f"tiny-{name}-{seed}")


@cache
def tiny_reader(family: str = "llama", *, headless: bool = False, **changes: Any) -> Reader:
    """A reader of a tiny model, shared by all tests that request the same one; `headless` without a language-model
    head."""
    if family not in SEQ2SEQ:
        changes = {"max_position_embeddings": 512, **changes}
    loaded = tiny_model(family, **changes)
    return Reader(replace(loaded, missing_head=("lm_head.weight",)) if headless else loaded)


def save_model(loaded: LoadedModel, folder: Path, **options: Any) -> Path:
    """Save a model and its tokenizer as any model is; returns the folder."""
    loaded.model.save_pretrained(folder, **options)
    loaded.tokenizer.save_pretrained(folder)
    return folder


def scores_by_item(ranking: Ranking) -> dict[str, float]:
    """A ranking's scores, whatever the order in which its items were given."""
    return {item: float(score) for item, score in zip(ranking.task.items, ranking.scores, strict=True)}


def pair_prompts(task: Task, form: Form = "causal") -> list[Prompt]:
    """Every ordered pair of a task's items, with the packaged template."""
    templates, places = load_templates(), range(len(task.items))
    prompts = [templates.pair(task, a, b, form) for a in places for b in places if a != b]
    # A model that translates is given texts, and refuses to answer about a criterion.
    return list(map(without_criterion, prompts)) if form == "encoder_decoder" else prompts


def without_criterion(prompt: Prompt) -> Prompt:
    """The same text, with the words of the criterion as text of the template."""
    pieces = tuple(replace(one, role="text") if one.role == "criterion" else one for one in prompt.pieces)
    return replace(prompt, pieces=pieces)
