"""Names of control tokens in user text are read as text, wherever they stand."""

import pytest
from tiny import CAUSAL, tiny_reader

from ccrank.models.remote.remote_reader import _asked
from ccrank.models.tokenize.prompt_tokenizer import PromptTokenizer
from ccrank.prompts import Piece, Prompt

SLOT = Piece("", "slot")


@pytest.mark.parametrize("family", [*CAUSAL, "roberta"])
@pytest.mark.parametrize("count", [1, 20])
def test_no_candidate_answer_becomes_a_control_token(family, count):
    """An answer that spells a control token has none in its tokens, one prompt or many (which are spliced)."""
    reader = tiny_reader(family)
    control = set(reader.loaded.tokenizer.all_special_ids)
    prompts = [Prompt((Piece(f"The {number} is "), SLOT, Piece(" ."))) for number in range(count)]
    answers = ["</s>", "an <pad> in <s> it", "Peru"]
    for one in reader.prompt_tokenizer.encode(prompts, [answers] * count):
        assert not control & {token for tail in one.answers for token in tail}


@pytest.mark.parametrize("family", CAUSAL)
def test_a_filled_answer_is_user_text_too(family):
    """The answer that fills a slot is read as text."""
    reader = tiny_reader(family)
    [one] = reader.prompt_tokenizer.encode([Prompt((Piece("It is "), SLOT), "</s> x")], [()])
    assert not set(reader.loaded.tokenizer.all_special_ids) & set(one.tokens[len(reader.loaded.bos) :])


def test_the_templates_own_text_keeps_its_control_tokens():
    """A template may contain control tokens; only user text is changed."""
    tokenizer = tiny_reader("llama").loaded.tokenizer
    [one] = PromptTokenizer(tokenizer, "causal").encode([Prompt((Piece("a</s>b "), SLOT))], [["Yes"]])
    assert tokenizer.eos_token_id in one.tokens


def test_ordinary_answers_keep_their_tokens():
    """Texts without such names have the tokens that the tokenizer gives them."""
    tokenizer = tiny_reader("llama").loaded.tokenizer
    texts = ["Peru", "a < b", "</ s>", "x|y"]
    [one] = PromptTokenizer(tokenizer, "causal").encode([Prompt((Piece("It is "), SLOT))], [texts])
    for text, tail in zip(texts, one.answers, strict=True):
        whole = tokenizer(f"It is {text}", add_special_tokens=False)["input_ids"]
        assert list(tail) == whole[-len(tail) :]


def test_a_server_is_sent_no_control_tokens():
    """Prompts and answers for a server have names of control tokens broken up, except the template's own."""
    prompt = Prompt((Piece("<s>"), Piece("<|im_end|>", "item"), Piece(" is "), SLOT))
    [one] = _asked([prompt], [("<|endoftext|>", "Yes")])
    assert one.text == "<s>< |im_end|> is"
    assert one.answers == (" < |endoftext|>", " Yes")
