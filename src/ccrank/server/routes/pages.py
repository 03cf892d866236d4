"""Pages as responses: the files of the page, the reports of studies, and /docs with forms to try the routes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from ccrank.server.responses import RequestError

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the page may do: its own scripts and styles, requests to its own server, and no HTML from texts."""
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A report is self-contained and has a stricter policy of its own; the sandbox gives it an origin of its own."""
MAX_DEPTH = 3
"""Levels of folders below --reports that are searched for reports."""
EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/rank": {"items": ["Russia", "Canada", "Chad", "Monaco"], "by": "size", "category": "country"},
    "/v1/rerank": {"query": "capital of France", "documents": ["Bananas are yellow.", "Paris is in France."]},
    "/v1/score": {"items": ["Could you help me, please?"]},
    "/v1/understand": {"by": "least expensive"},
    "/v1/question": {"items": ["Russia", "Canada", "Chad", "Monaco"], "by": "size"},
}
EXAMPLES["/v2/rerank"] = EXAMPLES["/v1/rerank"]
DOCUMENT = Markup(
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} – ccrank</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<link rel="stylesheet" href="{root}page/page.css"></head>'
    '<body><main class="plain"><div>{content}</div></main></body></html>'
)
REPORTS = Markup(
    '<h1>Reports of studies</h1><ul class="reports">{}</ul>{}<p><a href="../">Back to the page</a></p>'
)
API = Markup(
    '<script type="module" src="page/docs.js"></script><h1>ccrank {}</h1>'
    '<p>The schema of all routes: <a href="openapi.json">openapi.json</a>. <a href="./">The page</a>.</p>'
    '<p><label for="key">API key, if the server needs one</label> <input id="key" type="password"></p>{}'
)
ROUTE = Markup(
    "<section><h2><code>{} {}</code></h2>{}{}<h3>Answers</h3><ul>{}</ul>"
    '<form data-method="{}" data-path="{}"><h3>Try it</h3>{}'
    '<p><button>Send</button></p><pre aria-live="polite"></pre></form></section>'
)
FIELDS = Markup("<h3>Fields</h3><ul>{}</ul>")
FIELD = Markup("<li><code>{}</code> <span>{}{}</span> {}</li>")
STATUS = Markup("<li><code>{}</code> {}</li>")
TEXT = Markup('<textarea rows="6" spellcheck="false" aria-label="The body of the request">{}</textarea>')


def headers_for(kind: str, policy: str = POLICY) -> dict[str, str]:
    """The headers of a file of this type, which the browser asks for each time: names do not change with contents."""
    return {
        "Content-Type": kind,
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def _document(title: str, root: str, content: Markup) -> Response:
    page = DOCUMENT.format(title=title, root=root, content=content)
    return Response(str(page).encode(), headers=headers_for(TYPES[".html"]))


def _each(template: Markup, rows: Iterable[Sequence[object]]) -> Markup:
    return Markup("").join(template.format(*row) for row in rows)


class PageFiles(StaticFiles):
    """Files with types of their own: those of the system may be wrong, and browsers run no script of another type."""

    def file_response(self, full_path: Any, *arguments: Any) -> Response:
        """A file, or 304 if the browser has it."""
        response = super().file_response(full_path, *arguments)
        response.headers.update(headers_for(TYPES[Path(full_path).suffix]))
        return response


@cache
def page_files() -> PageFiles:
    """The files of the page."""
    return PageFiles(packages=[("ccrank.server", "page")])


def reports_in(folder: Path | None) -> dict[str, Path]:
    """The reports in a folder and the folders below it, by their paths relative to it.

    Where a name is not UTF-8, U+FFFD stands for the bytes that are not, as in the path of a request.
    """
    if folder is None:
        return {}
    candidates = (path for depth in range(MAX_DEPTH + 1) for path in folder.glob("*/" * depth + "*.html"))
    paths = sorted(path for path in candidates if _inside(path, folder) and path.is_file())
    return {
        os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "replace"): path for path in paths
    }


def _inside(path: Path, folder: Path) -> bool:
    """Whether a path stays in the folder when links are followed."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that lead to each other
        return False


def report_reply(folder: Path | None, name: str) -> Response:
    """One report. Only names that the list of reports has can be opened."""
    path = reports_in(folder).get(name)
    try:
        content = None if path is None else path.read_bytes()
    except OSError:  # it was removed meanwhile, or may not be read
        content = None
    if content is None:
        raise RequestError(404, "not_found", "there is no such report; /reports/ lists them")
    return Response(content, headers=headers_for(TYPES[".html"], REPORT_POLICY))


def report_index(folder: Path | None) -> Response:
    """A page with links to all reports."""
    names = [*reports_in(folder)]
    link = Markup('<li><a href="{}">{}</a></li>')
    rows = _each(link, ((quote(name), name.removesuffix(".html")) for name in names))
    empty = Markup("<p>There are none. Start the server with <code>ccrank serve --reports DIR</code>.</p>")
    return _document("Reports", "../", REPORTS.format(rows, "" if names else empty))


def api_page(schema: Mapping[str, Any]) -> Response:
    """/docs: the routes with their fields, from the OpenAPI schema and without files from elsewhere."""
    routes = Markup("").join(
        _route(path, method.upper(), about, schema)
        for path, methods in schema["paths"].items()
        for method, about in methods.items()
    )
    return _document("API", "", API.format(schema["info"]["version"], routes))


def _route(path: str, method: str, about: Mapping[str, Any], schema: Mapping[str, Any]) -> Markup:
    paragraphs = _each(Markup("<p>{}</p>"), ((text,) for text in about["description"].split("\n\n")))
    statuses = ((status, reply.get("description", "")) for status, reply in about["responses"].items())
    fields = _each(FIELD, _fields(about, schema))
    body = TEXT.format(json.dumps(EXAMPLES.get(path, {}), indent=1)) if fields else ""
    fields = FIELDS.format(fields) if fields else fields
    return ROUTE.format(
        method, path, paragraphs, fields, _each(STATUS, statuses), method, path.lstrip("/"), body
    )


def _fields(about: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(name, type, whether it may be left out, description) of each field of a route's body."""
    if "requestBody" not in about:
        return
    reference = about["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    body = schema["components"]["schemas"][reference.rpartition("/")[2]]
    for name, field in body["properties"].items():
        optional = "" if name in body.get("required", ()) else ", optional"
        yield name, _type(field), optional, field.get("description", "")


def _type(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(kind for kind in map(_type, field["anyOf"]) if kind != "null")
    if "$ref" in field:
        return str(field["$ref"].rpartition("/")[2])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}" if field.get("items") else "list"
    return str(field.get("type", "any"))
