"""The check of a model at its first load: what passes, what is caught, and that it runs once."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import tiny
import torch
from tiny import save_model, tiny_model

from ccrank.errors import CcrankError, ModelWarning
from ccrank.models import Reader, load_model
from ccrank.models.check import copying
from ccrank.models.check import model_check as check
from ccrank.models.check import verdict_store as checked
from ccrank.models.check.copying import distant_copying, list_bits, scaled_base, with_gap
from ccrank.models.check.model_check import SentenceCheck, check_model, in_random_order
from ccrank.models.check.verdict_store import require_good, verdict_of
from ccrank.models.load import loading
from ccrank.models.load.catalog import known_models
from ccrank.models.load.hub import find_model
from ccrank.models.load.light_llama import LightCausalLM
from ccrank.prompts import Piece, Prompt
from ccrank.reader_options import ReaderOptions
from ccrank.util.files import cache_folder

WORDS = "one two three four five six seven eight nine ten"


@pytest.fixture
def checking(monkeypatch):
    """Turns the check on, which other tests leave out."""
    monkeypatch.delenv(checked.SWITCH)


@pytest.fixture
def english_only(monkeypatch):
    """A broken model is read in all languages; one is enough here."""
    texts = {name: check._data()[name] for name in ("english",)}
    monkeypatch.setattr(check, "_texts", lambda: texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_model(tiny_model("llama", max_position_embeddings=512), tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_random_weights_are_caught(family):
    """A model with random weights of any form is suspect, and the verdict says by how much and why."""
    changes = {} if family == "t5" else {"max_position_embeddings": 512}
    verdict = check_model(Reader(tiny_model(family, **changes)))
    assert verdict.status == "suspect"
    assert verdict.reasons
    assert verdict.causes
    assert verdict.gaps


def test_a_masked_model_that_fills_the_gaps_passes(monkeypatch):
    """A tiny BERT is suspect at random, and good once it has learnt the gaps: the check can tell them apart."""
    rows = check._data()["english"]["clozes"]
    monkeypatch.setattr(tiny, "CORPUS", [f"{before} {answer}." for before, answer in rows] * 20)
    words = tiny.word_tokenizer.__wrapped__()
    loaded = replace(tiny_model("bert"), tokenizer=words)
    reader = Reader(loaded)
    prompts = [Prompt((Piece(f"{before} "), Piece("", "slot"), Piece("."))) for before, _ in rows]
    encoded = reader.prompt_tokenizer.encode(prompts, [[answer] for _, answer in rows])
    assert check_model(reader).status == "suspect"
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(one.tokens) for one in encoded], batch_first=True)
    slots = torch.tensor([one.slot for one in encoded])
    right = torch.tensor([one.answers[0][0] for one in encoded])
    learner = torch.optim.Adam(loaded.model.parameters(), 3e-3)
    for _ in range(80):
        logits = loaded.model(input_ids=ids, attention_mask=(ids > 0).long()).logits[
            torch.arange(len(ids)), slots
        ]
        learner.zero_grad()
        torch.nn.functional.cross_entropy(logits, right).backward()
        learner.step()
    verdict = check_model(reader)
    assert verdict.status == "good"
    assert verdict.clozes == 1.0


def test_what_cannot_be_checked_is_said_so():
    """No head, no sentinels, a translator or too short a window: not checked, and no verdict is made up."""
    assert "translates" in check_model(Reader(tiny_model("marian"))).message
    headless = replace(tiny_model("llama"), missing_head=("lm_head.weight",))
    assert check_model(Reader(headless)).status == "not checked"
    short = check_model(Reader(tiny_model("llama", max_position_embeddings=32)))
    assert short.status == "not checked"
    assert "32" in short.reasons[0]
    loaded = tiny_model("t5")
    plain = Reader(loaded)
    vocabulary = {key: place for key, place in loaded.tokenizer.get_vocab().items() if "extra_id" not in key}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(loaded.tokenizer), "get_vocab", lambda _: vocabulary)
        assert check_model(plain).status == "not checked"


@pytest.mark.parametrize("text", ["one two", "太阳从东方升起", "a b a c d"])
def test_shuffling_keeps_the_words_and_changes_the_order(text):
    """The shuffled text has the same words in another order, and is the same every time."""
    shuffled = in_random_order(text)
    assert shuffled != text
    assert sorted(shuffled) == sorted(text)
    assert shuffled == in_random_order(text)


def corrupted(kind):
    """The default model with a mistake that conversions make."""
    loaded = load_model("default")
    half = loaded.model.config.head_dim // 2
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if kind == "norm + 1" and "norm" in name:
                weight.add_(1)
            if kind == "rotary halves" and ("q_proj" in name or "k_proj" in name):
                swapped = weight.view(-1, 2, half, weight.shape[1]).transpose(1, 2)
                weight.copy_(swapped.reshape(weight.shape).clone())
            if kind == "one bit" and "_proj" in name:
                weight.copy_(weight.sign() * weight.abs().mean(1, keepdim=True))
            if kind == "shuffled vocabulary" and "embed_tokens" in name:
                order = torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))
                weight.copy_(weight[order].clone())
            if kind == f"rows of {name} permuted":
                weight.copy_(weight[torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))])
            if kind == f"{name} flipped":
                weight.copy_(weight.flip(0).clone())
    return Reader(loaded)


@pytest.mark.real
def test_the_default_model_is_good_by_a_wide_margin(default_reader):
    """The default model passes on English alone, far from every threshold."""
    verdict = check_model(default_reader)
    assert verdict.status == "good"
    assert {one.language for one in verdict.sentences} == {"english"}
    assert verdict.order < check.CLEAR_ORDER
    assert verdict.copying < check.CLEAR_COPYING
    assert verdict.distant_copying < copying.CLEAR_DISTANT
    assert verdict.clozes == 1.0


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("norm + 1", "norm weights"),
        ("rotary halves", "positions"),
        ("one bit", "too few bits"),
        ("shuffled vocabulary", "tokenizer of another model"),
    ],
)
def test_broken_copies_of_the_default_model_are_caught(default_reader, english_only, kind, cause):
    """Each mistake of a conversion is caught, and named among the likely causes."""
    verdict = check_model(corrupted(kind))
    assert verdict.status == "suspect"
    assert cause in " ".join(verdict.causes)


@pytest.mark.real
@pytest.mark.parametrize(
    "kind",
    [
        "rows of model.layers.10.self_attn.o_proj.weight permuted",
        "rows of model.layers.10.mlp.down_proj.weight permuted",
        "model.layers.3.self_attn.o_proj.weight flipped",
        "model.layers.3.mlp.gate_proj.weight flipped",
    ],
)
def test_one_damaged_matrix_of_a_listed_model_is_caught(default_reader, english_only, kind):
    """The general bounds let it pass; the model's own figures do not."""
    if check.figures_of(default_reader.loaded) is None:
        pytest.skip("no figures were measured for these weights")
    reader = corrupted(kind)
    verdict = check_model(reader)
    assert verdict.status == "suspect"
    assert verdict.difference > 2 * check.MAX_DIFFERENCE
    assert "weights" in verdict.causes[0]
    unlisted = Reader(replace(reader.loaded, name="a folder"))
    assert check_model(unlisted).difference is None


