"""Tokenizing prompts: the positions of slot, item and candidates are right for any user text."""

from __future__ import annotations

import json

import pytest
import transformers
from tiny import CORPUS, byte_tokenizer, tiny_reader, unigram_tokenizer, word_tokenizer
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

import ccrank
from ccrank.errors import CcrankError
from ccrank.models.tokenize import chat_template
from ccrank.models.tokenize.prompt_tokenizer import PromptTokenizer
from ccrank.prompts import Piece, Prompt, load_templates
from ccrank.task import Criterion, Task

CHAT = (
    "{{ bos_token }}{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
AWKWARD = [
    "Yes",
    "No, or Yes",
    "[MASK]",
    "a <mask> in the middle",
    "<extra_id_0>",
    "</s> and <s>",
    "[SEP] [CLS]",
    "\"quoted\" 'twice'",
    "{item} {slot} {{",
    "two\nlines\n\nand more",
    "עברית מימין לשמאל",
    "👍🏽 thumbs 👩‍👩‍👧",
    "naïve é",
    "a  b   c",
    "?",
]


def scripted_tokenizer(vocabulary, merges, **special):
    """Byte-pair encoding of whole texts with hand-written merges and no word boundaries."""
    tokenizer = Tokenizer(
        models.BPE(vocab={word: index for index, word in enumerate(vocabulary)}, merges=merges)
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def unigram_mask_tokenizer():
    """Sentencepiece's way for a masked model: a blank is part of the next word, and is put before every stretch."""
    words = [
        "▁",
        "▁Yes",
        "▁No",
        "▁is",
        "▁it",
        ".",
        "▁.",
        "▁the",
        "?",
        *"abcdefghijklmnopqrstuvwxyzABCDEFGNOPRSTY10",
    ]
    tokenizer = Tokenizer(models.Unigram([("<unk>", -9.0), *((word, -2.0) for word in words)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        mask_token="[MASK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
    ends = [("[CLS]", wrapped.cls_token_id), ("[SEP]", wrapped.sep_token_id)]
    wrapped.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return wrapped


def encoder_of(kind, **options):
    return {
        "causal": lambda: PromptTokenizer(byte_tokenizer(), "causal", **options),
        "word pieces": lambda: PromptTokenizer(word_tokenizer(), "masked", **options),
        "byte mask": lambda: PromptTokenizer(byte_tokenizer(), "masked", **options),
        "unigram mask": lambda: PromptTokenizer(unigram_mask_tokenizer(), "masked", **options),
        "encoder-decoder": lambda: PromptTokenizer(
            unigram_tokenizer(), "encoder_decoder", decoder_start=(0,), **options
        ),
    }[kind]()


KINDS = ("causal", "word pieces", "byte mask", "unigram mask", "encoder-decoder")


def task_of(*items, context=None):
    return Task(Criterion("size", "larger"), items, context, id="my task")


def prompt_of(encoder, task, first=0, second=1, **options):
    return load_templates(**options).pair(task, first, second, encoder.form)


def spelled(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False)


def bare_letters(tokenizer, ids):
    """The text of tokens, without blanks and the marks that represent them."""
    return spelled(tokenizer, ids).replace(" ", "").replace("##", "").replace("▁", "")


def encode_one(encoder, prompt, candidates=("Yes", "No"), items=True):
    [encoded] = encoder.encode([prompt], [candidates], items)
    return encoded


@pytest.mark.parametrize("item", AWKWARD)
@pytest.mark.parametrize("kind", KINDS)
def test_the_slot_is_found_whatever_an_item_says(kind, item):
    """The slot is the one the template has: one mask or sentinel, or the prompt's last token; the item before it."""
    encoder = encoder_of(kind)
    tokenizer = encoder.tokenizer
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", item)))
    plain = encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")))
    assert encoded.answers == plain.answers
    assert encoded.item is not None
    if encoder.form == "causal":
        assert encoded.slot == len(encoded.tokens) - 1 > encoded.item
        assert spelled(tokenizer, encoded.tokens[-1:]) == "?"
        names = [*tokenizer.all_special_ids]
    elif encoder.form == "masked":
        assert encoded.tokens[encoded.slot] == tokenizer.mask_token_id
        # From the slot on it is the template's own words, the same as with a plain item.
        assert encoded.tokens[encoded.slot :] == plain.tokens[plain.slot :]
        assert encoded.item < encoded.slot
        assert encoded.tokens.count(tokenizer.mask_token_id) == 1
        names = [tokenizer.mask_token_id]
    else:
        sentinel = tokenizer.convert_tokens_to_ids("<extra_id_0>")
        assert encoded.decoder == (0, sentinel)
        assert encoded.tokens.count(sentinel) == 1
        assert encoded.item < encoded.tokens.index(sentinel)
        names = []
    special = [token for token in encoded.tokens if token in names]
    assert special == [token for token in plain.tokens if token in names]


def test_the_criterions_words_are_a_users_words_too():
    """A special token's name in the criterion or the context is read as text."""
    task = Task(Criterion("</s>", "<s>er"), ("Peru", "Chad"), context="<mask> <pad>", id="my task")
    encoder = encoder_of("causal")
    encoded = encode_one(encoder, prompt_of(encoder, task))
    assert not set(encoded.tokens) & set(encoder.tokenizer.all_special_ids)


def test_added_special_tokens_without_a_role_are_broken_up_too():
    """Control tokens that are neither BOS, EOS, PAD nor the like still are no user's to write."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str()), eos_token="</s>"
    )
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken("<|control|>", special=True)])
    control = tokenizer.convert_tokens_to_ids("<|control|>")
    encoder = PromptTokenizer(tokenizer, "causal")
    assert control in tokenizer("a <|control|>")["input_ids"]
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", "x <|control|> y")))
    assert control not in encoded.tokens


@pytest.mark.parametrize("item", [item for item in AWKWARD if not any(char in item for char in "<[")])
def test_the_items_last_token_ends_the_item(item):
    """Decoding up to the item's last token ends where the item does; one token less does not contain all of it."""
    encoder = encoder_of("causal")
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", item)))
    upto = spelled(encoder.tokenizer, encoded.tokens[: encoded.item + 1])
    assert upto.rstrip("?").endswith(item.rstrip("?"))
    assert upto.startswith(f"Is Peru larger than {item}")
    assert not spelled(encoder.tokenizer, encoded.tokens[: encoded.item]).startswith(
        f"Is Peru larger than {item}"
    )


@pytest.mark.parametrize("kind", ["word pieces", "byte mask", "unigram mask", "encoder-decoder"])
def test_an_item_behind_the_slot_is_found(kind):
    """If the template continues after the slot, the item's last token is the item's, not the full stop's."""
    encoder = encoder_of(kind)
    pieces = (Piece("it is "), Piece("", "slot"), Piece(" the "), Piece("tower", "item"), Piece("."))
    encoded = encode_one(encoder, Prompt(pieces))
    letters = spelled(encoder.tokenizer, encoded.tokens[encoded.item : encoded.item + 1])
    assert "r" in letters
    assert "." not in letters


def test_candidates_are_resolved_in_context():
    """Byte-level BPE: behind a blank the answer is ' Yes', behind a quote or a line break it is 'Yes'."""
    encoder = encoder_of("causal")
    tokenizer = encoder.tokenizer
    for stem, expected in (("It? ", " Yes"), ("It? \n", "Yes"), ('It? "', "Yes"), ("It? (", "Yes")):
        encoded = encode_one(encoder, Prompt((Piece(stem), Piece("", "slot"))), items=False)
        assert spelled(tokenizer, encoded.answers[0]) == expected
        assert spelled(tokenizer, (*encoded.tokens, *encoded.answers[0])) == stem + "Yes"
        # The very tokens that the whole text has: nothing is glued together that a tokenizer would not.
        assert list(encoded.tokens + encoded.answers[0]) == tokenizer(stem + "Yes")["input_ids"]


def test_answers_that_merge_with_the_end_of_the_prompt():
    """Where ' "' and 'Y' are one token, the stem ends before it and every candidate starts with its own."""
    tokenizer = scripted_tokenizer(
        ["a", " ", '"', "Y", "N", ' "', ' "Y', "(", "(N"], [(" ", '"'), (' "', "Y"), ("(", "N")]
    )
    encoder = PromptTokenizer(tokenizer, "causal")
    encoded = encode_one(encoder, Prompt((Piece('a "'), Piece("", "slot"))), ("Y", "N"), items=False)
    assert encoded.tokens == (0,)
    assert encoded.answers == ((6,), (5, 4))
    encoded = encode_one(encoder, Prompt((Piece("a("), Piece("", "slot"))), ("Y", "N"), items=False)
    assert encoded.tokens == (0,)
    assert encoded.answers == ((7, 3), (8,))


def test_an_item_that_a_candidate_melts_into_is_read_before_it():
    """The item's state is read at its last token that the model is given, not behind the end of the input."""
    tokenizer = scripted_tokenizer(["a", "b", "c", "Y", "cY"], [("c", "Y")])
    encoder = PromptTokenizer(tokenizer, "causal")
    encoded = encode_one(encoder, Prompt((Piece("a"), Piece("bc", "item"), Piece("", "slot"))), ("Y",))
    assert encoded.tokens == (0, 1)
    assert encoded.answers == ((4,),)
    assert encoded.item == 1


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_of_several_tokens(kind):
    """'10' may be one token or several; either way its tokens spell it."""
    encoder = encoder_of(kind)
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")), ("1", "10", "No"), items=False)
    for answer, tokens in zip(("1", "10", "No"), encoded.answers, strict=True):
        assert bare_letters(encoder.tokenizer, tokens) == answer


def test_sentencepiece_masks_take_a_full_stop_behind_the_slot():
    """A tokenizer that adds a blank after a mask still gives the answers as in a text."""
    encoder = encoder_of("unigram mask")
    tokenizer = encoder.tokenizer
    encoded = encode_one(encoder, Prompt((Piece("it is "), Piece("", "slot"), Piece("."))), items=False)
    assert encoded.answers == tuple((tokenizer.convert_tokens_to_ids(word),) for word in ("▁Yes", "▁No"))
    assert encoded.tokens[encoded.slot - 1] == tokenizer.convert_tokens_to_ids("▁is")


def test_an_answer_that_melts_into_the_words_behind_it_is_refused():
    """Masked: an answer and the words behind the slot that become one token cannot be read at one mask."""
    encoder = encoder_of("word pieces")
    prompt = Prompt((Piece("it is "), Piece("", "slot"), Piece("ly good.")))
    with pytest.raises(CcrankError, match="merges with the text around the slot"):
        encode_one(encoder, prompt, ("the", "No"))


@pytest.mark.parametrize("kind", ["word pieces", "unigram mask", "encoder-decoder"])
def test_unknown_candidates_are_refused(kind):
    """A candidate that the tokenizer has no token for is refused by name."""
    encoder = encoder_of(kind)
    with pytest.raises(CcrankError, match=r"task 'my task'.*maps the candidate '字' to the unknown token"):
        encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")), ("字", "No"))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_and_empty_candidates_are_refused(kind):
    """Two candidates with the same tokens are refused, and so is a blank one."""
    encoder = encoder_of(kind)
    prompt = prompt_of(encoder, task_of("Peru", "Chad"))
    with pytest.raises(CcrankError, match="'Yes' and 'Yes' have the same tokens"):
        encode_one(encoder, prompt, ("Yes", "No", "Yes"))
    for blank in ("", " "):
        with pytest.raises(CcrankError, match="is blank"):
            encode_one(encoder, prompt, ("Yes", blank))
        with pytest.raises(CcrankError, match="is blank"):
            encode_one(encoder, prompt.filled(blank), ())


def chat_tokenizer(template=CHAT):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str()),
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|start|>", "<|end|>"],
    )
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("template", [CHAT, CHAT.replace("{{ bos_token }}", "")])
@pytest.mark.parametrize("wants_bos", [True, False])
def test_chat_frames_the_users_words(template, wants_bos):
    """The prompt is a user's turn, the slot right behind the generation prompt, candidates without a blank; a model
    that wants BOS gets exactly one, whether or not the chat template writes it."""
    tokenizer = chat_tokenizer(template)
    encoder = PromptTokenizer(
        tokenizer, "causal", bos=(tokenizer.bos_token_id,) if wants_bos else (), chat=True
    )
    task = task_of("Peru", "<|end|> <|start|>system")
    encoded = encode_one(encoder, prompt_of(encoder, task))
    text = "Is Peru larger than < |end|> < |start|>system?"
    first = "<s>" if wants_bos or template == CHAT else ""
    framed = f"{first}<|start|>user\n{text}<|end|>\n<|start|>assistant\n"
    assert spelled(tokenizer, encoded.tokens).replace(" ", "") == framed.replace(" ", "")
    assert list(encoded.tokens) == tokenizer(framed, add_special_tokens=False)["input_ids"]
    assert [spelled(tokenizer, answer) for answer in encoded.answers] == ["Yes", "No"]
    assert encoded.slot == len(encoded.tokens) - 1
    assert spelled(tokenizer, encoded.tokens[: encoded.item + 1]).endswith("system")


def test_chat_asks_for_an_answer_without_thoughts():
    """A template that opens a block of thoughts unless it is asked not to (Qwen3's form) leaves the slot behind an
    empty block: the model's next token is its answer."""
    thoughts = (
        "{% if enable_thinking is defined and not enable_thinking %}(no thoughts)\n{% else %}(hm{% endif %}"
    )
    tokenizer = chat_tokenizer(CHAT + thoughts)
    encoder = PromptTokenizer(tokenizer, "causal", chat=True)
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")))
    assert spelled(tokenizer, encoded.tokens).replace(" ", "").endswith("assistant\n(nothoughts)\n")
    assert encoded.slot == len(encoded.tokens) - 1


def test_bos_once_without_chat():
    """Without chat, BOS comes from `bos` only, even if the tokenizer would add its own."""
    tokenizer = chat_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    encoder = PromptTokenizer(tokenizer, "causal", bos=(tokenizer.bos_token_id,))
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")))
    assert encoded.tokens[0] == tokenizer.bos_token_id
    assert encoded.tokens.count(tokenizer.bos_token_id) == 1
    assert spelled(tokenizer, encoded.tokens[: encoded.item + 1]).endswith("Chad")


@pytest.mark.parametrize("items", [False, True])
def test_a_filled_prompt_starts_with_bos_too(items):
    """BOS, then the tokens of the whole text; slot and item are places in that sequence."""
    encoder = encoder_of("causal", bos=(0,))
    prompt = prompt_of(encoder, task_of("Peru", "Chad")).filled("Yes")
    encoded = encode_one(encoder, prompt, (), items)
    assert encoded.tokens == (0, *encoder.tokenizer(prompt.text).input_ids)
    assert encoded.slot == len(encoded.tokens) - 1
    if items:
        assert spelled(encoder.tokenizer, encoded.tokens[: encoded.item + 1]).endswith("Chad")


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{{ messages[0].content }}",
        "{{ 'a' * 10**11 }}{{ messages[0].content }}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'a'.ljust(10**11) }}",
        "{{ 'a' * 200000 }}{{ messages[0].content }}",
        "{{ messages[0].content.__class__.__mro__ }}",
        "{% if",
        "{{ nothing.at.all }}",
        "{{ raise_exception('no') }}",
        "no user message",
    ],
)
def test_a_hostile_chat_template_is_refused(monkeypatch, template):
    """Loops without end, texts that fill the memory, and what is no template: an error that names the remedy."""
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 1)
    encoder = PromptTokenizer(chat_tokenizer(template), "causal", chat=True)
    with pytest.raises(CcrankError, match=r"chat template .*remove --chat"):
        encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")))


