"""Memory to be filled: allocated without zeroing, or borrowed from the caller."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
# Without argtypes: checking them would take as long as the call.
_new_bytes.restype = ctypes.py_object
_ssize = ctypes.c_ssize_t
# A function of the C API, for bytes that no other code has seen.
_resize = getattr(ctypes.pythonapi, "_PyBytes_Resize", None)
_hold, _drop = ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.Py_DecRef
_hold.restype = _drop.restype = None
_export, _release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
_release.restype = None
_object_at: Callable[[ctypes.c_void_p], Any] = ctypes.py_object.from_buffer
# Up to this size, a copy takes less time than handing memory over.
_COPIED_BYTES = 16 << 10
# More than a run of samples has by default. Twice as much may then lie unused at the end of each thread's heap.
_REUSED_BYTES = 2 << 20
_OWN: Final = object()  # pin of a whole allocated buffer
# A bytes object is a header, its bytes, and one terminating zero that basicsize counts.
_BYTES_HEADER = bytes.__basicsize__ - 1


def _alone() -> int:
    """Return ``getrefcount`` of an object with one local name; the call itself may add a reference."""
    owner = bytearray(1)
    return sys.getrefcount(owner)


_ALONE = _alone()


def flat(buffer: object) -> memoryview:
    """Return a one-dimensional view of a buffer's bytes, even if it is empty; TypeError if it is not contiguous."""
    view = memoryview(buffer)  # type: ignore[arg-type]
    if view.nbytes:
        return view.cast("B")
    # A shape with a zero cannot be cast.
    return memoryview(b"") if view.readonly else memoryview(bytearray())


class _Export(ctypes.Structure):
    """The ``Py_buffer`` of the C API."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("address", "owner", "size", "item_size")),
        *((name, ctypes.c_int) for name in ("readonly", "dimensions")),
        *((name, ctypes.c_void_p) for name in ("format", "shape", "strides", "suboffsets", "internal")),
    )


def readable(buffer: bytes | bytearray | memoryview) -> tuple[int, object]:
    """Return the address of a buffer's bytes, for reading, and the object that must live until they are read."""
    # This view, which nothing releases, keeps the memory where it is.
    view, export = memoryview(buffer if len(buffer) else b""), _Export()
    _export(ctypes.py_object(view), ctypes.byref(export), 0)
    address: int = export.address
    _release(ctypes.byref(export))
    return address, view


