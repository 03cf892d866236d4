"""Loading language models by name, and the reader through which all models are read."""

from ccrank.lm.cache import ReadingCache
from ccrank.lm.loading import LoadedModel, load_model
from ccrank.lm.reader import Reader
from ccrank.lm.reader_like import ReaderLike
from ccrank.lm.reading import Cost, Readings

__all__ = ["Cost", "LoadedModel", "Reader", "ReaderLike", "ReadingCache", "Readings", "load_model"]
