"""The verdicts of checks on disk: a model is checked once for each combination of weights, versions and device."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccrank.errors import CcrankError, ModelWarning
from ccrank.models.check.model_check import ClozeCheck, SentenceCheck, Verdict, check_model, figures_of
from ccrank.models.load.catalog import StatusCallback
from ccrank.models.load.weights import remembered_sha256
from ccrank.util.files import cache_folder, remember

if TYPE_CHECKING:
    from ccrank.models.reader import Reader

FORMAT = 3  # increased when the texts or the thresholds change, so that models are checked again
SWITCH = "CCRANK_CHECK"  # the environment variable that turns the check off: "no"
LIBRARIES = ("torch", "transformers", "tokenizers")
TOKENIZER_FILES = ("tokenizer*.json", "vocab.*", "merges.txt", "*.model", "*.tiktoken")


def require_good(
    reader: Reader, *, strict: bool = False, say: StatusCallback = lambda _: None
) -> Verdict | None:
    """Check a model, or recall its verdict, and warn of a bad one; returns None where checks are turned off."""
    if os.environ.get(SWITCH) == "no":
        return None
    verdict = verdict_of(reader, say=say)
    if verdict.status == "suspect":
        message = f"{reader.name}: {verdict.message}. See `ccrank models check {reader.name}`"
        if strict:
            raise CcrankError(f"{message}; without --strict this is a warning")
        warnings.warn(message, ModelWarning, stacklevel=3)
    return verdict


def verdict_of(reader: Reader, *, again: bool = False, say: StatusCallback = lambda _: None) -> Verdict:
    """The verdict on a model: from the disk if it has been checked in the same circumstances."""
    made_with = circumstances(reader)
    note = cache_folder(
        "checks", hashlib.sha256(repr(sorted(made_with.items())).encode()).hexdigest()[:32] + ".json"
    )
    if not again and reader.loaded.folder is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):  # not checked yet, or a damaged note
            return verdict_from(json.loads(note.read_bytes()))
    say(f"checking {reader.name} (once)")
    verdict = replace(check_model(reader), made_with=made_with)
    if reader.loaded.folder is not None:
        remember(note, json.dumps(asdict(verdict), ensure_ascii=False, indent=1))
    return verdict


def circumstances(reader: Reader) -> dict[str, str]:
    """All that the verdict depends on: weights, precision, tokenizer, versions, device and how it is read."""
    loaded = reader.loaded
    return {
        "format": str(FORMAT),
        "weights": loaded.identity,
        "compared_with": loaded.name if figures_of(loaded) else "",
        "tokenizer": "" if loaded.folder is None else _tokenizer_sha256(loaded.folder),
        "begins_with": " ".join(map(str, loaded.bos)),
        "device": loaded.model.device.type,
        "read_as": "prefix tree" if reader.engine.tree else "padded batches",
        "head": "missing" if loaded.missing_head else "present",
        **{name: metadata.version(name) for name in LIBRARIES},
    }


def _tokenizer_sha256(folder: Path) -> str:
    files = sorted({path.resolve() for pattern in TOKENIZER_FILES for path in folder.glob(pattern)})
    return hashlib.sha256(" ".join(remembered_sha256(path) for path in files).encode()).hexdigest()[:32]


def verdict_from(stored: Mapping[str, Any]) -> Verdict:
    """A verdict from its JSON form."""
    lists = {
        "reasons": tuple(stored["reasons"]),
        "causes": tuple(stored["causes"]),
        "sentences": tuple(SentenceCheck(**entry) for entry in stored["sentences"]),
        "gaps": tuple(ClozeCheck(**entry) for entry in stored["gaps"]),
    }
    return Verdict(**{**stored, **lists})
