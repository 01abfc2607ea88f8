"""Encoding of values that ``torch.load`` refuses with weights only, as tuples of plain values; see ``decoding``.

``(MARK, kind, …)`` encodes a NumPy scalar or array, a date, a path, a member of an enumeration and the like. It is a
tuple because torch's distributed checkpoints save tuples unchanged, but take dicts and lists apart.
"""

from __future__ import annotations

import io
import pathlib
from collections import defaultdict, deque
from copy import copy
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from penstock.checkpoint.staging import torch_module
from penstock.checkpoint.torchfile.decoding import ATOMS, DTYPE, FACTORIES, MAKERS, MARK, check_weights_only, marked
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["encoded"]

# Arrays up to this size are pickled with the rest: as a storage each would cost a request.
_PICKLED_BYTES = 4096


def encoded(value: Any, at: str, *, apart: bool = False) -> Any:  # noqa: ANN401  whatever is to be saved
    """Return a value in a form that ``torch.load`` accepts with weights only; unchanged if it needs no encoding.

    With ``apart`` the value is for torch's distributed checkpoints, which take dicts and lists apart: they save neither
    the class of a dict nor the classes of its keys, and only the elements of a tensor.

    Raises:
        Unusable: A value in it can only be made by code; the message names its path, which begins with ``at``.

    """
    try:
        result = _Encoder(apart=apart).encode(value)
        check_weights_only(result, at, apart=apart)
    except RecursionError:
        raise Unusable(f"{at} is nested too deep to be saved") from None
    return result


class _Encoder:
    """A recursive encoder that remembers encoded values, so that shared values stay shared."""

    def __init__(self, *, apart: bool) -> None:
        self._seen: dict[int, tuple[Any, Any]] = {}
        self._apart = apart
        self._within = _Encoder(apart=False) if apart else self  # for parts that torch saves unchanged

    def encode(self, value: Any) -> Any:  # noqa: ANN401  see encoded
        if type(value) in ATOMS:
            return value
        if id(value) not in self._seen:
            # A value that contains itself stays as it is at that place.
            self._seen[id(value)] = value, value
            self._seen[id(value)] = value, self._new(value)
        return self._seen[id(value)][1]

    def _new(self, value: Any) -> Any:  # noqa: ANN401  see encoded
        kind = type(value)
        if kind is defaultdict and not self._apart:
            return self._defaultdict(value)
        if isinstance(value, dict):
            return self._dict(value)
        if kind in (list, tuple):
            if kind is tuple and marked(value):
                raise Unusable(f"a tuple that begins with {MARK!r} cannot be saved")
            encode = self.encode if kind is list else self._within.encode
            parts = [encode(each) for each in value]
            same = all(one is other for one, other in zip(parts, value, strict=True))
            return value if same else kind(parts)
        description = ("bytes",) if kind is bytes and not value else self._description(value)
        # torch pickles empty bytes as a call of bytes(), which it then refuses to load.
        return value if description is None else (MARK, *map(_filled, description))

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        keys = list(value) if self._apart else [self.encode(key) for key in value]
        parts = [self.encode(each) for each in value.values()]
        if all(one is other for one, other in zip([*keys, *parts], [*value, *value.values()], strict=True)):
            return value
        result = copy(value)
        result.clear()
        for key, part in zip(keys, parts, strict=True):
            result[key] = part
        return result

    def _defaultdict(self, value: defaultdict[Any, Any]) -> Any:  # noqa: ANN401  see encoded
        name = next((name for name, made in FACTORIES.items() if made is value.default_factory), "")
        return value if name == "" else (MARK, "defaultdict", name, self.encode(dict(value)))

    def _description(self, value: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  see encoded
        kind = type(value)
        if kind is slice:
            return "slice", *map(self._within.encode, (value.start, value.stop, value.step))
        if kind is deque:
            return "deque", tuple(map(self._within.encode, value)), value.maxlen
        if kind in (set, frozenset):
            parts = tuple(map(self._within.encode, value))
            same = kind is set and all(one is other for one, other in zip(parts, value, strict=True))
            return None if same else (kind.__name__, parts)
        if isinstance(value, Enum):
            return _understood(value, ("enum", kind.__module__, kind.__qualname__, value.name))
        if isinstance(value, np.generic) or kind in (np.ndarray, np.memmap):
            return _array(value)
        tell = _TOLD["path"] if isinstance(value, pathlib.PurePath) else _TOLD.get(kind)
        return None if tell is None else _understood(value, tell(value))


def _filled(part: Any) -> Any:  # noqa: ANN401  a part of what stands for a value
    return (MARK, "bytes") if type(part) is bytes and not part else part


def _understood(value: Any, description: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: ANN401  see encoded
    """Return ``description``, or None if ``decoded`` could not make the same kind of value from it."""
    try:
        again = MAKERS[description[0]](*description[1:])
    except Exception:  # noqa: BLE001  whatever a class of somebody else's does: the value is refused by its path
        return None
    same = again is value if isinstance(value, Enum) else type(again) is type(value)
    return description if same else None


def _array(value: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  an array or a scalar
    if not DTYPE.fullmatch(value.dtype.str):
        return None
    if isinstance(value, np.generic):
        return "scalar", value.dtype.str, value.tobytes()
    if value.nbytes <= _PICKLED_BYTES:
        return "array", value.dtype.str, value.shape, value.tobytes()
    # Stored as a tensor, the bytes are written unchanged. Pickled they take 1.5 times as many, and more than 2.7 GiB
    # cannot be pickled. The array is copied: torch refuses to save one memory under two dtypes, and the array may
    # change while it is saved.
    line = np.array(value, order="C", subok=False).reshape(-1).view(np.uint8)
    return "array", value.dtype.str, value.shape, torch_module().from_numpy(line)


def _zone(zone: Any) -> Any:  # noqa: ANN401  a tzinfo
    """Return a time zone's name or offset, or None; another tzinfo is returned itself, and refused by its path."""
    if isinstance(zone, timezone):
        return zone.utcoffset(None).total_seconds()
    return zone.key if isinstance(zone, ZoneInfo) and zone.key else zone


_TOLD: dict[object, Callable[[Any], tuple[Any, ...]]] = {
    "path": lambda it: ("path", type(it).__name__, str(it)),
    range: lambda it: ("range", it.start, it.stop, it.step),
    io.BytesIO: lambda it: ("file", it.getvalue(), it.tell()),
    datetime: lambda it: ("datetime", it.replace(tzinfo=None, fold=0).isoformat(), it.fold, _zone(it.tzinfo)),
    date: lambda it: ("date", it.isoformat()),
    time: lambda it: ("time", it.replace(tzinfo=None, fold=0).isoformat(), it.fold, _zone(it.tzinfo)),
    timedelta: lambda it: ("timedelta", it.days, it.seconds, it.microseconds),
}