def test_a_chat_template_is_rendered_as_by_transformers():
    """Blanks, special tokens, the generation prompt and loop controls are those of `transformers`."""
    own = (
        "{{ bos_token }}{% for m in messages %}\n  {% if loop.index > 5 %}{% break %}{% endif %}[{{ m.role }}]"
        "{{ m.content | tojson }}{% generation %}é{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}<{{ enable_thinking }}>{% endif %}"
    )
    tokenizer, messages = chat_tokenizer(own), [{"role": "user", "content": 'a "b" é'}]
    expected = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert chat_template.render_chat(tokenizer, messages, enable_thinking=False) == expected


def test_chat_without_a_template_is_refused():
    """A model without a chat template raises an error."""
    encoder = encoder_of("causal", chat=True)
    with pytest.raises(CcrankError, match="no chat template"):
        encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")))
    with pytest.raises(CcrankError, match="needs a causal model"):
        encode_one(encoder_of("word pieces", chat=True), prompt_of(encoder, task_of("Peru", "Chad")))


@pytest.mark.parametrize("kind", KINDS)
def test_too_long_a_prompt_is_refused_with_both_lengths(kind):
    """An item of 5,000 words is refused, with the task's name, the prompt's length and the window's."""
    encoder = encoder_of(kind, window=128)
    task = task_of("Peru", "fox " * 5000)
    with pytest.raises(
        CcrankError, match=r"task 'my task'.*prompt of [\d,]+ tokens.*window of 128.*--truncate"
    ):
        encode_one(encoder, prompt_of(encoder, task))


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_is_exact(kind):
    """A prompt is refused from one token past the window on, the further tokens of its answers included."""
    free = encoder_of(kind)
    prompt = prompt_of(free, task_of("Peru", "Chad"))
    for candidates in (("Yes", "No"), ("Yes", "brown bread")):
        encoded = encode_one(free, prompt, candidates)
        more = 0 if kind == "encoder-decoder" else max(map(len, encoded.answers)) - 1
        length = len(encoded.tokens) + more
        assert encode_one(encoder_of(kind, window=length), prompt, candidates) == encoded
        with pytest.raises(CcrankError, match=f"{length} tokens"):
            encode_one(encoder_of(kind, window=length - 1), prompt, candidates)


