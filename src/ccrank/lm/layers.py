"""Which layers of a model to read."""

from __future__ import annotations

from typing import Protocol

from ccrank.errors import CcrankError


class Depth(Protocol):
    """The model attributes that choosing layers needs: its name and its number of layers."""

    @property
    def name(self) -> str: ...

    @property
    def depth(self) -> int: ...


def middle_and_late(depth: int) -> list[int]:
    """Every other layer from a third of the depth upwards: the layers that represent meaning, at half the memory.

    >>> middle_and_late(12)
    [4, 6, 8, 10, 12]
    """
    return list(range(depth, depth // 3 - 1, -2))[::-1]


def parse_layers(layer: str | int, model: Depth) -> list[int]:
    """Parse a user's choice of layers into distinct layer numbers; layer 0 is the embeddings.

    Parameters
    ----------
    layer
        "last", "all", "auto" (every other middle and late layer), a number, or several numbers separated by commas.
        Negative numbers count from the last layer.
    model
        A reader, or any object with a `name` and a `depth`.
    """
    if layer == "last":
        return [model.depth]
    if layer == "all":
        return list(range(1, model.depth + 1))
    if layer == "auto":
        return middle_and_late(model.depth)
    try:
        numbers = [int(one) for one in str(layer).split(",")]
    except ValueError:
        raise CcrankError(
            f"layer must be last, all, auto or a number from 0 to {model.depth}, not {layer!r}"
        ) from None
    for number in numbers:
        if not -model.depth - 1 <= number <= model.depth:
            raise CcrankError(f"there is no layer {number}: {model.name} has 0 to {model.depth}")
    return list(dict.fromkeys(number % (model.depth + 1) for number in numbers))
