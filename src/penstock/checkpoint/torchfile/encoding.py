"""Encoding of values that ``torch.load`` refuses with weights only, as tuples of plain values, and back.

``(MARK, kind, …)`` encodes a NumPy scalar or array, a date, a path, a member of an enumeration and the like. It is a
tuple, which torch's distributed checkpoints save unchanged. ``decode_value`` runs no
code of a file; ``check_weights_only`` refuses, before a save, values that only code can make.
"""

from __future__ import annotations

import io
import pathlib
import pickle
import re
import sys
import warnings
from collections import OrderedDict, defaultdict, deque
from copy import copy
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from penstock.checkpoint.staging import torch_module
from penstock.errors import CheckpointError, Unusable, add_article, printable

if TYPE_CHECKING:
    from collections.abc import Callable

# Arrays up to this size are pickled with the rest: as a storage each would cost a request.
_PICKLED_BYTES = 4096


def encode_value(value: Any, at: str) -> Any:  # noqa: ANN401  any value may be saved
    """Return a value as ``torch.load`` accepts it with weights only; paths in messages begin with ``at``."""
    try:
        result = _Encoder().encode(value)
        if type(result) not in ATOMS:
            check_weights_only(result, at)
    except RecursionError:
        raise Unusable(f"{at} is nested too deep to be saved") from None
    return result


class _Encoder:
    """Recursive encoder that remembers encoded values, so that shared values stay shared."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, Any]] = {}

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
        if kind is defaultdict:
            return self._defaultdict(value)
        if isinstance(value, dict):
            return self._dict(value)
        if kind in (list, tuple):
            if kind is tuple and is_encoded(value):
                raise Unusable(f"a tuple that begins with {MARK!r} cannot be saved")
            parts = [self.encode(each) for each in value]
            same = all(one is other for one, other in zip(parts, value, strict=True))
            return value if same else kind(parts)
        description = ("bytes",) if kind is bytes and not value else self._description(value)
        if description is None:
            return value
        # torch pickles empty bytes as a call of bytes(), which it then refuses to load.
        return (MARK, *((MARK, "bytes") if type(part) is bytes and not part else part for part in description))

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        keys = [self.encode(key) for key in value]
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
            return "slice", *map(self.encode, (value.start, value.stop, value.step))
        if kind is deque:
            return "deque", tuple(map(self.encode, value)), value.maxlen
        if kind in (set, frozenset):
            parts = tuple(map(self.encode, value))
            same = kind is set and all(one is other for one, other in zip(parts, value, strict=True))
            return None if same else (kind.__name__, parts)
        if isinstance(value, Enum):
            return _understood(value, ("enum", kind.__module__, kind.__qualname__, value.name))
        if isinstance(value, np.generic) or kind in (np.ndarray, np.memmap):
            return _array(value)
        tell = _TOLD["path"] if isinstance(value, pathlib.PurePath) else _TOLD.get(kind)
        return None if tell is None else _understood(value, tell(value))


def _understood(value: Any, description: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: ANN401  see encoded
    """Return ``description``, or None if ``decode_value`` could not make the same kind of value from it."""
    try:
        again = MAKERS[description[0]](*description[1:])
    except Exception:  # noqa: BLE001  a foreign class may raise anything: the value is refused by its path
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


MARK = "penstock.value"
DTYPE = re.compile(r"[<>|=]?([biufcSU]\d+|[mM]8(\[\w+\])?)")  # without fields, objects or separate memory
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")
FACTORIES: dict[str | None, Any] = {None: None, "list": list, "int": int, "float": float, "dict": dict, "set": set}
_SHOWN = 3  # values in a warning


def decode_value(value: Any, at: str = "state") -> Any:  # noqa: ANN401  any saved value
    """Return the value that ``encode_value`` was given; dicts and lists in it are changed in place.

    A tuple that cannot be decoded stays as it is: an enumeration whose module is not imported, or a tuple that
    ``encode_value`` never makes. A warning names its path, which begins with ``at``; the other values are still
    restored.
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


def readable(part: Any, what: str, url: str) -> Any:  # noqa: ANN401  any saved value
    """Return a part of a checkpoint; raise ``Unusable`` if the part is the exception that reading it raised."""
    if isinstance(part, Exception):
        message = f"{what} is more than weights: restore without it, or pass weights_only=False if you trust all of it"
        raise Unusable(message, url=url) from part
    return part


def is_encoded(value: tuple[Any, ...]) -> bool:
    """Say whether a tuple is an encoded value; its type comes first, as an array cannot be compared with text."""
    return bool(value) and type(value[0]) is str and value[0] == MARK


