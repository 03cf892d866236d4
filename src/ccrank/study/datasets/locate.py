"""Locating the files of a dataset: a folder of the user, the cache, or a download into the cache.

If a folder is given, only that folder is searched; otherwise the folder in the variable CCRANK_DATA, then the cache
(`data` inside CCRANK_CACHE, or inside ~/.cache/ccrank). A file found in neither is downloaded once from its public
source and moved to the cache only after its checksum has been verified.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from zipfile import BadZipFile

from rich.console import Console
from rich.progress import Progress

from ccrank.errors import CcrankError
from ccrank.util.files import cache_folder, expanded

TIMEOUT_SECONDS = 30.0
_WEB_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)
"""The handlers of `urlopen` without ftp, file and data: a redirect cannot leave the web."""
_DOWNLOAD_ERRORS = (CcrankError, OSError, HTTPException, BadZipFile, TarError, zlib.error, EOFError)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a dataset, or a folder of many small ones."""

    path: str
    """Its path in the data folder, with forward slashes."""
    url: str
    """Where it is published: the file itself, a zip that contains it, or a tar.gz of the files of a folder."""
    sha256: str | None
    """Its checksum, of a folder `digest_of` its files; without one it is never downloaded, only read from the data
    folder."""
    zipped: str | None = None
    """If `url` is a zip: the end of the file's name in it."""
    other_names: tuple[str, ...] = ()
    """Other accepted names in the same folder."""
    members: str = ""
    """Of a folder: a pattern for the names of its files in the archive; group 1 is the path inside the folder."""
    holds: str = ""
    """Of a folder: a glob for the same files inside it."""

    def at(self, path: Path) -> bool:
        """Whether it is at a path; an empty folder is not."""
        return any(path.glob(self.holds)) if self.holds else path.is_file()


def data_cache() -> Path:
    """The folder of downloaded data."""
    return cache_folder("data")


def locate(wanted: DataFile, data_dir: str | Path | None = None) -> Path:
    """The path of a file or folder of a dataset, downloaded if necessary."""
    if (existing := find(wanted, data_dir)) is not None:
        return existing
    target = (data_cache() if data_dir is None else Path(data_dir)) / wanted.path
    remedy = (
        f"put it at {target}, or set CCRANK_DATA to a folder that contains {wanted.path}; it is published at "
        f"{wanted.url}"
    )
    if data_dir is not None:
        raise CcrankError(f"there is no {target}; {remedy}")
    if wanted.sha256 is None:
        raise CcrankError(f"{wanted.path} is not available; {remedy}")
    try:
        _store(wanted, _verified(wanted, _fetch(wanted.url)), target)
    except _DOWNLOAD_ERRORS as error:
        # An HTTPError contains its code and reason; any other URLError wraps the cause.
        is_status = isinstance(error, urllib.error.HTTPError)
        cause = error if is_status else getattr(error, "reason", None) or error
        raise CcrankError(f"cannot download {wanted.path} from {wanted.url}: {cause}; {remedy}") from None
    return target


def find(wanted: DataFile, data_dir: str | Path | None = None) -> Path | None:
    """The path of an existing file or folder of a dataset; None if there is none."""
    if data_dir is not None:
        folders = [expanded(data_dir)]
        if not folders[0].is_dir():
            raise CcrankError(f"the data folder {data_dir} does not exist or is not a folder")
    else:
        folders = [data_cache()]
        if named := os.environ.get("CCRANK_DATA"):
            folders.insert(0, expanded(named))
            if not folders[0].is_dir():
                raise CcrankError(
                    f"the variable CCRANK_DATA is set to {named}, which is not a folder; set it to the folder of your "
                    f"data files, or unset it to use {data_cache()}"
                )
    paths = [folder / wanted.path for folder in folders]
    candidates = (other for path in paths for other in (path, *map(path.with_name, wanted.other_names)))
    return next(filter(wanted.at, candidates), None)


def digest_of(contents: Iterable[tuple[str, bytes]]) -> str:
    """The checksum of a set of files, in any order: sha256 over sorted names, lengths and bytes."""
    digest = hashlib.sha256()
    for name, content in sorted(contents):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _fetch(url: str) -> bytes:
    opener = urllib.request.OpenerDirector()
    for handler in _WEB_HANDLERS:
        opener.add_handler(handler())
    request = urllib.request.Request(url, headers={"User-Agent": "ccrank"})
    content = io.BytesIO()
    with (
        opener.open(request, timeout=TIMEOUT_SECONDS) as response,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        length = response.headers.get("Content-Length") or ""
        expected = int(length) if length.isdigit() else 0
        named = f"downloading {url.rsplit('/', 1)[-1]}"
        shutil.copyfileobj(progress.wrap_file(response, total=expected, description=named), content)
    if content.tell() < expected:
        raise CcrankError(f"the transfer ended after {content.tell()} of {expected} bytes")
    return content.getvalue()


def _verified(wanted: DataFile, fetched: bytes) -> dict[str, bytes]:
    """The files of a folder by path, or one file under the empty path, that have the checksum."""
    candidates: dict[str, dict[str, bytes]] = {}
    if wanted.members:
        with tarfile.open(fileobj=io.BytesIO(fetched), mode="r:gz") as archive:
            matches = [
                (re.fullmatch(wanted.members, member.name), member) for member in archive if member.isfile()
            ]
            files = {match[1]: archive.extractfile(member) for match, member in matches if match}
            contents = {name: file.read() for name, file in files.items() if file is not None}
        if contents:
            candidates[digest_of(contents.items())] = contents
    elif wanted.zipped is None:
        candidates[hashlib.sha256(fetched).hexdigest()] = {"": fetched}
    else:
        with zipfile.ZipFile(io.BytesIO(fetched)) as packed:
            for name in packed.namelist():
                if name.endswith(wanted.zipped):
                    content = packed.read(name)
                    candidates[hashlib.sha256(content).hexdigest()] = {"": content}
    if wanted.sha256 not in candidates:
        got = ", ".join(candidates) or "no such file in the archive"
        raise CcrankError(f"it has changed: sha256 {wanted.sha256} expected, got {got}")
    return candidates[wanted.sha256]


def _store(wanted: DataFile, contents: Mapping[str, bytes], target: Path) -> None:
    """Write files next to the target, then move them there together."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        ready = Path(scratch) / "ready"
        for name, content in contents.items():
            path = ready / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        try:
            ready.replace(target)
        except OSError:
            # A folder cannot replace a non-empty one; that is fine if another process has just created it.
            if not wanted.at(target):
                raise
