"""`frame.ccrank.rank(by=…)` for the frames of pandas and polars: `import ccrank.frames` registers it."""

from __future__ import annotations

from functools import wraps
from importlib.util import find_spec
from inspect import signature
from typing import Any

from ccrank.api import rank
from ccrank.errors import needs_extra


class FrameAccessor:
    """What `frame.ccrank` is."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @wraps(rank)
    def rank(self, *arguments: Any, **keywords: Any) -> Any:
        return rank(self._frame, *arguments, **keywords).to_frame()

    rank.__doc__ = """The frame in ranked order, with the columns `rank` and `score` added.

    Takes all parameters of `ccrank.rank` except `items`; see also `Ranking.to_frame`.
    """
    rank.__signature__ = signature(rank).replace(return_annotation=Any)  # type: ignore[attr-defined]


if find_spec("polars") is not None:
    import polars

    polars.api.register_dataframe_namespace("ccrank")(FrameAccessor)

if find_spec("pandas") is not None or find_spec("polars") is None:
    with needs_extra("frames", "ccrank.frames"):
        import pandas

    pandas.api.extensions.register_dataframe_accessor("ccrank")(FrameAccessor)
