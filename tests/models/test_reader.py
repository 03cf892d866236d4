"""The reader against plain forward passes, on many prompts, and on the real default model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny import FAMILIES, byte_tokenizer, pair_prompts, random_model, tiny_model

import ccrank
from ccrank.errors import CcrankError
from ccrank.models import Reader
from ccrank.models.engine.plan import CHUNK, chunk_ranges
from ccrank.models.load.loading import LoadedModel
from ccrank.prompts import Piece, Prompt, load_templates
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size", "larger"), ("Russia", "Canada", "Chad", "the old stone bridge"), id="mine")
NUMBERS = ("1", "10", "0", "quick brown fox", "2")


def scale_of(form, task=TASK):
    templates = load_templates()
    return [templates.single(task, index, form, "single-scale") for index in range(len(task.items))]


def next_token_logs(loaded, encoded, said):
    """Log-probabilities of the next token after the slot and what was said: the model's own full forward pass."""
    with torch.inference_mode():
        if loaded.form == "encoder_decoder":
            output = loaded.model(
                input_ids=torch.tensor([encoded.tokens]),
                decoder_input_ids=torch.tensor([(*encoded.decoder, *said)]),
            )
        else:
            output = loaded.model(input_ids=torch.tensor([(*encoded.tokens, *said)]))
    return output.logits[0, -1].double().log_softmax(-1).numpy()


def brute_force(loaded, encoded):
    """Each candidate's log-probability as a whole; of one that begins another, less the other's."""
    wholes = [
        sum(next_token_logs(loaded, encoded, answer[:end])[answer[end]] for end in range(len(answer)))
        for answer in encoded.answers
    ]
    alone = []
    for answer, whole in zip(encoded.answers, wholes, strict=True):
        rest = np.exp(whole) - sum(
            np.exp(other_whole)
            for other, other_whole in zip(encoded.answers, wholes, strict=True)
            if len(other) > len(answer) and other[: len(answer)] == answer
        )
        alone.append(np.log(rest))
    return alone


def brute_force_masked(loaded, encoded):
    """An answer of k tokens fills k masks; the sum of the log-probabilities at each."""
    mask = loaded.tokenizer.mask_token_id
    scores = []
    for answer in encoded.answers:
        tokens = [*encoded.tokens[: encoded.slot], *[mask] * len(answer), *encoded.tokens[encoded.slot + 1 :]]
        with torch.inference_mode():
            logs = loaded.model(input_ids=torch.tensor([tokens])).logits[0].double().log_softmax(-1)
        scores.append(sum(float(logs[encoded.slot + place, word]) for place, word in enumerate(answer)))
    return scores


@pytest.mark.parametrize("family", FAMILIES)
def test_candidates_of_several_tokens(family):
    """Scores of candidates of one and several tokens equal those of the model's own full softmax, on every family."""
    loaded = tiny_model(family)
    reader = Reader(loaded)
    # A model that translates needs the slot at the end.
    prompts = (pair_prompts(TASK, loaded.form) if family == "marian" else scale_of(loaded.form))[:2]
    readings = reader.read(prompts, candidates=NUMBERS, log_probabilities=True)
    plain = reader.read(prompts, candidates=NUMBERS)
    encoded = reader.prompt_tokenizer.encode(prompts, [NUMBERS] * len(prompts))
    assert max(len(answer) for answer in encoded[0].answers) > 1
    for row, one in enumerate(encoded):
        if loaded.form == "masked":
            np.testing.assert_allclose(readings.logits[row], brute_force_masked(loaded, one), atol=1e-3)
            # As soon as one has several tokens, all are log-probabilities.
            np.testing.assert_allclose(plain.logits[row], readings.logits[row], atol=1e-4)
        else:
            np.testing.assert_allclose(readings.logits[row], brute_force(loaded, one), atol=1e-3)
            shift = plain.logits[row] - readings.logits[row]
            np.testing.assert_allclose(shift, shift[0], atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_of_single_tokens(family):
    """On request single tokens too are normalised over the whole vocabulary."""
    loaded = tiny_model(family)
    reader = Reader(loaded)
    prompts = pair_prompts(TASK, loaded.form)[:2]
    readings = reader.read(prompts, candidates=["Yes", "No"], log_probabilities=True)
    for row, one in enumerate(reader.prompt_tokenizer.encode(prompts, [("Yes", "No")] * 2)):
        scores = brute_force_masked if loaded.form == "masked" else brute_force
        np.testing.assert_allclose(readings.logits[row], scores(loaded, one), atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "albert", "bert", "roberta", "t5", "marian"])
