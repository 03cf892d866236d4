"""Rankings for assistants: tools of the Model Context Protocol, with the bodies and the limits of the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, Field, ValidationError

from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.models.remote import OpenModel
from ccrank.ranking import Ranking
from ccrank.server.metrics import Metrics
from ccrank.server.responses import RequestError, explained, refusal_of
from ccrank.server.routes.page import understanding
from ccrank.server.routes.rerank import checked_texts, relevance_scores, reply_to
from ccrank.server.schemas import RankBody, RerankBody, RerankReply, Texts, UnderstandBody
from ccrank.server.settings import ServerSettings
from ccrank.server.state import ServerState
from ccrank.server.work.open_models import ServedModels, open_readers
from ccrank.server.work.run_request import RankWork, check_texts
from ccrank.server.work.worker_pool import Reports, Ticket, Workers
from ccrank.task import is_blank
from ccrank.version import __version__

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


class RankedItem(BaseModel):
    """An item with its place."""

    rank: Annotated[int, Field(description="1 = first; equal items share a rank.")]
    item: str
    score: Annotated[float, Field(description="More = higher; comparable within this list only.")]
    rank_low: Annotated[
        int | None, Field(description="The best rank of an 80 % interval, where one is known.")
    ] = None
    rank_high: Annotated[int | None, Field(description="The worst rank of it.")] = None


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


class RankResult(BaseModel):
    """A ranking, best first."""

    items: list[RankedItem]
    understood: Meaning | None = None
    directed: Annotated[bool, Field(description="False: the order may be reversed.")]
    confidence: Trust | None = None
    warnings: Annotated[list[str], Field(description="What to know before relying on the order.")]
    method: str
    model: str


class ScoredText(BaseModel):
    """A text on the scale of a list."""

    item: str
    score: Annotated[float, Field(description="More = higher; comparable with other texts on this scale.")]
    above: Annotated[float, Field(description="The share of the list that it is above, from 0 to 1.")]


class ScoreResult(BaseModel):
    """Texts on the scale of a list, in the order in which they were given."""

    scores: list[ScoredText]
    ranking: Annotated[RankResult, Field(description="That of the list itself.")]


class Understanding(Meaning):
    """What a criterion is taken to mean, before anything is ranked."""

    last: str
    warning: Annotated[str | None, Field(description="Any doubt about the meaning, with a remedy.")] = None
    suggestions: Annotated[list[list[str]], Field(description="Words for the low and the high pole.")]


Work = Callable[[Ticket, Reports], BaseModel]


@dataclass(frozen=True)
class Tool:
    """A tool: its schemas, and what makes checked work of its arguments."""

    description: str
    arguments: type[BaseModel]
    result: type[BaseModel]
    work: Callable[[Any, ServerState], Work]
    """Raises an error for arguments that the server does not take; the work itself runs in a thread."""

    def listed(self, name: str) -> types.Tool:
        """The tool as assistants see it."""
        return types.Tool(
            name=name,
            description=self.description,
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.result.model_json_schema(),
            annotations=types.ToolAnnotations(
                read_only_hint=True, idempotent_hint=True, open_world_hint=False
            ),
        )


def _rank(given: RankArguments, state: ServerState) -> Work:
    model = state.models.get(given.model)
    work = RankWork(given, state.settings)

    def run(ticket: Ticket, reports: Reports) -> RankResult:
        reader = model.reader_for(ticket)
        reports.total = work.tokens(reader)
        return _result_of(work.run(reader, reports), given.top)

    return run


def _result_of(ranking: Ranking, top: int | None = None) -> RankResult:
    found = ranking.to_json(top)
    return RankResult.model_validate({**found, "understood": _meaning(found.get("understood"))})


def _score(given: ScoreArguments, state: ServerState) -> Work:
    model = state.models.get(given.model)
    work = RankWork(given, state.settings)
    check_texts(state.settings, given.new)
    if blank := [place for place, text in enumerate(given.new, start=1) if is_blank(text)]:
        raise CcrankError(f"text {blank[0]} of new is blank; leave it out")
    rows = rows_of_items(given.new)

    def run(ticket: Ticket, reports: Reports) -> ScoreResult:
        [scale] = work.request.fit(model.reader_for(ticket), reports)
        assert scale.ranking is not None
        known = np.sort(scale.ranking.scores)
        values = scale.score(rows).values
        above = np.searchsorted(known, values) / len(known)
        scores = [
            ScoredText(item=item, score=float(value), above=float(share))
            for item, value, share in zip(given.new, values, above, strict=True)
        ]
        return ScoreResult(scores=scores, ranking=_result_of(scale.ranking))

    return run


def _meaning(understood: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What was understood, with its poles under names of their own."""
    if understood is None:
        return None
    low, high = understood["poles"]
    return {**understood, "low": low, "high": high}


