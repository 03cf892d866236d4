"""Rankings for assistants: tools of the Model Context Protocol, with the bodies and the limits of the HTTP server."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from io import TextIOWrapper
from typing import Annotated, Any, get_args, get_type_hints

import anyio
import numpy as np
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, Field, ValidationError, model_validator

from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.jury import fitted
from ccrank.models.remote import OpenModel
from ccrank.scale import one_scale
from ccrank.server.responses import RequestError, explained, refusal_of
from ccrank.server.routes.about import understanding
from ccrank.server.routes.ranking import ranking_work, reranking_work
from ccrank.server.schemas import RankBody, RankResult, RerankBody, RerankReply, Texts, UnderstandBody
from ccrank.server.settings import ServerSettings
from ccrank.server.state import ServerState
from ccrank.server.work.open_models import open_readers
from ccrank.server.work.run_request import check_texts, rank_request
from ccrank.server.work.worker_pool import Ticket, Work
from ccrank.task import is_blank
from ccrank.version import __version__

SURROGATE = "\\ud"
"""What the escape of half of a character begins with."""
INSTRUCTIONS = (
    "ccrank orders a list of texts by any criterion with a small language model on this machine. Ask `understand` "
    "first if a criterion may be read in two ways. Pass on the confidence and the warnings: a low confidence means "
    "that the order should not be relied on."
)


class RankArguments(RankBody):
    """What to rank, and how much of the order is returned."""

    top: Annotated[int | None, Field(ge=1, description="Return the first items only.")] = None


class ScoreArguments(RankBody):
    """A list that makes a scale, and other texts that are put on it."""

    new: Annotated[Texts, Field(min_length=1, description="Texts to score on the scale of the items.")]


class Trust(BaseModel):
    """How likely the order is right."""

    level: Annotated[str, Field(description="high, medium or low.")]
    probability: float


class Sense(BaseModel):
    """Another meaning of a criterion; its poles can be asked for."""

    first: str
    poles: tuple[str, str]


class Meaning(BaseModel):
    """What a criterion was taken to mean."""

    first: Annotated[str, Field(description="What comes first: cheapest first.")]
    low: str
    high: str
    alternatives: Annotated[list[Sense], Field(description="What else the words may mean.")] = []

    @model_validator(mode="before")
    @classmethod
    def _named_poles(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        low, high = given["poles"]
        return {**given, "low": low, "high": high}


class ToolRanking(RankResult):
    """A ranking, best first, with its meaning."""

    understood: Meaning | None = None
    confidence: Trust | None = None


class ScoredText(BaseModel):
    """A text on the scale of a list."""

    item: str
    score: Annotated[float, Field(description="More = higher; comparable with other texts on this scale.")]
    above: Annotated[float, Field(description="The share of the list that it is above, from 0 to 1.")]


class ScoreResult(BaseModel):
    """Texts on the scale of a list, in the order in which they were given."""

    scores: list[ScoredText]
    ranking: Annotated[ToolRanking, Field(description="That of the list itself.")]


class Understanding(Meaning):
    """What a criterion is taken to mean, before anything is ranked."""

    last: str
    warning: Annotated[str | None, Field(description="Any doubt about the meaning, with a remedy.")] = None
    suggestions: Annotated[list[list[str]], Field(description="Words for the low and the high pole.")]


def rank(given: RankArguments, state: ServerState) -> Work[ToolRanking]:
    """Order a list of texts by a criterion such as size, cheapest, politeness or urgency, best first."""
    work = ranking_work(given, state)
    return lambda ticket: ToolRanking.model_validate(work(ticket).to_json(given.top))


def rerank(given: RerankBody, state: ServerState) -> Work[RerankReply]:
    """Order documents by their relevance to a query, the most relevant first."""
    return reranking_work(given, state)


def score(given: ScoreArguments, state: ServerState) -> Work[ScoreResult]:
    """Put new texts on the scale that a list makes by a criterion: their scores are comparable from call to call with
    the same list."""
    models, request = state.jury(given.model), rank_request(given, state.settings)
    check_texts(state.settings, given.new)
    if blank := [number for number, text in enumerate(given.new, start=1) if is_blank(text)]:
        raise CcrankError(f"text {blank[0]} of new is blank; leave it out")
    rows = rows_of_items(given.new)

    def work(ticket: Ticket) -> ScoreResult:
        readers = [model.reader_for(ticket) for model in models]
        scale = fitted([one_scale(request.fit(reader, ticket.progress)) for reader in readers], readers)
        assert scale.ranking is not None
        known = np.sort(scale.ranking.scores)
        values = scale.score(rows).values
        above = np.searchsorted(known, values) / len(known)
        scores = [
            ScoredText(item=item, score=float(value), above=float(share))
            for item, value, share in zip(given.new, values, above, strict=True)
        ]
        return ScoreResult(scores=scores, ranking=ToolRanking.model_validate(scale.ranking.to_json()))

    return work


def understand(given: UnderstandBody, state: ServerState) -> Work[Understanding]:
    """Say what a criterion is taken to mean and which end comes first. Reads no model, so it takes no time."""
    meaning = Understanding.model_validate(understanding(given.by, given.category))
    return lambda ticket: meaning


TOOLS: dict[str, Callable[[Any, ServerState], Work[Any]]] = {
    tool.__name__: tool for tool in (rank, rerank, score, understand)
}
"""Each checks its arguments and returns the work. Its docstring and its annotations are what assistants see."""


def create_mcp_server(
    settings: ServerSettings, readers: Mapping[str, OpenModel] | None = None
) -> Server[ServerState]:
    """The server of the tools, with its models open."""
    opened = open_readers(settings) if readers is None else readers

    @asynccontextmanager
    async def lifetime(server: Server[ServerState]) -> AsyncIterator[ServerState]:
        state = ServerState.of(settings, opened)
        try:
            yield state
        finally:
            state.stop()

    return Server(
        "ccrank",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifetime,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )


def _schemas(name: str) -> tuple[type[BaseModel], type[BaseModel]]:
    """The models of a tool's arguments and of its result."""
    hints = get_type_hints(TOOLS[name])
    return hints["given"], get_args(hints["return"])[1]


