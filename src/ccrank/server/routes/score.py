"""POST /v1/score: items on a scale that was fitted before, and GET /v1/scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.models.remote import OpenModel
from ccrank.scale import Scale, check_model, identity_of
from ccrank.server.parsing import BodyRoute
from ccrank.server.responses import JSONReply, RequestError, json_bytes
from ccrank.server.routes.rank import ERRORS
from ccrank.server.schemas import ScoreBody
from ccrank.server.settings import ServerSettings
from ccrank.server.state import state_of
from ccrank.server.work.run_request import check_texts
from ccrank.server.work.worker_pool import Ticket

router = APIRouter(route_class=BodyRoute)
ANSWERS: dict[str, Any] = {
    "description": "The scores, in the order of the items.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["scale", "model", "items"],
                "properties": {
                    "items": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["item", "score"],
                            "properties": {
                                "item": {"type": "string"},
                                "score": {"type": "number"},
                                "deviation": {"type": "number"},
                            },
                        },
                    }
                },
            }
        }
    },
}


@dataclass(frozen=True)
class ServedScale:
    """A scale by the name that requests use."""

    name: str
    scale: Scale
    model: str
    """The served name of its model."""

    def about(self) -> dict[str, Any]:
        """What /v1/scales says of it."""
        notes = self.scale.notes
        return {
            "id": self.name,
            "object": "scale",
            "criterion": notes.criterion.to_json(),
            "method": notes.method,
            "model": self.model,
            "items": len(self.scale),
            "directed": notes.directed,
            "deviations": self.scale.gives_deviations,
            "warnings": list(notes.warnings),
        }


def open_scales(settings: ServerSettings, readers: Mapping[str, OpenModel]) -> dict[str, ServedScale]:
    """The scales of the settings, NAME=FILE each, with the served models that they were fitted on."""
    scales: dict[str, ServedScale] = {}
    for given in settings.scales:
        name, equals, file = given.partition("=")
        if not equals or not name.strip() or not file.strip():
            raise CcrankError(f"--scale {given!r}: give NAME=FILE, such as polite=politeness.scale")
        scale = Scale.load(Path(file.strip()).expanduser())
        found = [model for model, reader in readers.items() if identity_of(reader) == scale.notes.identity]
        if not found:
            raise CcrankError(
                f"--scale {given}: it was fitted on the model {scale.notes.model}, and this server has "
                f"{', '.join(readers)}; serve it with --model"
            )
        check_model(scale.notes, readers[found[0]])
        if name.strip() in scales:
            raise CcrankError(f"--scale {name.strip()} is given twice; give one of them another name")
        scales[name.strip()] = ServedScale(name.strip(), scale, found[0])
    return scales


@router.post("/v1/score", responses={200: ANSWERS, **ERRORS}, response_class=JSONReply)
async def score(request: Request, body: ScoreBody) -> Response:
    """Score items on a scale, one by one: each score depends on its item and the scale alone.

    The scales are those that `ccrank serve --scale NAME=FILE` was started with; `ccrank fit` makes them. Scales with
    labels give a standard deviation too.
    """
    state = state_of(request)
    served = _scale(state.scales, body.scale)
    model = state.models.get(served.model)
    state.workers.check_room()

    def checked() -> Any:
        check_texts(state.settings, body.items)
        return rows_of_items(body.items)

    rows = await state.workers.prepare(checked)
    state.metrics.items.labels("/v1/score").inc(len(body.items))

    def run(ticket: Ticket) -> bytes:
        found = served.scale.with_reader(model.reader_for(ticket)).score(rows)
        deviations = found.deviation if found.deviation is not None else [float("nan")] * len(found)
        items = [
            {
                "item": item,
                "score": round(float(value), 6),
                **({"deviation": round(float(deviation), 6)} if isfinite(deviation) else {}),
            }
            for item, value, deviation in zip(body.items, found.values, deviations, strict=True)
        ]
        return json_bytes({"scale": served.name, "model": model.name, "items": items})

    return Response(await state.workers.run(request, run), media_type="application/json")


@router.get("/v1/scales")
async def scales(request: Request) -> Response:
    """The scales that requests may name, the default one first."""
    found = [served.about() for served in state_of(request).scales.values()]
    return JSONReply({"object": "list", "data": found})


def _scale(scales: Mapping[str, ServedScale], name: str | None) -> ServedScale:
    if not scales:
        raise RequestError(404, "unknown_scale", "this server has no scale; start it with --scale NAME=FILE")
    if name is None:
        return next(iter(scales.values()))
    if name not in scales:
        raise RequestError(
            404, "unknown_scale", f"unknown scale {name[:100]!r}; this server has {', '.join(scales)}"
        )
    return scales[name]
