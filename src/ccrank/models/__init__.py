"""Loading language models by name, and the reader through which all models are read."""

from ccrank.models.cache.store import ReadingCache
from ccrank.models.load.loading import LoadedModel, load_model
from ccrank.models.reader import Reader
from ccrank.models.reader_like import ReaderLike
from ccrank.models.reading import Cost, Readings

__all__ = ["Cost", "LoadedModel", "Reader", "ReaderLike", "ReadingCache", "Readings", "load_model"]
