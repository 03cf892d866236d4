"""The fit: against the dense formula, invariances, and intervals that hold what they promise."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from made import dense, fitted, made, observe

from ccrank.labels import Labels
from ccrank.methods.labelled.fit import posterior_of, rank_intervals
from ccrank.methods.labelled.lists import SURPRISING, leave_out
from ccrank.methods.labelled.observations import Observations, observations_of
from ccrank.methods.labelled.prior import LABEL_NOISE, Setting, grid
from ccrank.metrics.order import tau_b

ONE = Setting(0.5, 0.4, "late")


def values_of(truth: np.ndarray, places) -> list[tuple[int, float]]:
    return [(int(place), float(truth[place])) for place in places]


def kernels_of(kernel) -> np.ndarray:
    """(G, N, N) of each group of states."""
    return kernel.products(np.arange(kernel.count), 2).kernels.astype(float)


def test_values_as_the_dense_formula():
    """Mean and deviation under one setting are those of a Gaussian process over all items at once."""
    truth, prior, kernel = made(0, items=25)
    seen = observe(values_of(truth, range(0, 25, 3)))
    found = fitted(prior, kernel, seen, [ONE])
    items, count = seen.items, len(seen)
    whole = dense(kernel, ONE) + (1 - LABEL_NOISE) * ONE.residual * np.eye(25)
    inner = whole[np.ix_(items, items)] + 1.0 + LABEL_NOISE * ONE.residual * np.eye(count)
    gain = np.linalg.solve(inner, whole[items]).T
    mean = 0.5 * prior + gain @ (seen.target - 0.5 * prior[items])
    covariance = whole - gain @ whole[items]
    assert found.mean == pytest.approx(mean, abs=1e-4)
    assert found.deviation == pytest.approx(np.sqrt(np.diag(covariance)), abs=1e-4)
    some = np.array([1, 3, 7, 20])
    own_mean, own_covariance = found.joint(kernels_of(kernel)[:, some][:, :, some], some)
    assert own_mean == pytest.approx(mean[some], abs=1e-4)
    assert own_covariance == pytest.approx(covariance[np.ix_(some, some)], abs=1e-4)


def test_several_settings_are_a_mixture():
    """Mean and variance are those of the mixture of each setting's own fit: doubt about the settings counts."""
    truth, prior, kernel = made(3, items=20)
    seen = observe(values_of(truth, range(0, 20, 4)))
    found = fitted(prior, kernel, seen)
    assert len(found.settings) > 1
    alone = [fitted(prior, kernel, seen, [setting]) for setting in found.settings]
    means = np.array([one.mean for one in alone])
    squares = np.array([one.deviation**2 for one in alone]) + means**2
    assert found.mean == pytest.approx(found.weights @ means, abs=1e-3)
    assert found.deviation**2 == pytest.approx(found.weights @ squares - found.mean**2, abs=1e-3)
    mean, covariance = found.joint(kernels_of(kernel), np.arange(20))
    assert mean == pytest.approx(found.mean, abs=1e-4)
    assert np.diag(covariance) == pytest.approx(found.deviation**2, abs=1e-4)


def test_draws_have_the_posterior_as_their_law():
    """Mean and covariance of many joint draws are those of the dense formula, labelled items among them."""
    truth, prior, kernel = made(1, items=8)
    seen = observe(values_of(truth, range(3)), pairs=[(4, 5)])
    found = fitted(prior, kernel, seen, [ONE], draws=40_000)
    draws = found.draws(np.random.default_rng(0))
    whole = dense(kernel, ONE) + ONE.particular * np.eye(8)
    cross = whole[:, seen.items] @ seen.contrast.T
    own = found.posteriors[0]
    covariance = whole - cross @ own.inverse() @ cross.T
    assert draws.mean(axis=1) == pytest.approx(found.mean, abs=0.02)
    assert np.cov(draws) == pytest.approx(covariance, abs=0.03)


def test_evidence_prefers_what_made_the_data():
    """With many labels, lists whose score is right get a high β, lists whose score is noise a low one."""
    weights = {}
    for beta in (0.0, 0.7):
        own = []
        for seed in range(4):
            truth, prior, kernel = made(seed, items=80, beta=beta, share=0.3)
            own.append(
                fitted(prior, kernel, observe(values_of(truth, range(60))), draws=1).expected("prior_weight")
            )
        weights[beta] = np.mean(own)
    assert weights[0.0] < 0.2
    assert weights[0.7] > 0.5


