"""The files of weights: whether they are whole, their hashes, and the facts that results are published with."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ccrank.errors import CcrankError
from ccrank.models.load.catalog import FoundModel
from ccrank.util.files import cache_folder, remember

PRECISIONS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""How safetensors names them, and how everyone else does."""
NOT_STATED = "not stated"
CONVERTED_BY = "ccrank-conversion.txt"
"""The file that states which versions converted a GGUF file. Not a .json, since these are files of the model."""


def weights_facts(found: FoundModel, files: Sequence[Path], computed_in: str) -> dict[str, Any]:
    """The facts that a result is published with, as plain values."""
    facts: dict[str, Any] = {"name": Path(found.name).name if found.known is None else found.name}
    if found.source == "hub":
        facts |= {"name": found.name, "source": f"hub: {found.origin}", "revision": found.revision}
    else:
        facts["source"] = f"package index: {found.origin}" if found.source == "package" else found.source
    if made_from := _made_from(found.folder):
        facts["files"] = {made_from["file"]: made_from["sha256"]}
        facts["original_precision"] = made_from["precision"]
    else:
        facts["files"] = {path.name: remembered_sha256(path.resolve()) for path in files}
        facts["original_precision"] = _stored_precision(files)
    return {**facts, "compute_precision": computed_in}


def _made_from(folder: Path) -> Mapping[str, str] | None:
    """The file that a folder was converted from, its hash and its precision; None if it was not converted."""
    note = folder / CONVERTED_BY
    if not note.is_file():
        return None
    try:
        made_from = json.loads(note.read_bytes())["made_from"]
        return {name: str(made_from[name]) for name in ("file", "sha256", "precision")}
    except (ValueError, LookupError, TypeError) as error:
        raise CcrankError(f"{note} is damaged ({error}): {fetch_again(folder)}") from None


def _stored_precision(files: Sequence[Path]) -> str:
    """The precision of most of the weights; pickles are not opened for this."""
    counts: Counter[str] = Counter()
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as stored:
                for name in stored.keys():  # noqa: SIM118
                    part = stored.get_slice(name)
                    counts[part.get_dtype()] += prod(part.get_shape())
    kind = counts.most_common(1)[0][0] if counts else NOT_STATED
    return PRECISIONS.get(kind, kind)


def weight_files(folder: Path, allow_pickle: bool) -> list[Path]:
    """The files of the weights, one or several shards; damaged or incomplete ones are refused, by their headers."""
    safe = sorted(folder.glob("*.safetensors"))
    for path in safe:
        try:
            with safe_open(path, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise CcrankError(
                f"the weights {path} are damaged or incomplete ({path.stat().st_size:,} bytes; {error}): "
                f"{fetch_again(folder)}"
            ) from None
    pickles = sorted(folder.glob("pytorch_model*.bin"))  # others, such as training_args.bin, are not weights
    if not safe and not pickles:
        raise CcrankError(f"{folder} has no weights: neither *.safetensors nor pytorch_model*.bin")
    if not safe and not allow_pickle:
        raise CcrankError(
            f"{folder} has only pickled weights ({pickles[0].name}); opening a pickle can run arbitrary code. "
            "If you trust its source, pass --allow-pickle"
        )
    return safe or pickles


def fetch_again(folder: Path) -> str:
    """What to do about a model whose files are damaged: fetched models are deleted, others copied again."""
    # The hub's cache keeps the files themselves beside the folder of links that it hands out.
    hub = next((parent for parent in folder.parents if parent.name.startswith("models--")), None)
    if hub is not None or folder.is_relative_to(cache_folder("models")):
        return f"delete the folder {hub or folder}; the next run fetches the model again"
    return f"copy or download the model into {folder} again"


def tensor_names(files: Sequence[Path]) -> set[str]:
    """The names of the tensors in a checkpoint, without loading the tensors where the format allows it."""
    names: set[str] = set()
    for path in files:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as stored:
                names.update(stored.keys())
        else:
            names.update(torch.load(path, map_location="meta", weights_only=True))
    return names


def check_sha256(path: Path, expected: str) -> None:
    """Raise an error if a file is missing or its SHA-256 differs."""
    if not path.is_file():
        raise CcrankError(f"{path.name} is missing from the download")
    if (digest := file_sha256(path)) != expected:
        raise CcrankError(
            f"{path.name} has sha256 {digest}, not {expected}: the download is damaged or was replaced"
        )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in blocks."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def remembered_sha256(path: Path) -> str:
    """The SHA-256 of a file, computed once while its size and modification time are unchanged."""
    status = path.stat()
    key = hashlib.sha256(f"{path}|{status.st_size}|{status.st_mtime_ns}".encode()).hexdigest()[:32]
    note = cache_folder("hashes", key)
    with suppress(OSError):
        if len(digest := note.read_text()) == 64:
            return digest
    digest = file_sha256(path)
    remember(note, digest)
    return digest


def weights_identity(folder: Path, files: Sequence[Path]) -> str:
    """An identifier of the exact weights: a hash over the config and the weight files."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(files):
        digest.update(remembered_sha256(path.resolve()).encode())
    return digest.hexdigest()[:32]
