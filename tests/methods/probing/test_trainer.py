"""The batched trainer gives each probe the same result as separate training and as a plain PyTorch loop."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from ccrank.errors import CcrankError
from ccrank.methods.probing import trainer
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.methods.probing.fits import fit_each, fit_pool
from ccrank.methods.probing.objectives import OBJECTIVES, Settings
from ccrank.methods.probing.optimisers import minimise_adam, minimise_lbfgs
from ccrank.methods.probing.trainer import initial_weights
from ccrank.util.zscores import z_scores
from methods.probing.test_losses import literal_loss

TRAINED = [name for name, entry in OBJECTIVES.items() if entry.loss]
SIZES = (4, 7, 3, 7, 5)
WIDTH = 20


def states_of(method, sizes=SIZES, width=WIDTH, seed=0):
    generator = np.random.default_rng(seed)
    pair = OBJECTIVES[method].prompt == "pair"
    return [generator.normal(size=(n * (n - 1), 2, width) if pair else (n, width)) for n in sizes]


def gold_of(sizes=SIZES, seed=1):
    generator = np.random.default_rng(seed)
    return [generator.permutation(n).astype(float) for n in sizes]


@pytest.mark.parametrize(
    ("method", "optimiser"),
    [(name, "adam") for name in TRAINED] + [("ccs", "lbfgs"), ("sup-ordreg", "lbfgs")],
)
def test_together_equals_alone(method, optimiser):
    """Each task of a batch of different sizes ends with the weights and loss of separate training."""
    states, gold = states_of(method), gold_of()
    settings = Settings(epochs=20, optimiser=optimiser, learning_rate=0.01)
    together = fit_each(states, method, gold=gold, seeds=(5, 9), settings=settings, dtype=torch.float64)
    for task in (0, 1, 4):
        for position, seed in enumerate((5, 9)):
            alone = fit_each(
                [states[task]],
                method,
                gold=[gold[task]],
                seeds=(seed,),
                settings=settings,
                dtype=torch.float64,
            )
            torch.testing.assert_close(together.loss[task, position], alone.loss[0, 0], rtol=0, atol=1e-6)
            if optimiser == "adam":
                torch.testing.assert_close(
                    together.weights[task, position], alone.weights[0, 0], rtol=0, atol=1e-6
                )
                torch.testing.assert_close(
                    together.shape[task, position], alone.shape[0, 0], rtol=0, atol=1e-6
                )


@pytest.mark.parametrize("method", ["ccs-pair", "triplet", "ordreg"])
def test_single_precision_ends_at_the_same_loss(method):
    """After 200 epochs in float32 the batch's losses are within 1e-3 of separate training in float64."""
    states = states_of(method, (7, 5), width=64)
    together = fit_each(states, method, seeds=(0,))
    for task in range(len(states)):
        alone = fit_each([states[task]], method, seeds=(0,), dtype=torch.float64)
        assert abs(float(together.loss[task, 0]) - float(alone.loss[0, 0])) < 1e-3


