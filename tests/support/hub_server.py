"""A fake model hub on 127.0.0.1: enough of its protocol for `snapshot_download` and `upload_folder`."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories (name → folder) that are served, and what was asked for."""

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.asked: list[str] = []
        self.status = 200
        """Any other: the answer to every request."""
        self.revisions = {"main": COMMIT, COMMIT: COMMIT}
        """Branch, tag or commit → commit; others do not exist. All have the same files."""
        self.stated: dict[str, str] = {}
        """The hash of a file, where it is not that of its content."""
        self.breaks = ""
        """A file whose download breaks off half-way."""
        self.endpoint = ""
        self.uploads: Path | None = None
        """The folder of repositories that are created; None lets nobody create one."""

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
            commit = self.revisions.get(parts[5] if len(parts) > 5 else "main")
            if commit is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            files = sorted(path.name for path in folder.iterdir())
            if parts[4:5] == ["tree"]:
                return (
                    200,
                    {"Content-Type": "application/json"},
                    json.dumps([self._entry(folder / name) for name in files]).encode(),
                )
            about = {"id": "/".join(parts[2:4]), "sha": commit, "siblings": [{"rfilename": n} for n in files]}
            return 200, {"Content-Type": "application/json"}, json.dumps(about).encode()
        folder = self.repositories.get("/".join(parts[:2]))
        if folder is not None and parts[2:3] == ["resolve"]:
            file = folder / "/".join(parts[4:])
            commit = self.revisions.get(parts[3])
            if commit is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b""
            if file.is_file():
                body = file.read_bytes()
                return 200, {"ETag": f'"{self._hash(file, body)}"', "X-Repo-Commit": commit}, body
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
        return 404, {"X-Error-Code": "RepoNotFound"}, b""

    def take(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer to an upload; files are stored in the repository's folder."""
        self.asked.append(path)
        if self.status != 200:
            return self.status, {}, b""
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        kind = {"Content-Type": "application/json"}
        if parts == ["api", "validate-yaml"]:
            return 200, kind, b'{"errors": [], "warnings": []}'
        if parts == ["api", "repos", "create"]:
            wanted = json.loads(body)
            repo = "/".join(filter(None, (wanted.get("organization") or "me", wanted["name"])))
            if self.uploads is None:
                return 403, {}, b"{}"
            self.repositories.setdefault(repo, self.uploads / repo).mkdir(parents=True, exist_ok=True)
            return 200, kind, json.dumps({"url": f"{self.endpoint}/{repo}", "id": repo}).encode()
        if parts[:2] == ["api", "models"] and parts[4:5] == ["preupload"]:
            files = [
                {**one, "uploadMode": "regular", "shouldIgnore": False} for one in json.loads(body)["files"]
            ]
            return 200, kind, json.dumps({"files": files}).encode()
        if parts[:2] == ["api", "models"] and parts[4:5] == ["commit"]:
            repo = "/".join(parts[2:4])
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    file = self.repositories[repo] / line["value"]["path"]
                    file.write_bytes(base64.b64decode(line["value"]["content"]))
            found = {
                "commitUrl": f"{self.endpoint}/{repo}/commit/{COMMIT}",
                "commitOid": COMMIT,
                "success": True,
            }
            return 200, kind, json.dumps(found).encode()
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _hash(self, path: Path, body: bytes) -> str:
        """As a hub states it: SHA-256 for large files, which it keeps apart, and SHA-1 for the others."""
        own = hashlib.sha256(body) if path.suffix == ".safetensors" else hashlib.sha1(body)
        return self.stated.get(path.name, own.hexdigest())

    def _entry(self, path: Path) -> dict[str, object]:
        body = path.read_bytes()
        return {"type": "file", "path": path.name, "size": len(body), "oid": self._hash(path, body)}


@contextmanager
def serving(repositories: dict[str, Path]) -> Iterator[Hub]:
    """A hub at `hub.endpoint` for as long as the block runs."""
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def reply(self, with_body: bool, sent: bytes | None = None) -> None:
            status, headers, body = hub.answer(self.path) if sent is None else hub.take(self.path, sent)
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

        def do_POST(self) -> None:
            self.reply(True, self.rfile.read(int(self.headers.get("Content-Length", 0))))

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


@contextmanager
def client_of(hub: Hub, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    """`huggingface_hub` uses this hub and a cache of its own, with a new client: an old one keeps the proxies of the
    environment in which it was made."""
    import huggingface_hub
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for limit in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        monkeypatch.setattr(constants, limit, 120)  # 10 seconds are little on a busy machine
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    close = getattr(huggingface_hub, "close_session", lambda: None)
    close()
    yield
    close()
