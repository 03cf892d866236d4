"""Scales on the model hub: one file and a card that says what it is and how to use it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.errors import CcrankError
from ccrank.util.files import parse_toml
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from ccrank.scale import Scale

FILE = "scale.safetensors"


@contextmanager
def _hub_errors(repo: str) -> Iterator[None]:
    """Turn what the hub's library raises into a CcrankError."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # A broken connection raises a base class of the hub's status errors that need not be an OSError.
    broken_connection: type[BaseException] = HfHubHTTPError.__bases__[0]
    try:
        yield
    except HFValidationError as error:
        raise CcrankError(f"{repo!r} is not a hub id, such as name/politeness: {error}") from None
    except LocalEntryNotFoundError:
        raise CcrankError(f"{repo}: the hub is not reachable, and the scale is not in its cache") from None
    except HfHubHTTPError as error:
        reason = one_line(str(error), 200)
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403, 404):
            reason = "it does not exist, or you may not read or write it (see `hf auth login`)"
        raise CcrankError(f"{repo}: the hub refused: {reason}") from None
    except (OSError, broken_connection) as error:
        raise CcrankError(f"{repo}: the hub cannot be used: {one_line(str(error), 200)}") from None


def push(scale: Scale, repo: str, private: bool, token: str | None) -> str:
    """Upload a scale with its card; returns the address."""
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory(prefix="ccrank-") as folder, _hub_errors(repo):
        scale.save(Path(folder, FILE))
        Path(folder, "README.md").write_text(card(scale, repo), encoding="utf-8")
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
        address = api.create_repo(repo, private=private, exist_ok=True)
        message = f"Scale of {one_line(scale.criterion.name, 60)}"
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    return str(address)


def fetched(repo: str, revision: str | None, token: str | None) -> Path:
    """The file of a scale, downloaded or from the hub's cache."""
    from huggingface_hub import hf_hub_download

    with _hub_errors(repo):
        endpoint = os.environ.get("HF_ENDPOINT")
        return Path(hf_hub_download(repo, FILE, revision=revision, token=token, endpoint=endpoint))


def card(scale: Scale, repo: str) -> str:
    """The page of a scale: criterion, model, method, agreement, confidence, how to use it."""
    notes = scale.notes
    understood, confidence = notes.criterion.understood, notes.confidence
    agreement = notes.consistency.get("signals_agree")
    facts = {
        "criterion": notes.criterion.name,
        "highest": None if understood is None else understood.first,
        "poles": None if notes.criterion.poles is None else " – ".join(notes.criterion.poles),
        "category": notes.criterion.category,
        "model": notes.model,
        "hash of the weights": notes.identity,
        "method": notes.method,
        "direction": "known" if notes.directed else "unknown: the order may be reversed",
        "fitted on": f"{len(scale):,} items" if len(scale) else "several lists",
        "agreement of the signals (mean τ)": None if agreement is None else f"{agreement:.2f}",
        "confidence": None
        if confidence is None
        else f"{confidence.level}: right (τ > 0.3) with probability {confidence.probability:.2f}",
        "labels": str(notes.details["labels"]["labels"]) if "labels" in notes.details else None,
        "ccrank": notes.ccrank,
    }
    rows = [
        f"| {name} | {one_line(value, 200).replace('|', ' ')} |" for name, value in facts.items() if value
    ]
    warnings = [f"- {one_line(text, 500)}" for text in notes.warnings]
    page: str = parse_toml(resources.files(__package__) / "card.toml")["card"]
    return page.format(
        criterion=one_line(notes.criterion.name, 100),
        rows="\n".join(rows),
        warnings="\n".join(["Mind:", "", *warnings, "", ""]) if warnings else "",
        repo=repo,
    )
