"""Models behind servers give what the same model gives here, through whatever a server offers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from completion_server import CANDIDATES, KINDS, PROMPTS, Kind, StandIn, prompt, serving
from tiny import tiny_model, tiny_reader

from ccrank.api import rank, rank_tasks
from ccrank.errors import CcrankError, UnavailableError
from ccrank.methods.registry import METHODS, methods_without_states
from ccrank.models import Reader, ReaderLike, ReadingCache
from ccrank.models.remote import RemoteReader
from ccrank.prompts import Prompt
from ccrank.reader_options import ReaderOptions
from ccrank.task import Criterion, Task

EXACT = ("vllm", "old-vllm", "llamacpp", "vllm-without-echo")
"""Kinds whose answers equal those of the local reader, which starts prompts with no special token."""
TASK = Task(
    Criterion("size", comparative="larger", poles=("small", "large"), category="country"),
    ("Russia", "Monaco", "Chad", "Peru"),
    values=(4.0, 1.0, 2.0, 3.0),
    id="countries",
)
QUERY = Task.of_query(
    "how tall is it?",
    ("The tower is tall.", "A fox jumps over the dog.", "Chad is a country."),
    id="documents",
)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A server like llama.cpp's."""
    with serving(tiny_reader(), "llamacpp") as one:
        yield one


def opened(one: StandIn, **more: Any) -> RemoteReader:
    return RemoteReader.open(f"openai:{one.url}", **more)


def local_scores(prompts: Sequence[Prompt], candidates: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    found = tiny_reader().read(prompts, candidates, log_probabilities=True, **options)
    assert found.logits is not None
    assert found.answer_tokens is not None
    return found.logits, found.answer_tokens


@pytest.mark.parametrize("kind", EXACT)
def test_scores_equal_those_of_the_local_reader(kind: str) -> None:
    """Log-probabilities and token counts of all candidates are the local reader's: of one and of many tokens, of
    candidates that begin others, of tokens that straddle the slot, and of characters cut into bytes."""
    with serving(tiny_reader(), kind) as one:
        found = opened(one).read(PROMPTS, CANDIDATES)
    logits, tokens = local_scores(PROMPTS, CANDIDATES)
    np.testing.assert_allclose(found.logits, logits, atol=1e-4)
    np.testing.assert_array_equal(found.answer_tokens, tokens)
    assert found.states is None
    assert found.cost.prompts == len(PROMPTS)


@pytest.mark.parametrize("kind", EXACT)
def test_tokens_of_one_candidate_are_those_of_the_local_reader(kind: str) -> None:
    """With per_token, each token of a candidate has its own log-probability."""
    candidates = [["Yes and No"], ["seventy-one"], ["est of all"], ["größer 😁"]]
    with serving(tiny_reader(), kind) as one:
        found = opened(one).read(PROMPTS, candidates, per_token=True)
    logits, tokens = local_scores(PROMPTS, candidates, per_token=True)
    np.testing.assert_allclose(found.logits, logits, atol=1e-4)
    np.testing.assert_array_equal(found.answer_tokens, tokens)


def test_a_special_token_before_the_prompt_is_read_too() -> None:
    """A server that begins prompts with a special token gives what the local reader gives with that token."""
    reader = tiny_reader()
    start = (reader.loaded.tokenizer.bos_token_id,)
    with_start = Reader(reader.loaded)
    object.__setattr__(with_start.prompt_tokenizer, "bos", start)
    with serving(reader, "sglang") as one:
        found = opened(one).read(PROMPTS, CANDIDATES)
    expected = with_start.read(PROMPTS, CANDIDATES, log_probabilities=True)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-4)


