"""What methods need of a reader, so that they can be run, and tested, without a model; and which layers they read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from ccrank.errors import CcrankError
from ccrank.models.reading import Progress, Readings
from ccrank.prompts import Form, Prompt


class PromptTokenizerLike(Protocol):
    """Refuses prompts that the model cannot take, such as longer ones than its window."""

    def encode(
        self, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]], items: bool = False
    ) -> Any:
        """See `PromptTokenizer.encode`."""


class LoadedLike(Protocol):
    """What is known of the weights."""

    @property
    def missing_head(self) -> tuple[str, ...]:
        """The tensors of the language-model head that the checkpoint lacks; empty if it has a head."""


@runtime_checkable
class ReaderLike(Protocol):
    """A `Reader`, or a stand-in for one."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def form(self) -> Form:
        """Which form of prompt the model takes."""

    @property
    def gives_states(self) -> bool:
        """Whether `read` takes layers; a server's model has candidate scores only."""

    @property
    def depth(self) -> int:
        """The number of layers."""

    @property
    def width(self) -> int:
        """The length of a hidden state."""

    @property
    def loaded(self) -> LoadedLike:
        """The model itself."""

    @property
    def prompt_tokenizer(self) -> PromptTokenizerLike:
        """Turns prompts into tokens."""

    @property
    def window(self) -> int | None:
        """The maximal input length in tokens; None if the model has no limit."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """See `Reader.count_tokens`."""

    def read(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[str] | Sequence[Sequence[str]] | None = None,
        layers: Iterable[int] | str = (),
        *,
        items: bool = False,
        log_probabilities: bool = False,
        per_token: bool = False,
        progress: Progress | None = None,
    ) -> Readings:
        """See `Reader.read`."""


class HasDepth(Protocol):
    """A model's name and its number of layers."""

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


def parse_layers(layer: str | int, model: HasDepth) -> list[int]:
    """Parse a user's choice of layers into distinct layer numbers; layer 0 is the embeddings."""
    if layer == "last":
        return [model.depth]
    if layer == "all":
        return list(range(1, model.depth + 1))
    if layer == "auto":
        return middle_and_late(model.depth)
    try:
        numbers = [int(number) for number in str(layer).split(",")]
    except ValueError:
        raise CcrankError(
            f"layer must be last, all, auto or a number from 0 to {model.depth}, not {layer!r}"
        ) from None
    return distinct_layers(numbers, model)


def distinct_layers(layers: Iterable[int], model: HasDepth) -> list[int]:
    """The distinct layers, negative numbers count from the last; a number out of range raises an error."""
    layers = list(layers)
    for layer in layers:
        if not -model.depth - 1 <= layer <= model.depth:
            raise CcrankError(
                f"there is no layer {layer}: {model.name} has 0 to {model.depth}; 0 is the embeddings"
            )
    return list(dict.fromkeys(layer % (model.depth + 1) for layer in layers))
