"""Locating the files of a dataset: a folder of the user, the cache, or a download into the cache.

If a folder is given, only that folder is searched; otherwise the folder in the variable CCRANK_DATA, then the cache
(`data` inside CCRANK_CACHE, or inside ~/.cache/ccrank). A file found in neither is downloaded once from its public
source and moved to the cache only after its checksum has been verified.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import Progress

from ccrank.errors import CcrankError
from ccrank.paths import cache_folder

TIMEOUT_SECONDS = 30.0
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a dataset."""

    path: str
    """Its path in the data folder, with forward slashes."""
    url: str
    """Where it is published: the file itself, or a zip that contains it."""
    sha256: str | None
    """Its checksum; a file without one is never downloaded, only read from the data folder."""
    zipped: str | None = None
    """If `url` is a zip: the end of the file's name in it."""
    other_names: tuple[str, ...] = ()
    """Other accepted names in the same folder."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Many small files of a dataset, extracted from one archive."""

    path: str
    url: str
    """A tar.gz."""
    sha256: str
    """The checksum of the files, see `digest_of`: the checksum of an archive generated on request is not stable."""
    members: str
    """A pattern for the names of the files to extract; its group 1 is the path inside the folder."""
    holds: str
    """A glob for the same files inside the folder."""


def data_cache() -> Path:
    """The folder of downloaded data."""
    return cache_folder("data")


def locate(wanted: DataFile | DataFolder, data_dir: str | Path | None = None) -> Path:
    """The path of a file or folder of a dataset, downloaded if necessary."""
    if (found := find(wanted, data_dir)) is not None:
        return found
    if data_dir is not None:
        raise CcrankError(f"there is no {Path(data_dir) / wanted.path}; {_remedy(wanted, Path(data_dir))}")
    if wanted.sha256 is None:
        raise CcrankError(f"{wanted.path} is not available; {_remedy(wanted, data_cache())}")
    return _download(wanted, data_cache())


def find(wanted: DataFile | DataFolder, data_dir: str | Path | None = None) -> Path | None:
    """The path of an existing file or folder of a dataset; None if there is none."""
    if data_dir is not None:
        folder = Path(data_dir).expanduser()
        if not folder.is_dir():
            raise CcrankError(f"the data folder {data_dir} does not exist or is not a folder")
        places = [folder]
    else:
        named = os.environ.get("CCRANK_DATA")
        if named and not Path(named).expanduser().is_dir():
            raise CcrankError(
                f"the variable CCRANK_DATA is set to {named}, which is not a folder; set it to the folder of your "
                f"data files, or unset it to use {data_cache()}"
            )
        places = [Path(named).expanduser(), data_cache()] if named else [data_cache()]
    for place in places:
        path = place / wanted.path
        if isinstance(wanted, DataFolder):
            if next(path.glob(wanted.holds), None) is not None:
                return path
            continue
        for candidate in (path, *(path.with_name(name) for name in wanted.other_names)):
            if candidate.is_file():
                return candidate
    return None


def digest_of(contents: Iterable[tuple[str, bytes]]) -> str:
    """The checksum of a set of files, in any order: sha256 over sorted names, lengths and bytes."""
    digest = hashlib.sha256()
    for name, content in sorted(contents):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _remedy(wanted: DataFile | DataFolder, folder: Path) -> str:
    return (
        f"put it at {folder / wanted.path}, or set CCRANK_DATA to a folder that contains {wanted.path}; "
        f"it is published at {wanted.url}"
    )


def _download(wanted: DataFile | DataFolder, cache: Path) -> Path:
    target = cache / wanted.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as scratch:
            fetched = Path(scratch) / "fetched"
            _fetch(wanted.url, fetched)
            ready = Path(scratch) / "ready"
            if isinstance(wanted, DataFolder):
                _unpack_folder(wanted, fetched, ready)
            else:
                _unpack_file(wanted, fetched, ready)
            _move(wanted, ready, target)
    except CcrankError as error:
        raise CcrankError(f"cannot download {wanted.path}: {error}; {_remedy(wanted, cache)}") from None
    except (OSError, HTTPException, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        # An HTTPError contains its code and reason; any other URLError wraps the cause.
        is_status = isinstance(error, urllib.error.HTTPError)
        cause = error if is_status else getattr(error, "reason", None) or error
        raise CcrankError(
            f"cannot download {wanted.path} from {wanted.url}: {cause}; {_remedy(wanted, cache)}"
        ) from None
    return target


def _move(wanted: DataFile | DataFolder, ready: Path, target: Path) -> None:
    try:
        ready.replace(target)
    except OSError:
        # A folder cannot replace a non-empty one; that is fine if another process has just created it.
        if not (isinstance(wanted, DataFolder) and next(target.glob(wanted.holds), None) is not None):
            raise


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but only to http and https."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,  # type: ignore[override]
        newurl: str,
    ) -> urllib.request.Request | None:
        _check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise CcrankError(f"{url} is not an http or https address")


def _fetch(url: str, target: Path) -> None:
    _check_scheme(url)
    request = urllib.request.Request(url, headers={"User-Agent": "ccrank"})
    opener = urllib.request.build_opener(_WebRedirects)
    with (
        opener.open(request, timeout=TIMEOUT_SECONDS) as response,
        target.open("wb") as file,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        length = response.headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        bar = progress.add_task(f"downloading {url.rsplit('/', 1)[-1]}", total=expected)
        received = 0
        while block := response.read(_BLOCK):
            file.write(block)
            received += len(block)
            progress.update(bar, completed=received)
    if expected is not None and received < expected:
        raise CcrankError(f"{url} ended after {received} of {expected} bytes")


def _unpack_file(wanted: DataFile, fetched: Path, ready: Path) -> None:
    if wanted.zipped is None:
        seen = [_digest_of_file(fetched)]
        if seen[0] == wanted.sha256:
            fetched.replace(ready)
            return
    else:
        seen = []
        with zipfile.ZipFile(fetched) as archive:
            for member in archive.infolist():
                if member.is_dir() or not member.filename.endswith(wanted.zipped):
                    continue
                with archive.open(member) as source, ready.open("wb") as file:
                    shutil.copyfileobj(source, file)
                seen.append(_digest_of_file(ready))
                if seen[-1] == wanted.sha256:
                    return
    raise _wrong_checksum(wanted, seen)


def _unpack_folder(wanted: DataFolder, fetched: Path, ready: Path) -> None:
    contents: dict[str, bytes] = {}
    with tarfile.open(fetched, "r:gz") as archive:
        for member in archive:
            match = re.fullmatch(wanted.members, member.name)
            source = archive.extractfile(member) if match and member.isfile() else None
            if match and source is not None:
                contents[match[1]] = source.read()
    if (seen := digest_of(contents.items())) != wanted.sha256:
        raise _wrong_checksum(wanted, [seen] if contents else [])
    for name, content in contents.items():
        path = ready / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _digest_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _wrong_checksum(wanted: DataFile | DataFolder, seen: list[str]) -> CcrankError:
    got = ", ".join(seen) or "no such file in the archive"
    return CcrankError(f"{wanted.url} has changed: sha256 {wanted.sha256} expected, got {got}")