def test_labels_help_other_items():
    """Twenty labels improve the order of the items without one, where the score is weak, and spoil no good one."""
    gains = {}
    for beta, share in ((0.1, 0.8), (0.85, 0.02)):
        own = []
        for seed in range(6):
            truth, prior, kernel = made(seed, items=100, beta=beta, share=share, depth=2, width=4)
            found = fitted(prior, kernel, observe(values_of(truth, range(20))), draws=1)
            own.append(tau_b(found.mean[20:], truth[20:]) - tau_b(prior[20:], truth[20:]))
        gains[beta] = np.mean(own)
    assert gains[0.1] > 0.2
    assert gains[0.85] > -0.03


@pytest.mark.parametrize("kind", ["pairs", "picks", "mixed"])
def test_other_kinds_of_labels_teach_too(kind):
    """Pairs alone, picks alone, and values mixed with both improve the order of the items without a label."""
    gains = []
    for seed in range(6):
        truth, prior, kernel = made(seed, items=100, beta=0.2, share=0.75, depth=2, width=4)
        order = np.argsort(-truth)
        rng = np.random.default_rng(1000 + seed)
        couples = rng.permutation(100)[:40].reshape(-1, 2).tolist()
        pairs = [(a, b) if truth[a] > truth[b] else (b, a) for a, b in couples]
        best, worst = order[:5].tolist(), order[-5:].tolist()
        seen = {
            "pairs": observe(pairs=pairs, count=100),
            "picks": observe(best=best, worst=worst, count=100),
            "mixed": observe(values_of(truth, range(8)), pairs[:8], best[:2], worst[:2], 100),
        }[kind]
        rest = np.setdiff1d(np.arange(100), seen.items)
        found = fitted(prior, kernel, seen, draws=1)
        gains.append(tau_b(found.mean[rest], truth[rest]) - tau_b(prior[rest], truth[rest]))
    assert np.mean(gains) > 0.08


def test_order_of_items_does_not_matter():
    """Items in another order get the same means and deviations."""
    truth, prior, kernel = made(2, items=30)
    other = np.random.default_rng(0).permutation(30)
    place = np.argsort(other)
    seen = observe(values_of(truth, range(10)), [(11, 12)], [13], [14], 30)
    moved = observe(
        [(int(place[item]), value) for item, value in values_of(truth, range(10))],
        [(int(place[11]), int(place[12]))],
        [int(place[13])],
        [int(place[14])],
        30,
    )
    [states] = kernel.lists
    turned = type(kernel)([(states[0][other], states[1][other])])
    one, two = fitted(prior, kernel, seen), fitted(prior[other], turned, moved)
    assert two.mean == pytest.approx(one.mean[other], abs=1e-4)
    assert two.deviation == pytest.approx(one.deviation[other], abs=1e-4)


def test_conflicting_labels_are_noise():
    """A cycle gives scores like any other labels, and the pairs cannot all be kept."""
    _, prior, kernel = made(3, items=12)
    found = fitted(prior, kernel, observe(pairs=[(0, 1), (1, 2), (2, 0)]))
    assert np.isfinite(found.mean).all()
    first, second, third = found.mean[:3]
    assert 1 <= (first <= second) + (second <= third) + (third <= first) <= 2
    twice = fitted(prior, kernel, observe([(0, 5.0), (0, 1.0), (3, 1.0), (4, 5.0)]))
    assert abs(twice.mean[0]) < max(abs(twice.mean[3]), abs(twice.mean[4]))


def test_ties_are_kept_as_ties():
    """Equal grades say that items are alike; all grades equal say nothing about the order."""
    seen = observe([(0, 3.0), (1, 3.0), (2, 1.0), (3, 5.0)])
    assert seen.target[0] == seen.target[1]
    assert (observe([(0, 2.0), (1, 2.0)]).target == 0).all()


def test_labels_say_which_of_them_disagree():
    """Of fifteen labels that fit the states one is reversed: it is the most surprising, and is named."""
    hits = 0
    for seed in range(6):
        truth, prior, kernel = made(seed, items=60, beta=0.9, share=0.1, depth=2, width=4)
        places = np.argsort(truth)[::4]
        values = values_of(truth, places)
        values[-1] = (values[-1][0], float(truth.min()) - 1)
        seen = observe(values)
        found = leave_out(fitted(prior, kernel, seen, draws=1)).probability
        hits += int(seen.first[found.argmin()] == values[-1][0] and found.min() < SURPRISING)
    assert hits >= 5


