"""The comparison with other libraries: wrong numbers end it before any time is printed."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import load_benchmark

OURS = np.array([[-1.0, -2.0], [-3.0, -2.5], [-0.5, -4.0], [-2.0, -1.0]])


def test_equal_numbers_pass() -> None:
    """Rounding errors pass and are stated; a large number may differ by a thousandth of itself."""
    script = load_benchmark("peers")
    assert script.check_agreement("peer", OURS + 2e-4, OURS).endswith("e-04")
    assert script.check_agreement("peer", 1000 * OURS + 0.2, 1000 * OURS).endswith("e-04")


@pytest.mark.parametrize(
    "found",
    [OURS + 5e-3, OURS[:, ::-1], np.where(OURS == -4.0, np.nan, OURS), OURS[:3], OURS[:, :1]],
    ids=["too far", "candidates swapped", "NaN", "a prompt is missing", "a candidate is missing"],
)
def test_wrong_numbers_are_refused(found: np.ndarray) -> None:
    """Numbers that differ, are not numbers or are too few end the program, with the name of the library."""
    with pytest.raises(SystemExit, match="peer"):
        load_benchmark("peers").check_agreement("peer", found, OURS)


def test_answers_of_a_quantized_model_are_compared_by_share() -> None:
    """Answers pass if most are equal; an answer that is not known counts as different."""
    script = load_benchmark("peers")
    assert script.check_agreement("peer", np.array([1.0, 0.0, 1.0, 0.0]), OURS) == "100% equal"
    for wrong in (0.0, np.nan):
        with pytest.raises(SystemExit, match="75% of the answers of peer"):
            script.check_agreement("peer", np.array([1.0, 0.0, wrong, 0.0]), OURS)
