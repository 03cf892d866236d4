"""What the paper leaves open about prompts, row by row of docs/explanation/paper-choices.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from fake import FakeReader, make_task, random_logits
from tiny import tiny_model

from ccrank.methods.probe_pipeline.states import read_pair_states, read_single_states
from ccrank.methods.prompting.listwise import prompt_list
from ccrank.methods.prompting.pairwise import prompt_pair
from ccrank.methods.prompting.pointwise import prompt_point
from ccrank.models import Reader
from ccrank.models.prompter import Prompter
from ccrank.task import Criterion, Task

ROOT = Path(__file__).parents[3]
COUNTRIES = Task(Criterion("size", "larger", category="country"), ("Chad", "Peru"))


def asked(method, task, **options):
    """The prompts of a method."""
    reader = FakeReader(random_logits(0))
    method([task], Prompter(reader), **options)
    return reader.asked


def test_pairs_are_asked_with_the_comparative():
    """A criterion with a comparative is asked with it; "more in terms of" is for a criterion that has none."""
    assert asked(prompt_pair, COUNTRIES) == ["Is Chad larger than Peru? _", "Is Peru larger than Chad? _"]
    plain = Task(Criterion("size"), COUNTRIES.items)
    assert asked(prompt_pair, plain)[0] == "Is Chad more in terms of size than Peru? _"


def test_each_task_is_calibrated_by_itself():
    """A task that always gets Yes does not change the answers to another one in the same call."""
    biased = Task(Criterion("age", "older"), ("Chad", "Peru", "Fiji"))
    task, logit = make_task(5), random_logits(2)

    def answer(text, word):
        return 50.0 * (word == "Yes") if "older" in text else logit(text, word)

    alone = prompt_pair([task], Prompter(FakeReader(answer)))[0]
    together = prompt_pair([biased, task], Prompter(FakeReader(answer)))[1]
    np.testing.assert_array_equal(alone.pair_margins, together.pair_margins)
    assert np.nanmean(together.pair_margins) == pytest.approx(0, abs=1e-9)


def test_only_pairs_are_calibrated():
    """A liking for one rating or one letter stays in the answers of the pointwise and listwise prompts."""
    logit = random_logits(3)
    for method, liked in ((prompt_point, "7"), (prompt_list, "C")):

        def biased(text, word, liked=liked):
            return logit(text, word) + 60.0 * (word == liked)

        [answer] = method([make_task(6)], Prompter(FakeReader(biased)))
        if method is prompt_point:
            assert np.floor(answer.scores).tolist() == [7.0] * 6
        else:
            generator = np.random.default_rng(0)
            firsts = [int(generator.permutation(6)[2]) for _ in range(5)]  # the item under C in each shuffle
            assert [int(run.argmax()) for run in answer.runs] == firsts


def test_the_scale_is_named_where_ratings_are_asked():
    """The optional half-sentence about the scale is in prompts for ratings and not in those that probes read."""
    assert asked(prompt_point, COUNTRIES)[0] == "On a scale from 0 to 10, the size of Chad is _"
    seen = []

    class Recording(FakeReader):
        def read(self, prompts, *rest, **options):
            seen.extend(prompt.text for prompt in prompts)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_single_states([COUNTRIES], Prompter(Recording(random_logits(0))), [1])
    assert seen == ["The size of Chad is _", "The size of Peru is _"]


def test_chosen_options_are_appended_as_letters():
    """The letter of a choice is appended with a comma; the options themselves stay in the prompt."""
    prompts = asked(prompt_list, make_task(3), shuffles=1)
    options = (
        re.escape('"A" thing ') + r"\d{3}, " + re.escape('"B" thing ') + r"\d{3}, " + re.escape('"C" thing ')
    )
    for prompt in prompts:
        found = re.fullmatch(
            rf"Order by size\. Options: {options}\d{{3}}\. The correct ordering is: ([ABC], )*_", prompt
        )
        assert found is not None
    assert {prompt.count(", _") for prompt in prompts} == {0, 1}


def test_a_context_precedes_every_prompt_type():
    """Pairs, ratings and lists alike begin with the context, a blank line after it."""
    task = Task(COUNTRIES.criterion, COUNTRIES.items, "Chad is in Africa.")
    for method in (prompt_pair, prompt_point, prompt_list):
        plain = asked(method, COUNTRIES)
        assert asked(method, task) == [f"Chad is in Africa.\n\n{text}" for text in plain]


def own_states(loaded, tokens):
    with torch.inference_mode():
        return loaded.model(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states


def test_a_causal_model_is_read_where_it_predicts_the_answer():
    """ItemSingle: the state of the prompt's last token, after which the answer would come. ItemPair: that of the
    answer itself, which is put into the prompt."""
    loaded = tiny_model("llama")
    reader, tokenizer = Reader(loaded), loaded.tokenizer
    [single], _ = read_single_states([COUNTRIES], Prompter(reader), [reader.depth])
    for item, state in zip(COUNTRIES.items, single, strict=True):
        states = own_states(loaded, tokenizer(f"The size of {item} is")["input_ids"])
        np.testing.assert_allclose(state[0], states[-1][0, -1], atol=1e-4)
    [pairs], _ = read_pair_states([COUNTRIES], Prompter(reader), [reader.depth])
    for place, answer in enumerate(("Yes", "No")):
        tokens = tokenizer(f"Is Chad larger than Peru? {answer}")["input_ids"]
        assert tokens[:-1] == tokenizer("Is Chad larger than Peru?")["input_ids"]
        np.testing.assert_allclose(pairs[0, 0, place], own_states(loaded, tokens)[-1][0, -1], atol=1e-4)


def test_a_masked_model_is_read_at_its_mask():
    """ItemSingle: the state of the mask token; ItemPair: that of the answer in its place."""
    loaded = tiny_model("bert")
    reader, tokenizer = Reader(loaded), loaded.tokenizer
    [single], _ = read_single_states([COUNTRIES], Prompter(reader), [reader.depth])
    tokens = tokenizer(f"The size of Chad is {tokenizer.mask_token}.")["input_ids"]
    at = tokens.index(tokenizer.mask_token_id)
    np.testing.assert_allclose(single[0, 0], own_states(loaded, tokens)[-1][0, at], atol=1e-4)
    [pairs], _ = read_pair_states([COUNTRIES], Prompter(reader), [reader.depth])
    tokens = tokenizer("Is Chad larger than Peru? No.")["input_ids"]
    at = len(tokenizer("Is Chad larger than Peru?", add_special_tokens=False)["input_ids"]) + 1
    np.testing.assert_allclose(pairs[0, 0, 1], own_states(loaded, tokens)[-1][0, at], atol=1e-4)


def test_every_row_of_the_page_names_tests_that_exist():
    """Each row has a test in its last column: of the probes under tests/methods/probing, of the prompts under tests,
    of the evaluation under the repository."""
    page = (ROOT / "docs" / "reference" / "paper-choices.md").read_text(encoding="utf-8")
    tables = page.split("\n## ")
    assert len(tables) == 4
    for folder, table in zip(("tests/methods/probing", "tests", ""), tables[1:], strict=True):
        rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
        assert len(rows) > (10 if folder else 1)
        for row in rows:
            cells = re.split(r"(?<!\\)\|", row)
            names = re.findall(r"`([\w/.]*)::(\w+)`", cells[-2])
            assert names, row
            path = ""
            for file, test in names:
                path = file or path  # `::name` is in the file named before
                assert f"def {test}(" in (ROOT / folder / path).read_text(encoding="utf-8"), (path, test)
