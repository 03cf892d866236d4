"""Tokenizing prompts from their words gives the tokens of the whole texts."""

from __future__ import annotations

import itertools

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import byte_tokenizer, unigram_tokenizer, word_tokenizer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from ccrank.models.tokenize import prompt_tokenizer as module
from ccrank.models.tokenize import splice as splice_module
from ccrank.models.tokenize.prompt_tokenizer import PromptTokenizer
from ccrank.models.tokenize.splice import WordTokens, split_words, words_of
from ccrank.prompts import Piece, Prompt, load_templates
from ccrank.task import Criterion, Task

STORY = "The old stone bridge is taller than the new glass tower, said most students. " * 3
# Texts of letters, marks and all kinds of white space, which is what tokenizers treat differently.
texts = st.text(
    st.sampled_from([*"abcYe1.,?!'\"<-(", " ", " ", "\n", "\t", "\u00a0", "\u0301", "é", "字", "👍"]),
    min_size=1,
    max_size=14,
).filter(str.strip)


WORDINGS = {
    "pair": ("Is ", "item", " larger than ", "item", "? "),
    "single": ("The ", "size", " of ", "item", " is "),
    "front": ("item", " of great size, say most: "),
    "quoted": ("Of ", "item", ' the "', "item", '" is "'),
}


def prompts_of(items, context, wording):
    """Prompts about all (pairs of) items; an item is taken as it is, blanks at its ends included."""
    start = (Piece(context, "context"), Piece("\n\n")) if context else ()
    prompts = []
    items = [*items, "Peru", "Chad"]
    for first in items:
        for second in items if WORDINGS[wording].count("item") > 1 else items[:1]:
            chosen = iter((first, second))
            pieces = [
                Piece(next(chosen), "item") if part == "item" else Piece(part) for part in WORDINGS[wording]
            ]
            prompts.append(Prompt((*start, *pieces, Piece("", "slot"))))
    return prompts


def both_ways(tokenizer, prompts, candidates, monkeypatch, items=False, **options):
    """The same prompts from words and as whole texts."""
    answers = [candidates] * len(prompts)
    found = []
    for fewest in (1, 10**9):
        monkeypatch.setattr(module, "MIN_SPLICED", fewest)
        found.append(list(PromptTokenizer(tokenizer, "causal", **options).encode(prompts, answers, items)))
    return found