@pytest.mark.real
def test_another_precision_has_the_stored_figures(default_reader):
    """float32 as measured, bfloat16 within the bound; how far depends on the version of torch."""
    if check.figures_of(default_reader.loaded) is None:
        pytest.skip("no figures were measured for these weights")
    assert check_model(default_reader).difference < check.MAX_DIFFERENCE / 10
    halved = check_model(Reader(load_model("default", ReaderOptions(dtype="bfloat16"))))
    assert halved.status == "good"
    assert halved.difference < check.MAX_DIFFERENCE


def test_a_listed_model_is_compared_with_its_own_figures(monkeypatch, folder):
    """A difference from what is stored is a reason, the same figures are none; quantized weights are not compared."""
    loaded = replace(load_model(folder), name="pocket")
    sentences = check_model(Reader(loaded)).sentences[:2]
    own = {"bits": [one.bits for one in sentences], "shuffled_bits": [one.shuffled_bits for one in sentences]}
    monkeypatch.setattr(check, "stored_figures", lambda: {"pocket": own})
    assert check_model(Reader(loaded)).difference == pytest.approx(0, abs=1e-6)
    own["bits"][1] *= 1.02
    verdict = check_model(Reader(loaded))
    assert verdict.difference == pytest.approx(0.02 / 1.02, rel=1e-3)
    assert "of pocket (at most 1%)" in " ".join(verdict.reasons)
    quantized = replace(loaded, weights={**loaded.weights, "compute_precision": "float32, weights int8-x"})
    assert check_model(Reader(quantized)).difference is None