class _Decoder:
    """Recursive decoder that remembers decoded containers and tracks the current path."""

    def __init__(self, at: str) -> None:
        self.left: list[str] = []  # path and error of each value that could not be decoded
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
        if is_encoded(value):
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

    def _made(self, value: tuple[Any, ...], description: list[Any]) -> Any:  # noqa: ANN401  see decoded
        try:
            return MAKERS[description[0]](*description[1:])
        except Exception as error:  # noqa: BLE001  the rest is restored all the same
            self._leave(error)
            return value

    def _leave(self, error: Exception) -> None:
        where = self._at + "".join(f"[{key!r:.80}]" for key in self._path)
        self.left.append(f"{where} ({format_error(error)})")


def _decode_array(dtype: str, data: bytes) -> np.ndarray[Any, Any]:
    if type(data) is not bytes or not DTYPE.fullmatch(dtype):
        raise ValueError(f"no array of {dtype!r:.80}")
    return np.frombuffer(data, np.dtype(dtype))


def _scalar(dtype: str, data: bytes) -> Any:  # noqa: ANN401  any NumPy scalar
    if type(data) is not bytes or not DTYPE.fullmatch(dtype):
        raise ValueError(f"no scalar of {dtype!r:.80}")
    # An element of an array would lose the zeros at its end.
    if dtype[1] == "S":
        return np.bytes_(data)
    if dtype[1] == "U":
        return np.str_(data.decode("utf-32-be" if dtype[0] == ">" else "utf-32-le", "surrogatepass"))
    (value,) = _decode_array(dtype, data)
    return value


