"""A probe is a file that scores new items as the fit did."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from ccrank.errors import CcrankError
from ccrank.methods.probing.fits import fit_each, fit_pool
from ccrank.methods.probing.probe import Probe
from ccrank.util.tensors import VERSION

GENERATOR = np.random.default_rng(0)
STATES = [GENERATOR.normal(size=(n, 12)).astype(np.float32) for n in (5, 8)]


@pytest.mark.parametrize("method", ["triplet", "ordreg", "pca"])
def test_a_probe_scores_as_its_fit(method, tmp_path):
    """Scores by the saved and loaded probe are those of the fit, and its notes come back."""
    fits = fit_each(STATES, method, seeds=(3, 4))
    path = tmp_path / "probe.safetensors"
    for task in range(2):
        fits.probe(task, 1, model="tiny", layer=7).save(path)
        probe = Probe.load(path)
        np.testing.assert_allclose(probe(STATES[task]), fits.scores(STATES)[task][1], atol=1e-5)
        assert probe.about["method"] == method
        assert (probe.about["seed"], probe.about["model"], probe.about["layer"]) == (4, "tiny", 7)
        assert probe.normalisation == "within-task"
        assert ("alpha" in probe.about) == (method == "ordreg")


def test_a_pair_probe_reads_pairs(tmp_path):
    """A probe of ccs-pair predicts ½(f(x⁺) + 1 − f(x⁻)) for new pairs, also after a round trip."""
    states = [GENERATOR.normal(size=(12, 2, 6))]
    fits = fit_pool(states, "ccs-pair", seeds=(0,))
    fits.probe().save(tmp_path / "pair")
    np.testing.assert_allclose(Probe.load(tmp_path / "pair")(states[0]), fits.scores(states)[0][0], atol=1e-5)
    with pytest.raises(CcrankError, match="Yes then No"):
        fits.probe()(np.zeros((4, 3, 6)))


def test_a_fixed_normalisation_scores_items_one_by_one(tmp_path):
    """With the normalisation kept, an item's score does not depend on its company, and survives a round trip."""
    probe = fit_each(STATES, "margin").probe(1).with_fixed(STATES[1])
    probe.save(tmp_path / "fixed")
    loaded = Probe.load(tmp_path / "fixed")
    assert loaded.normalisation == "fixed"
    alone = [float(loaded(item[None])[0]) for item in STATES[1]]
    np.testing.assert_allclose(alone, probe(STATES[1]))


def test_scores_are_equal_for_arrays_and_tensors():
    """Tensors, bfloat16 ones too, are taken as arrays are."""
    probe = fit_each(STATES, "margin").probe(0)
    half = torch.from_numpy(STATES[0]).bfloat16()
    np.testing.assert_allclose(probe(half), probe(half.float().numpy()))


def test_a_constant_feature_does_not_count():
    """A feature that is the same for all items gets no weight, however large its value."""
    states = np.c_[STATES[0], np.full(len(STATES[0]), 12345.678, dtype=np.float32)]
    weights = np.r_[np.ones(12), 1e6]
    np.testing.assert_allclose(Probe(weights, 0.0)(states), Probe(np.ones(12), 0.0)(STATES[0]), atol=1e-6)


def test_damaged_and_foreign_files_are_refused(tmp_path):
    """A truncated file, another program's file, a missing file and a file without weights raise specific errors."""
    path = tmp_path / "probe"
    fit_each(STATES, "margin").probe(0).save(path)
    whole = path.read_bytes()
    for length in (0, 7, 40, len(whole) - 3):
        path.write_bytes(whole[:length])
        with pytest.raises(CcrankError, match="not a complete safetensors file"):
            Probe.load(path)
    save_file({"weights": np.zeros(3)}, str(path))
    with pytest.raises(CcrankError, match="was not saved by ccrank"):
        Probe.load(path)
    header = {"format": "ccrank", "version": VERSION, "kind": "Probe", "about": "{}"}
    for change, message in (
        ({}, "is damaged"),
        ({"version": "9"}, "has version '9' of the format"),
        ({"kind": "Scale"}, "holds a 'Scale', not a Probe"),
    ):
        save_file({"bias": np.zeros(1)}, str(path), header | change)
        with pytest.raises(CcrankError, match=message):
            Probe.load(path)
    with pytest.raises(CcrankError, match="there is no file"):
        Probe.load(tmp_path / "nowhere")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("name", ["weights", "bias", "mean", "deviation"])
def test_numbers_that_cannot_score_are_refused(tmp_path, name, value):
    """A file whose arrays have NaN, infinite or overflowing numbers would give scores that are none."""
    parts = {"weights": np.ones(3), "bias": 0.0, "mean": np.zeros(3), "deviation": np.ones(3)}
    parts[name] = value if name == "bias" else np.array([1.0, value, 1.0])
    if name == "bias" and not np.isfinite(value):  # JSON has no such numbers
        with pytest.raises(CcrankError, match="cannot be saved"):
            Probe(**parts).save(tmp_path / "probe")
        return
    Probe(**parts).save(tmp_path / "probe")
    with pytest.raises(CcrankError, match="is damaged"):
        Probe.load(tmp_path / "probe")


@pytest.mark.parametrize("layer", ["x", None, 1.5, True, [1], {}])
def test_a_layer_is_a_number(tmp_path, layer):
    """A probe file from elsewhere can state anything as its layer."""
    probe = Probe(np.ones(3), 0.0, about={"layer": 1})
    probe.about["layer"] = layer
    probe.save(tmp_path / "probe")
    with pytest.raises(CcrankError, match="damaged: a probe's layer must be a number"):
        Probe.load(tmp_path / "probe")


def test_deep_notes_are_refused(tmp_path):
    """JSON that is nested deeper than Python follows is a damaged file."""
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    header = {"format": "ccrank", "version": VERSION, "kind": "Probe", "about": deep}
    save_file({".weights": np.ones(3)}, str(tmp_path / "probe"), header)
    with pytest.raises(CcrankError, match="is damaged"):
        Probe.load(tmp_path / "probe")


def test_wrong_states_are_refused():
    """States of another width, a single item, and weights that are not a vector raise specific errors."""
    probe = fit_each(STATES, "margin").probe(0)
    with pytest.raises(CcrankError, match="d = 12"):
        probe(np.zeros((4, 13)))
    with pytest.raises(CcrankError, match="at least 2"):
        probe(np.zeros((1, 12)))
    with pytest.raises(CcrankError, match="one vector"):
        Probe(np.zeros((2, 2)), 0.0)
    with pytest.raises(CcrankError, match="expected"):
        Probe(np.zeros(3), 0.0, np.zeros(2), np.ones(3))