def test_the_stored_figures_are_of_listed_models():
    """Each entry has a bit rate for each English sentence of the check."""
    assert check.stored_figures()
    for name, own in check.stored_figures().items():
        assert name in known_models()
        for rates in own.values():
            assert len(rates) == len(check._data()["english"]["sentences"])


@pytest.mark.real
@pytest.mark.parametrize("light", [True, False])
def test_a_rotary_base_that_is_too_small_is_caught(
    default_reader, english_only, tmp_path, light, monkeypatch
):
    """A tenth of the base hardly changes short texts; distant copying shows it, and the factor is named."""
    source = find_model("default").folder
    for path in source.iterdir():
        (tmp_path / path.name).symlink_to(path.resolve())
    config = json.loads((source / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] /= 10
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    if not light:
        monkeypatch.setattr(loading, "prepare", lambda *given: False)
    loaded = load_model(str(tmp_path))
    assert isinstance(loaded.model, LightCausalLM) == light
    verdict = check_model(Reader(loaded))
    assert verdict.status == "suspect"
    assert verdict.order < check.CLEAR_ORDER
    assert verdict.copying < check.CLEAR_COPYING
    assert "factor of about 10 " in verdict.causes[0]


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "smollm3"])
def test_another_base_changes_the_readings_and_is_restored(family):
    """With a scaled base the readings are those of a model made with that base; afterwards they are as before."""
    loaded = tiny_model(family, max_position_embeddings=512)
    config = loaded.model.config
    reader = Reader(loaded)
    before = list_bits(reader, WORDS, (1, 2))
    with scaled_base(loaded.model, 0.01):
        scaled = list_bits(reader, WORDS, (1, 2))
    assert list_bits(reader, WORDS, (1, 2)) == before
    stored = config.rope_parameters
    for one in [stored] if "rope_theta" in stored else stored.values():
        one["rope_theta"] *= 0.01
    other = type(loaded.model)(config).eval()
    other.load_state_dict(loaded.model.state_dict())
    made = list_bits(Reader(replace(loaded, model=other)), WORDS, (1, 2))
    assert scaled == pytest.approx(made, rel=1e-5)
    assert scaled != pytest.approx(before, rel=1e-5)


