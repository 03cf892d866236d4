"""Opening a known model without `transformers`, whose import takes longer than ranking a short list."""

from ccrank.lm.light.prepared import open_prepared, prepare

__all__ = ["open_prepared", "prepare"]