class Buffer:
    """A region of memory with exactly one writer until its transfer ends.

    ``allocate`` makes a fresh ``bytes`` object whose contents are undefined until filled, as C extensions do
    (``PyBytes_FromStringAndSize(NULL, n)``): no zeroing pass, and the result is immutable for everyone but the
    transport, so ``io.BytesIO`` and pickling share it without a copy. No other code may see ``owner`` before then; it
    is None once the memory is ``spent``.
    """

    __slots__ = ("_pin", "address", "owner", "size")

    def __init__(self, owner: object, address: int, size: int, pin: object = None) -> None:
        """Wrap a region; ``pin`` is an object that must live as long as the address is in use."""
        self.owner = owner
        self.address = address
        self.size = size
        self._pin = pin

    @classmethod
    def allocate(cls, size: int) -> Buffer:
        """Allocate ``size`` uninitialised bytes, which become an ordinary ``bytes`` object once filled."""
        if size <= 1:
            # CPython shares the empty and the one-byte objects: those must never be written to.
            scratch = bytearray(size)
            return cls.borrow(scratch)
        if size <= _COPIED_BYTES:
            # Without memory: its bytes come as a copy, see ``renew``. ``__getattr__`` makes memory for all other uses.
            small = cls.__new__(cls)
            small.size, small._pin = size, _OWN  # noqa: SLF001  of this class
            return small
        owner = _new_bytes(None, _ssize(size))
        return cls(owner, id(owner) + _BYTES_HEADER, size, _OWN)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  of the missing attribute
        """Make the memory of a small allocated buffer; called only while ``owner`` and ``address`` are missing."""
        if name not in ("owner", "address"):
            raise AttributeError(name)
        # For so few bytes, a call through ctypes takes longer than zeroing.
        owner = self.owner = bytes(self.size)
        self.address = id(owner) + _BYTES_HEADER
        return owner if name == "owner" else self.address

    @classmethod
    def borrow(cls, buffer: object) -> Buffer:
        """Use a caller's buffer (bytearray, numpy, pinned memory); TypeError unless it is writable and contiguous."""
        view = flat(buffer)
        if view.nbytes == 0:
            return cls(buffer, 0, 0, view)
        # A pin on the first byte holds the whole buffer.
        pin = ctypes.c_char.from_buffer(view)
        return cls(buffer, ctypes.addressof(pin), view.nbytes, pin)

    def slice(self, start: int, stop: int) -> Buffer:
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"slice [{start}, {stop}) is outside a buffer of {self.size} bytes")
        pin = self.owner if self._pin is _OWN else self._pin
        return Buffer(self.owner, self.address + start, stop - start, pin)

    def view(self) -> memoryview:
        """Return a writable view of the region, for drivers that fill it themselves."""
        return (
            memoryview((ctypes.c_char * self.size).from_address(self.address)).cast("B")
            if self.size
            else memoryview(b"")
        )

    def fill(self, data: bytes | memoryview) -> None:
        if len(data) > self.size:
            raise ValueError(f"{len(data)} bytes do not fit a buffer of {self.size}")
        if len(data):
            self.view()[: len(data)] = data

    def renew(self, data: memoryview) -> None:
        """Fill the region with ``data`` of the same length; an allocated buffer gets a copy as its new memory.

        Nothing may write into the region meanwhile, and slices that were made before keep the old memory.
        """
        if self._pin is _OWN:
            owner = self.owner = bytes(data)
            self.address = id(owner) + _BYTES_HEADER
        else:
            self.fill(data)

    def copy(self, size: int) -> bytes:
        if not 0 <= size <= self.size:
            raise ValueError(f"cannot take {size} bytes of a buffer of {self.size}")
        return _new_bytes(ctypes.c_void_p(self.address), _ssize(size)) if size else b""

    def cut(self, size: int) -> bytes:
        """Return the first ``size`` bytes: the memory itself, whose rest is freed, or a copy.

        The memory itself is returned for more than 16 KiB of an allocated buffer that is at least half full and that no
        other code has. The buffer is then ``spent`` and cannot be used any more. Copying 100 KiB would take longer than
        all other work in Python for an object of that size.
        """
        if size <= _COPIED_BYTES or 2 * size < self.size or _resize is None or not isinstance(self.owner, bytes):
            return self.copy(size)
        if size > self.size:
            raise ValueError(f"cannot take {size} bytes of a buffer of {self.size}")
        owner, self.owner = self.owner, None
        # Other code holds the object too, or this buffer is a part of it.
        if sys.getrefcount(owner) > _ALONE or len(owner) != self.size:
            self.owner = owner
            return self.copy(size)
        cell = ctypes.c_void_p(id(owner))
        _hold(cell)
        # From here on the cell holds the only reference: the C API refuses to resize an object with others.
        del owner
        _resize(ctypes.byref(cell), _ssize(size))
        cut: bytes = _object_at(cell).value
        _drop(cell)
        return cut

    @property
    def spent(self) -> bool:
        return self.owner is None

    def take(self) -> bytes:
        """Return the contents as ``bytes``, without a copy if allocated; call it once the region is filled."""
        return self.owner if isinstance(self.owner, bytes) else bytes(self.view())


def reuse_freed() -> None:
    """Make this process reuse the memory of freed blocks from the first block on.

    At first, glibc gives each block of 128 KiB or more its own pages, and unmaps them when the block is freed. After
    the first such free, blocks up to the freed size share a heap, whose pages are used again. A window of blocks is
    allocated before any is freed: its pages would be made twice. So one block, whose pages are never touched, is freed
    here.
    """
    Buffer.allocate(_REUSED_BYTES)