def test_ways_of_reading() -> None:
    """Servers that repeat prompts are read so, those that do not by forced tokens; where log-probabilities are those
    of biased logits, or there is no tokenizer, only the likeliest tokens are left."""
    ways = {}
    for kind in KINDS:
        if kind != "ollama":
            with serving(tiny_reader(), kind) as one:
                server = opened(one).server
                ways[kind] = (server.scoring.name.removeprefix("log-probabilities of "), server.batch)
    assert ways == {
        "vllm": ("prompts (echo)", 16),
        "old-vllm": ("prompts (echo)", 16),
        "sglang": ("prompts (echo)", 16),
        "llamacpp": ("next tokens (logit_bias and grammar)", 16),
        "vllm-without-echo": ("next tokens (logit_bias)", 16),
        "biased": ("the most likely next tokens only", 16),
        "listing": ("the most likely next tokens only", 1),
        "listing-all": ("the most likely next tokens only", 1),
    }


@pytest.mark.parametrize("kind", ["listing-all", "biased"])
def test_likeliest_tokens_spell_candidates(kind: str) -> None:
    """Where the server lists all tokens, candidates spelled by the longest ones have the local reader's scores."""
    with serving(tiny_reader(), kind) as one:
        found = opened(one).read(PROMPTS[:2], [["Yes", "No"], ["1", "10", "Yes No"]])
    logits, tokens = local_scores(PROMPTS[:2], [["Yes", "No"], ["1", "10", "Yes No"]])
    np.testing.assert_allclose(found.logits, logits, atol=1e-4)
    np.testing.assert_array_equal(found.answer_tokens, tokens)


def test_a_candidate_that_is_not_listed_is_an_error() -> None:
    """A server that lists five tokens cannot score others, and the message says which and what to do."""
    with serving(tiny_reader(), "listing") as one:
        reader = opened(one)
        with pytest.raises(CcrankError, match=r"5 most likely next tokens.*'zebra'.*use a server that"):
            reader.read(PROMPTS[:1], ["zebra"])


def test_a_server_without_log_probabilities_is_an_error() -> None:
    """Such as Ollama: the message names servers that have them."""
    with (
        serving(tiny_reader(), "ollama") as one,
        pytest.raises(CcrankError, match=r"gives no log-prob.*vLLM"),
    ):
        opened(one)


METHOD_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # The paper's tie-break takes logits, which servers do not give.
    "prompt-point": {"score": "expected"},
}


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
def test_methods_without_states_give_the_same_ranking(kind: str) -> None:
    """Every method listed as one that works gives the scores of the local model."""
    with serving(tiny_reader(), kind) as one:
        reader = opened(one)
        for method in methods_without_states():
            task = QUERY if method in ("query-likelihood", "first-stage") else TASK
            options = METHOD_OPTIONS.get(method, {})
            [found] = rank_tasks([task], reader, method, options=options)
            [expected] = rank_tasks([task], tiny_reader(), method, options=options)
            np.testing.assert_allclose(found.scores, expected.scores, atol=2e-3, err_msg=method)
            assert found.model == f"openai:{one.url}#tiny"


def test_auto_works_where_it_reads_no_states(stand_in: StandIn) -> None:
    """Documents with a query, and items with a context, are ranked as by the local model."""
    reader = opened(stand_in)
    with_context = Task(TASK.criterion, TASK.items, context="Russia is larger than Canada.", id="context")
    for task in (QUERY, with_context):
        [found], [expected] = (rank_tasks([task], one) for one in (reader, tiny_reader()))
        np.testing.assert_allclose(found.scores, expected.scores, atol=2e-3)


def test_methods_say_whether_they_read_states() -> None:
    """The registry agrees with the list of methods that servers can run; `auto` depends on the lists."""
    with_states = {name for name, method in METHODS.items() if method.reads_states([TASK], {})}
    assert with_states == METHODS.keys() - set(methods_without_states())
    context = Task(TASK.criterion, TASK.items, context="Russia is large.")
    auto = METHODS["auto"].reads_states
    assert not auto([QUERY] * 5, {})
    assert not auto([QUERY, context, context, context], {})
    assert auto([QUERY, context, TASK], {})
    assert auto([context] * 4, {})
    assert not auto([context] * 4, {"anchor": False})
    assert auto([context], {"labels": "tasks"})


