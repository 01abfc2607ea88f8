"""Values that ``torch.load`` refuses with weights only, as tuples of plain ones, and back: nothing of a file is run.

``(MARK, kind, …)`` stands for a NumPy scalar or array, a date, a path, a member of an enumeration and the like. A tuple
it is because torch's distributed checkpoints save one as it is, while they take dicts and lists apart.
"""

from __future__ import annotations

import io
import pathlib
import re
import sys
import warnings
from collections import defaultdict, deque
from copy import copy
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from penstock.checkpoint.torchfile.weightsonly import ATOMS, scan, shown
from penstock.errors import CheckpointError, Unusable, printable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["decoded", "encoded", "readable"]

_MARK = "penstock.value"
_DTYPE = re.compile(r"[<>|=]?([biufcSU]\d+|[mM]8(\[\w+\])?)")  # none with fields, objects or memory of its own
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
_FACTORIES: dict[str | None, Any] = {None: None, "list": list, "int": int, "float": float, "dict": dict, "set": set}
_SHOWN = 3  # values in a warning


def encoded(value: Any, at: str, *, apart: bool = False) -> Any:  # noqa: ANN401  whatever is to be saved
    """Return a value as what ``torch.load`` takes with weights only; what holds nothing else is returned itself.

    ``apart``: torch's distributed checkpoints save it, which take dicts and lists apart: a dict's class and its keys'
    classes are not saved, and of a tensor nothing but its elements.

    Raises:
        Unusable: There is something in it that only code can make; it is named by its path, which begins with ``at``.

    """
    try:
        result = _Encoder(apart=apart).encode(value)
        scan(result, at, apart=apart)
    except RecursionError:
        raise Unusable(f"{at} is nested too deep to be saved") from None
    return result


def decoded(value: Any, at: str = "state") -> Any:  # noqa: ANN401  whatever was saved
    """Return what ``encoded`` was given; dicts and lists in it are changed in place.

    A tuple that cannot be made into what it stands for (an enumeration whose module is not imported, or what
    ``encoded`` never returned) stays as it is, and a warning names its path, which begins with ``at``: one value does
    not keep the rest from being restored.

    Raises:
        CheckpointError: It is nested deeper than ``encoded`` takes.

    """
    decoder = _Decoder(at)
    try:
        result = decoder.decode(value)
    except RecursionError:
        raise CheckpointError(f"{at} is nested too deep") from None
    if left := decoder.left:
        more = f"; and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        text = printable("; ".join(left[:_SHOWN]))
        warnings.warn(f"left as the tuples that stand for them: {text}{more}", stacklevel=3)
    return result


def readable(part: Any, what: str, url: str) -> Any:  # noqa: ANN401  whatever was saved
    """Return a part of a checkpoint; raise ``Unusable`` where it stands for what it could not be read for."""
    if isinstance(part, Exception):
        message = f"{what} is more than weights: restore without it, or pass weights_only=False if you trust all of it"
        raise Unusable(message, url=url) from part
    return part


# -- to plain values ---------------------------------------------------------------------------------------------------