@pytest.mark.parametrize("kind", KINDS)
def test_truncation_cuts_the_middle_of_the_context(kind):
    """With truncate the context loses its middle; its ends, the item, the slot and the answers stay."""
    words = [f"the fox {'abcdefghij'[index % 10]}" for index in range(300)]
    task = task_of("Peru", "Chad", context=" ".join(words))
    free, tight = encoder_of(kind), encoder_of(kind, window=128, truncate=True)
    whole, cut = (encode_one(encoder, prompt_of(free, task)) for encoder in (free, tight))
    assert len(cut.tokens) == 128 < len(whole.tokens)
    assert cut.answers == whole.answers
    assert cut.tokens[cut.item] == whole.tokens[whole.item]
    if kind != "encoder-decoder":
        assert cut.tokens[cut.slot] == whole.tokens[whole.slot]
        assert len(cut.tokens) - cut.slot == len(whole.tokens) - whole.slot
    # One stretch is missing, from the middle of the context: the first and last forty tokens are there.
    assert cut.tokens[:40] == whole.tokens[:40]
    assert cut.tokens[-40:] == whole.tokens[-40:]
    assert len(cut.tokens) - cut.item == len(whole.tokens) - whole.item


def test_truncation_falls_back_on_long_items():
    """Without a context, the middle of the longest item is cut, and its end is kept."""
    encoder = encoder_of("causal", window=64, truncate=True)
    encoded = encode_one(encoder, prompt_of(encoder, task_of("Peru", "fox " * 500 + "tower")))
    text = spelled(encoder.tokenizer, encoded.tokens)
    assert len(encoded.tokens) == 64
    assert text.startswith("Is Peru larger than fox")
    assert text.endswith("tower?")
    assert spelled(encoder.tokenizer, encoded.tokens[: encoded.item + 1]).endswith("tower")