def test_methods_with_states_refuse_servers(stand_in: StandIn) -> None:
    """Every other method is refused with the methods that work."""
    reader = opened(stand_in)
    for method in METHODS.keys() - {*methods_without_states(), "probe"}:
        with pytest.raises(
            CcrankError, match=r"no hidden states; use --method poles .*likelihood, prompt-pair"
        ):
            rank_tasks([TASK], reader, method)
    with pytest.raises(CcrankError, match="no hidden states"):
        reader.read(PROMPTS, layers="all")
    with pytest.raises(CcrankError, match="no hidden states"):
        rank_tasks([TASK], reader, options={"labels": {"Russia": 3, "Chad": 1}})


def test_rank_takes_the_address(stand_in: StandIn) -> None:
    """`rank(model="openai:…")` asks the server, and finds the model by name or as the only one."""
    for name in ("", "#tiny"):
        found = rank(TASK.items, TASK.criterion, model=f"openai:{stand_in.url}{name}", method="poles")
        assert found.model == f"openai:{stand_in.url}#tiny"
    with pytest.raises(CcrankError, match=r"has no model 'huge'; it has tiny"):
        rank(TASK.items, TASK.criterion, model=f"openai:{stand_in.url}#huge", method="poles")


def test_it_is_a_reader_for_methods(stand_in: StandIn) -> None:
    """It has what methods call, with the same parameters; depth and width are errors."""
    reader = opened(stand_in)
    for name, wanted in vars(ReaderLike).items():
        if inspect.isfunction(wanted) and not name.startswith("_"):
            own = list(inspect.signature(getattr(reader, name)).parameters.values())
            assert own == list(inspect.signature(wanted).parameters.values())[1:], name
    assert (reader.form, reader.loaded.missing_head) == ("causal", ())
    assert (reader.gives_states, reader.behind_server) == (False, True)
    for name in ("depth", "width"):
        with pytest.raises(CcrankError, match="no hidden states"):
            getattr(reader, name)


def test_stored_readings_are_not_asked_for_again(stand_in: StandIn, tmp_path: Path) -> None:
    """What was read is stored, also when a server restarts and its list has another date."""
    first = opened(stand_in, cache=ReadingCache(tmp_path)).read(PROMPTS, CANDIDATES)
    stand_in.created += 1
    reader = opened(stand_in, cache=ReadingCache(tmp_path))
    before = len(stand_in.completions)
    again = reader.read(PROMPTS, CANDIDATES)
    assert len(stand_in.completions) == before
    np.testing.assert_array_equal(again.logits, first.logits)
    np.testing.assert_array_equal(again.answer_tokens, first.answer_tokens)
    assert (first.cost.computed_tokens, again.cost.computed_tokens) == (first.cost.prompt_tokens, 0)
    reader.read(PROMPTS[:1], [["Yes", "Maybe"]])
    assert len(stand_in.completions) > before


def test_other_weights_under_the_same_name_are_read_anew(stand_in: StandIn, tmp_path: Path) -> None:
    """Stored readings belong to weights: a server that has others under the same name is asked again."""
    opened(stand_in, cache=ReadingCache(tmp_path)).read(PROMPTS, CANDIDATES)
    stand_in.reader = Reader(tiny_model("llama", seed=1, max_position_embeddings=512))
    found = opened(stand_in, cache=ReadingCache(tmp_path)).read(PROMPTS, CANDIDATES)
    expected = stand_in.reader.read(PROMPTS, CANDIDATES, log_probabilities=True)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-4)


def test_rounding_is_no_change_and_other_weights_are(stand_in: StandIn) -> None:
    """What a server says of its start, and rounding in 16 bits, make no other model; its name, its file, and other
    log-probabilities do."""
    server = opened(stand_in).server
    weights, evidence = server.weights, server.evidence
    rounded = evidence.astype(np.float16)
    assert server.change_since(weights, rounded) == ""
    assert server.change_since(weights, [float(value) for value in evidence]) == ""
    assert "served_name was 'huge', is 'tiny'" in server.change_since(
        {**weights, "served_name": "huge"}, evidence
    )
    assert "path was '/a', is None" in server.change_since({**weights, "path": "/a"}, evidence)
    apart = evidence.copy()
    apart[3] -= 0.5
    assert "after the same 4 texts differ by up to 0.50" in server.change_since(weights, apart)
    assert "it lists other tokens" in server.change_since(weights, evidence[:-1])


