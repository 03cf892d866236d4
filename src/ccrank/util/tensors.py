"""Frozen dataclasses as one safetensors file: arrays as tensors, all else as JSON in the header. No pickle."""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from ccrank.errors import CcrankError
from ccrank.util.files import open_bytes

T = TypeVar("T")
FORMAT, VERSION = "ccrank", "4"
MAX_BYTES = 256 << 20
MAX_HEADER_BYTES = 8 << 20
"""Parsed JSON takes about twenty times its bytes."""
MAX_VALUE = 1e30
"""Larger numbers overflow, and NaN is not below it."""


def encode(value: Any) -> bytes:
    """The content of a file."""
    from safetensors.numpy import save

    kind = type(value).__name__
    tensors = {"version": np.array([int(VERSION)])}
    try:
        about = json.dumps(_pack(value, "", tensors), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CcrankError(f"{kind} cannot be saved: {error}") from None
    header = {"format": FORMAT, "version": VERSION, "kind": kind, "about": about}
    content: bytes = save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, header)
    if (length := int.from_bytes(content[:8], "little")) > MAX_HEADER_BYTES:
        raise CcrankError(
            f"{kind} has {length / 1e6:,.0f} MB of texts, such as a context, and a file holds up to "
            f"{MAX_HEADER_BYTES / 1e6:,.0f} MB of them"
        )
    if len(content) > MAX_BYTES:
        raise CcrankError(
            f"{kind} takes {len(content) / 1e6:,.0f} MB, and a file holds up to {MAX_BYTES / 1e6:,.0f} MB; fit it on "
            "fewer items"
        )
    return content


def fingerprint(value: Any) -> str:
    """A digest of what a file would hold; the bytes of files of the same value differ in the order of their headers."""
    tensors: dict[str, np.ndarray] = {}
    content = hashlib.sha256(json.dumps(_pack(value, "", tensors), sort_keys=True).encode())
    for name in sorted(tensors):
        content.update(name.encode() + np.ascontiguousarray(tensors[name]).tobytes())
    return content.hexdigest()[:16]


def load(kind: type[T], path: str | Path) -> T:
    """The value in a file."""
    with open_bytes(path) as stream:
        return decode(kind, stream.read(MAX_BYTES + 1), str(path))


def decode(kind: type[T], content: bytes, where: str) -> T:
    """The value in the content of a file, which may be anything: what does not fit is an error."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_tensors

    if len(content) > MAX_BYTES:
        raise CcrankError(
            f"{where} has more than {MAX_BYTES / 1e6:,.0f} MB; a saved scale or probe is smaller"
        )
    try:
        length = int.from_bytes(content[:8], "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"its header takes {length:,} bytes; the most is {MAX_HEADER_BYTES:,}")
        tensors = load_tensors(content)  # checks lengths and offsets
        header = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    except (SafetensorError, ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        raise CcrankError(f"{where} is not a complete safetensors file: {error}") from None
    if header.get("format") != FORMAT:
        raise CcrankError(f"{where} was not saved by ccrank: its format is {header.get('format')!r}")
    if header.get("version") != VERSION:
        raise CcrankError(
            f"{where} has version {header.get('version')!r} of the format, and this ccrank reads {VERSION}; fit and "
            "save it again"
        )
    if header.get("kind") != kind.__name__:
        raise CcrankError(f"{where} holds a {header.get('kind')!r}, not a {kind.__name__}")
    try:
        for name, array in tensors.items():
            if array.dtype.kind == "f" and not (np.abs(array) < MAX_VALUE).all():
                raise ValueError(f"{name} has values that are no numbers, or too large ones")
        value: T = _unpack(kind, json.loads(header["about"]), "", tensors)
        return value
    except (
        CcrankError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        reason = error if isinstance(error, CcrankError) else repr(error)
        raise CcrankError(f"{where} is damaged: {reason}; fit and save it again") from None


def _pack(value: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """JSON of a value, whose arrays are put into `tensors`."""
    if isinstance(value, np.ndarray):
        tensors[name] = value
        return None
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in fields(value)}
        return _pack(parts, name, tensors) | {"__type__": type(value).__name__}
    if isinstance(value, Mapping):
        return {str(key): _pack(part, f"{name}.{key}", tensors) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_pack(part, f"{name}.{place}", tensors) for place, part in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _unpack(hint: Any, value: Any, name: str, tensors: Mapping[str, np.ndarray]) -> Any:
    """A value of the type of a hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and name not in tensors and types.NoneType in inner:
            return None
        choices = [choice for choice in inner if choice is not types.NoneType]
        [chosen] = [kind for kind in choices if len(choices) == 1 or kind.__name__ == value.get("__type__")]
        return _unpack(chosen, value, name, tensors)
    if hint is np.ndarray or (hint is Any and name in tensors):
        return tensors[name]
    if is_dataclass(hint):
        hints, made = typing.get_type_hints(hint), typing.cast(Any, hint)
        parts = {part.name: (hints[part.name], value[part.name]) for part in fields(hint)}
        return made(**{key: _unpack(*part, f"{name}.{key}", tensors) for key, part in parts.items()})
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else inner
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(_unpack(*pair, f"{name}.{place}", tensors) for place, pair in pairs)
    if origin is not None and origin is not Literal:
        return {key: _unpack(inner[1], part, f"{name}.{key}", tensors) for key, part in value.items()}
    if hint is float:
        if type(value) in (int, float) and abs(value) < MAX_VALUE:
            return float(value)
    elif hint is Any or value in inner or (isinstance(hint, type) and type(value) is hint):
        return value
    raise ValueError(f"{name[1:]} is {value!r:.60}")