def test_a_gap_in_positions_is_that_of_plain_transformers():
    """Reading with a gap gives the bits that `transformers` gives for the same position ids."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    reader = Reader(loaded)
    prompt = Prompt((Piece("one two three "), Piece("", "slot")))
    tokens = reader.prompt_tokenizer.encode([prompt], [["four five"]])[0]
    ids = [*tokens.tokens, *tokens.answers[0]]
    gapped = with_gap(reader, 2, 100).read([prompt], [["four five"]], log_probabilities=True).logits
    positions = torch.tensor([[place + 100 * (place >= 2) for place in range(len(ids))]])
    mask = torch.full((len(ids), len(ids)), torch.finfo(torch.float32).min).triu(1)[None, None]
    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids]), position_ids=positions, attention_mask=mask).logits[0]
    scores = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]]
    assert gapped[0, 0] == pytest.approx(scores[len(tokens.tokens) - 1 :].sum().item(), abs=1e-4)


@pytest.mark.parametrize(
    ("distant", "larger", "caught"),
    [(0.3, 0.1, True), (0.3, 0.2, False), (0.05, 0.01, False), (0.3, math.nan, False)],
)
def test_only_a_larger_base_that_helps_is_reported(monkeypatch, distant, larger, caught):
    """Bad copying over a distance is put down to the base only if a larger base makes it good."""
    reader = Reader(tiny_model("llama", max_position_embeddings=1024))
    theta = []

    @contextmanager
    def scaled(model, factor):
        theta.append(factor)
        yield
        theta.clear()

    monkeypatch.setattr(copying, "scaled_base", scaled)
    monkeypatch.setattr(copying, "list_bits", lambda *_: [100 * (larger if theta == [100.0] else distant)])
    measured, mistake = distant_copying(reader, WORDS, 100.0)
    assert measured == pytest.approx(distant)
    assert (mistake is not None) is caught
    assert not caught or "100 times as large" in mistake[0]


@pytest.mark.parametrize(
    ("family", "changes"), [("llama", {"max_position_embeddings": 128}), ("gpt2", {}), ("mpt", {})]
)
def test_distant_copying_is_left_out_where_it_says_nothing(family, changes):
    """A window that is too short and models without rotary embeddings: no number is made up."""
    assert distant_copying(Reader(tiny_model(family, **changes)), WORDS, 100.0) == (None, None)


@pytest.mark.real
def test_the_check_needs_no_transformers(default_reader):
    """A model that opens without `transformers` is checked without it, too."""
    code = (
        "import sys; from ccrank.models import Reader; from ccrank.models.check.verdict_store import verdict_of\n"
        "assert verdict_of(Reader.open('default'), again=True).status == 'good'\n"
        "assert 'transformers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def sentences(bits):
    return [SentenceCheck("english", "It is | cold outside.", value, 4.0, 4) for value in bits]


@pytest.mark.parametrize(
    ("begins", "otherwise", "expected"),
    [((), 0.5, "missing"), ((0,), 0.5, "without the BOS"), ((), 0.95, None), ((), math.nan, None)],
)
def test_a_bos_mistake_is_named(monkeypatch, begins, otherwise, expected):
    """If sentences take far fewer bits with another start, the BOS token is to blame; otherwise nothing is said."""
    reader = Reader(tiny_model("llama"))
    reader.prompt_tokenizer = replace(reader.prompt_tokenizer, bos=begins)
    started = []

    def read(other, language, *, shuffled=True):
        started.append(other.prompt_tokenizer.bos)
        return sentences([otherwise, otherwise])

    monkeypatch.setattr(check, "_sentences", read)
    mistake = check._bos_mistake(reader, sentences([1.0, 1.0]))
    assert started == [() if begins else (reader.loaded.tokenizer.bos_token_id,)]
    assert mistake is None if expected is None else expected in mistake[1]


def test_a_tokenizer_that_splits_into_letters_is_named():
    """Tokens of one character each point to the tokenizer."""
    letters = [SentenceCheck("english", "It is | cold outside.", 4.0, 4.0, len("cold outside."))]
    causes = check._causes(letters, 0.9, 0.9, None)
    assert "pieces of 1.0 characters" in causes[0]


@pytest.mark.parametrize(("size", "suspect"), [(50_000, True), (256, False)])
def test_letters_with_a_large_vocabulary_are_suspect(monkeypatch, size, suspect):
    """A model that is good at letters is suspect only if its vocabulary has more than letters."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    reader.loaded.model.config.vocab_size = size
    good = [SentenceCheck("english", "It is | cold outside.", 1.0, 4.0, len("cold outside."))]
    monkeypatch.setattr(check, "_sentences", lambda *_, **__: good)
    monkeypatch.setattr(
        check, "list_bits", lambda _, words, times: [100.0 / 10 ** (time - 1) for time in times]
    )
    monkeypatch.setattr(check, "_clozes", lambda *_: [check.ClozeCheck("english", "It is cold", 1.0)])
    verdict = check_model(reader)
    assert (verdict.status == "suspect") is suspect
    assert not suspect or "splits words into letters" in verdict.reasons[0]


