"""`frame.ccrank.rank(by=…)` for the frames of pandas and polars: `import ccrank.frames` registers it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from inspect import signature
from typing import Any, Concatenate, ParamSpec

from ccrank.api import rank
from ccrank.errors import needs_extra
from ccrank.ranking import Ranking

P = ParamSpec("P")


def _of_frame(
    function: Callable[Concatenate[Any, P], Ranking],
) -> Callable[Concatenate[FrameAccessor, P], Any]:
    """A function of items as a method that takes the accessor's frame and returns one, with the same parameters."""

    @wraps(function)
    def method(self: FrameAccessor, /, *arguments: P.args, **keywords: P.kwargs) -> Any:
        return function(self._frame, *arguments, **keywords).to_frame()

    method.__doc__ = """The frame in ranked order, with the columns `rank` and `score` added.

    Takes all parameters of `ccrank.rank` except `items`; see also `Ranking.to_frame`.
    """
    method.__signature__ = signature(function).replace(return_annotation=Any)  # type: ignore[attr-defined]
    return method


class FrameAccessor:
    """What `frame.ccrank` is."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    rank = _of_frame(rank)


if find_spec("polars") is not None:
    import polars

    polars.api.register_dataframe_namespace("ccrank")(FrameAccessor)

if find_spec("pandas") is not None or find_spec("polars") is None:
    with needs_extra("frames", "ccrank.frames"):
        import pandas

    pandas.api.extensions.register_dataframe_accessor("ccrank")(FrameAccessor)