def _rerank(given: RerankBody, state: ServerState) -> Work:
    model = state.models.get(given.model)
    texts = checked_texts(given, state.settings)

    def run(ticket: Ticket, reports: Reports) -> RerankReply:
        scores, cost = relevance_scores(given.query, texts, model.reader_for(ticket), reports)
        return reply_to(given, texts, scores, cost, model.name)

    return run


def _understand(given: UnderstandBody, state: ServerState) -> Work:
    return lambda ticket, reports: Understanding.model_validate(
        _meaning(understanding(given.by, given.category))
    )


TOOLS = {
    "rank": Tool(
        "Order a list of texts by a criterion such as size, cheapest, politeness or urgency, best first.",
        RankArguments,
        RankResult,
        _rank,
    ),
    "rerank": Tool(
        "Order documents by their relevance to a query, the most relevant first.",
        RerankBody,
        RerankReply,
        _rerank,
    ),
    "score": Tool(
        "Put new texts on the scale that a list makes by a criterion: their scores are comparable from call to call "
        "with the same list.",
        ScoreArguments,
        ScoreResult,
        _score,
    ),
    "understand": Tool(
        "Say what a criterion is taken to mean and which end comes first. Reads no model, so it takes no time.",
        UnderstandBody,
        Understanding,
        _understand,
    ),
}


def create_mcp_server(
    settings: ServerSettings, readers: Mapping[str, OpenModel] | None = None
) -> Server[ServerState]:
    """The server of the tools, with its models open."""
    opened = open_readers(settings) if readers is None else readers

    @asynccontextmanager
    async def lifetime(server: Server[ServerState]) -> AsyncIterator[ServerState]:
        metrics = Metrics()
        models = ServedModels(opened, settings.threads, metrics.count_pass)
        state = ServerState(settings, models, Workers(settings), metrics)
        try:
            yield state
        finally:
            state.workers.stop()
            state.models.stop()

    return Server(
        "ccrank",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifetime,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )


async def _list_tools(context: Any, given: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[tool.listed(name) for name, tool in TOOLS.items()])


async def _call_tool(context: Any, given: types.CallToolRequestParams) -> types.CallToolResult:
    """Run a tool. A client that cancels the call ends its work, as one does that leaves the HTTP server."""
    state: ServerState = context.lifespan_context
    try:
        result = await _result(context, state, given)
    except ValidationError as error:
        return _reply("; ".join(explained(error.errors())), None)
    except Exception as error:
        return _reply(refusal_of(error, state.settings.log_items).message, None)
    return _reply(result.model_dump_json(exclude_none=True), result.model_dump(exclude_none=True))


def _reply(text: str, result: dict[str, Any] | None) -> types.CallToolResult:
    content: list[Any] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=result, is_error=result is None)


async def _result(context: Any, state: ServerState, given: types.CallToolRequestParams) -> BaseModel:
    if given.name not in TOOLS:
        raise RequestError(404, "unknown_tool", f"no tool {given.name[:100]!r}; there are {', '.join(TOOLS)}")
    tool = TOOLS[given.name]
    state.workers.check_room()
    work = await state.workers.prepare(
        lambda: tool.work(tool.arguments.model_validate(given.arguments or {}), state)
    )
    value: Any = None
    async with aclosing(state.workers.stream(work)) as events:
        async for kind, value in events:
            if kind == "progress":
                await context.session.report_progress(value["done"], value["total"])
    assert isinstance(value, BaseModel)  # the last event is the result
    return value


async def serve_stdio(server: Server[ServerState]) -> None:
    """Serve until the standard input ends."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
