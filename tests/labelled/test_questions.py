"""Which items are asked about first."""

from __future__ import annotations

import numpy as np
import pytest

from ccrank.labelled.questions import representative


def clusters(seed=0, sizes=(12, 9, 6), width=60):
    """Kernel of items in groups of different sizes, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    states = 3 * rng.standard_normal((len(sizes), width))[group] + rng.standard_normal((len(group), width))
    return states @ states.T / width, group


def test_the_first_items_stand_for_groups_by_their_size():
    """The largest group is asked about first, then the next ones: an item tells little about what is known."""
    for seed in range(5):
        kernel, group = clusters(seed)
        known: list[int] = []
        for _ in range(3):
            left = [item for item in range(len(group)) if item not in known]
            known.append(representative(kernel, np.zeros(len(group)), known, left))
        assert group[known].tolist() == [0, 1, 2]


def test_an_outlier_does_not_stand_for_others():
    """However large its states are; and only candidates are chosen."""
    kernel, group = clusters()
    size = len(group)
    larger = np.zeros((size + 1, size + 1))
    larger[:size, :size] = kernel
    larger[size, size] = 1000 * kernel.max()
    assert representative(larger, np.zeros(size + 1), [], range(size + 1)) < size
    assert representative(larger, np.zeros(size + 1), [], [size]) == size


def test_the_label_free_score_counts():
    """Where states say nothing, an item far from the middle tells more about the weight of the label-free score."""
    prior = np.array([0.1, -0.2, 2.5, 0.3, -0.1])
    assert representative(np.eye(5), prior, [], range(5)) == 2
    assert representative(np.eye(5), prior, [2], [0, 1, 3, 4]) == pytest.approx(3)