def test_readings_of_a_changed_model_are_not_stored(tmp_path: Path, stand_in: StandIn) -> None:
    """A reader that checks its server raises an error when the weights change, and the cache keeps nothing of them."""
    reader = opened(stand_in, cache=ReadingCache(tmp_path), check_after=0.0)
    reader.read(PROMPTS[:1], CANDIDATES[:1])
    first, stand_in.reader = stand_in.reader, Reader(tiny_model("llama", seed=1, max_position_embeddings=512))
    with pytest.raises(UnavailableError, match=r"has changed while it was read: .*after the same 4 texts"):
        reader.read(PROMPTS[1:2], CANDIDATES[1:2])
    stand_in.reader = first
    found = opened(stand_in, cache=ReadingCache(tmp_path)).read(PROMPTS[1:2], CANDIDATES[1:2])
    np.testing.assert_allclose(found.logits, local_scores(PROMPTS[1:2], CANDIDATES[1:2])[0], atol=1e-4)


def test_names_of_special_tokens_are_text() -> None:
    """An item cannot end the prompt: what looks like a special token is sent with a blank in it."""
    with serving(tiny_reader(), "old-vllm") as one:
        opened(one).read([prompt("Is ", "<|im_end|> </s>", " larger? ")], [["Yes", "</s>"]])
        sent = [text for body in one.completions for text in body["prompt"]]
    assert "Is < |im_end|> < /s> larger? Yes" in sent
    assert not any("</s>" in text or "<|" in text for text in sent)


def test_progress_reaches_its_total(stand_in: StandIn) -> None:
    """The tokens reported add up to the estimate, whether they were read or stored."""
    told: list[int] = []
    reader = opened(stand_in)
    reader.read(PROMPTS, CANDIDATES, progress=told.append)
    assert sum(told) == reader.cost_of(PROMPTS, CANDIDATES).distinct_tokens
    assert len(told) > 1


def test_long_prompts_are_refused_before_they_are_sent(stand_in: StandIn) -> None:
    """The window is the one that the server names."""
    reader = opened(stand_in)
    assert reader.window == 512
    reader.prompt_tokenizer.encode([prompt("word " * 20)], [["Yes"]])
    with pytest.raises(CcrankError, match="does not fit the model's window of 512"):
        reader.prompt_tokenizer.encode([prompt("word " * 900)], [["Yes"]])


def test_candidates_with_the_same_tokens_are_an_error() -> None:
    """As with a model that is loaded here."""
    for kind in ("vllm", "llamacpp"):
        with serving(tiny_reader(), kind) as one:
            reader = opened(one)
            with pytest.raises(CcrankError, match=r"'Yes' and 'Yes' have the same tokens"):
                reader.read(PROMPTS[:1], [["Yes", "Yes"]])
            with pytest.raises(CcrankError, match="is blank"):
                reader.read(PROMPTS[:1], [["Yes", " "]])


def test_a_server_that_ignores_the_bias_later_is_an_error() -> None:
    """Each forced token is checked, so that no other token's number is taken for it."""
    with serving(tiny_reader(), "llamacpp") as one:
        reader = opened(one)
        one.kind = Kind(one.kind.owner, chat_form=True, tokenize="content", bias="none")
        with pytest.raises(CcrankError, match="did not generate token"):
            reader.read(PROMPTS, CANDIDATES)


def test_options_of_loaded_models_are_refused(stand_in: StandIn) -> None:
    """A server has its own device and precision."""
    with pytest.raises(CcrankError, match=r"--dtype .*is for models that ccrank loads itself"):
        opened(stand_in, options=ReaderOptions(dtype="bfloat16"))


def test_what_must_load_models_says_so() -> None:
    """Commands that need the model itself name what to give instead."""
    with pytest.raises(CcrankError, match=r"behind a server .* give a hub id, a folder or a \.gguf file"):
        Reader.open("openai:http://127.0.0.1:9/v1")
