# ruff: noqa: SLF001  the table of opcodes is a part of the class
"""A pickle reader that runs no code: it describes the objects that a pickle would make.

``pickle``'s own unpickler calls the functions that a file names, and takes 16 bytes of memory for each number below
one that a file names. This reader makes only lists, tuples and three small classes, at most one per opcode. Time and
memory are proportional to the pickle's length (at worst 100 bytes per byte).
"""

from __future__ import annotations

import pickle
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_STEPS = 1 << 25  # opcodes: a checkpoint of a million tensors


class Name(NamedTuple):
    """Class or function that a pickle names."""

    module: str
    name: str


class Pairs(list[tuple[Any, Any]]):
    """Keys and values of a dict, duplicates included; nothing is hashed, because a hash can be made expensive."""

    __slots__ = ()


class Call:
    """Description of an object that a call would make."""

    __slots__ = ("args", "by", "content", "new", "state")

    def __init__(self, by: object, args: object, *, new: bool = False) -> None:
        self.by = by  # a ``Name``, in a valid pickle
        self.args = args
        self.new = new  # only the class's ``__new__`` is called
        self.state: Any = None  # set afterwards, if any
        self.content: list[Any] | None = None  # added afterwards: items, or ``Pairs``


class PickleScan:
    """Contents of a pickle of protocols 2 to 5; ``UnpicklingError`` for one that neither torch nor Python wrote."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.asked: list[Any] = []  # persistent ids, in order: the storages of a ``torch.save`` file
        self.names: set[str] = set()  # each class or function, as ``module name``
        self.calls: list[Call] = []
        self._data = bytes(data)
        self._at = 0
        self._stack: list[Any] = []
        self._under: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        try:
            self.result = self._read()
        except (LookupError, ValueError, TypeError, AttributeError, struct.error) as error:
            raise pickle.UnpicklingError(f"invalid pickle at byte {self._at}: {error}") from None

    def _read(self) -> object:
        data = self._data
        for _ in range(_MOST_STEPS):
            opcode = data[self._at]
            self._at += 1
            if opcode == _STOP:
                return self._stack.pop()
            _TABLE[opcode](self)
        raise ValueError("longer than the pickle of any checkpoint")

    def _bytes(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError(f"truncated: {size} more bytes were expected")
        return self._data[start : self._at]

    def _line(self) -> str:
        start = self._at
        self._at = self._data.index(b"\n", start) + 1
        return self._data[start : self._at - 1].decode()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _natural(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _marked(self) -> list[Any]:
        """Remove the items above the last mark, with the mark, and return them."""
        above, self._stack = self._stack, self._under.pop()
        return above

    def _named(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name must be a str")
        self.names.add(f"{module} {name}")
        self._stack.append(Name(module, name))

    def _made(self, args: object, *, new: bool = False) -> None:
        """Replace the callable on the stack by the description of its result."""
        self._stack[-1] = Call(self._stack[-1], args, new=new)
        self.calls.append(self._stack[-1])

    def _set(self) -> None:
        state = self._stack.pop()
        if isinstance(made := self._stack[-1], Call):
            made.state = state
        else:
            raise TypeError("a state for an object that cannot have one")

    def _added(self, items: list[Any]) -> None:
        held = self._stack[-1]
        if isinstance(held, Call):
            held.content = [] if held.content is None else held.content
            held = held.content
        if isinstance(held, Pairs) or not isinstance(held, list):
            raise TypeError("items for an object that cannot have any")
        held.extend(items)

    def _paired(self, items: list[Any]) -> None:
        held = self._stack[-1]
        if isinstance(held, Call):
            held.content = Pairs() if held.content is None else held.content
            held = held.content
        if not isinstance(held, Pairs):
            raise TypeError("keys for an object that cannot have any")
        held.extend(_pairs(items))

    def _asked(self) -> None:
        self.asked.append(self._stack.pop())
        self._stack.append(None)

    def _begun(self) -> None:
        self._under.append(self._stack)
        self._stack = []

    def _ended(self, make: Callable[[list[Any]], object]) -> None:
        items = self._marked()
        self._stack.append(make(items))

    def _popped(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._marked()

    def _last(self, count: int) -> list[Any]:
        items = self._stack[-count:]
        if len(items) != count:
            raise LookupError("too few items on the stack")
        del self._stack[-count:]
        return items

    def _noted(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def _unknown(self) -> None:
        raise ValueError(f"opcode {self._data[self._at - 1]:#x}, which torch does not write")


_STOP = ord(".")


def _push(make: Callable[[PickleScan], object]) -> Callable[[PickleScan], None]:
    return lambda self: self._stack.append(make(self))


def _make_sized_opcode(size: int, make: Callable[[bytes], object]) -> Callable[[PickleScan], None]:
    """Return an opcode that reads a length of ``size`` bytes, then that many bytes, and pushes ``make`` of them."""
    return lambda self: self._stack.append(make(self._bytes(self._natural(size))))


_integer = partial(int.from_bytes, byteorder="little", signed=True)
_decode_utf8 = partial(str, encoding="utf-8", errors="surrogatepass")
_latin = partial(str, encoding="latin-1")


def _pairs(items: list[Any]) -> Pairs:
    return Pairs(zip(items[::2], items[1::2], strict=True))


_OPCODES: dict[bytes, Callable[[PickleScan], object]] = {
    b"\x80": lambda self: self._bytes(1),  # the protocol
    b"\x95": lambda self: self._bytes(8),  # a frame's length: all is in memory already
    b"N": _push(lambda _: None),
    b"\x88": _push(lambda _: True),
    b"\x89": _push(lambda _: False),
    b"J": _push(lambda self: _integer(self._bytes(4))),
    b"K": _push(PickleScan._byte),
    b"M": _push(lambda self: self._natural(2)),
    b"\x8a": _make_sized_opcode(1, _integer),
    b"\x8b": _make_sized_opcode(4, _integer),
    b"G": _push(lambda self: struct.unpack(">d", self._bytes(8))[0]),
    b"X": _make_sized_opcode(4, _decode_utf8),
    b"\x8c": _make_sized_opcode(1, _decode_utf8),
    b"\x8d": _make_sized_opcode(8, _decode_utf8),
    b"U": _make_sized_opcode(1, _latin),
    b"T": _make_sized_opcode(4, _latin),
    b"C": _make_sized_opcode(1, bytes),
    b"B": _make_sized_opcode(4, bytes),
    b"\x8e": _make_sized_opcode(8, bytes),
    b"\x96": _make_sized_opcode(8, bytes),
    b"(": PickleScan._begun,
    b"0": PickleScan._popped,
    b"1": PickleScan._marked,
    b"2": _push(lambda self: self._stack[-1]),
    b")": _push(lambda _: ()),
    b"\x85": _push(lambda self: tuple(self._last(1))),
    b"\x86": _push(lambda self: tuple(self._last(2))),
    b"\x87": _push(lambda self: tuple(self._last(3))),
    b"t": lambda self: self._ended(tuple),
    b"]": _push(lambda _: []),
    b"l": lambda self: self._ended(list),
    b"a": lambda self: self._added(self._last(1)),
    b"e": lambda self: self._added(self._marked()),
    b"}": _push(lambda _: Pairs()),
    b"d": lambda self: self._ended(_pairs),
    b"s": lambda self: self._paired(self._last(2)),
    b"u": lambda self: self._paired(self._marked()),
    b"\x8f": _push(lambda _: Call(Name("builtins", "set"), ())),
    b"\x90": lambda self: self._added(self._marked()),
    b"\x91": lambda self: self._ended(lambda items: Call(Name("builtins", "frozenset"), (items,))),
    b"q": lambda self: self._noted(self._byte()),
    b"r": lambda self: self._noted(self._natural(4)),
    b"\x94": lambda self: self._noted(len(self._memo)),
    b"h": lambda self: self._stack.append(self._memo[self._byte()]),
    b"j": _push(lambda self: self._memo[self._natural(4)]),
    b"c": lambda self: self._named(self._line(), self._line()),
    b"\x93": lambda self: self._named(*self._last(2)),
    b"R": lambda self: self._made(self._stack.pop()),
    b"\x81": lambda self: self._made(self._stack.pop(), new=True),
    b"b": PickleScan._set,
    b"Q": PickleScan._asked,
}
_TABLE = [_OPCODES.get(bytes([opcode]), PickleScan._unknown) for opcode in range(256)]
