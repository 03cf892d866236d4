"""The files of the page, and the reports of studies, as responses."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

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
"""A report is self-contained and has a stricter policy of its own; in a sandbox it is a stranger to this server."""
DEEPEST = 3
"""Folders below the one of --reports in which reports are looked for."""


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


def page_of(html: Markup) -> Response:
    """A page that is made here."""
    return Response(str(html).encode(), headers=headers_for(TYPES[".html"]))


@dataclass(frozen=True)
class PageFile:
    """A file of the page in memory."""

    content: bytes
    type: str
    tag: str
    """Changes with the content."""


@cache
def page_files() -> dict[str, PageFile]:
    """The files of the page by name."""
    files = {}
    for file in resources.files("ccrank.server").joinpath("page").iterdir():
        suffix = Path(file.name).suffix
        if suffix in TYPES:
            content = file.read_bytes()
            files[file.name] = PageFile(
                content, TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            )
    return files


def page_reply(request: Request, name: str) -> Response:
    """A file of the page; 304 if the browser has it."""
    file = page_files().get(name)
    if file is None:
        raise RequestError(404, "not_found", f"the page has no file {name[:100]!r}")
    headers = {**headers_for(file.type), "ETag": file.tag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.tag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers)


def reports_in(folder: Path | None) -> dict[str, Path]:
    """The reports in a folder and the folders below it, by their paths relative to it.

    Where a name is not UTF-8, U+FFFD stands for the bytes that are not, as in the path of a request.
    """
    if folder is None:
        return {}
    candidates = (path for depth in range(DEEPEST + 1) for path in folder.glob("*/" * depth + "*.html"))
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
    rows = Markup("").join(
        Markup('<li><a href="{}">{}</a></li>').format(quote(name), name.removesuffix(".html"))
        for name in names
    )
    empty = Markup("<p>There are none. Start the server with <code>ccrank serve --reports DIR</code>.</p>")
    page = Markup(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Reports – ccrank</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="../page/page.css"></head><body><main class="plain"><div>'
        '<h1>Reports of studies</h1><ul class="reports">{}</ul>{}<p><a href="../">Back to the page</a></p>'
        "</div></main></body></html>"
    ).format(rows, Markup("") if names else empty)
    return page_of(page)