def test_overflow_is_named():
    """Scores that are not numbers point to the precision."""
    loaded = tiny_model("llama", max_position_embeddings=512)
    with torch.no_grad():
        loaded.model.model.norm.weight.fill_(math.inf)
    verdict = check_model(Reader(loaded))
    assert verdict.status == "suspect"
    assert "NaN" in verdict.reasons[0]
    assert "bfloat16" in verdict.causes[0]


@pytest.fixture
def counted(monkeypatch):
    """How often a model was really checked."""
    ran = []

    def counting(reader):
        ran.append(reader.name)
        return check.Verdict(
            "suspect", "causal", reasons=("odd",), causes=("many",), sentences=tuple(sentences([1.0]))
        )

    monkeypatch.setattr(checked, "check_model", counting)
    return ran


def test_the_verdict_is_stored(folder, counted):
    """The second look at the same model reads the verdict from the disk; `again` checks anew."""
    reader = Reader(load_model(folder))
    first, second = verdict_of(reader), verdict_of(Reader(load_model(folder)))
    assert first == second
    assert len(counted) == 1
    verdict_of(reader, again=True)
    assert len(counted) == 2


def test_a_damaged_note_is_made_again(folder, counted):
    """A note that cannot be read costs a check, nothing else."""
    reader = Reader(load_model(folder))
    verdict_of(reader)
    [note] = cache_folder("checks").iterdir()
    note.write_text("{")
    assert verdict_of(reader).status == "suspect"
    assert len(counted) == 2
    assert json.loads(note.read_text())["status"] == "suspect"


def test_other_circumstances_are_checked_anew(folder, counted, monkeypatch, tmp_path):
    """Another precision, another version of a library or another tokenizer: the verdict on the first says nothing."""
    verdict_of(Reader(load_model(folder)))
    verdict_of(Reader(load_model(folder, ReaderOptions(dtype="bfloat16"))))
    assert len(counted) == 2
    loaded = tiny_model("llama", max_position_embeddings=512)
    save_model(loaded, tmp_path)
    path = tmp_path / "tokenizer.json"
    stored = json.loads(path.read_text())
    ids = list(stored["model"]["vocab"].values())
    random.Random(0).shuffle(ids)
    stored["model"]["vocab"] = dict(zip(stored["model"]["vocab"], ids, strict=True))
    path.write_text(json.dumps(stored))
    assert verdict_of(Reader(load_model(str(tmp_path)))).made_with["weights"]
    assert len(counted) == 3
    real = checked.metadata.version
    monkeypatch.setattr(
        checked.metadata, "version", lambda name: "9.9" if name == "transformers" else real(name)
    )
    verdict_of(Reader(load_model(folder)))
    assert len(counted) == 4


def test_opening_warns_or_refuses(checking, counted, folder):
    """A suspect model is warned of when it is opened, and refused with `strict`."""
    with pytest.warns(ModelWarning, match="odd.*many"):
        Reader.open(folder)
    with pytest.raises(CcrankError, match="without --strict"):
        Reader.open(folder, ReaderOptions(strict=True))
    assert len(counted) == 1


def test_the_check_can_be_turned_off(counted, folder):
    """With CCRANK_CHECK=no nothing is read, not even with `strict`."""
    assert require_good(Reader(load_model(folder)), strict=True) is None
    assert counted == []


def test_the_readers_own_cost_and_cache_are_left_alone():
    """The check counts as no reading of the user's, and stores none."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    check_model(reader)
    assert reader.spent.computed_tokens == 0
