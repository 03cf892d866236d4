"""All five unsupervised probes, trained together against one by one.

    python benchmarks/probes.py

Random states of WikiLists' shape: 69 tasks of at most 10 items (9.23 on average), d = 576, 5 seeds, 200 epochs. The
loop is what one would write first: for each task and seed an nn.Linear, torch.optim.Adam and the loss of all pairs or
triples, vectorised within the task and with all indices made beforehand. It runs on every 6th task (all with
--whole) and its time is scaled by the number of tasks; both sides run in the same process, on one thread unless
OMP_NUM_THREADS says otherwise. Losses of both sides must agree.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from ccrank.methods.probing.fits import fit_each
from ccrank.methods.probing.objectives import OBJECTIVES
from ccrank.methods.probing.trainer import initial_weights
from ccrank.util.zscores import FLOAT32_ROUNDING, z_scores

SIZES = [10] * 48 + [9] * 6 + [8] * 7 + [7] * 2 + [6] * 2 + [5] * 4
WIDTH, SEEDS, EPOCHS, MARGIN = 576, range(5), 200, 0.2
METHODS = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")


def standardised(states: np.ndarray) -> torch.Tensor:
    """Z-scores over the items of a task (for pairs within each pole), as the trainer takes them."""
    return z_scores(torch.from_numpy(states), axis=0, rounding=FLOAT32_ROUNDING)


def loop_loss(
    method: str, states: torch.Tensor, shape: torch.Tensor
) -> Callable[[torch.nn.Linear], torch.Tensor]:
    """The loss of one task as the paper prints it, all pairs or triples at once."""
    count = len(states)
    first, second = torch.triu_indices(count, count, 1)

    if method == "ccs-pair":
        plus_states, minus_states = states[:, 0].contiguous(), states[:, 1].contiguous()

        def loss(linear: torch.nn.Linear) -> torch.Tensor:
            plus, minus = linear(plus_states).sigmoid(), linear(minus_states).sigmoid()
            return ((plus - (1 - minus)) ** 2 + torch.minimum(plus, minus) ** 2).mean()

    elif method == "ccs":

        def loss(linear: torch.nn.Linear) -> torch.Tensor:
            scores = linear(states).sigmoid().squeeze(-1)
            a, b = scores[first], scores[second]
            return ((a - (1 - b)) ** 2 + torch.minimum(a, b) ** 2).mean()

    elif method == "margin":

        def loss(linear: torch.nn.Linear) -> torch.Tensor:
            scores = linear(states).sigmoid().squeeze(-1)
            gap = scores[first] - scores[second]
            return torch.minimum((gap + MARGIN).relu(), (MARGIN - gap).relu()).mean()

    elif method == "triplet":
        triples = [
            (c, a, b)
            for c in range(count)
            for a in range(count)
            for b in range(a + 1, count)
            if c not in (a, b)
        ]
        anchor, left, right = torch.tensor(triples).T

        def loss(linear: torch.nn.Linear) -> torch.Tensor:
            scores = linear(states).sigmoid().squeeze(-1)
            near, far = (scores[anchor] - scores[left]).abs(), (scores[anchor] - scores[right]).abs()
            contrast = torch.minimum((near - far + MARGIN).relu(), (far - near + MARGIN).relu())
            return (contrast + (MARGIN - torch.minimum(near, far)).relu()).mean()

    else:
        cut = (torch.arange(1, count) - 0.5) / (count - 1)
        low, high = cut.log(), (1 - cut).log()
        target = torch.arange(count - 1, 0, -1)

        def loss(linear: torch.nn.Linear) -> torch.Tensor:
            step = ((shape[0] - 1) * low + (shape[1] - 1) * high).clamp(-3, 3).exp()
            upper = step.flip(0).cumsum(0).flip(0)
            columns = (states @ linear.weight.T + (upper - upper.mean())).sigmoid()
            consistency = ((target - columns.sum(0)) ** 2).sum()
            return (consistency + torch.minimum(columns, 1 - columns).sum()) / (count * (count - 1))

    return loss


def train_alone(method: str, states: torch.Tensor, seed: int) -> float:
    """The final loss of one probe on one task, trained the plain way."""
    linear = torch.nn.Linear(WIDTH, 1)
    weights, bias = initial_weights(seed, WIDTH)
    with torch.no_grad():
        linear.weight.copy_(weights)
        linear.bias.copy_(bias)
    shape = torch.ones(2, requires_grad=True)
    loss = loop_loss(method, states, shape)
    optimiser = torch.optim.Adam([*linear.parameters(), shape])
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        loss(linear).backward()
        optimiser.step()
    return float(loss(linear).detach())


def compare(method: str, states: list[np.ndarray], every: int) -> tuple[float, float, float]:
    """Seconds together, seconds one by one (scaled), largest difference of final losses."""
    together = []
    for _ in range(3):
        start = time.perf_counter()
        fits = fit_each(states, method, seeds=SEEDS)
        together.append(time.perf_counter() - start)
    chosen = range(0, len(states), every)
    train_alone(method, standardised(states[0]), 0)  # warm-up
    start = time.perf_counter()
    losses = [[train_alone(method, standardised(states[task]), seed) for seed in SEEDS] for task in chosen]
    alone = (time.perf_counter() - start) * len(states) / len(chosen)
    difference = float((torch.tensor(losses) - fits.loss[list(chosen)]).abs().max())
    return sorted(together)[1], alone, difference


def triplet_memory(count: int) -> None:
    """Prints the peak memory of a triplet fit of one task of that many items."""
    states = [np.random.default_rng(0).normal(size=(n, WIDTH)).astype(np.float32) for n in (5, count)]
    fit_each(states[:1], "triplet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    fit_each(states[1:], "triplet", seeds=SEEDS)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"triplet, one task of N = {count}, {len(SEEDS)} seeds: {seconds:.1f} s, peak memory of the whole process "
        f"{peak / 1024:.0f} MiB, {(peak - before) / 1024:.0f} MiB above that of a task of 5 items"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--whole", action="store_true", help="run the loop on all tasks (minutes)")
    parser.add_argument("--memory", type=int, metavar="N", help="only the memory of triplet at N items")
    options = parser.parse_args()
    if options.memory:
        triplet_memory(options.memory)
        return
    generator = np.random.default_rng(0)
    single = [generator.normal(size=(n, WIDTH)).astype(np.float32) for n in SIZES]
    pair = [generator.normal(size=(n * (n - 1), 2, WIDTH)).astype(np.float32) for n in SIZES]
    every = 1 if options.whole else 6
    print(
        f"{len(SIZES)} tasks, {np.mean(SIZES):.2f} items on average, d = {WIDTH}, {len(SEEDS)} seeds, {EPOCHS} epochs, "
        f"{torch.get_num_threads()} thread(s); loop measured on 1 in {every} tasks"
    )
    print(f"{'probe':10} {'together':>10} {'loop':>10} {'ratio':>7} {'largest difference of losses':>30}")
    total = [0.0, 0.0]
    for method in METHODS:
        states = pair if OBJECTIVES[method].prompt == "pair" else single
        together, alone, difference = compare(method, states, every)
        total = [total[0] + together, total[1] + alone]
        print(
            f"{method:10} {together:8.2f} s {alone:8.1f} s {alone / together:6.1f}x {difference:30.1e}",
            flush=True,
        )
        if (
            not difference < 5e-3
        ):  # in float32 a hinge may switch a step earlier; in float64 the tests ask for 1e-9
            sys.exit(f"{method}: the two sides do not agree")
    print(f"{'all':10} {total[0]:8.2f} s {total[1]:8.1f} s {total[1] / total[0]:6.1f}x", flush=True)
    subprocess.run([sys.executable, __file__, "--memory", "100"], check=True)


if __name__ == "__main__":
    main()