async def _list_tools(context: Any, given: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    about = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    tools = []
    for name, tool in TOOLS.items():
        arguments, result = (model.model_json_schema() for model in _schemas(name))
        words = " ".join((tool.__doc__ or "").split())
        tools.append(
            types.Tool(
                name=name, description=words, input_schema=arguments, output_schema=result, annotations=about
            )
        )
    return types.ListToolsResult(tools=tools)


async def _call_tool(context: Any, given: types.CallToolRequestParams) -> types.CallToolResult:
    """Run a tool; its work ends when the client cancels the call."""
    state: ServerState = context.lifespan_context
    try:
        result = await _result(context, state, given)
    except Exception as error:
        mistakes = "; ".join(explained(error.errors())) if isinstance(error, ValidationError) else None
        text, structured = mistakes or refusal_of(error, state.settings.log_items).message, None
    else:
        text, structured = result.model_dump_json(exclude_none=True), result.model_dump(exclude_none=True)
    content: list[Any] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=structured, is_error=structured is None)


async def _result(context: Any, state: ServerState, given: types.CallToolRequestParams) -> BaseModel:
    if given.name not in TOOLS:
        raise RequestError(404, "unknown_tool", f"no tool {given.name[:100]!r}; there are {', '.join(TOOLS)}")
    tool, (model, _) = TOOLS[given.name], _schemas(given.name)
    work = await state.admit(lambda: tool(model.model_validate(given.arguments or {}), state))
    value: Any = None
    async with aclosing(state.workers.stream(work)) as events:
        async for kind, value in events:
            if kind == "progress":
                await context.session.report_progress(value["done"], value["total"])
    assert isinstance(value, BaseModel)  # the last event is the result
    return value


class _Lines(TextIOWrapper):
    """The standard input, without lone surrogates: JSON allows them, as a text that was cut within an emoji has them,
    and the protocol's library would leave such a call without an answer."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as TextIOWrapper has it
        line = super().readline(size)
        if SURROGATE not in line.lower():
            return line
        with suppress(ValueError, RecursionError):
            line = json.dumps(json.loads(line), ensure_ascii=False) + "\n"
        return line.encode("utf-8", "replace").decode()


async def serve_stdio(server: Server[ServerState]) -> None:
    """Serve until the standard input ends."""
    stdin = anyio.wrap_file(_Lines(sys.stdin.buffer, "utf-8", "replace"))
    async with stdio_server(stdin) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
