"""Studies: datasets, resumable experiments, results and reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccrank.study.experiment.runner import StudyReport
    from ccrank.study.experiment.study import Study


def run_study(
    study: Study | Mapping[str, Any] | str,
    out: str | Path,
    *,
    data_dir: str | Path | None = None,
    cache: str | Path | None = None,
    force_new: bool = False,
    retry: bool = False,
) -> StudyReport:
    """Run the part of a study that its folder does not contain yet, then write its table of results.

    Parameters
    ----------
    study
        The name of a preset, such as "quick"; or a table with models, datasets, methods and more, as in the TOML file
        of a study; or a `Study`.
    out
        The study's folder; what an earlier run has finished there is kept.
    data_dir
        The folder of data files; $CCRANK_DATA, or downloads, if None.
    cache
        The folder of cached readings; `out/cache` if None.
    force_new
        Move a different study that is in the folder aside.
    retry
        Repeat units with failed tasks.

    Returns
    -------
    StudyReport
        The number of units and rows, and the failures.
    """
    from ccrank.study.experiment.runner import run_study as run
    from ccrank.study.experiment.study import Study, preset

    if not isinstance(study, Study):
        study = Study.parse(preset(study) if isinstance(study, str) else study)
    return run(study, out, data_dir=data_dir, cache=cache, force_new=force_new, retry=retry)
