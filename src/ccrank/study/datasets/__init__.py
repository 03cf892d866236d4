"""The datasets and their registry. A new dataset is a new file, a line here and its card in data/cards.toml.

>>> from ccrank.study.datasets import counts, load_dataset
>>> counts(load_dataset("synthfacts"))
(2, 6.0)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError, check_kind
from ccrank.study.datasets import cisi, entsalience, packaged, reviews, scalaradj, wikilists
from ccrank.study.datasets.dataset import Dataset, counts
from ccrank.study.datasets.locate import DataFile, DataFolder
from ccrank.task import Task
from ccrank.util.files import parse_toml
from ccrank.util.text import did_you_mean

__all__ = ["Dataset", "counts", "datasets", "get_dataset", "load_dataset"]

_READERS: dict[str, tuple[Callable[..., list[Task]], tuple[DataFile | DataFolder, ...]]] = {
    "synthfacts": (packaged.read_synthfacts, ()),
    "scalaradj": (scalaradj.read, (scalaradj.RANKINGS,)),
    "wikilists": (wikilists.read, (wikilists.LISTS,)),
    "worldlists": (packaged.read_worldlists, ()),
    "everyday": (packaged.read_everyday, ()),
    "synthcontext": (packaged.read_synthcontext, ()),
    "reviews": (reviews.read, (reviews.CLOTHING,)),
    "reviews-letters": (reviews.read_letters, (reviews.CLOTHING,)),
    "entsalience": (entsalience.read, (entsalience.ARTICLES, entsalience.NAMES)),
    "cisi": (cisi.read, (cisi.CANDIDATES,)),
}
"""The function that reads a dataset's tasks, and the required data files."""


def datasets() -> dict[str, Dataset]:
    """All datasets by name: facts first, then contexts, then documents with queries."""
    return dict(_datasets())


@lru_cache
def _datasets() -> dict[str, Dataset]:
    cards = parse_toml(resources.files("ccrank.study.datasets") / "data" / "cards.toml")
    return {
        name: Dataset(name=name, read=read, files=files, **cards[name])
        for name, (read, files) in _READERS.items()
    }


def get_dataset(name: str) -> Dataset:
    """One dataset by name; its data is not read yet."""
    check_kind("name", name, str, "the name of a dataset")
    if name not in _READERS:
        raise CcrankError(
            f"unknown dataset {name!r}; {did_you_mean(name, _READERS)}choose one of {', '.join(_READERS)}"
        )
    return _datasets()[name]


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
    check_kind("data_dir", data_dir, (str, Path, type(None)), "a folder")
    return get_dataset(name).load(data_dir, **options)