def _decode_whole_array(dtype: str, shape: tuple[int, ...], data: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401  any of a file
    torch = torch_module()
    if not isinstance(data, torch.Tensor):
        return _decode_array(dtype, data).reshape(shape).copy()
    # Contiguous only: an expanded tensor is small in the file, but the array made of it is not.
    if data.dtype != torch.uint8 or data.layout != torch.strided or not data.is_contiguous():
        raise ValueError("the bytes of an array must be a one-dimensional buffer")
    if not DTYPE.fullmatch(dtype):
        raise ValueError(f"no array of {dtype!r:.80}")
    line: np.ndarray[Any, Any] = data.detach().cpu().numpy()
    return line.reshape(-1).view(np.dtype(dtype)).reshape(shape)


def _member(module: str, qualname: str, name: str) -> Enum:
    """Return a member of an enumeration that is already imported; a file must not cause an import."""
    found: Any = sys.modules.get(module)
    if found is None:
        raise LookupError(f"import {module} before it is restored, which {qualname}.{name} is of")
    for part in qualname.split("."):
        found = vars(found)[part]
    if not isinstance(found, type) or not issubclass(found, Enum):
        raise TypeError(qualname)
    return found.__members__[name]


def _file(data: bytes, at: int) -> io.BytesIO:
    if type(data) is not bytes:  # a number would be a size for BytesIO
        raise TypeError("a file's content is bytes")
    file = io.BytesIO(data)
    file.seek(at)
    return file


def _parse_zone(zone: object) -> timezone | ZoneInfo | None:
    if isinstance(zone, str):
        return ZoneInfo(zone)
    return None if zone is None else timezone(timedelta(seconds=float(zone)))  # type: ignore[arg-type]


def _make_path(kind: str, text: str) -> pathlib.PurePath:
    if kind not in _PATHS:
        raise ValueError(kind)
    pure = kind.startswith("Pure") or kind == type(pathlib.Path()).__name__
    path: pathlib.PurePath = getattr(pathlib, kind if pure else f"Pure{kind}")(text)  # of another system: pure
    return path


def _dictionary(name: str | None, items: Any) -> defaultdict[Any, Any]:  # noqa: ANN401  see _parts
    if type(items) is not dict:
        raise TypeError("its items are a dict")
    return defaultdict(FACTORIES[name], items)


def _require_tuple(of: Any) -> tuple[Any, ...]:  # noqa: ANN401  a file may hold any value
    # A range is small in the file, but the elements made of it are not.
    if type(of) is not tuple:
        raise TypeError("its elements are a tuple")
    return of


class KeyedValue(NamedTuple):
    """Value of several ranks' state with its key in a dict, which is not a str."""

    key: Any
    value: Any


MAKERS: dict[str, Callable[..., Any]] = {
    "bytes": lambda: b"",
    "array": _decode_whole_array,
    "scalar": _scalar,
    "entry": KeyedValue,
    "enum": _member,
    "file": _file,
    "path": _make_path,
    "range": range,
    "slice": slice,
    "set": lambda of: set(_require_tuple(of)),
    "deque": lambda of, most: deque(_require_tuple(of), most),
    "defaultdict": _dictionary,
    "frozenset": lambda of: frozenset(_require_tuple(of)),
    "date": date.fromisoformat,
    "datetime": lambda text, fold, zone: datetime.fromisoformat(text).replace(fold=fold, tzinfo=_parse_zone(zone)),
    "time": lambda text, fold, zone: time.fromisoformat(text).replace(fold=fold, tzinfo=_parse_zone(zone)),
    "timedelta": timedelta,
}


ATOMS = frozenset((bool, int, float, complex, str, type(None)))  # hold no other objects; not worth caching
_INSTEAD = "save plain values, or say weights_only=False when it is saved and when it is restored"


def check_weights_only(value: Any, at: str) -> None:  # noqa: ANN401  any value may be saved
    """Raise ``Unusable`` with the path of a value that weights only would refuse; copies no tensor data."""
    if why := _unsafe(value):
        _refuse_value(value, at, why, _unsafe, set())


def name_unsaved(value: Any, at: str) -> None:  # noqa: ANN401  any value may be saved
    """Raise ``Unusable`` with the path of a value that ``torch.save`` cannot save, if there is one."""
    if why := _unpicklable(value):
        _refuse_value(value, at, why, _unpicklable, set())


def format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _unsafe(value: object) -> str:
    """Return why torch would not load a value with weights only, or an empty string; copies no tensor data."""
    torch, file = torch_module(), io.BytesIO()
    if why := _unpicklable(value, file):
        return why
    file.seek(0)
    try:
        found: list[str] = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception as error:  # noqa: BLE001  of any kind, where torch has no word for what it meets
        return f"cannot be read with weights_only=True ({format_error(error)}): {_INSTEAD}"
    return f"needs {', '.join(found):.200}, which weights_only=True does not call: {_INSTEAD}" if found else ""


def _unpicklable(value: object, file: io.BytesIO | None = None) -> str:
    """Return why torch cannot pickle a value, or an empty string; pickle it into ``file``, without tensor data."""
    try:
        torch_module().save(value, file or io.BytesIO(), pickle_module=_PICKLING)
    except Exception as error:  # noqa: BLE001  a foreign class may raise anything
        return f"cannot be pickled ({format_error(error)}): save plain values"
    return ""


def _refuse_value(value: Any, at: str, why: str, test: Callable[[object], str], seen: set[int]) -> None:  # noqa: ANN401  see check_weights_only
    """Raise ``Unusable`` with the path of the innermost value that torch would not save or load."""
    seen.add(id(value))
    inner: dict[Any, Any] = {}
    if isinstance(value, dict):
        inner = dict(value)
    elif type(value) in (list, tuple):
        inner = dict(enumerate(value))
    for key, each in inner.items():
        if id(each) not in seen and (found := test([each])):
            _refuse_value(each, f"{at}[{key!r:.80}]", found, test, seen)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if callable(getattr(type(value), "state_dict", None)):
        why = why.replace("save plain values", "save its state_dict()")
    raise Unusable(f"{at} is {add_article(kind)}, and {why}")


class _Pickler(pickle.Pickler):
    """A pickler that omits tensor data but keeps tensors' attributes, and their class if it is not torch's own."""

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401  pickle's
        torch = torch_module()
        if isinstance(obj, torch.Tensor):
            kind = type(obj)
            own = kind.__module__.partition(".")[0] == "torch"
            if kind in (torch.Tensor, torch.nn.Parameter):
                # Copies no data. torch has no form for some dtypes and layouts, and raises.
                _, (storage, *_), *_ = obj.detach().__reduce_ex__(pickle.DEFAULT_PROTOCOL)
                if isinstance(storage, torch.storage.TypedStorage):
                    storage._pickle_storage_type()  # noqa: SLF001  torch.save asks it for each storage
            elif torch.nn.parameter.is_lazy(obj):
                raise pickle.PicklingError("it has no values before the first batch")
            usual = kind.__reduce_ex__ in (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__)
            return OrderedDict, (), {"of": None if own else kind, "attributes": vars(obj) if usual else {}}
        return NotImplemented


_PICKLING = SimpleNamespace(__name__="pickle", Pickler=_Pickler)  # the pickle module that torch.save is given
