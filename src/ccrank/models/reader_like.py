"""What methods need of a reader, so that they can be run, and tested, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from ccrank.lm.reader import Progress
from ccrank.lm.reading import Readings
from ccrank.prompts import Form, Prompt


class PromptTokenizerLike(Protocol):
    """Refuses prompts that the model cannot take, such as those longer than its window."""

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
