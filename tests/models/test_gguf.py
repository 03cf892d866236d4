"""The tokenizer that is made of a GGUF file is compared with the file's own vocabulary."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import transformers
from tiny import CORPUS
from tokenizers import Tokenizer, models, normalizers, trainers

from ccrank.errors import CcrankError
from ccrank.models.load import gguf
from ccrank.models.load.gguf import SAMPLE, verify_tokenizer

SPECIAL = ["<pad>", "<unk>"]


def trained():
    """SentencePiece-like BPE: a vocabulary in the order of merging, without splits at blanks."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.train_from_iterator(
        [*CORPUS, SAMPLE], trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL)
    )
    return tokenizer


def fields_of(tokenizer, **changes):
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    values = {"model": "llama", "tokens": tokens, "token_type": [3, 2] + [1] * (len(tokens) - 2), **changes}
    return {
        f"tokenizer.ggml.{name}": SimpleNamespace(contents=lambda value=value: value)
        for name, value in values.items()
    }


def save(backend, folder):
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>"
    )
    wrapped.save_pretrained(folder)
    return folder / "tokenizer.json"


def as_unigram(tokenizer):
    """The same vocabulary read as another kind of model, with ranks for scores."""
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    other = Tokenizer(models.Unigram([(token, -float(rank)) for rank, token in enumerate(tokens)], unk_id=1))
    other.normalizer = tokenizer.normalizer
    return other


def test_a_right_tokenizer_is_left_alone(tmp_path):
    """A tokenizer that splits texts as its vocabulary says is not rewritten."""
    path = save(trained(), tmp_path)
    before = path.read_bytes()
    verify_tokenizer(fields_of(trained()), tmp_path)
    assert path.read_bytes() == before


def test_a_wrong_tokenizer_is_rebuilt(tmp_path):
    """A vocabulary that was saved as a unigram model splits texts differently; rebuilt, it gives the right tokens."""
    right, wrong = trained(), as_unigram(trained())
    assert wrong.encode(SAMPLE).ids != right.encode(SAMPLE).ids
    save(wrong, tmp_path)
    verify_tokenizer(fields_of(right), tmp_path)
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (SAMPLE, *CORPUS):
        assert opened(text, add_special_tokens=False)["input_ids"] == right.encode(text).ids


def test_user_defined_tokens_stay_whole(tmp_path):
    """A token that the file marks as user-defined is matched as a whole in the rebuilt tokenizer."""
    right = trained()
    fields = fields_of(right)
    tokens = [*fields["tokenizer.ggml.tokens"].contents(), "<table>"]
    types = [*fields["tokenizer.ggml.token_type"].contents(), 4]
    save(as_unigram(right), tmp_path)
    verify_tokenizer(fields_of(right, tokens=tokens, token_type=types), tmp_path)
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert opened("a<table>a", add_special_tokens=False).tokens()[1] == "<table>"


def test_what_cannot_be_rebuilt_is_refused(tmp_path, monkeypatch):
    """If the rebuilt tokenizer is wrong as well, the conversion fails and names the version."""
    save(as_unigram(trained()), tmp_path)
    monkeypatch.setattr(gguf, "_sample_ids", lambda folder: [])
    with pytest.raises(CcrankError, match=f"transformers {transformers.__version__}"):
        verify_tokenizer(fields_of(trained()), tmp_path)


@pytest.mark.parametrize("changes", [{"model": "gpt2"}, {"merges": ["a b"]}])
def test_tokenizers_that_state_their_merges_are_not_checked(tmp_path, changes):
    """Only SentencePiece vocabularies without merges are rebuilt."""
    path = save(as_unigram(trained()), tmp_path)
    before = path.read_bytes()
    verify_tokenizer(fields_of(trained(), **changes), tmp_path)
    assert path.read_bytes() == before
