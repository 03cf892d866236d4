"""The saved model: it ranks new items as the fit does, one by one, and no other model's."""

from __future__ import annotations

import numpy as np
import pytest
from made import made
from tiny import tiny_reader

from ccrank import rank
from ccrank.errors import CcrankError
from ccrank.methods.labelled.fit import fit
from ccrank.methods.labelled.observations import observe
from ccrank.methods.labelled.prior import Kernel, Setting
from ccrank.methods.labelled.saved_model import StatesProbe, is_states_probe, probe_of
from ccrank.metrics import tau_b

ITEMS = ("Russia", "Canada", "Brazil", "Chad", "Monaco", "Peru", "Cuba", "Japan", "France")
LABELS = {"Russia": 17.1, "Canada": 10.0, "Chad": 1.3, "Monaco": 0.0}


def test_the_states_part_is_the_posterior_mean():
    """Without weight on the label-free score, items of the list that have no label get exactly their posterior mean."""
    truth, prior, kernel = made(0, items=40)
    seen = observe([(place, float(truth[place])) for place in range(10)])
    fitted = fit(prior, kernel, seen, [Setting(0.0, 0.6, "late")], draws=1)
    probe = probe_of(fitted, kernel, (1, 2, 3, 4))
    assert probe(kernel.lists[0])[10:] == pytest.approx(fitted.mean[10:], abs=1e-4)


def test_new_items_are_ranked_without_the_old_list():
    """A probe of half the items ranks the other half better than chance, and item by item as all together."""
    taus = []
    for seed in range(5):
        truth, prior, kernel = made(seed, items=160, beta=0.1, share=0.8, depth=2, width=4)
        [(slot, item)] = kernel.lists
        old = Kernel([(slot[:80], item[:80])])
        seen = observe([(place, float(truth[place])) for place in range(60)])
        probe = probe_of(fit(prior[:80], old, seen, draws=1), old, (1, 2))
        new = probe((slot[80:], item[80:]))
        taus.append(tau_b(new, truth[80:]))
        alone = [float(probe((slot[place : place + 1], item[place : place + 1]))[0]) for place in (80, 159)]
        assert [new[0], new[-1]] == pytest.approx(alone)
    assert np.mean(taus) > 0.3


@pytest.mark.parametrize(
    ("change", "layers", "about"),
    [
        (np.nan, (1, 2), {}),
        (1e300, (1, 2), {}),
        (1, ("x", 2), {}),
        (1, (1,), {}),
        (1, (1, 2), {"template": 5, "wording": 3}),
        (1, (1, 2), {"wording": {"text": 5}}),
        (1, (1, 2), {"template": "poles", "wording": {"text": 5}}),
        (1, (1, 2), {"template": "poles", "wording": {"unknown": 5}}),
    ],
)
def test_a_probe_file_with_anything_in_it_is_refused(tmp_path, change, layers, about):
    """Numbers that are none, layers that do not fit, notes of another kind: an error, not a traceback."""
    reader = tiny_reader()
    arrays = np.full((2, 2, reader.width), change, float)
    path = tmp_path / "labels.safetensors"
    StatesProbe(arrays, arrays, arrays, layers, {"model": reader.name, **about}).save(path)
    with pytest.raises(CcrankError, match="damaged"):
        rank(ITEMS[:3], "size", model=reader, method="probe", options={"file": str(path)})


def test_saved_and_applied(tmp_path):
    """The file scores a list as the probe in memory does; another model is refused, so is a broken file."""
    reader = tiny_reader()
    found = rank(ITEMS, "size", model=reader, labels=LABELS)
    path = tmp_path / "labels.safetensors"
    found.probe.save(path)
    assert is_states_probe(path)
    again = rank(ITEMS, "size", model=reader, method="probe", options={"file": str(path)})
    assert again.directed
    assert tau_b(again.scores, found.scores) > 0
    some = rank(ITEMS[:3], "size", model=reader, method="probe", options={"file": str(path)})
    assert some.scores == pytest.approx(again.scores[:3], abs=1e-4)
    loaded = StatesProbe.load(path)
    other = StatesProbe(loaded.weights, loaded.mean, loaded.deviation, loaded.layers, {"model": "other"})
    other.save(path)
    with pytest.raises(CcrankError, match="was fitted on the model other"):
        rank(ITEMS, "size", model=reader, method="probe", options={"file": str(path)})
    with pytest.raises(CcrankError, match="this probe takes states"):
        loaded((np.zeros((2, 1, 1)), np.zeros((2, 1, 1))))
    path.write_bytes(path.read_bytes()[:100])
    assert not is_states_probe(path)