@pytest.mark.parametrize("method", TRAINED)
def test_the_trainer_equals_a_plain_loop(method):
    """Weights, loss, α and β equal those of nn.Linear, torch.optim.Adam and the literal loss of one task."""
    size = 3 if OBJECTIVES[method].prompt == "pair" else 5
    states, gold = states_of(method, (size,)), gold_of((size,))
    settings = Settings(epochs=12, learning_rate=0.02, weight_decay=0.1)
    fits = fit_each(states, method, gold=gold, seeds=(7,), settings=settings, dtype=torch.float64)
    rows = z_scores(torch.from_numpy(states[0]), axis=0).reshape(-1, WIDTH)
    truth = gold[0].tolist()
    if OBJECTIVES[method].prompt == "pair":
        first, second = ordered_pairs(size).T
        above = gold[0][first] > gold[0][second]
        truth = np.stack([above, ~above], -1).ravel().tolist()
    linear = torch.nn.Linear(WIDTH, 1, dtype=torch.float64)
    with torch.no_grad():
        linear.weight[0], linear.bias[:] = initial_weights(7, WIDTH)
        if OBJECTIVES[method].ordinal:
            linear.bias.zero_().requires_grad_(False)
    shape = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam(
        [{"params": [linear.weight], "weight_decay": 0.1}, {"params": [linear.bias, shape]}], lr=0.02
    )
    for _ in range(12):
        optimiser.zero_grad()
        literal_loss(method, linear(rows).squeeze(-1), shape, truth, settings).backward()
        optimiser.step()
    loss = literal_loss(method, linear(rows).squeeze(-1), shape, truth, settings)
    assert float(fits.loss[0, 0]) == pytest.approx(float(loss.detach()), abs=1e-9)
    sign = 1.0
    if OBJECTIVES[method].reflects:  # turned towards gold afterwards
        sign = float(torch.sign(fits.weights[0, 0] @ linear.weight[0].detach()))
    torch.testing.assert_close(sign * fits.weights[0, 0], linear.weight[0].detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(sign * fits.bias[0, 0], linear.bias[0].detach(), rtol=0, atol=1e-9)
    if OBJECTIVES[method].ordinal:
        torch.testing.assert_close(fits.shape[0, 0], shape.detach(), rtol=0, atol=1e-9)


def test_adam_equals_torch():
    """Our steps are torch.optim.Adam's, to rounding."""
    target = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = minimise_adam(
        lambda p: ((p - target).square().sum(-1), 2 * (p - target)), torch.zeros_like(target), 50, 0.1
    )
    expected = torch.zeros_like(target, requires_grad=True)
    optimiser = torch.optim.Adam([expected], lr=0.1)
    for _ in range(50):
        optimiser.zero_grad()
        (expected - target).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(found, expected.detach())


def test_lbfgs_solves_stacked_problems():
    """Badly scaled quadratics, one Rosenbrock-like each, reach their minima, each at its own pace."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    scale = torch.logspace(-2, 3, 6, dtype=torch.float64) * torch.tensor(
        [1.0, 10.0, 0.1, 3.0]
    ).double().unsqueeze(-1)

    def evaluate(point):
        gap = point - centre
        return (scale * gap.square()).sum(-1), 2 * scale * gap

    found = minimise_lbfgs(evaluate, torch.zeros_like(centre), 200)
    torch.testing.assert_close(found, centre, rtol=0, atol=1e-3)
    assert float(evaluate(found)[0].max()) < 1e-8


@pytest.mark.parametrize("method", ["ccs", "sup-ccs"])
def test_lbfgs_goes_at_least_as_low_as_adam(method):
    """On the same tasks L-BFGS ends no higher than Adam after as many steps."""
    states, gold = states_of(method), gold_of()
    adam = fit_each(states, method, gold=gold, dtype=torch.float64)
    lbfgs = fit_each(states, method, gold=gold, dtype=torch.float64, settings=Settings(optimiser="lbfgs"))
    assert float(lbfgs.loss.mean()) <= float(adam.loss.mean()) + 1e-6


def test_a_fit_is_deterministic_and_needs_no_global_seed():
    """Two runs agree bit by bit; the global generator is neither read nor moved."""
    states = states_of("triplet")
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = fit_each(states, "triplet", settings=Settings(epochs=50))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    second = fit_each(states, "triplet", settings=Settings(epochs=50))
    assert torch.equal(first.weights, second.weights)
    assert not torch.equal(first.weights[:, 0], first.weights[:, 1])


def test_the_start_is_that_of_a_linear_layer():
    """Weights and bias start uniform in ±1/√d, as torch.nn.Linear's do."""
    drawn = torch.cat([torch.cat(initial_weights(seed, 100)) for seed in range(200)])
    layers = torch.cat([torch.nn.Linear(100, 1).weight.detach()[0] for _ in range(200)])
    assert float(drawn.abs().max()) <= 0.1
    assert float(drawn.std()) == pytest.approx(float(layers.std()), rel=0.03)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.002)


def test_a_pool_of_one_task_is_that_task():
    """A probe for a pool of one task equals the task's own; the loss of several tasks is the mean of theirs."""
    for method in ("triplet", "ordreg", "sup-margin", "ccs-pair"):
        states, gold = states_of(method), gold_of()
        options = {"gold": gold, "seeds": (0, 1), "dtype": torch.float64, "settings": Settings(epochs=20)}
        each = fit_each(states, method, **options)
        pool = fit_pool(states, method, train_sets=np.eye(len(states), dtype=bool), **options)
        torch.testing.assert_close(pool.weights, each.weights, rtol=0, atol=1e-8)
        torch.testing.assert_close(pool.loss, each.loss, rtol=0, atol=1e-8)
        still = {**options, "settings": Settings(epochs=0)}
        mean = fit_each(states, method, **still).loss.mean(0)
        torch.testing.assert_close(fit_pool(states, method, **still).loss[0], mean)


def test_large_batches_are_trained_in_parts(monkeypatch):
    """Cutting a batch by groups or by training sets changes nothing."""
    states, gold = states_of("sup-triplet"), gold_of()
    sets = ~np.eye(len(states), dtype=bool)
    runs = []
    for limit in (2**24, 1):
        monkeypatch.setattr("ccrank.methods.probing.trainer.CELL_LIMIT", limit)
        options = {"gold": gold, "dtype": torch.float64, "settings": Settings(epochs=10)}
        each = fit_each(states, "sup-triplet", **options)
        runs.append((each.weights, fit_pool(states, "sup-triplet", train_sets=sets, **options).weights))
    for whole, parts in zip(*runs, strict=True):
        torch.testing.assert_close(whole, parts, rtol=0, atol=1e-9)