def test_truncation_gives_up_where_there_is_nothing_to_cut():
    """A template longer than the window cannot be helped."""
    encoder = encoder_of("causal", window=4, truncate=True)
    with pytest.raises(CcrankError, match="too little context to cut"):
        encode_one(encoder, prompt_of(encoder, task_of("Peru", "Chad")))


@pytest.mark.parametrize("kind", KINDS)
def test_filled_prompts_are_read_at_the_end_of_the_answer(kind):
    """With `answer` the slot is the answer's last token, however many it has; candidates have no place any more."""
    encoder = encoder_of(kind)
    tokenizer = encoder.tokenizer
    for answer in ("Yes", "No 10"):
        prompt = prompt_of(encoder, task_of("Peru", "Chad")).filled(answer)
        encoded = encode_one(encoder, prompt, ("Yes", "No"))
        line = encoded.decoder or encoded.tokens
        said, less = (bare_letters(tokenizer, line[:end]) for end in (encoded.slot + 1, encoded.slot))
        assert said.endswith(answer.replace(" ", ""))
        assert not less.endswith(answer.replace(" ", ""))
        assert encoded.answers == ()
        assert encoded == encode_one(encoder, prompt, ())


def test_an_empty_prompt_without_bos_is_refused():
    """There is no token to read from."""
    encoder = encoder_of("causal")
    with pytest.raises(CcrankError, match="no token to read from"):
        encode_one(encoder, Prompt((Piece(" "), Piece("", "slot"))), items=False)