def test_filled_prompts_give_the_states_at_the_answers_last_token(family):
    """With an answer put in, the states are the model's own at that answer's last token."""
    loaded = tiny_model(family)
    reader = Reader(loaded)
    prompts = [
        prompt.filled(answer)
        for prompt in pair_prompts(TASK, loaded.form)[:2]
        for answer in ("Yes", "quick fox")
    ]
    readings = reader.read(prompts, layers="all")
    for row, one in enumerate(reader.prompt_tokenizer.encode(prompts, [()] * len(prompts))):
        with torch.inference_mode():
            if one.decoder:
                output = loaded.model(
                    input_ids=torch.tensor([one.tokens]),
                    decoder_input_ids=torch.tensor([one.decoder]),
                    output_hidden_states=True,
                )
                states = output.decoder_hidden_states
            else:
                states = loaded.model(
                    input_ids=torch.tensor([one.tokens]), output_hidden_states=True
                ).hidden_states
        expected = np.stack([layer[0, one.slot] for layer in states])
        np.testing.assert_allclose(readings.states[row], expected, atol=1e-4)
    assert np.abs(readings.states[0] - readings.states[1])[-1].max() > 1e-3


def test_each_prompt_may_have_candidates_of_its_own():
    """Lists per prompt give the same scores as separate readings, NaN where a prompt has fewer candidates."""
    reader = Reader(tiny_model("llama"))
    prompts = pair_prompts(TASK, "causal")[:3]
    lists = [["Yes", "No", "10"], ["No"], ["larger", "Yes"]]
    together = reader.read(prompts, candidates=lists).logits
    assert together.shape == (3, 3)
    for row, (prompt, candidates) in enumerate(zip(prompts, lists, strict=True)):
        apart = reader.read([prompt], candidates=candidates).logits[0]
        np.testing.assert_allclose(together[row, : len(candidates)], apart, atol=1e-5)
        assert np.isnan(together[row, len(candidates) :]).all()


def test_mistakes_in_asking_are_named():
    """Nonsense in layers or candidates is refused with its value."""
    reader = Reader(tiny_model("llama"))
    prompts = pair_prompts(TASK, "causal")[:2]
    for arguments, message in (
        ({"layers": [4]}, "no layer 4"),
        ({"layers": [-5]}, "no layer -5"),
        ({"layers": "last"}, "'last'"),
        ({"candidates": []}, "is empty"),
        ({"candidates": "Yes"}, "list of texts"),
        ({"candidates": [["Yes"], "No"]}, "list of texts"),
        ({"candidates": [["Yes"]] * 3}, "3 lists of candidates for 2 prompts"),
        ({"items": True}, "needs at least one layer"),
    ):
        with pytest.raises(CcrankError, match=message):
            reader.read(prompts, **arguments)
    with pytest.raises(CcrankError, match="'sideways'"):
        Reader(tiny_model("llama"), path="sideways")


@pytest.mark.parametrize("count", [2, 40])
def test_prompts_without_an_item_have_no_states_of_it(count):
    """Beside prompts with one, whose states are the same as without them, whether tokenized whole or by words."""
    reader = Reader(tiny_model("llama"))
    without = Prompt((Piece("no item: "), Piece("", "slot")))
    prompts = (pair_prompts(TASK, "causal") * 20)[:count]
    mixed = reader.read([without, *prompts, without], layers=[1], items=True)
    alone = reader.read(prompts, layers=[1], items=True)
    np.testing.assert_allclose(mixed.item_states[1:-1], alone.item_states, atol=1e-5)
    assert np.isnan(mixed.item_states[[0, -1]]).all()
    assert np.isfinite(mixed.states).all()


