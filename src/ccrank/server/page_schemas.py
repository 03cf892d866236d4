"""The bodies of the requests that only the page makes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ccrank.server.schemas import Texts


class UnderstandBody(BaseModel):
    """A criterion as it is being typed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    by: Annotated[str, Field(min_length=1, max_length=1000, description="The criterion.")]
    category: Annotated[str | None, Field(max_length=1000, description="What the items are: country.")] = None


class QuestionBody(BaseModel):
    """A list with what is known about it so far. The server keeps no answers: every request has all of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: Annotated[Texts, Field(min_length=2, description="The texts to rank.")]
    by: Annotated[str, Field(min_length=1, description="The criterion.")]
    poles: Annotated[
        Texts | None,
        Field(min_length=2, max_length=2, description="Words for the low and the high pole."),
    ] = None
    comparative: Annotated[str | None, Field(description="How the higher item compares: larger.")] = None
    category: Annotated[str | None, Field(description="What the items are: country.")] = None
    labels: Annotated[
        dict[str, Any] | list[Any] | None, Field(description="All labels so far, as in /v1/rank.")
    ] = None
    skipped: Annotated[
        Texts | None,
        Field(description="Items that should not be asked about again."),
    ] = None
    model: Annotated[str | None, Field(description="See /v1/models; the first by default.")] = None
