"""/docs: the routes with their fields, and forms to try them, from the OpenAPI schema; nothing comes from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from ccrank.server.routes.page_files import page_of

EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/rank": {"items": ["Russia", "Canada", "Chad", "Monaco"], "by": "size", "category": "country"},
    "/v1/rerank": {"query": "capital of France", "documents": ["Bananas are yellow.", "Paris is in France."]},
    "/v1/score": {"items": ["Could you help me, please?"]},
    "/v1/understand": {"by": "least expensive"},
    "/v1/question": {"items": ["Russia", "Canada", "Chad", "Monaco"], "by": "size"},
}
EXAMPLES["/v2/rerank"] = EXAMPLES["/v1/rerank"]
PAGE = Markup(
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>API – ccrank</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<link rel="stylesheet" href="page/page.css"><script type="module" src="page/docs.js"></script></head>'
    '<body><main class="plain"><div><h1>ccrank {}</h1>'
    '<p>The schema of all routes: <a href="openapi.json">openapi.json</a>. <a href="./">The page</a>.</p>'
    '<p><label for="key">API key, if the server needs one</label> <input id="key" type="password"></p>{}'
    "</div></main></body></html>"
)
ROUTE = Markup("<section><h2><code>{} {}</code></h2>{}{}{}{}</section>")
FIELDS = Markup("<h3>Fields</h3><ul>{}</ul>")
FIELD = Markup("<li><code>{}</code> <span>{}{}</span> {}</li>")
STATUSES = Markup("<h3>Answers</h3><ul>{}</ul>")
STATUS = Markup("<li><code>{}</code> {}</li>")
FORM = Markup(
    '<form data-method="{}" data-path="{}"><h3>Try it</h3>{}'
    '<p><button>Send</button></p><pre aria-live="polite"></pre></form>'
)
TEXT = Markup('<textarea rows="6" spellcheck="false" aria-label="The body of the request">{}</textarea>')


def api_page(schema: Mapping[str, Any]) -> Response:
    """The page."""
    routes = Markup("").join(
        _route(path, method, about, schema)
        for path, methods in schema["paths"].items()
        for method, about in methods.items()
    )
    return page_of(PAGE.format(schema["info"]["version"], routes))


def _route(path: str, method: str, about: Mapping[str, Any], schema: Mapping[str, Any]) -> Markup:
    paragraphs = Markup("").join(
        Markup("<p>{}</p>").format(paragraph) for paragraph in about["description"].split("\n\n")
    )
    fields = Markup("").join(
        FIELD.format(name, kind, "" if needed else ", optional", description)
        for name, kind, needed, description in _fields(about, schema)
    )
    statuses = Markup("").join(
        STATUS.format(status, reply.get("description", "")) for status, reply in about["responses"].items()
    )
    body = TEXT.format(json.dumps(EXAMPLES.get(path, {}), indent=1)) if fields else ""
    return ROUTE.format(
        method.upper(),
        path,
        paragraphs,
        FIELDS.format(fields) if fields else "",
        STATUSES.format(statuses),
        FORM.format(method.upper(), path.lstrip("/"), body),
    )


def _fields(about: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, str, bool, str]]:
    """(name, type, whether it must be given, description) of each field of a route's body."""
    if "requestBody" not in about:
        return
    body = _resolved(about["requestBody"]["content"]["application/json"]["schema"], schema)
    for name, field in body["properties"].items():
        yield name, _type(field), name in body.get("required", ()), field.get("description", "")


def _resolved(given: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = given.get("$ref", "").rpartition("/")[2]
    return schema["components"]["schemas"][name] if name else given


def _type(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(found for one in field["anyOf"] if (found := _type(one)) != "null")
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}" if field.get("items") else "list"
    return str(field.get("type", "any"))