def test_a_start_along_the_principal_component():
    """The pca start is the first principal component (by SVD), for items and for x⁺ − x⁻ of pairs."""
    for method in ("pca", "margin", "ccs-pair"):
        states = states_of(method)
        fits = fit_each(
            states, method, seeds=(0,), settings=Settings(epochs=0, initial="pca"), dtype=torch.float64
        )
        for task, weights in zip(states, fits.weights[:, 0], strict=True):
            rows = z_scores(torch.from_numpy(task), axis=0)
            rows = rows[:, 0] - rows[:, 1] if rows.ndim == 3 else rows
            expected = torch.linalg.svd(rows).Vh[0]
            assert float((weights @ expected).abs() / weights.norm()) == pytest.approx(1.0)
    pool = fit_pool(
        states_of("pca", (30, 25)), "pca", seeds=(0,), dtype=torch.float64
    )  # more rows than features
    rows = torch.cat([z_scores(torch.from_numpy(task), axis=0) for task in states_of("pca", (30, 25))])
    overlap = pool.weights[0, 0] @ torch.linalg.svd(rows).Vh[0] / pool.weights[0, 0].norm()
    assert float(overlap.abs()) == pytest.approx(1.0)


def test_options_change_what_they_should():
    """Weight decay shrinks weights; margin, learning rate and ordreg's variant each lead elsewhere."""
    states = states_of("margin")

    def weights(method="margin", epochs=30, **options):
        return fit_each(states, method, settings=Settings(epochs=epochs, **options)).weights

    plain = weights()
    assert float(weights(weight_decay=1.0).norm()) < float(plain.norm())
    for changed in ({"margin": 0.5}, {"learning_rate": 0.01}, {"epochs": 20}):
        assert not torch.allclose(weights(**changed), plain)
    assert not torch.allclose(weights("ordreg"), weights("ordreg", consistency="as-printed"))


def test_what_cannot_be_trained_is_refused():
    """Each mistake in states, gold, names or settings is named."""
    states = states_of("margin")
    for call, message in (
        (lambda: fit_each(states, "marginal"), "unknown probe 'marginal'"),
        (lambda: fit_each([], "margin"), "at least one task"),
        (lambda: fit_each([states[0], states[1][:, :5]], "margin"), "different widths"),
        (lambda: fit_each([states[0][:1]], "margin"), "2 or more items"),
        (lambda: fit_each([states[0] * np.nan], "margin"), "NaN"),
        (lambda: fit_each(states, "ccs-pair"), "every ordered pair"),
        (lambda: fit_each([np.zeros((7, 2, 4))], "ccs-pair"), "7 rows of states"),
        (lambda: fit_each(states, "sup-margin"), "supervised and needs gold"),
        (lambda: fit_each(states, "sup-margin", gold=gold_of()[:2]), "there is gold for 2 tasks"),
        (lambda: fit_each(states[:1], "sup-margin", gold=[[1.0, 2.0]]), "for 4 items"),
        (lambda: fit_each(states, "margin", seeds=()), "seeds"),
        (lambda: Settings(margin=-1), "margin"),
        (lambda: Settings(optimiser="sgd"), "adam, lbfgs"),
    ):
        with pytest.raises(CcrankError, match=message):
            call()


def test_triplet_on_a_hundred_items_stays_small():
    """A triplet fit at N = 100, d = 576, 5 seeds adds less than 2 GiB (here: 200 MiB) to the process's peak."""
    # Linux lets a child's ru_maxrss begin with that of its parent, in which the fit would not show.
    script = (
        "import os, re, resource, numpy as np\n"
        "from ccrank.methods.probing.fits import fit_each\n"
        "from ccrank.methods.probing.objectives import Settings\n"
        "def peak():\n"
        "    if os.path.exists('/proc/self/status'):\n"
        "        return int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "states = np.random.default_rng(0).normal(size=(100, 576)).astype('f')\n"
        "fit_each([states[:5]], 'triplet', settings=Settings(epochs=2))\n"
        "before = peak()\n"
        "fit_each([states], 'triplet', settings=Settings(epochs=3))\n"
        "print(peak() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 200 * 1024


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", list(OBJECTIVES))
def test_a_gpu_gives_the_same(method):
    """Weights and scores trained on a GPU in float64 equal those of the CPU, task by task and pooled."""
    states = states_of(method)
    options = {"gold": gold_of(), "dtype": torch.float64, "settings": Settings(epochs=20)}
    for fit in (fit_each, fit_pool):
        here, there = (fit(states, method, device=device, **options) for device in ("cpu", "cuda"))
        torch.testing.assert_close(there.weights.cpu(), here.weights, rtol=0, atol=1e-6)
        np.testing.assert_allclose(there.scores(states[:1])[0], here.scores(states[:1])[0], atol=1e-6)


def test_small_fits_use_one_thread_and_leave_the_others_alone(monkeypatch):
    """A small fit runs on one thread, gives the same weights, and the number of threads is as before."""
    seen = []
    original = trainer._train_whole
    monkeypatch.setattr(
        trainer, "_train_whole", lambda *args: seen.append(torch.get_num_threads()) or original(*args)
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        small = fit_each(states_of("triplet"), "triplet", settings=Settings(epochs=5)).weights
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(trainer, "CACHE_LIMIT", 0)
        large = fit_each(states_of("triplet")[:1], "triplet", settings=Settings(epochs=5)).weights
    finally:
        torch.set_num_threads(before)
    assert seen[0] == 1
    assert seen[-1] == 2
    torch.testing.assert_close(small[:1], large, rtol=1e-5, atol=1e-6)