def test_no_prompts_give_empty_readings():
    """Nothing asked, nothing read: arrays of no rows."""
    readings = Reader(tiny_model("llama")).read([], candidates=["Yes"], layers=[1, 2], items=True)
    assert readings.logits.shape[0] == 0
    assert readings.states.shape == readings.item_states.shape == (0, 2, 32)


def test_encoder_decoders_of_another_build_are_refused():
    """BART has no sentinel to answer at: refused in words, not with an attribute error."""
    config = transformers.BartConfig(
        vocab_size=420, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config)
    with pytest.raises(CcrankError, match="bart models are not supported"):
        Reader(LoadedModel("bart", None, model, byte_tokenizer(), "encoder_decoder", "bart"))


def test_ten_thousand_prompts():
    """Read in chunks, each prompt has its own answer, and progress adds up to the distinct tokens."""
    config = transformers.GPT2Config(vocab_size=420, n_positions=32, n_embd=8, n_layer=1, n_head=1)
    model = random_model(lambda: transformers.GPT2LMHeadModel(config), std=0.5)
    loaded = LoadedModel("one layer", None, model, byte_tokenizer(), "causal", "one layer")
    prompts = [
        Prompt((Piece("Is "), Piece(f"{number:x}", "item"), Piece(" large? "), Piece("", "slot")))
        for number in range(10_000)
    ]
    tokens = []
    reader = Reader(loaded)
    readings = reader.read(prompts, candidates=["Yes", "No"], progress=tokens.append)
    assert readings.logits.shape == (10_000, 2)
    assert min(tokens) > 0
    assert sum(tokens) == readings.cost.distinct_tokens
    assert len(tokens) > 10
    few = np.random.default_rng(0).integers(0, 10_000, 60)
    single = Reader(loaded, path="one").read([prompts[index] for index in few], candidates=["Yes", "No"])
    np.testing.assert_allclose(readings.logits[few], single.logits, atol=1e-4)
    assert len({tuple(row) for row in readings.logits.round(4)}) > 1000
    assert reader.spent == readings.cost
    assert readings.cost.prompts == 10_000


def test_chunks_end_where_tasks_do():
    """Chunks hold every prompt once, none is longer than the limit, and no short task is divided."""
    sizes = [56] * 300 + [9000, 3, 3]
    prompts = [Prompt((), task=str(number)) for number, size in enumerate(sizes) for _ in range(size)]
    chunks = list(chunk_ranges(prompts))
    assert chunks[0][0] == 0
    assert chunks[-1][1] == len(prompts)
    assert [end for _, end in chunks[:-1]] == [start for start, _ in chunks[1:]]
    assert max(end - start for start, end in chunks) <= CHUNK
    divided = {prompts[end].task for _, end in chunks[:-1] if prompts[end - 1].task == prompts[end].task}
    assert divided == {"300"}  # the one that is longer than a chunk
    assert list(chunk_ranges(prompts[:50])) == [(0, 50)]
    assert list(chunk_ranges([])) == []


def test_an_error_in_a_later_chunk_is_raised():
    """What is wrong with a prompt far behind is said."""
    reader = Reader(tiny_model("llama"))
    prompts = pair_prompts(TASK, "causal") * 400
    long = Prompt((Piece("fox " * 500, "item"), Piece("? "), Piece("", "slot")), task="the long one")
    with pytest.raises(CcrankError, match="the long one"):
        reader.read([*prompts, long], candidates=["Yes", "No"])


