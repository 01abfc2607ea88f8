"""``torch.save`` with the zip's CRC-32s computed here: the same bytes, ten times faster than in torch."""

from __future__ import annotations

import io
import pickle
import struct
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.integrity.crc import crc32, fast
from penstock.errors import Bug

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["save_torchfile"]

# The parts of a zip (APPNOTE 4.3.7, 4.3.9, 4.3.12) and where in them lies what matters here.
_LOCAL, _LOCAL_BYTES = b"PK\3\4", 30
_DESCRIPTOR, _DESCRIPTOR_CRC = b"PK\7\10", 4
_CENTRAL, _CENTRAL_BYTES, _CENTRAL_CRC = b"PK\1\2", 46, 16
_FLAGS, _DESCRIBED = 6, 8  # a CRC, and a descriptor for it, comes after the data
_EXTRA = 28  # where its length stands in a local header
_ID = b"/.data/serialization_id"  # of 20 digits for the names of the records and 20 for their CRCs
_ID_DIGITS = 20
_MASK = (1 << 64) - 1
_PIECE_BYTES = 256 << 10  # summed, written and digested in turn, while the processor's cache holds them


def save_torchfile(torch: Any, obj: object, file: Any) -> None:  # noqa: ANN401  the module; any binary file
    """Write what ``torch.save`` would; each storage is one ``write`` of its own memory.

    Where isal is not installed, or torch is another than this was tried with, torch computes the sums.
    """
    if fast() is None or not torch.serialization.get_crc32_options() or not _as_tried(torch):
        torch.save(obj, file)
    else:
        _save(torch, obj, _CrcWriter(file))


@cache
def _as_tried(torch: Any) -> bool:  # noqa: ANN401  the module
    """Say whether a save comes out as torch's own, to the byte."""
    if torch.__version__ < "2.13":  # its setting may be one for all threads; from here on each has its own
        return False
    state = {"many": torch.ones(3), "none": torch.ones(0)}
    ours, own = io.BytesIO(), io.BytesIO()
    torch.save(state, own)
    try:
        copy_context().run(_save, torch, state, _CrcWriter(ours))
    except (Bug, RuntimeError, TypeError, AttributeError):
        return False
    return ours.getvalue() == own.getvalue()


def _save(torch: Any, obj: object, file: _CrcWriter) -> None:  # noqa: ANN401  the module
    """Save without sums; nothing but this one file, whatever else is saved while ``obj`` is being pickled."""
    again = torch.serialization.set_crc32_options
    again(False)  # noqa: FBT003  torch's own signature
    try:
        torch.save(obj, file, pickle_module=_Pickling(lambda: again(True)))  # noqa: FBT003  see above
    finally:
        again(True)  # noqa: FBT003  see above


class _Pickling:
    """The module ``pickle``, and a note of when torch has opened its file and begins."""

    __name__ = "pickle"

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun

    @property
    def Pickler(self) -> type[pickle.Pickler]:  # noqa: N802  the module's name for it
        self._begun()
        return pickle.Pickler


class _CrcWriter:
    """A file for ``torch.save`` to write an archive without sums to; it passes it on with them."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401  any binary file
        self._file = file
        self._parts = _parts()
        next(self._parts)
        self._failed = False

    def write(self, data: memoryview) -> int:
        if self._failed:  # torch ends its archive all the same
            return int(self._file.write(data))
        self._failed = True
        part = self._parts.send(data)
        if isinstance(part, memoryview):
            self._file.write(part)
        else:
            self._parts.send(self._with_sum(data))
        self._failed = False
        return len(data)

    def _with_sum(self, data: memoryview) -> int:
        """Write a record's data and return its sum."""
        crc = 0
        for at in range(0, len(data), _PIECE_BYTES):
            piece = data[at : at + _PIECE_BYTES]
            crc = crc32(piece, crc)
            self._file.write(piece)
        return crc

    def flush(self) -> None:
        self._file.flush()


def _parts() -> Generator[memoryview | None, Any, None]:
    """Take an archive, write by write as torch makes it, and give back what is to be written.

    None: write it as it is, and give its sum before what comes next.
    """
    sums: list[int] = []
    combined = 0
    data = yield memoryview(b"")
    while data[:4] == _LOCAL and len(data) == _LOCAL_BYTES:
        (flags,) = struct.unpack_from("<H", data, _FLAGS)
        (extra,) = struct.unpack_from("<H", data, _EXTRA)
        name = yield data
        data = yield name
        while extra > 0:  # past 4 GiB there is a field before the padding, and each is a write
            extra -= len(data)
            data = yield data
        sums.append(0)
        if flags & _DESCRIBED:
            if name.tobytes().endswith(_ID):
                data = memoryview(data[:_ID_DIGITS].tobytes() + f"{combined:020}".encode())
                sums[-1] = crc32(data)
            else:
                sums[-1] = yield None
            combined ^= (sums[-1] + 0x9E3779B9 + (combined << 6) + (combined >> 2)) & _MASK
            data = _with_sum(_expected((yield data), _DESCRIPTOR), _DESCRIPTOR_CRC, sums[-1])
            data = yield data
    directory = bytearray(_expected(data, _CENTRAL))
    at = 0
    for crc in sums:
        struct.pack_into("<I", directory, at + _CENTRAL_CRC, crc)
        at += _CENTRAL_BYTES + sum(struct.unpack_from("<HHH", directory, at + 28))
    if at != len(directory):
        raise Bug("torch.save wrote another directory than it announced")
    data = yield memoryview(directory)
    while True:
        data = yield data


def _expected(part: memoryview, magic: bytes) -> memoryview:
    if part[:4] != magic:
        raise Bug(f"torch.save wrote {part[:4].tobytes()!r} where {magic!r} was due")
    return part


def _with_sum(part: memoryview, at: int, crc: int) -> memoryview:
    return memoryview(part[:at].tobytes() + crc.to_bytes(4, "little") + part[at + 4 :].tobytes())
