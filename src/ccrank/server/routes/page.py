"""The page at /, and what only it asks for: what a criterion means, and the question that teaches most."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ccrank.criteria import criterion_of
from ccrank.criteria.lexicon import poles_of
from ccrank.server.parsing import BodyRoute
from ccrank.server.responses import JSONReply, json_bytes
from ccrank.server.routes.api_page import api_page
from ccrank.server.routes.page_files import page_reply, report_index, report_reply, reports_in
from ccrank.server.routes.rank import ERRORS
from ccrank.server.schemas import QuestionBody, UnderstandBody
from ccrank.server.state import ServerState, state_of
from ccrank.server.work.active_labels import TeachWork
from ccrank.server.work.worker_pool import Ticket
from ccrank.version import __version__

router = APIRouter(route_class=BodyRoute)


@router.get("/", include_in_schema=False)
def page(request: Request) -> Response:
    """The page."""
    return page_reply(request, "index.html")


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> Response:
    """The routes, with forms to try them."""
    return api_page(request.app.openapi())


@router.get("/page/{name}", include_in_schema=False)
def page_file(request: Request, name: str) -> Response:
    """Its scripts and styles."""
    return page_reply(request, name)


@router.get("/reports/", include_in_schema=False)
def reports(request: Request) -> Response:
    """The reports of studies."""
    return report_index(_folder(state_of(request)))


@router.get("/reports/{name:path}", include_in_schema=False)
def report(request: Request, name: str) -> Response:
    """A study's report."""
    return report_reply(_folder(state_of(request)), name)


def _folder(state: ServerState) -> Path | None:
    """The folder of reports. A browser opens them without a key, so that a server with keys shows none."""
    settings = state.settings
    return None if settings.reports is None or settings.keys else Path(settings.reports)


@router.get("/v1/page", include_in_schema=False)
def about(request: Request) -> Response:
    """What the page shows of the server."""
    return JSONReply({"version": __version__, "reports": len(reports_in(_folder(state_of(request))))})


@router.post("/v1/understand", responses=ERRORS)
def understand(body: UnderstandBody) -> Response:
    """What a criterion is taken to mean, with words for its poles. No model is asked."""
    return JSONReply(understanding(body.by, body.category))


def understanding(phrase: str, category: str | None) -> Mapping[str, Any]:
    """What a phrase means: the JSON of `Understood`, any doubt about it, and pairs of words for the poles."""
    criterion = criterion_of(phrase, category=category)
    meaning = criterion.understood
    assert meaning is not None
    words = poles_of(criterion)
    low, high = meaning.poles
    senses = (sense.poles for sense in meaning.alternatives)
    pairs = [(low, high), *senses, *zip(words.low, words.high, strict=False)]
    return {
        **meaning.to_json(),
        "name": meaning.name,
        "last": meaning.last,
        "warning": meaning.warning,
        "suggestions": [list(pair) for pair in dict.fromkeys(pairs)],
    }


@router.post("/v1/question", responses=ERRORS)
async def question(request: Request, body: QuestionBody) -> Response:
    """The two items whose order would teach most, and the ranking that the labels so far give.

    The server keeps no answers: each request has all labels. It does keep what it read of the last few lists, so that
    only the first question of a list takes time. `question` is null if there is nothing left to ask.
    """
    state = state_of(request)
    model = state.models.get(body.model)
    state.workers.check_room()
    work = await state.workers.prepare(lambda: TeachWork(body, state.settings))

    def run(ticket: Ticket) -> bytes:
        return json_bytes(work.run(model.reader_for(ticket), model.name, state.lists))

    return Response(await state.workers.run(request, run), media_type="application/json")
