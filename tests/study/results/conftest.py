"""A synthetic table of results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from synthetic_study import make_results, make_tasks


@pytest.fixture(scope="session")
def results() -> pd.DataFrame:
    """Three tasks of each dataset, three seeds, two layers."""
    tasks = make_tasks(np.random.default_rng(1), per_dataset=3)
    return make_results(np.random.default_rng(2), tasks, seeds=3, layers=(4, 20))