@pytest.mark.parametrize("family", ["llama", "bert", "roberta", "opt", "t5"])
def test_prompts_as_long_as_the_window(family):
    """Cut to the window, answers of several tokens included, a prompt still runs."""
    loaded = tiny_model(family)
    task = Task(TASK.criterion, TASK.items, context="the fox and the dog " * 100)
    reader = Reader(loaded, truncate=True)
    readings = reader.read(
        pair_prompts(task, loaded.form)[:3], candidates=["Yes", "quick brown fox"], layers=[-1]
    )
    assert np.isfinite(readings.logits).all()
    assert np.isfinite(readings.states).all()
    if loaded.window is not None:
        with pytest.raises(CcrankError, match="task 'task'"):
            Reader(loaded).read(pair_prompts(task, loaded.form)[:3], candidates=["Yes"])


def test_importing_does_no_work(tmp_path):
    """Importing ccrank.models loads no transformers, opens no model and writes nothing."""
    code = (
        "import sys, ccrank.models\n"
        "assert not {'transformers', 'huggingface_hub', 'gguf', 'scipy', 'pandas'} & set(sys.modules)\n"
    )
    source = str(Path(ccrank.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={"PYTHONPATH": source, "CCRANK_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
def test_the_real_model_reads_the_same_by_tree_and_one_by_one(default_reader):
    """On the default model tree and one-by-one logits and states agree to 1e-3."""
    task = Task(TASK.criterion, TASK.items[:3], context="Some countries are larger than others.")
    prompts = pair_prompts(task, "causal")
    assert default_reader.engine.tree
    single = Reader(default_reader.loaded, path="one")
    arguments = {"candidates": ["Yes", "No"], "layers": [0, 15, 30], "items": True}
    ours, plain = default_reader.read(prompts, **arguments), single.read(prompts, **arguments)
    np.testing.assert_allclose(ours.logits, plain.logits, atol=1e-3)
    np.testing.assert_allclose(ours.states, plain.states, atol=1e-3, rtol=1e-4)
    np.testing.assert_allclose(ours.item_states, plain.item_states, atol=1e-3, rtol=1e-4)
    assert ours.cost.computed_tokens < plain.cost.computed_tokens


@pytest.mark.real
def test_the_real_models_candidates(default_reader):
    """' Yes' and ' No' are one token each with their blank; '10' is one more than '1' and scored as a whole."""
    tokenizer = default_reader.loaded.tokenizer
    encoder = default_reader.prompt_tokenizer
    [pair] = encoder.encode(pair_prompts(TASK, "causal")[:1], [("Yes", "No")])
    assert [tokenizer.decode(answer) for answer in pair.answers] == [" Yes", " No"]
    assert [len(answer) for answer in pair.answers] == [1, 1]
    [scale] = encoder.encode(scale_of("causal")[:1], [("1", "10", "7")])
    one, ten, _ = scale.answers
    assert ten[: len(one)] == one
    assert len(ten) == len(one) + 1
    readings = default_reader.read(
        scale_of("causal")[:1], candidates=["1", "10", "7"], log_probabilities=True
    )
    np.testing.assert_allclose(readings.logits[0], brute_force(default_reader.loaded, scale), atol=1e-3)


@pytest.mark.real
def test_the_real_models_chat_template(default_reader):
    """Through the chat template the answer follows the generation prompt, without a blank."""
    reader = Reader(default_reader.loaded, chat=True)
    [encoded] = reader.prompt_tokenizer.encode(pair_prompts(TASK, "causal")[:1], [("Yes", "No")])
    tokenizer = reader.loaded.tokenizer
    text = tokenizer.decode(encoded.tokens)
    assert text.endswith("Is Russia larger than Canada?<|im_end|>\n<|im_start|>assistant\n")
    assert [tokenizer.decode(answer) for answer in encoded.answers] == ["Yes", "No"]
    framed = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Is Russia larger than Canada?"}],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert list(encoded.tokens) == list(framed)


@pytest.mark.real
def test_the_real_model_knows_the_capital_of_france(default_reader):
    """The weights are the trained ones: after 'The capital of France is' Paris beats other capitals by far."""
    prompt = Prompt((Piece("The capital of France is "), Piece("", "slot")))
    readings = default_reader.read([prompt], candidates=["Paris", "London", "Berlin", "Rome"])
    assert readings.logits[0].argmax() == 0
    assert np.diff(np.sort(readings.logits[0]))[-1] > 1
