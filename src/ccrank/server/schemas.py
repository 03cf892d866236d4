"""The bodies of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_OPTIONS = 50


def _few(given: Any) -> Any:
    """At most `MAX_OPTIONS` entries, since each wrong one makes several errors."""
    if isinstance(given, dict) and len(given) > MAX_OPTIONS:
        raise ValueError(f"{len(given):,} options; a method has a few")
    return given


Texts = Annotated[list[str], Field(fail_fast=True)]
"""One error is enough: there could be millions."""
Value = str | int | float | bool | None


class ListBody(BaseModel):
    """A list with the words of a criterion, and what is known about its items."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: Annotated[Texts, Field(min_length=2, description="The texts to rank; equal ones are tied.")]
    poles: Annotated[
        Texts | None,
        Field(min_length=2, max_length=2, description="Words for the low and the high pole."),
    ] = None
    comparative: Annotated[str | None, Field(description="How the higher item compares: larger.")] = None
    category: Annotated[str | None, Field(description="What the items are: country.")] = None
    labels: Annotated[
        dict[str, Any] | list[Any] | None,
        Field(
            description="A few labels: item → value, with the keys best, worst, ranks, orders, equal, unknown and "
            "moves; or a list of orders, highest first."
        ),
    ] = None
    model: Annotated[str | None, Field(description="See /v1/models; the first by default.")] = None


class RankBody(ListBody):
    """What to rank, as `ccrank.rank` takes it."""

    model: Annotated[
        str | None,
        Field(
            description="See /v1/models; the first by default. Several with commas between them are a jury."
        ),
    ] = None
    by: Annotated[
        str | None, Field(min_length=1, description="The criterion: size, cheapest, least risky …")
    ] = None
    query: Annotated[
        str | None,
        Field(min_length=1, description="In place of a criterion: what documents are relevant to."),
    ] = None
    context: Annotated[str | None, Field(description="A text that the items are about.")] = None
    method: Annotated[str | None, Field(description="See /v1/methods.")] = None
    options: Annotated[
        dict[str, Value] | None, BeforeValidator(_few), Field(description="The method's own options.")
    ] = None


class StreamBody(RankBody):
    """What to rank, and how the answer comes."""

    stream: Annotated[bool, Field(description="Answer with server-sent events: progress, then result.")] = (
        False
    )
    partial: Annotated[
        bool,
        Field(
            description="In a stream: read the list in steps, with events `partial` that hold the scores so far."
        ),
    ] = False


class QuestionBody(ListBody):
    """A list with all answers so far, since the server keeps none."""

    by: Annotated[str, Field(min_length=1, description="The criterion.")]


class UnderstandBody(BaseModel):
    """A criterion as it is being typed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    by: Annotated[str, Field(min_length=1, max_length=1000, description="The criterion.")]
    category: Annotated[str | None, Field(max_length=1000, description="What the items are: country.")] = None


class ScoreBody(BaseModel):
    """Items to score on a scale."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: Annotated[Texts, Field(min_length=1, description="The texts to score; one is enough.")]
    scale: Annotated[str | None, Field(description="See /v1/scales; the first by default.")] = None


class Document(BaseModel):
    """A document to rerank; further fields are ignored."""

    model_config = ConfigDict(strict=True)

    text: str


class RerankBody(BaseModel):
    """Documents to rerank by their relevance to a query, in the form of Cohere's and Jina's APIs.

    Fields of these APIs that have no meaning here are ignored.
    """

    model_config = ConfigDict(strict=True)

    model: Annotated[str | None, Field(description="See /v1/models; the first by default.")] = None
    query: Annotated[str, Field(min_length=1, description="A question or keywords.")]
    documents: Annotated[
        list[str | Document],
        Field(fail_fast=True, min_length=1, description="Texts, or objects with a text."),
    ]
    top_n: Annotated[int | None, Field(ge=1, description="Maximum number of results.")] = None
    return_documents: Annotated[bool, Field(description="Whether results repeat the documents.")] = False


class RankedItem(BaseModel):
    """An item with its place."""

    rank: Annotated[int, Field(description="1 = first; equal items share a rank.")]
    item: str
    score: Annotated[float, Field(description="More = higher; comparable within this list only.")]
    deviation: Annotated[float | None, Field(description="Of the score, where it is known.")] = None
    rank_low: Annotated[
        int | None, Field(description="The best rank of an 80 % interval, where one is known.")
    ] = None
    rank_high: Annotated[int | None, Field(description="The worst rank of it.")] = None


class RankResult(BaseModel):
    """A ranking, best first."""

    items: list[RankedItem]
    directed: Annotated[bool, Field(description="False: the order may be reversed.")]
    warnings: Annotated[list[str], Field(description="What to know before relying on the order.")]
    method: str
    model: str


class RankReply(RankResult):
    """A ranking, best first, as JSON has it."""

    task: str
    criterion: dict[str, Any]


class ScoredItem(BaseModel):
    """An item on a scale."""

    item: str
    score: float
    deviation: Annotated[float | None, Field(description="Of the score, where the scale knows it.")] = None


class ScoreReply(BaseModel):
    """Items on a scale, in their order."""

    scale: str
    model: str
    items: list[ScoredItem]


class RerankResult(BaseModel):
    """One document of a reranking."""

    index: Annotated[int, Field(description="The place of the document in the request, from 0.")]
    relevance_score: Annotated[float, Field(description="From 0 to 1; 0.5 is neutral.")]
    document: Document | None = None


class RerankReply(BaseModel):
    """A reranking, the most relevant document first, in the form of Cohere's and Jina's APIs."""

    id: str
    object: str = "list"
    model: str
    results: list[RerankResult]
    meta: dict[str, Any]
    usage: dict[str, int]


class ErrorContent(BaseModel):
    """What went wrong."""

    type: Annotated[str, Field(description="A word for programs, such as too_many_items.")]
    message: Annotated[str, Field(description="For people: the offending value and the remedy.")]


class ErrorReply(BaseModel):
    """The answer to a request that was refused."""

    error: ErrorContent
    detail: Annotated[str, Field(description="The message again, where clients of Jina's API look for it.")]