def test_leaving_out_is_fitting_without():
    """The closed form for a value, under one setting, is a fit on the other labels."""
    truth, prior, kernel = made(5, items=20)
    seen = observe(values_of(truth, range(6)))
    whole = fitted(prior, kernel, seen, [ONE], draws=1)
    own = whole.posteriors[0]
    predicted = own.sites - own.dual / np.diag(own.inverse())
    for row in range(6):
        others = np.delete(np.arange(len(seen)), row)
        rest = Observations(*(getattr(seen, column.name)[others] for column in fields(seen)))
        part = fitted(prior, kernel, rest, [ONE], draws=1)
        # The value's prediction has the list's level, which is another observation's covariance of 1.
        level = part.posteriors[0].dual.sum()
        assert predicted[row] == pytest.approx(part.mean[seen.first[row]] + level, abs=1e-3)


def test_noise_does_not_predict_itself():
    """Random labels are predicted at τ about 0 where left out; labels that follow the states well above."""
    noise, known = [], []
    for seed in range(8):
        truth, prior, kernel = made(seed, items=60, beta=0.3, share=0.65, depth=2, width=4)
        random = np.random.default_rng(1000 + seed).standard_normal(60)
        noise.append(leave_out(fitted(prior, kernel, observe(values_of(random, range(25))), draws=1)).tau)
        known.append(leave_out(fitted(prior, kernel, observe(values_of(truth, range(25))), draws=1)).tau)
    assert abs(np.mean(noise)) < 0.12
    assert np.mean(known) > 0.25


def test_intervals_hold_what_they_promise():
    """80 % intervals hold the true rank of items without a label 75 to 85 % of the time, on made-up lists."""
    held = []
    for seed in range(25):
        rng = np.random.default_rng(1000 + seed)
        beta, share = rng.choice([0.0, 0.5, 0.7]), rng.choice([0.1, 0.35, 0.5])
        truth, prior, kernel = made(seed, items=60, beta=beta, share=share, depth=2, width=6)
        found = fitted(prior, kernel, observe(values_of(truth, range(12))), seed=seed)
        low, high = rank_intervals(found.draws(rng))
        rank = 1 + np.argsort(np.argsort(-truth))
        held.append(np.mean((low <= rank)[12:] & (rank <= high)[12:]))
    assert 0.75 <= np.mean(held) <= 0.85


def test_lists_are_fitted_together():
    """Labels on one list improve another list of the criterion; each list has a level of its own."""
    gains = []
    for seed in range(6):
        truth, prior, kernel = made(seed, items=120, beta=0.1, share=0.8, depth=2, width=4)
        [(slot, item)] = kernel.lists
        split = type(kernel)([(slot[:60], item[:60]), (slot[60:], item[60:])])
        labels = Labels(tuple((str(place), float(truth[place])) for place in range(40)))
        seen = observations_of([labels, Labels()], [[str(place) for place in range(60)]] * 2)
        found = fitted(prior, split, seen, draws=1)
        gains.append(tau_b(found.mean[60:], truth[60:]) - tau_b(prior[60:], truth[60:]))
    assert np.mean(gains) > 0.15


def test_many_labels_sample_the_evidence():
    """Beyond 400 observations a sample weighs the settings, and all of them make the posterior."""
    truth, prior, kernel = made(6, items=450, depth=2, width=4)
    found = fitted(prior, kernel, observe(values_of(truth, range(450)), count=450), draws=1)
    assert len(found.posteriors[0].dual) == 450
    assert tau_b(found.mean, truth) > 0.9


def test_the_grid_is_a_distribution():
    """Each setting leaves some residual variance; priors of a mix's settings add up to at most its share."""
    assert all(0.05 <= one.residual < 1 for one in grid())
    assert 0.8 < sum(np.exp(one.log_prior) for one in grid()) <= 1
    truth, prior, kernel = made(7, items=20)
    seen = observe(values_of(truth, range(9)))
    posterior = posterior_of(prior, kernel.products(seen.items, 0), seen)
    logs = [one.log_prior + posterior(one).log_evidence for one in grid()]
    assert fitted(prior, kernel, seen, draws=1).settings[0] == grid()[int(np.argmax(logs))]
