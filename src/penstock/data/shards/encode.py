"""Archives written member by member: headers and padding, equal for equal members. Pure.

A writer of a shard sends ``header``, the member's bytes and ``padding`` for each member, and ``end`` once. Times,
owners and permissions are the same in all archives: 1970 (zip: 1980, its first year), 0, and 0644.
"""

from __future__ import annotations

import struct
import tarfile
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK = 512
_NAME_BYTES = 0xFFFF  # of a member of a zip file; far beyond the names of any store
_MOST_MEMBERS = 1 << 22  # of one shard: the directory of a zip file is kept in memory


def check_member(name: str) -> None:
    """Refuse names that cannot be members, or that programs would unpack to another place."""
    why = ""
    if not name or "\0" in name:
        why = "it is empty, or has a NUL"
    elif any(part in ("", ".", "..") for part in name.split("/")):
        why = "a part between slashes is empty, '.' or '..'"
    else:
        try:
            if len(name.encode()) > _NAME_BYTES:
                why = f"it has more than {_NAME_BYTES} bytes"
        except UnicodeEncodeError:
            why = "it is not valid UTF-8"
    if why:
        raise Unusable(f"{name[:200]!r} cannot be the name of a member of an archive: {why}; leave it out (exclude=…)")


class ArchiveEncoder(ABC):
    """The bytes of one archive around its members, in order.

    ``suffix`` ends the archive's name; ``sums`` tells whether ``header`` needs the CRC-32 of the member.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    sums: ClassVar[bool] = False

    def __init__(self) -> None:
        self.position = 0  # bytes so far
        self.members = 0

    @property
    @abstractmethod
    def end_bytes(self) -> int:
        """Bytes of ``end`` as of now."""

    @abstractmethod
    def added_bytes(self, name: str, size: int) -> int:
        """Return the number of bytes that a member adds to the archive, those of ``end`` included."""

    @abstractmethod
    def header(self, name: str, size: int, crc: int = 0) -> bytes:
        """Return the bytes before a member of ``size`` bytes, which then counts as written."""

    @abstractmethod
    def end(self) -> bytes: ...

    def padding(self) -> bytes:
        """Return the bytes after a member."""
        return b""

    def _check_count(self) -> None:
        if self.members >= _MOST_MEMBERS:
            raise Unusable(f"a shard may have {_MOST_MEMBERS} members: pass samples=, or a smaller bytes=")


class TarEncoder(ArchiveEncoder):
    """A tar file: ustar headers, with pax records before those of names and sizes that do not fit into them."""

    name = "tar"
    suffix = ".tar"

    @property
    def end_bytes(self) -> int:
        return 2 * _BLOCK

    def added_bytes(self, name: str, size: int) -> int:
        header = _BLOCK if _is_plain(name, size) else len(_tar_header(name, size))
        return header + size + -size % _BLOCK

    def header(self, name: str, size: int, crc: int = 0) -> bytes:  # noqa: ARG002  a zip file's
        self._check_count()
        found = _tar_header(name, size)
        self.position += len(found) + size
        self.members += 1
        return found

    def padding(self) -> bytes:
        found = bytes(-self.position % _BLOCK)
        self.position += len(found)
        return found

    def end(self) -> bytes:
        self.position += 2 * _BLOCK
        return bytes(2 * _BLOCK)


# The header of an empty member without a name, whose sum counts the field of the sum as spaces.
_EMPTY = tarfile.TarInfo("").tobuf(tarfile.USTAR_FORMAT)
_EMPTY_SUM = sum(_EMPTY[:148]) + sum(_EMPTY[156:]) + 8 * ord(" ")
_NO_SIZE = b"%011o" % 0
_SHORT, _SMALL = 100, 8**11  # limits of names and sizes in a plain header


def _is_plain(name: str, size: int) -> bool:
    return len(name) <= _SHORT and size < _SMALL and name.isascii()


def _tar_header(name: str, size: int) -> bytes:
    if _is_plain(name, size):
        # As tarfile would, in a tenth of the time.
        raw, digits = name.encode(), b"%011o" % size
        total = _EMPTY_SUM + sum(raw) + sum(digits) - sum(_NO_SIZE)
        return raw.ljust(100, b"\0") + _EMPTY[100:124] + digits + _EMPTY[135:148] + b"%06o\0 " % total + _EMPTY[156:]
    member = tarfile.TarInfo(name)
    member.size = size
    if name.isascii():
        try:
            return member.tobuf(tarfile.USTAR_FORMAT)
        except ValueError:
            # The name or the size does not fit.
            pass
    return member.tobuf(tarfile.PAX_FORMAT)


_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR = struct.Struct("<IIQI")
_FULL, _FULL_COUNT = 0xFFFFFFFF, 0xFFFF  # a value that is elsewhere, in 64 bits
_DATE = 1 << 5 | 1  # 1 January 1980
_UTF8 = 1 << 11
_UNIX = 3 << 8
_MODE = 0o100644 << 16


class ZipEncoder(ArchiveEncoder):
    """A zip file of stored members with their CRC-32; 64-bit records where a size, a place or the count needs them."""

    name = "zip"
    suffix = ".zip"
    sums = True
    _end64_bytes = _END64.size + _LOCATOR.size

    def __init__(self) -> None:
        super().__init__()
        self._directory = bytearray()

    @property
    def end_bytes(self) -> int:
        return len(self._directory) + _END.size + (self._end64_bytes if self._large else 0)

    @property
    def _large(self) -> bool:
        return self._is_large(self.position, len(self._directory), self.members)

    @staticmethod
    def _is_large(position: int, directory_bytes: int, members: int) -> bool:
        return max(position, directory_bytes) >= _FULL or members >= _FULL_COUNT

    def added_bytes(self, name: str, size: int) -> int:
        encoded, large = len(name.encode()), size >= _FULL
        local = _LOCAL.size + encoded + (20 if large else 0) + size
        places = (16 if large else 0) + (8 if self.position >= _FULL else 0)
        central = _CENTRAL.size + encoded + (4 + places if places else 0)
        grown = self._is_large(self.position + local, len(self._directory) + central, self.members + 1)
        return local + central + (self._end64_bytes if grown and not self._large else 0)

    def header(self, name: str, size: int, crc: int = 0) -> bytes:
        self._check_count()
        encoded, large, start = name.encode(), size >= _FULL, self.position
        flags = 0 if name.isascii() else _UTF8
        extra = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
        shown = _FULL if large else size
        version = 45 if large else 20
        common = (flags, 0, 0, _DATE, crc, shown, shown, len(encoded))
        local = _LOCAL.pack(0x04034B50, version, *common, len(extra)) + encoded + extra
        places = (size, size) if large else ()
        if start >= _FULL:
            places, version = (*places, start), 45
        record = struct.pack(f"<HH{len(places)}Q", 1, 8 * len(places), *places) if places else b""
        self._directory += _CENTRAL.pack(
            0x02014B50, _UNIX | version, version, *common, len(record), 0, 0, 0, _MODE, min(start, _FULL)
        )
        self._directory += encoded + record
        self.position += len(local) + size
        self.members += 1
        return local

    def end(self) -> bytes:
        start, size, count = self.position, len(self._directory), self.members
        found = bytes(self._directory)
        if self._large:
            there = start + size
            found += _END64.pack(0x06064B50, _END64.size - 12, _UNIX | 45, 45, 0, 0, count, count, size, start)
            found += _LOCATOR.pack(0x07064B50, 0, there, 1)
        shown = min(count, _FULL_COUNT)
        found += _END.pack(0x06054B50, 0, 0, shown, shown, min(size, _FULL), min(start, _FULL), 0)
        self.position += len(found)
        return found


ENCODERS: dict[str, Callable[[], ArchiveEncoder]] = {"tar": TarEncoder, "zip": ZipEncoder}
