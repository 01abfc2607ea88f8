"""Streams of the C library that libcurl writes into: one over existing memory, and one that grows.

A third kind is opened once over its own memory and reused for one small body after another.
"""

from __future__ import annotations

import ctypes
from typing import Final

from penstock.errors import Bug

_UNBUFFERED: Final = 2  # _IONBF, the same number on glibc, musl and macOS

_void, _int, _long, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_size_t


class Pointer(ctypes.c_void_p):
    """A pointer result passed on unchanged: a plain ``c_void_p`` becomes an int, and an int is passed as 32 bits."""


_libc = ctypes.PyDLL(None)


def _declare(owner: ctypes.CDLL, name: str, result: object, *arguments: object) -> ctypes._FuncPointer:
    """Bind a function; without argument types, whose check costs a call, pass ctypes values and bytes only."""
    function: ctypes._FuncPointer = owner[name]
    function.restype = result  # type: ignore[assignment]
    function.argtypes = arguments or None  # type: ignore[assignment]
    return function


_fmemopen = _declare(_libc, "fmemopen", Pointer)
_open_memstream = _declare(_libc, "open_memstream", Pointer, ctypes.POINTER(_void), ctypes.POINTER(_size))
_setvbuf = _declare(_libc, "setvbuf", _int)
written = _declare(_libc, "ftell", _long)
rewind = _declare(_libc, "rewind", None)
_fclose = _declare(_libc, "fclose", _int)
flush = _declare(_libc, "fflush", _int)
fwrite = _declare(_libc, "fwrite", _size, ctypes.c_char_p, _size, _size, _void)
_free = _declare(_libc, "free", None, _void)
# Not ctypes.string_at: it takes the length as a C int, and 4 GiB + 5 bytes would be 5.
_bytes_at = _declare(ctypes.pythonapi, "PyBytes_FromStringAndSize", ctypes.py_object, _void, ctypes.c_ssize_t)
_first_byte = ctypes.c_char.from_address
_NONE = _size(0)


def open_over(address: int, size: int) -> Pointer:
    """Open an unbuffered stream that writes into ``[address, address + size)`` and nowhere else, or raise MemoryError.

    Mode "r+", not "w": with "w" glibc (2.36) writes a terminating NUL over the last byte of a region that has just been
    filled, so every object's last byte would be lost. "r+" first measures the existing content with ``strnlen``, hence
    the NUL at the start.
    """
    _first_byte(address).value = b"\0"
    stream: Pointer = _fmemopen(_void(address), _size(size), b"r+")
    if stream.value is None:
        raise MemoryError
    _setvbuf(stream, None, _UNBUFFERED, _NONE)
    return stream


def close_over(stream: Pointer) -> int:
    size: int = written(stream)
    _fclose(stream)
    return size


class Reused:
    """A stream over its own memory for one small body after another: ``rewind``, have a body ``written``, copy it.

    Opening and closing a stream over a body's own memory takes five calls, which take longer than copying 16 KiB.
    ``view`` shows the bytes written, followed by the older content.
    """

    __slots__ = ("_pin", "stream", "view")

    def __init__(self, size: int) -> None:
        memory = bytearray(size)
        self._pin = (ctypes.c_char * size).from_buffer(memory)
        self.view = memoryview(memory).toreadonly()
        self.stream = open_over(ctypes.addressof(self._pin), size)

    def close(self) -> None:
        _fclose(self.stream)


class Growing:
    """A stream that grows with its content; ``flush`` sets its ``address`` and the number of bytes ``held``."""

    __slots__ = ("address", "held", "stream")

    def __init__(self) -> None:
        self.address, self.held = _void(), _size()
        self.stream: Pointer = _open_memstream(ctypes.byref(self.address), ctypes.byref(self.held))
        if self.stream.value is None:
            raise MemoryError

    def close(self) -> bool:
        return bool(_fclose(self.stream) == 0)

    def free(self) -> None:
        _free(self.address)


class Collected(Growing):
    """A growing stream; close it, copy from it, then free it."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def close(self) -> bool:
        closed = super().close()
        self.size = self.held.value if self.address.value else 0
        return closed

    def copy(self, most_bytes: int) -> bytes:
        """Return at most the first ``most_bytes`` bytes. Raises MemoryError if memory is short."""
        body: bytes = _bytes_at(self.address, min(self.size, most_bytes)) if self.size else b""
        return body


def _check_fmemopen() -> None:
    """Raise Bug if the C library's ``fmemopen`` writes elsewhere than expected; runs before its first use."""
    probe = bytearray(b"..!")
    pin = (ctypes.c_char * 3).from_buffer(probe)
    stream = open_over(ctypes.addressof(pin), 2)
    wrote = fwrite(b"abc", 1, 2, stream), fwrite(b"c", 1, 1, stream)
    whole = bytes(probe)
    # Rewind after a refused write, too: it reports no failure. A NUL may follow the bytes that are written next.
    rewind(stream)
    again = fwrite(b"d", 1, 1, stream), close_over(stream)
    if (*wrote, *again) != (2, 0, 1, 1) or whole != b"ab!" or probe[::2] != b"d!":
        message = f"this C library's fmemopen writes {whole!r}, then {probe!r}, not b'ab!' and b'db!'"
        raise Bug(message)


_check_fmemopen()
