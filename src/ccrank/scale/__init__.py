"""A scale: fitted once, saved, and applied to any item."""

from ccrank.scale.scale import AT_A_TIME, Scale, one_scale
from ccrank.scale.stored import (
    Known,
    Notes,
    Saved,
    cannot_score,
    check_model,
    digest,
    identity_of,
    model_to_open,
)

__all__ = [
    "AT_A_TIME",
    "Known",
    "Notes",
    "Saved",
    "Scale",
    "cannot_score",
    "check_model",
    "digest",
    "identity_of",
    "model_to_open",
    "one_scale",
]