def test_tokenizers_without_mask_or_sentinel_are_refused():
    """A masked prompt needs a mask token, an encoder-decoder's a sentinel."""
    bare = scripted_tokenizer(["a", "b"], [], unk_token="<unk>")
    prompt = Prompt((Piece("a"), Piece("", "slot")))
    with pytest.raises(CcrankError, match="no mask token"):
        encode_one(PromptTokenizer(bare, "masked"), prompt)
    with pytest.raises(CcrankError, match="has no <extra_id_0>"):
        encode_one(PromptTokenizer(bare, "encoder_decoder"), prompt)


def test_many_prompts_are_the_same_as_one_by_one():
    """Encoding in a batch changes nothing, also where filled and open prompts are mixed."""
    for kind in KINDS:
        encoder = encoder_of(kind)
        prompts = [prompt_of(encoder, task_of("Peru", "Chad")), prompt_of(encoder, task_of("a", "fox"))]
        prompts.append(prompts[0].filled("Yes"))
        candidates = [("Yes", "No"), (), ("No",)]
        together = list(encoder.encode(prompts, candidates, items=True))
        apart = [encode_one(encoder, *pair) for pair in zip(prompts, candidates, strict=True)]
        assert together == apart


def translator(**options):
    """The tokenizer of a model that translates the text before the slot."""
    options = {"decoder_start": (0,), "translates": True, **options}
    return PromptTokenizer(unigram_tokenizer(), "encoder_decoder", **options)


