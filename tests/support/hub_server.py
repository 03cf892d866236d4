"""A fake model hub on 127.0.0.1: enough of its protocol for `snapshot_download`."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories (name → folder) that are served, and what was asked for."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.asked: list[str] = []
        self.status = 200
        """Any other: the answer to every request."""
        self.breaks = ""
        """A file whose download breaks off half-way."""
        self.endpoint = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a path."""
        self.asked.append(path)
        if self.status != 200:
            return self.status, {}, b""
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"] and parts[4:5] in ([], ["revision"], ["tree"]):
            folder = self.repositories.get("/".join(parts[2:4]))
            if folder is None:
                return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
            files = sorted(path.name for path in folder.iterdir())
            if parts[4:5] == ["tree"]:
                return (
                    200,
                    {"Content-Type": "application/json"},
                    json.dumps([self._entry(folder / name) for name in files]).encode(),
                )
            about = {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
            return 200, {"Content-Type": "application/json"}, json.dumps(about).encode()
        folder = self.repositories.get("/".join(parts[:2]))
        if folder is not None and parts[2:3] == ["resolve"]:
            file = folder / "/".join(parts[4:])
            if file.is_file():
                body = file.read_bytes()
                digest = hashlib.sha1(body).hexdigest()
                return 200, {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT}, body
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        return 404, {"X-Error-Code": "RepoNotFound"}, b""

    @staticmethod
    def _entry(path: Path) -> dict[str, object]:
        body = path.read_bytes()
        digest = hashlib.sha1(body).hexdigest()
        return {"type": "file", "path": path.name, "size": len(body), "oid": digest}


@contextmanager
def serving(repositories: dict[str, Path]) -> Iterator[Hub]:
    """A hub at `hub.endpoint` for as long as the block runs."""
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def reply(self, with_body: bool) -> None:
            status, headers, body = hub.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not with_body:
                return
            if hub.breaks and self.path.endswith(hub.breaks):
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                return
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.reply(True)

        def do_HEAD(self) -> None:
            self.reply(False)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
