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
FORMAT, VERSION = "ccrank", "1"
MAX_BYTES = 256 << 20
MAX_HEADER_BYTES = 8 << 20
"""Parsed JSON takes about twenty times its bytes."""
MAX_VALUE = 1e30
"""Larger numbers overflow, and NaN is not below it."""


def encode(value: Any) -> bytes:
    """The content of a file."""
    from safetensors.numpy import save

    tensors = {"version": np.array([int(VERSION)])}
    try:
        about = json.dumps(_pack(value, "", tensors), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CcrankError(f"{type(value).__name__} cannot be saved: {error}") from None
    header = {"format": FORMAT, "version": VERSION, "kind": type(value).__name__, "about": about}
    content: bytes = save({name: np.ascontiguousarray(one) for name, one in tensors.items()}, header)
    if (length := int.from_bytes(content[:8], "little")) > MAX_HEADER_BYTES:
        raise CcrankError(
            f"{type(value).__name__} has {length / 1e6:,.0f} MB of texts, such as a context, and a file holds up to "
            f"{MAX_HEADER_BYTES / 1e6:,.0f} MB of them"
        )
    if len(content) > MAX_BYTES:
        raise CcrankError(
            f"{type(value).__name__} takes {len(content) / 1e6:,.0f} MB, and a file holds up to "
            f"{MAX_BYTES / 1e6:,.0f} MB; fit it on fewer items"
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
    from safetensors import deserialize as parts_of
    from safetensors.numpy import load as tensors_of

    if len(content) > MAX_BYTES:
        raise CcrankError(
            f"{where} has more than {MAX_BYTES / 1e6:,.0f} MB; a saved scale or probe is smaller"
        )
    try:
        length = int.from_bytes(content[:8], "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"its header takes {length:,} bytes; the most is {MAX_HEADER_BYTES:,}")
        parts_of(content)  # checks lengths and offsets
        header = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
        tensors = tensors_of(content)
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
        for name, one in tensors.items():
            if one.dtype.kind == "f" and not (np.abs(one) < MAX_VALUE).all():
                raise ValueError(f"{name} has values that are no numbers, or too large ones")
        found: T = _unpack(kind, json.loads(header["about"]), "", tensors)
        return found
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CcrankError(f"{where} is damaged: {error!r}; fit and save it again") from None
    except CcrankError as error:
        raise CcrankError(f"{where} is damaged: {error}; fit and save it again") from None


def _pack(value: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """JSON of a value, whose arrays are put into `tensors`."""
    if isinstance(value, np.ndarray):
        tensors[name] = value
        return None
    if is_dataclass(value) and not isinstance(value, type):
        packed = {
            one.name: _pack(getattr(value, one.name), f"{name}.{one.name}", tensors) for one in fields(value)
        }
        return packed | {"__type__": type(value).__name__}
    if isinstance(value, Mapping):
        return {str(key): _pack(one, f"{name}.{key}", tensors) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_pack(one, f"{name}.{place}", tensors) for place, one in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _unpack(hint: Any, value: Any, name: str, tensors: Mapping[str, np.ndarray]) -> Any:
    """A value of the type of a hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and name not in tensors and type(None) in inner:
            return None
        choices: list[Any] = [one for one in inner if one is not type(None)]
        named = [one for one in choices if len(choices) == 1 or one.__name__ == value.get("__type__")]
        [hint] = named
        return _unpack(hint, value, name, tensors)
    if hint is np.ndarray or (hint is Any and name in tensors):
        return tensors[name]
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        made: Any = hint
        return made(
            **{
                one.name: _unpack(hints[one.name], value[one.name], f"{name}.{one.name}", tensors)
                for one in fields(hint)
            }
        )
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else inner
        return tuple(
            _unpack(kind, one, f"{name}.{place}", tensors)
            for place, (kind, one) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is not None and origin is not Literal:
        return {key: _unpack(inner[1], one, f"{name}.{key}", tensors) for key, one in value.items()}
    return _checked(hint, inner, value, name)


def _checked(hint: Any, choices: tuple[Any, ...], value: Any, name: str) -> Any:
    """A value of JSON, if it is of the type of a hint."""
    if hint is float:
        if type(value) in (int, float) and abs(value) < MAX_VALUE:
            return float(value)
    elif hint is Any or (choices and value in choices) or (isinstance(hint, type) and type(value) is hint):
        return value
    raise ValueError(f"{name[1:]} is {value!r:.60}")