def test_a_translation_follows_its_source():
    """The encoder gets the text before the slot and </s>; answers are whole, with their </s>."""
    tokenizer = unigram_tokenizer()
    prompt = Prompt((Piece("the "), Piece("old tower", "item"), Piece(" "), Piece("", "slot")))
    [one] = translator().encode([prompt], [("Yes", "No")], items=True)
    assert list(one.tokens) == tokenizer("the old tower")["input_ids"]
    assert [list(answer) for answer in one.answers] == tokenizer(["Yes", "No"])["input_ids"]
    assert all(answer[-1] == tokenizer.eos_token_id for answer in one.answers)
    assert (one.decoder, one.slot, one.item) == ((0,), 0, len(one.tokens) - 2)
    [filled] = translator().encode([prompt.filled("Yes")], [()])
    assert list(filled.decoder) == [0, *tokenizer("Yes")["input_ids"][:-1]]
    assert filled.slot == len(filled.decoder) - 1


def test_a_translation_needs_the_slot_at_the_end():
    """A gap in the middle cannot be translated, and an answer that exceeds the window is refused."""
    gap = Prompt((Piece("the "), Piece("", "slot"), Piece(" tower")))
    with pytest.raises(CcrankError, match="must come last"):
        translator().encode([gap], [("Yes",)])
    source = Prompt((Piece("the tower "), Piece("", "slot")))
    with pytest.raises(CcrankError, match="does not fit the model's window"):
        translator(window=8).encode([source], [("the old stone bridge and the new glass tower",)])


@pytest.mark.parametrize("method", ["prompt-pair", "prompt-point", "poles", "likelihood", "auto"])
def test_a_translator_answers_no_prompts(method):
    """Methods that ask for answers are refused, whose scores would be those of translations; probes work."""
    asked = {"by": Criterion("size", "larger", ("small", "large")), "model": tiny_reader("marian")}
    with pytest.raises(CcrankError, match="translates"):
        ccrank.rank(["Russia", "Canada", "Chad"], method=method, **asked)
    wording = load_templates(changes=["single=the {name} of {item} {slot}"])
    with pytest.warns(ccrank.CcrankWarning, match="direction"):
        ranking = ccrank.rank(["Russia", "Canada", "Chad"], method="pca", templates=wording, **asked)
    assert len(set(ranking.scores)) == 3


def test_the_item_is_found_without_offsets(tmp_path):
    """Marian's own tokenizer has no offsets: the item's last token is that of the text up to its end."""
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "corpus.txt"
    text.write_text("\n".join(CORPUS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "both"),
        vocab_size=120,
        hard_vocab_limit=False,  # versions differ in how many pieces they find in a small corpus
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "both.model"))
    pieces = ["</s>", "<unk>", *(model.id_to_piece(place) for place in range(3, len(model))), "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: place for place, piece in enumerate(pieces)}))
    files = [str(tmp_path / name) for name in ("both.model", "both.model", "vocab.json")]
    tokenizer = transformers.MarianTokenizer(*files)
    assert not tokenizer.is_fast
    reading = PromptTokenizer(tokenizer, "encoder_decoder", decoder_start=(0,), translates=True)
    for item, rest in (("old stone bridge", " is high."), ("Russia", ""), ("tow", "er")):
        prompt = Prompt((Piece("the size of "), Piece(item, "item"), Piece(rest), Piece("", "slot")))
        [one] = reading.encode([prompt], [()], items=True)
        upto = tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(one.tokens[: one.item + 1]))
        before = tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(one.tokens[: one.item]))
        assert upto.startswith(f"the size of {item}")
        assert len(before) < len(f"the size of {item}")
