"""The list of datasets. A new dataset is a new file with a `DATASET`, and its name here."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path
from typing import Any

from ccrank.datasets.dataset import Dataset
from ccrank.errors import CcrankError
from ccrank.task import Task

_NAMES = (
    "synthfacts",
    "scalaradj",
    "wikilists",
    "worldlists",
    "everyday",
    "synthcontext",
    "reviews",
    "reviews-letters",
    "entsalience",
    "cisi",
)


def datasets() -> dict[str, Dataset]:
    """All datasets by name: facts first, then contexts, then documents with queries."""
    return {name: get_dataset(name) for name in _NAMES}


def get_dataset(name: str) -> Dataset:
    """One dataset by name; its data is not read yet."""
    if name not in _NAMES:
        close = difflib.get_close_matches(str(name).lower(), _NAMES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise CcrankError(f"unknown dataset {name!r}; {hint}choose one of {', '.join(_NAMES)}")
    dataset: Dataset = import_module(f"ccrank.datasets.{name.replace('-', '_')}").DATASET
    return dataset


def load_dataset(name: str, data_dir: str | Path | None = None, **options: Any) -> list[Task]:
    """The tasks of a dataset, with their gold.

    Parameters
    ----------
    name
        The name of the dataset (`ccrank data list`).
    data_dir
        The folder of the data files; by default CCRANK_DATA, then the cache, into which missing files are downloaded.
    **options
        Options of the dataset, see `get_dataset(name).options`.
    """
    return get_dataset(name).load(data_dir, **options)