class _Encoder:
    """Remembers what was seen, so that what is shared stays so."""

    def __init__(self, *, apart: bool) -> None:
        self._seen: dict[int, tuple[Any, Any]] = {}
        self._apart = apart
        self._within = _Encoder(apart=False) if apart else self  # for what torch saves as it is

    def encode(self, value: Any) -> Any:  # noqa: ANN401  see encoded
        if type(value) in ATOMS:
            return value
        if id(value) not in self._seen:
            self._seen[id(value)] = value, value  # where it holds itself, it stays as it is there
            self._seen[id(value)] = value, self._new(value)
        return self._seen[id(value)][1]

    def _new(self, value: Any) -> Any:  # noqa: ANN401  see encoded
        kind = type(value)
        if kind is defaultdict and not self._apart:
            return self._defaultdict(value)
        if isinstance(value, dict):
            return self._dict(value)
        if kind in (list, tuple):
            if kind is tuple and _marked(value):
                raise Unusable(f"a tuple that begins with {_MARK!r} cannot be saved")
            encode = self.encode if kind is list else self._within.encode
            parts = [encode(each) for each in value]
            same = all(one is other for one, other in zip(parts, value, strict=True))
            return value if same else kind(parts)
        said = ("bytes",) if kind is bytes and not value else self._said(value)
        # torch pickles no bytes at all as a call of bytes(), which it then refuses.
        return value if said is None else (_MARK, *map(_filled, said))

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
        name = next((name for name, made in _FACTORIES.items() if made is value.default_factory), "")
        return value if name == "" else (_MARK, "defaultdict", name, self.encode(dict(value)))

    def _said(self, value: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  see encoded
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


def _marked(value: tuple[Any, ...]) -> bool:
    """Say whether a tuple stands for something; its first element may be an array, which no text is compared with."""
    return bool(value) and type(value[0]) is str and value[0] == _MARK


def _filled(part: Any) -> Any:  # noqa: ANN401  a part of what stands for a value
    return (_MARK, "bytes") if type(part) is bytes and not part else part


def _understood(value: Any, said: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: ANN401  see encoded
    """Return what stands for a value unless ``decoded`` would make another of it, or nothing."""
    try:
        again = _MEANT[said[0]](*said[1:])
    except Exception:  # noqa: BLE001  whatever a class of somebody else's does: the value is refused by its path
        return None
    same = again is value if isinstance(value, Enum) else type(again) is type(value)
    return said if same else None


def _array(value: Any) -> tuple[Any, ...] | None:  # noqa: ANN401  an array or a scalar
    if not _DTYPE.fullmatch(value.dtype.str):
        return None
    if isinstance(value, np.generic):
        return "scalar", value.dtype.str, value.tobytes()
    return "array", value.dtype.str, value.shape, value.tobytes()


def _zone(zone: Any) -> Any:  # noqa: ANN401  a tzinfo
    """Tell a time zone: a name, an offset, or none; one of other code as itself, which is refused by its path."""
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


# -- and back ----------------------------------------------------------------------------------------------------------


class _Decoder:
    """Remembers what was seen, and where it is.

    Attributes:
        left: What could not be made, and why.

    """

    def __init__(self, at: str) -> None:
        self.left: list[str] = []
        self._path: list[Any] = []
        self._at = at
        self._seen: dict[int, tuple[Any, Any]] = {}

    def decode(self, value: Any) -> Any:  # noqa: ANN401  see decoded
        if not isinstance(value, dict | list | tuple):
            return value
        if id(value) not in self._seen:
            self._seen[id(value)] = value, value
            self._seen[id(value)] = value, self._new(value)
        return self._seen[id(value)][1]

    def _new(self, value: Any) -> Any:  # noqa: ANN401  see decoded
        if isinstance(value, dict | list):
            for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
                if (new := self._below(key, each)) is not each:
                    value[key] = new
            if isinstance(value, dict) and any(type(key) is tuple for key in value):
                items = [(self._key(key), each) for key, each in value.items()]
                value.clear()
                for key, each in items:
                    value[key] = each
            return value
        if type(value) is not tuple:
            return value
        parts = [self._below(number, each) for number, each in enumerate(value)]
        if _marked(value):
            return self._made(value, parts[1:])
        return value if all(one is other for one, other in zip(parts, value, strict=True)) else tuple(parts)

    def _key(self, key: Any) -> Any:  # noqa: ANN401  see decoded
        result = self._below(key, key)
        try:
            hash(result)
        except TypeError as error:
            self._leave(error)
            return key
        return result

    def _below(self, key: Any, each: Any) -> Any:  # noqa: ANN401  see decoded
        self._path.append(key)
        result = self.decode(each)
        self._path.pop()
        return result

    def _made(self, value: tuple[Any, ...], said: list[Any]) -> Any:  # noqa: ANN401  see decoded
        try:
            return _MEANT[said[0]](*said[1:])
        except Exception as error:  # noqa: BLE001  the rest is restored all the same
            self._leave(error)
            return value

    def _leave(self, error: Exception) -> None:
        where = self._at + "".join(f"[{key!r:.80}]" for key in self._path)
        self.left.append(f"{where} ({shown(error)})")


def _read(dtype: str, data: bytes) -> np.ndarray[Any, Any]:
    if type(data) is not bytes or not _DTYPE.fullmatch(dtype):
        raise ValueError(f"no array of {dtype!r:.80}")
    return np.frombuffer(data, np.dtype(dtype))


def _scalar(dtype: str, data: bytes) -> Any:  # noqa: ANN401  any NumPy scalar
    if dtype[1:] in ("U0", "S0"):  # an empty text
        return np.zeros((), np.dtype(dtype))[()]
    (value,) = _read(dtype, data)
    return value


def _whole(dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    return _read(dtype, data).reshape(shape).copy()


def _member(module: str, qualname: str, name: str) -> Enum:
    """Find a member of an enumeration that is imported already: nothing is imported because a file says so."""
    found: Any = sys.modules.get(module)
    if found is None:
        raise LookupError(f"import {module} before it is restored, which {qualname}.{name} is of")
    for part in qualname.split("."):
        found = vars(found)[part]
    if not isinstance(found, type) or not issubclass(found, Enum):
        raise TypeError(qualname)
    return found.__members__[name]


def _file(data: bytes, at: int) -> io.BytesIO:
    if type(data) is not bytes:  # a number would be a size
        raise TypeError("a file's content is bytes")
    file = io.BytesIO(data)
    file.seek(at)
    return file


def _zoned(zone: object) -> timezone | ZoneInfo | None:
    if isinstance(zone, str):
        return ZoneInfo(zone)
    return None if zone is None else timezone(timedelta(seconds=float(zone)))  # type: ignore[arg-type]


def _path(kind: str, text: str) -> pathlib.PurePath:
    if kind not in _PATHS:
        raise ValueError(kind)
    pure = kind.startswith("Pure") or kind == type(pathlib.Path()).__name__
    path: pathlib.PurePath = getattr(pathlib, kind if pure else f"Pure{kind}")(text)  # another system's has no files
    return path


def _dictionary(name: str | None, items: Any) -> defaultdict[Any, Any]:  # noqa: ANN401  see _parts
    if type(items) is not dict:
        raise TypeError("its items are a dict")
    return defaultdict(_FACTORIES[name], items)


def _parts(of: Any) -> tuple[Any, ...]:  # noqa: ANN401  whatever a file says
    if type(of) is not tuple:  # a range takes no memory, and what is made of it does
        raise TypeError("its elements are a tuple")
    return of


_MEANT: dict[str, Callable[..., Any]] = {
    "bytes": lambda: b"",
    "array": _whole,
    "scalar": _scalar,
    "enum": _member,
    "file": _file,
    "path": _path,
    "range": range,
    "slice": slice,
    "set": lambda of: set(_parts(of)),
    "deque": lambda of, most: deque(_parts(of), most),
    "defaultdict": _dictionary,
    "frozenset": lambda of: frozenset(_parts(of)),
    "date": date.fromisoformat,
    "datetime": lambda text, fold, zone: datetime.fromisoformat(text).replace(fold=fold, tzinfo=_zoned(zone)),
    "time": lambda text, fold, zone: time.fromisoformat(text).replace(fold=fold, tzinfo=_zoned(zone)),
    "timedelta": timedelta,
}
