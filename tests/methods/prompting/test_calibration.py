"""Calibrations against their formulas, written as loops, and what they leave unchanged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from literal_prompts import probabilities

from ccrank.errors import CcrankError
from ccrank.methods.prompting.asking import (
    CALIBRATIONS,
    CONTENT_FREE,
    calibrate,
    calibrate_against,
    calibrate_mean,
    reference_prompts,
    seeded,
)
from ccrank.prompts import load_templates
from ccrank.task import Criterion, Task

TASK = Task(Criterion("size"), ("Chad", "Peru", "Russia"), context="A story.")


SOME, FEW, SEVERAL = st.integers(1, 6), st.integers(1, 4), st.integers(2, 5)


def tables(rows=SOME, columns=SEVERAL, most=20):
    shape = st.tuples(rows, columns)
    return arrays.arrays(float, shape, elements=st.floats(-most, most, allow_nan=False))


@st.composite
def table_and_reference(draw, references=FEW):
    table = draw(tables())
    reference = draw(tables(rows=references, columns=st.just(table.shape[1])))
    return table, reference


def mean_probability(table, column):
    return sum(probabilities(row)[column] for row in table) / len(table)


@given(tables())
def test_mean_calibration_is_its_formula(table):
    """Each candidate loses its mean logit over the prompts, and nothing else."""
    for column in range(table.shape[1]):
        mean = sum(table[:, column]) / len(table)
        for row in range(len(table)):
            assert calibrate_mean(table)[row, column] == pytest.approx(table[row, column] - mean, abs=1e-9)


@given(tables())
def test_batch_calibration_is_its_formula(table):
    """log p(c | x) less the log of the mean of p(c | x') over the prompts."""
    found = calibrate(table, "batch", table[:0])
    for row, column in np.ndindex(table.shape):
        expected = math.log(probabilities(table[row])[column]) - math.log(mean_probability(table, column))
        assert found[row, column] == pytest.approx(expected, abs=1e-9)


@given(table_and_reference())
def test_calibration_against_a_reference_is_its_formula(both):
    """log p(c | x) less the log of the mean of p(c | r) over the reference."""
    table, reference = both
    found = calibrate_against(table, reference)
    for row, column in np.ndindex(table.shape):
        expected = math.log(probabilities(table[row])[column]) - math.log(mean_probability(reference, column))
        assert found[row, column] == pytest.approx(expected, abs=1e-9)


def shifted(table, column, constant):
    changed = table.copy()
    changed[:, column] += constant
    return changed


@given(tables(), st.data(), st.floats(-50, 50))
def test_mean_calibration_takes_a_liking_for_one_answer_out(table, data, constant):
    """A constant on one candidate's logits changes nothing."""
    column = data.draw(st.integers(0, table.shape[1] - 1))
    found = calibrate_mean(shifted(table, column, constant))
    np.testing.assert_allclose(found, calibrate_mean(table), atol=1e-9)


@given(table_and_reference(references=st.just(1)), st.data(), st.floats(-50, 50))
def test_one_reference_takes_a_liking_for_one_answer_out(both, data, constant):
    """A constant added to one candidate, in prompts and reference, does not change differences between candidates."""
    table, reference = both
    column = data.draw(st.integers(0, table.shape[1] - 1))
    plain = calibrate_against(table, reference)
    found = calibrate_against(shifted(table, column, constant), shifted(reference, column, constant))
    np.testing.assert_allclose(np.diff(found, axis=1), np.diff(plain, axis=1), atol=1e-9)


@given(tables())
def test_batch_calibration_makes_every_answer_equally_likely(table):
    """Over the prompts the mean of p(c | x) / p̄(c) is 1 for each candidate, however much it is liked."""
    np.testing.assert_allclose(np.exp(calibrate(table, "batch", table[:0])).mean(axis=0), 1.0, atol=1e-9)


@given(table_and_reference())
def test_a_reference_calibrated_against_itself_likes_every_answer_alike(both):
    """Contextual calibration gives content-free prompts equal odds."""
    _, reference = both
    np.testing.assert_allclose(np.exp(calibrate_against(reference, reference)).mean(axis=0), 1.0, atol=1e-9)


@pytest.mark.parametrize("how", ["batch", "contextual", "pmi"])
@given(table_and_reference(), st.data())
def test_a_constant_on_all_candidates_of_a_prompt_is_no_answer(how, both, data):
    """Calibrations of probabilities do not change when all logits of one prompt move together."""
    table, reference = both
    offsets = np.array(data.draw(st.lists(st.floats(-30, 30), min_size=len(table), max_size=len(table))))
    found = calibrate(table + offsets[:, None], how, reference)
    np.testing.assert_allclose(found, calibrate(table, how, reference), atol=1e-9)


@given(tables(most=1e30))
def test_extreme_logits_stay_numbers(table):
    """No calibration makes NaN or infinity of logits that a float32 model can give."""
    for how in CALIBRATIONS:
        assert np.isfinite(calibrate(table, how, table[:1])).all()


def test_contextual_references_are_the_prompt_without_its_items():
    """Only the items become content-free words: the context and the criterion are unchanged."""
    prompt = load_templates().pair(TASK, 0, 2)
    texts = [one.text for one in reference_prompts(prompt, "contextual")]
    assert texts == [f"A story.\n\nIs {word} more in terms of size than {word}? _" for word in CONTENT_FREE]


def test_pmi_reference_is_the_end_of_the_prompt():
    """The text after the last item is the premise."""
    templates = load_templates()
    [bare] = reference_prompts(templates.single(TASK, 1), "pmi")
    assert bare.text == " is _"
    [bare] = reference_prompts(templates.single(TASK, 1, "masked"), "pmi")
    assert bare.text == " is _."


@pytest.mark.parametrize("text", ["The size: {item} {slot}", "The size: {item}{slot}"])
def test_pmi_without_a_premise_is_refused(text):
    """Blanks between item and slot are no premise."""
    prompt = load_templates(changes=[f"single={text}"]).single(TASK, 0)
    with pytest.raises(CcrankError, match="text between the last item and the slot"):
        reference_prompts(prompt, "pmi")


def test_pmi_with_the_slot_before_the_item_is_refused(tmp_path):
    """A masked template may end in its item: then nothing leads to the slot."""
    file = tmp_path / "own.toml"
    file.write_text('[single]\ntext = "{item} is {slot}"\nmasked = "{slot} is the size of {item}."\n')
    prompt = load_templates(file).single(TASK, 0, "masked")
    with pytest.raises(CcrankError, match="text between the last item and the slot"):
        reference_prompts(prompt, "pmi")


def test_unknown_calibrations_are_refused():
    """The message has the value and the known ones."""
    with pytest.raises(CcrankError, match=r"'magic'.*mean, none, contextual"):
        reference_prompts(load_templates().pair(TASK, 0, 1), "magic")


@pytest.mark.parametrize("calibration", ["mean", "none", "batch"])
def test_calibrations_within_the_task_need_no_more_prompts(calibration):
    """Only contextual and pmi calibration cost calls of their own."""
    assert reference_prompts(load_templates().pair(TASK, 0, 1), calibration) == []


def test_templates_without_items_are_refused():
    """A template that does not show the items would rank nothing."""
    template = load_templates(changes=["pair=Is {item_a} large? {slot}"])["pair"]
    with pytest.raises(CcrankError, match=r"'pair' needs \{item_b\}"):
        template.check_fields("causal", "item_a", "item_b")


def test_seeds_below_0_are_refused():
    """Not with numpy's words but with the value."""
    with pytest.raises(CcrankError, match="got -3"):
        seeded(-3)
