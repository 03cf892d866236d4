"""The datasets and their registry. A new one is a function that reads its tasks, a line here and a card in
data/cards.toml.

>>> from ccrank.study.datasets import counts, load_dataset
>>> counts(load_dataset("synthfacts"))
(2, 6.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError, check_kind
from ccrank.study.datasets import lists, reviews, texts
from ccrank.study.datasets.dataset import Dataset, counts
from ccrank.study.datasets.locate import DataFile
from ccrank.task import Task
from ccrank.util.files import parse_toml
from ccrank.util.text import did_you_mean

__all__ = ["Dataset", "counts", "datasets", "get_dataset", "load_dataset"]

_READERS: dict[str, tuple[Callable[..., list[Task]], tuple[DataFile, ...]]] = {
    "synthfacts": (lists.read_synthfacts, ()),
    "scalaradj": (lists.read_scalaradj, (lists.RANKINGS,)),
    "wikilists": (lists.read_wikilists, (lists.WIKILISTS,)),
    "worldlists": (lists.read_worldlists, ()),
    "everyday": (lists.read_everyday, ()),
    "synthcontext": (lists.read_synthcontext, ()),
    "reviews": (reviews.read, (reviews.CLOTHING,)),
    "reviews-letters": (reviews.read_letters, (reviews.CLOTHING,)),
    "entsalience": (texts.read_entsalience, (texts.ARTICLES, texts.NAMES)),
    "cisi": (texts.read_cisi, (texts.CANDIDATES,)),
}
"""The function that reads a dataset's tasks, and the required data files."""


@cache
def datasets() -> Mapping[str, Dataset]:
    """All datasets by name: facts first, then contexts, then documents with queries."""
    cards = parse_toml(resources.files("ccrank.study.datasets") / "data" / "cards.toml")
    return {
        name: Dataset(name=name, read=read, files=files, **cards[name])
        for name, (read, files) in _READERS.items()
    }


def get_dataset(name: str) -> Dataset:
    """One dataset by name; its data is not read yet."""
    check_kind("name", name, str, "the name of a dataset")
    known = datasets()
    if name not in known:
        raise CcrankError(
            f"unknown dataset {name!r}; {did_you_mean(name, known)}choose one of {', '.join(known)}"
        )
    return known[name]


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
