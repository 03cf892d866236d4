"""The jury of a study's models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ccrank.errors import CcrankError
from ccrank.io.taskfiles import read_tasks
from ccrank.jury import Verdict, combined
from ccrank.models import Reader
from ccrank.request import RankRequest
from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import Study
from ccrank.study.results.load import load_results


def test_a_jury_is_one_more_model(
    task_files: tuple[str, str], tmp_path: Path, open_tiny: Callable[[str], Reader]
) -> None:
    """Its scores are those of the members' rankings joined, also when it is added to a finished study; probes have
    none."""
    study = Study(("llama", "gpt2"), task_files[:1], ("poles", "pca"), jury=True)
    run_study(Study(study.models, study.datasets, study.methods), tmp_path / "out", open_reader=open_tiny)
    before = load_results(tmp_path / "out")
    run_study(study, tmp_path / "out", open_reader=open_tiny)
    frame = load_results(tmp_path / "out")
    assert set(before["model"]) == {"llama", "gpt2"}
    rows = frame[frame["model"] == "llama,gpt2"]
    assert set(rows["method"]) == {"poles"}
    request = RankRequest(items=tuple(read_tasks(task_files[0])), method="poles")
    expected = combined([Verdict.of(request.run(open_tiny(name)), open_tiny(name)) for name in study.models])
    assert len(rows) == len(expected)
    for row, ranking in zip(rows.itertuples(), expected, strict=True):
        np.testing.assert_allclose(row.scores, ranking.scores, atol=1e-9)
        assert row.consistency == pytest.approx(ranking.consistency["models_agree"])


def test_one_model_has_no_jury() -> None:
    """Nor have methods without a direction; both are said before anything is read."""
    for models, methods in ((("llama",), ("poles",)), (("llama", "gpt2"), ("pca",))):
        with pytest.raises(CcrankError, match="a jury needs two or more models"):
            Study(models, ("everyday",), methods, jury=True)
