"""The datasets, one per file, and their registry.

>>> from ccrank.datasets import counts, load_dataset
>>> counts(load_dataset("synthfacts"))
(2, 6.0)
"""

from ccrank.datasets.dataset import Dataset, counts
from ccrank.datasets.registry import datasets, get_dataset, load_dataset

__all__ = ["Dataset", "counts", "datasets", "get_dataset", "load_dataset"]
