"""The files of the pages, and the reports of studies."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

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
"""The policy of reports, which are self-contained: the sandbox separates their origin from that of the page."""
MAX_DEPTH = 3
"""Levels of folders below --reports that are searched for reports."""


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


class PageFiles(StaticFiles):
    """Files with the types in `TYPES`: the system's table may be wrong, and browsers run no script of another type."""

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