@pytest.mark.parametrize("tokenizer", [byte_tokenizer, unigram_tokenizer, word_tokenizer])
@pytest.mark.parametrize("template", WORDINGS)
@given(
    items=st.lists(texts, min_size=1, max_size=4),
    context=st.none() | st.just(STORY) | texts.map(lambda text: f"{STORY}{text}"),
    items_wanted=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_spliced_is_whole(tokenizer, template, items, context, items_wanted):
    """For any context and items, prompts have the same tokens, answers, slots and items as when tokenized whole."""
    with pytest.MonkeyPatch.context() as patch:
        prompts = prompts_of(items, context, template)
        prompts.append(prompts[0].filled("Yes"))
        candidates = ("Yes", "No 10", "1")
        if tokenizer is word_tokenizer:
            candidates = ("Yes", "No")
        spliced, whole = both_ways(tokenizer(), prompts, candidates, patch, items_wanted, bos=(1,))
        assert spliced == whole


def watch_tokenizing(monkeypatch, seen):
    """Collect every text that is tokenized."""
    rows = splice_module.token_rows

    def watched(tokenizer, texts, **how):
        seen.extend(texts)
        return rows(tokenizer, texts, **how)

    monkeypatch.setattr(splice_module, "token_rows", watched)


def test_words_are_tokenized_once(monkeypatch):
    """Of 90 prompts about 10 items, a context is tokenized once for all words and once as a trial."""
    task = Task(Criterion("size"), tuple(f"item number {word}" for word in "abcdefghij"), 2 * STORY)
    places = range(10)
    prompts = [load_templates().pair(task, a, b) for a in places for b in places if a != b]
    encoder = PromptTokenizer(byte_tokenizer(), "causal")
    assert encoder._words.separable
    seen = []
    watch_tokenizing(monkeypatch, seen)
    encoder.encode(prompts, [("Yes", "No")] * len(prompts))
    assert sum(len(text) > 100 for text in seen) == 1
    assert sum(map(len, seen)) < 6 * len(STORY)


@pytest.mark.parametrize("text", ["a b", "a  b", " a b", "a\n b c", "a \u00a0b", "", " ", "a ", "\n\nIs it?"])
def test_words_join_to_the_text(text):
    """Words are cut before single blanks between other characters, and nothing is lost."""
    words = split_words(text)
    assert "".join(words) == text
    for before, word in itertools.pairwise(words):
        assert word[0] == " "
        assert not before[-1].isspace()
        assert not word[1].isspace()


@given(st.lists(st.text(st.sampled_from([*"ab", " ", " ", " ", "\n", "\u00a0", "\x00", "\x01"]), max_size=8)))
@settings(max_examples=200, deadline=None)
def test_texts_are_split_together_as_one_by_one(texts):
    """The words of many texts are those of each text, and they are counted."""
    words, counts = words_of(texts) if texts else ([], [])
    together = iter(words)
    found = [list(itertools.islice(together, count)) for count in counts]
    assert not list(together)
    # An empty word may precede a blank at the start of a text.
    assert [one[1:] if one[0] == "" and len(one) > 1 else one for one in found] == list(
        map(split_words, texts)
    )


def test_words_that_were_forgotten_are_learned_again(monkeypatch):
    """Tokens are the same when the table of words is full and starts anew."""
    monkeypatch.setattr(splice_module, "MAX_WORDS", 3)
    tokenizer = byte_tokenizer()
    words = WordTokens(tokenizer)
    for text in ("the old stone bridge", "a new glass tower", "the old tower of stone") * 2:
        assert words.rows([text])[0].tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(words._known) < 12


def test_many_candidates_are_tokenized_from_words(monkeypatch):
    """Of 100 candidates of a prompt 8 are tokenized behind it, and all have the tokens that they have there."""
    prompt = Prompt((Piece(f"{STORY}The largest is "), Piece("", "slot")))
    candidates = tuple(f"old tower {number}" for number in range(100))
    tokenizer = byte_tokenizer()
    seen = []
    watch_tokenizing(monkeypatch, seen)
    [spliced] = PromptTokenizer(tokenizer, "causal").encode([prompt], [candidates])
    assert sum(STORY in text for text in seen) <= 8
    monkeypatch.setattr(module, "MIN_SPLICED", 10**9)
    assert list(PromptTokenizer(tokenizer, "causal").encode([prompt], [candidates])) == [spliced]


def wrapped(backend, **special):
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def test_tokenizers_that_cross_blanks_are_recognised():
    """A token with a blank inside, a tokenizer that adds a blank to every text, a token that takes the blanks behind
    it: texts of such tokenizers are tokenized whole."""
    letters = ["a", "b", " ", "▁", *"OnscaletheizfdTwr12'\"Y35–ï?N:x_y/A().,v\n"]
    vocabulary = {letter: index for index, letter in enumerate(dict.fromkeys(letters))}
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    assert WordTokens(wrapped(plain)).separable
    crossing = {**vocabulary, "a ": len(vocabulary)}
    assert not WordTokens(wrapped(Tokenizer(models.BPE(vocab=crossing, merges=[("a", " ")])))).separable
    adding = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    adding.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    assert not WordTokens(wrapped(adding)).separable
    taking = wrapped(Tokenizer(models.BPE(vocab=vocabulary, merges=[])))
    taking.backend_tokenizer.add_special_tokens([AddedToken("<x>", rstrip=True, special=True)])
    assert not WordTokens(taking).separable


def test_a_trial_that_fails_has_all_prompts_tokenized_whole(monkeypatch):
    """A tokenizer that treats one text differently from its words, against all signs, is found out."""
    backend = Tokenizer(
        models.WordLevel({"a": 0, "b": 1, "?": 2, "strange": 3, "<unk>": 4}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.normalizer = normalizers.Replace("a b?", "strange")
    tokenizer = wrapped(backend, unk_token="<unk>")
    prompts = [Prompt((Piece("a "), Piece("b", "item"), Piece("? "), Piece("", "slot"))) for _ in range(20)]
    assert WordTokens(tokenizer).separable
    spliced, whole = both_ways(tokenizer, prompts, ("a", "b"), monkeypatch)
    assert spliced == whole
    assert whole[0].tokens == (3,)


def test_padding_left_behind_by_others_does_no_harm():
    """A tokenizer that was used with padding before gives the same tokens."""
    tokenizer = wrapped(Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str()), pad_token="<pad>")
    prompts = prompts_of(["the old stone bridge", "a"], None, "pair") * 3
    encoder = PromptTokenizer(tokenizer, "causal")
    before = list(encoder.encode(prompts, [("Yes", "No")] * len(prompts)))
    tokenizer(["a", "a longer text than the other"], padding=True, truncation=True, max_length=3)
    fresh = PromptTokenizer(tokenizer, "causal")
    assert list(fresh.encode(prompts, [("Yes", "No")] * len(prompts))) == before


@pytest.mark.real
def test_the_real_tokenizer_splits_at_blanks(default_reader):
    """The default model's prompts are tokenized from words."""
    assert default_reader.prompt_tokenizer._words.separable


@pytest.mark.real
@given(items=st.lists(texts, min_size=1, max_size=4), context=st.none() | st.just(STORY) | texts)
@settings(max_examples=40, deadline=None)
def test_spliced_is_whole_on_the_real_tokenizer(default_reader, items, context):
    """The default model's tokenizer: the same, for any text."""
    with pytest.MonkeyPatch.context() as patch:
        prompts = prompts_of(items, context, "pair")
        tokenizer = default_reader.loaded.tokenizer
        spliced, whole = both_ways(tokenizer, prompts, ("Yes", "No", "10"), patch, items=True)
        assert spliced == whole
