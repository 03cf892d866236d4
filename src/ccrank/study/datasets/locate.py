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
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from ccrank.errors import CcrankError
from ccrank.util.files import cache_folder, write_atomically

TIMEOUT_SECONDS = 30.0
_BLOCK = 1 << 16
_WEB_HANDLERS = (
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)
"""Those of `urlopen` without ftp, file and data: a redirect cannot leave the web."""


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
    if (existing := find(wanted, data_dir)) is not None:
        return existing
    if data_dir is not None:
        raise CcrankError(f"there is no {Path(data_dir) / wanted.path}; {_remedy(wanted, Path(data_dir))}")
    if wanted.sha256 is None:
        raise CcrankError(f"{wanted.path} is not available; {_remedy(wanted, data_cache())}")
    return _download(wanted, data_cache())


def find(wanted: DataFile | DataFolder, data_dir: str | Path | None = None) -> Path | None:
    """The path of an existing file or folder of a dataset; None if there is none."""
    if data_dir is not None:
        folders = [Path(data_dir).expanduser()]
        if not folders[0].is_dir():
            raise CcrankError(f"the data folder {data_dir} does not exist or is not a folder")
    else:
        folders = [data_cache()]
        if named := os.environ.get("CCRANK_DATA"):
            folders.insert(0, Path(named).expanduser())
            if not folders[0].is_dir():
                raise CcrankError(
                    f"the variable CCRANK_DATA is set to {named}, which is not a folder; set it to the folder of your "
                    f"data files, or unset it to use {data_cache()}"
                )
    for folder in folders:
        path = folder / wanted.path
        if isinstance(wanted, DataFolder):
            if _holds_data(path, wanted):
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


def _holds_data(path: Path, wanted: DataFolder) -> bool:
    return next(path.glob(wanted.holds), None) is not None


def _remedy(wanted: DataFile | DataFolder, folder: Path) -> str:
    return (
        f"put it at {folder / wanted.path}, or set CCRANK_DATA to a folder that contains {wanted.path}; "
        f"it is published at {wanted.url}"
    )


def _download(wanted: DataFile | DataFolder, cache: Path) -> Path:
    target = cache / wanted.path
    try:
        fetched = _fetch(wanted.url)
        if isinstance(wanted, DataFolder):
            contents = _unpacked_folder(wanted, fetched)
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_folder(wanted, contents, target)
        else:
            content = _unpacked_file(wanted, fetched)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, content)
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


def _fetch(url: str) -> bytes:
    opener = urllib.request.OpenerDirector()
    for handler in _WEB_HANDLERS:
        opener.add_handler(handler())
    request = urllib.request.Request(url, headers={"User-Agent": "ccrank"})
    blocks: list[bytes] = []
    with (
        opener.open(request, timeout=TIMEOUT_SECONDS) as response,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        length = response.headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        bar = progress.add_task(f"downloading {url.rsplit('/', 1)[-1]}", total=expected)
        while block := response.read(_BLOCK):
            blocks.append(block)
            progress.update(bar, advance=len(block))
    content = b"".join(blocks)
    if expected is not None and len(content) < expected:
        raise CcrankError(f"{url} ended after {len(content)} of {expected} bytes")
    return content


def _unpacked_file(wanted: DataFile, fetched: bytes) -> bytes:
    """The file itself, or the one in a zip, that has the checksum."""
    seen = []
    for content in [fetched] if wanted.zipped is None else _files_in_zip(fetched, wanted.zipped):
        seen.append(hashlib.sha256(content).hexdigest())
        if seen[-1] == wanted.sha256:
            return content
    raise _wrong_checksum(wanted, seen)


def _files_in_zip(fetched: bytes, ending: str) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(fetched)) as archive:
        for member in archive.infolist():
            if not member.is_dir() and member.filename.endswith(ending):
                yield archive.read(member)


def _unpacked_folder(wanted: DataFolder, fetched: bytes) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(fetched), mode="r:gz") as archive:
        for member in archive:
            match = re.fullmatch(wanted.members, member.name)
            source = archive.extractfile(member) if match and member.isfile() else None
            if match and source is not None:
                contents[match[1]] = source.read()
    if (seen := digest_of(contents.items())) != wanted.sha256:
        raise _wrong_checksum(wanted, [seen] if contents else [])
    return contents


def _write_folder(wanted: DataFolder, contents: dict[str, bytes], target: Path) -> None:
    """Write the files next to the target, then move them there together."""
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
            if not _holds_data(target, wanted):
                raise


def _wrong_checksum(wanted: DataFile | DataFolder, seen: list[str]) -> CcrankError:
    got = ", ".join(seen) or "no such file in the archive"
    return CcrankError(f"{wanted.url} has changed: sha256 {wanted.sha256} expected, got {got}")
