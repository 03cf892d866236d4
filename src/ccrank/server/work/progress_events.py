"""What a thread says of its work while it runs."""

from __future__ import annotations

from collections.abc import Mapping


class Reports:
    """Tokens and scores so far; the event loop looks at them from time to time."""

    def __init__(self) -> None:
        self.tokens = 0
        """Tokens read so far."""
        self.total: int | None = None
        """About how many will be read, where that is known."""
        self.scores: Mapping[str, float] | None = None
        """Scores of the items read so far, where they were asked for."""

    def __call__(self, tokens: int) -> None:
        self.tokens += tokens

    def progress(self) -> dict[str, int | None]:
        """How far the work is."""
        total = None if self.total is None else max(self.total, self.tokens)
        return {"done": self.tokens, "total": total}

    def partial(self, scores: Mapping[str, float]) -> None:
        """Take the scores so far."""
        self.scores = scores
