"""Zip files: stored and deflated members, found by the directory at the end; zip64. Pure.

Format: PKWARE's APPNOTE 6.3.10. A member is a local header, its bytes, and a data descriptor if it was written to a
stream. The directory has the name, the sizes and the place of each member; only the local header says how long it is
itself. So an extent goes on to the next member, and ``sample`` parses the local headers in it.
"""

from __future__ import annotations

import re
import zlib
from array import array
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from penstock.data.shards.format import Ask
from penstock.data.shards.keys import ArchiveFormat, Grouping
from penstock.data.unpacking import check_unpacked
from penstock.errors import ChecksumMismatch, Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from penstock.data.shards.format import Extents, Fields, Walk

# Signature; flags, method, CRC-32, packed size, size; lengths of name and extra.
_LOCAL = Struct("<4s 2x H H 4x I I I H H")
# Signature; flags, method; CRC-32, packed size, size; lengths of name, extra and comment; disk, offset of the local
# header.
_ENTRY = Struct("<4s 4x H H 4x I I I H H H H 6x I")
# Signature; disk, disk of the directory, members on this disk and in all; size and offset of the directory; comment.
_END = Struct("<4s H H H H I I H")
_END64 = Struct("<4s Q 4x I I Q Q Q Q")
_LOCATOR = Struct("<4s I Q I")
_SUMS, _SUMS64 = Struct("<III"), Struct("<IQQ")  # of a data descriptor: CRC-32, packed size, size
_HEADER, _DESCRIPTOR = b"PK\3\4", b"PK\7\x08"
_MARKS = re.compile(rb"PK(?:\x07\x08|\x03\x04)")  # what a data descriptor begins with, or what follows it
_DESCRIPTOR_BYTES = 4 + _SUMS64.size  # of the longest one
_SHORTER_BYTES = _DESCRIPTOR_BYTES - _SUMS.size  # that the shortest one is shorter
_START, _LEAST, _PACKED, _EXTRA, _FLAGS, _METHOD, _CRC, _LENGTH = range(8)  # columns of `_Members`
_MOST16, _MOST32 = 0xFFFF, 0xFFFFFFFF
_END_MOST = (_MOST16, _MOST16, _MOST16, _MOST16, _MOST32, _MOST32)  # of the numbers at the end without zip64
_STREAMED, _UTF8 = 1 << 3, 1 << 11  # flags
_SECRET = 1 << 0 | 1 << 6 | 1 << 13
_STORED, _DEFLATED = 0, 8
_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd"}
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075  # extra fields
_MOST_FITTING = 8  # data descriptors that may be that of a stored member
_EMPTY_BYTES = 16  # most of a deflated member of nothing
_RATIO = 1032  # bytes that one byte of deflate can stand for: two bits are a match of 258

_TAIL_BYTES = 256 << 10  # of the first Ask: the end with a comment, and the directories of most shards
_BLOCK_BYTES = 8 << 20  # of one Ask for the rest of the directory
_MOST_BYTES = 256 << 20  # of a directory
# Bytes of one Ask for local headers: of the first few, and of many, as alignment makes them necessary.
_HEADER_BYTES, _FEW_HEADERS = 512, 16
_REWRITE = "write the zip file again"


@dataclass(frozen=True, slots=True)
class ZipFormat(ArchiveFormat):
    """Zip files whose neighbouring members with the same key form a sample; the CRC-32 of each is compared.

    Arguments are those of ``TarFormat``.
    """

    name: ClassVar[str] = "zip"
    suffixes: ClassVar[tuple[str, ...]] = (".zip",)

    def walk(self, size: int) -> Walk:
        base = max(0, size - _TAIL_BYTES)
        tail = (yield Ask(base, size)) if size else memoryview(b"")
        place = _directory(bytes(tail), base)
        pieces = list[memoryview]()
        for at in range(place.start, base, _BLOCK_BYTES):
            piece = yield Ask(at, min(base, at + _BLOCK_BYTES))
            pieces.append(piece)
        pieces.append(tail[max(place.start - base, 0) : place.stop - base])
        members = _members(b"".join(pieces), place)
        stops, gaps = yield from _stops(members, place.start, base, tail)
        grouping = Grouping(self)
        flags, methods = members.column(_FLAGS), members.column(_METHOD)
        unreadable = (flags & _SECRET > 0) | ((methods != _STORED) & (methods != _DEFLATED))
        starts = members.column(_START).tolist()
        for row, (name, start, stop, bad) in enumerate(
            zip(members.names, starts, stops, unreadable.tolist(), strict=True)
        ):
            if name.endswith("/"):
                continue
            if bad and self.split(name, start):
                raise _unreadable(name, int(flags[row]), int(methods[row]))
            grouping.add(name, start, stop)
        found = grouping.extents()
        _check_gaps(found, gaps)
        return found

    def sample(self, data: memoryview) -> Fields | memoryview:
        key = ""
        values: dict[str, Any] = {}
        at, size, wanted = 0, len(data), self.wanted
        stated = None
        held = 0  # bytes of members once inflated
        most = 0  # bytes that may be left behind the member, which `_stops` could not tell from a longer descriptor
        while at + _LOCAL.size <= size:
            found = _local(data, at)
            most = _SHORTER_BYTES if found.flags & _STREAMED else 0
            if most:
                known = _next_described(data, found)
                if known is None:
                    stated = _descriptors(data) if stated is None else stated
                    known = _apply_descriptor(data, found, stated.get(found.start, []))
                found = known
            if found.stop > size:
                raise Damaged(f"the member {found.name!r} at byte {at} of the sample reaches beyond it")
            split = None if found.name.endswith("/") else self.split(found.name, at)
            if split is not None:
                if values and split[0] != key:
                    raise Damaged(f"the bytes of the sample {key!r} also hold a member of {split[0]!r}")
                key = split[0]
                if not wanted or split[1] in wanted:
                    if split[1] in values:
                        raise Damaged(f"the bytes of the sample {key!r} hold the field {split[1]!r} twice")
                    held += found.length if found.method == _DEFLATED else 0
                    check_unpacked(held, f"the sample {key!r}")
                    values[split[1]] = _content(data, found)
            at = found.stop
        if size - at > most and any(data[at:]):
            raise Damaged(f"{size - at} unknown bytes are behind the members of the sample {key!r}")
        return self.made(key, values)


class _DirectoryPlace(NamedTuple):
    """Location of the directory, and its description at the end of the file.

    ``shift`` bytes are before the zip file, such as a program that unpacks it. The number of members is modulo 65,536
    unless it is ``exact``.
    """

    start: int
    stop: int
    shift: int
    members: int
    exact: bool


class _Members(NamedTuple):
    """Members by the directory, in the order of their bytes: columns, which take a fifth of the memory of objects.

    Attributes:
        names: Full names.
        values: int64, shape (members, 8). The columns are ``_START`` of the local header; ``_LEAST``, the first byte
            behind the member if the local header has no extra fields; ``_PACKED`` bytes; bytes of ``_EXTRA`` fields in
            the directory; ``_FLAGS``; ``_METHOD``; ``_CRC``; and ``_LENGTH``, bytes decompressed.
    """

    names: list[str]
    values: NDArray[np.int64]

    def column(self, number: int) -> NDArray[np.int64]:
        return self.values[:, number]


class _Local(NamedTuple):
    """A member by its local header, or by its data descriptor.

    ``start`` and ``end`` are those of its bytes in the file, ``stop`` is the first byte behind the member, ``length``
    is that of the decompressed bytes, and ``wide`` tells whether the header has zip64's sizes.
    """

    name: str
    flags: int
    method: int
    start: int
    end: int
    stop: int
    crc: int
    length: int
    wide: bool


class _Stated(NamedTuple):
    """A data descriptor: the end of the member's data, the end of the member, and the checksums.

    ``bare`` lacks the signature; sizes that are ``wide`` have eight bytes.
    """

    bare: bool
    wide: bool
    end: int
    stop: int
    crc: int
    length: int


def _directory(tail: bytes, base: int) -> _DirectoryPlace:
    """Return where the directory is, from ``tail``, the bytes of the file from ``base`` on."""
    at = tail.rfind(b"PK\5\6")
    while at >= 0 and (at + _END.size > len(tail) or at + _END.size + _END.unpack_from(tail, at)[7] != len(tail)):
        # A comment may have these bytes, too.
        at = tail.rfind(b"PK\5\6", max(0, len(tail) - _END.size - _MOST16), at)
    if at < 0:
        raise Damaged("the file does not end with a zip directory: it is cut short, or not a zip file")
    _, disk, first, here, members, length, offset, _ = _END.unpack_from(tail, at)
    stop, exact = at, False
    if at >= _LOCATOR.size and tail[at - _LOCATOR.size :][:4] == b"PK\6\7":
        stop, exact = _wide_end(tail, at - _LOCATOR.size, base), True
        wide = _END64.unpack_from(tail, stop)[2:]
        for most, one, other in zip(_END_MOST, (disk, first, here, members, length, offset), wide, strict=True):
            if one not in (most, other & most):
                raise Damaged(f"the end of the zip file states {one} where its zip64 record states {other}: {_REWRITE}")
        disk, first, here, members, length, offset = wide
    if disk or first or here != members:
        raise Unsupported(f"the zip file is one part of several: join them, and {_REWRITE}")
    start = base + stop - length
    if start < offset:
        raise Damaged(f"the zip directory of {length} bytes at byte {offset} reaches beyond the end of the file")
    if members * _ENTRY.size > length:
        raise Damaged(f"the zip file declares {members} members, too many for a directory of {length} bytes")
    if length > _MOST_BYTES:
        raise Unsupported(f"the zip directory has {length} bytes, more than {_MOST_BYTES}: write several zip files")
    return _DirectoryPlace(start, base + stop, start - offset, members, exact)


def _wide_end(tail: bytes, at: int, base: int) -> int:
    """Return where zip64's record is in ``tail``, whose locator is at ``tail[at]``."""
    _, _, place, disks = _LOCATOR.unpack_from(tail, at)
    if disks > 1:
        raise Unsupported(f"the zip file is one part of {disks}: join them, and {_REWRITE}")
    # The record is before its locator; if data of other programs are between them, where the locator says.
    for start in (at - _END64.size, place - base):
        if 0 <= start <= at - _END64.size and tail[start : start + 4] == b"PK\6\6":
            length = _END64.unpack_from(tail, start)[1]
            if start + 12 + length == at:
                return start
    raise Damaged(f"no zip64 record is before byte {base + at}, where its locator is")


def _members(directory: bytes, place: _DirectoryPlace) -> _Members:
    """Return the members in the order of their bytes."""
    names, values = list[str](), array("q")
    at = before = 0
    ordered = True
    while at + _ENTRY.size <= len(directory):
        mark, flags, method, crc, packed, length, named, more, comment, disk, offset = _ENTRY.unpack_from(directory, at)
        if mark != b"PK\1\2":
            break
        begin = at + _ENTRY.size
        extra = directory[begin + named : begin + named + more] if more else b""
        name = _name(directory[begin : begin + named], flags, extra, place.start + at)
        at = begin + named + more + comment
        if at > len(directory):
            raise Damaged(f"the zip directory ends within the entry of {name!r}")
        if _MOST32 in (length, packed, offset) or disk == _MOST16:
            length, packed, offset, disk = _widen_values(extra, (length, packed, offset, disk), name)
        if disk:
            raise Unsupported(f"the member {name!r} is on disk {disk} of several: join them, and {_REWRITE}")
        start = place.shift + offset
        least = start + _LOCAL.size + named + packed
        if least > place.start:
            raise Damaged(f"the member {name!r} at byte {start} has {packed} bytes and reaches into the directory")
        if length > (packed * _RATIO if method == _DEFLATED else packed) and method in {_STORED, _DEFLATED}:
            raise Damaged(f"the member {name!r} at byte {start} declares {length} bytes, too many for {packed}")
        names.append(name)
        values.extend((start, least, packed, more, flags, method, crc, length))
        ordered, before = ordered and before <= start, start
    _check_count(directory, at, len(names), place)
    table = np.frombuffer(values, np.int64).reshape(-1, 8)
    if not ordered:
        order = np.argsort(table[:, _START], kind="stable")
        names, table = [names[row] for row in order.tolist()], table[order]
    return _Members(names, table)


def _check_count(directory: bytes, at: int, count: int, place: _DirectoryPlace) -> None:
    """Check that entries up to ``at`` fill the directory, except for a signature, in the declared number."""
    if at != len(directory) and directory[at : at + 4] != b"PK\5\5":
        raise Damaged(f"no entry of a zip directory is at byte {place.start + at}")
    # Some programs write more members than 65,535 without zip64.
    if (count - place.members) % (_MOST16 + 1) or (place.exact and count != place.members):
        raise Damaged(f"the zip directory has {count} members, but the end of the file declares {place.members}")


def _stops(
    members: _Members, end: int, base: int, tail: memoryview
) -> Generator[Ask, memoryview, tuple[list[int], list[int]]]:
    """Find the end of each member's bytes, and the ends that a gap follows.

    A member ends where the next one begins, unless there is a gap, which is left where a program has deleted a member.
    As only local headers say how long they are, those of members with room for another one behind them are read, and
    one of many that differ from the directory in the same way. These, and those at the end of the file, are compared
    with the directory, which begins at byte ``end``. ``tail`` is the end of the file from byte ``base`` on.
    """
    starts, leasts, _, extras, flags, *_ = members.values.T
    nexts = np.append(starts[1:], end)[: len(starts)]
    if (over := np.flatnonzero(leasts > nexts)).size:
        row = int(over[0])
        one, other = (f"{members.names[each]!r} at byte {starts[each]}" for each in (row, row + 1))
        raise Damaged(f"the members {one} and {other} overlap")
    behind = nexts - leasts - _SUMS.size * (flags & _STREAMED > 0)
    near = starts >= base
    # A gap of less than a header hides nothing.
    looked = near | (behind > _LOCAL.size)
    if len(starts):
        looked[0] |= not near.any()
    stops, gaps, usual = nexts.tolist(), list[int](), set[tuple[int, int]]()
    headers = _Headers(min(base, end), base, tail)
    for row in np.flatnonzero(looked).tolist():
        kind = int(behind[row]), int(extras[row])
        if kind in usual and not near[row]:
            continue
        found = yield from headers.read(int(starts[row]), stops[row])
        if found is None:
            raise Damaged(f"no header of a zip member is at byte {starts[row]}, where {members.names[row]!r} should be")
        _check_local(members, row, found)
        streamed = bool((found.flags | flags[row]) & _STREAMED)
        least = found.start + int(members.values[row, _PACKED]) + _SUMS.size * streamed
        if stops[row] - least > _LOCAL.size:
            stops[row] = least + _SHORTER_BYTES * streamed
            gaps.append(stops[row])
        else:
            usual.add(kind)
    return stops, gaps


class _Headers:
    """Local headers in the order of their bytes, read in few requests."""

    def __init__(self, limit: int, base: int, tail: memoryview) -> None:
        """Request bytes below ``limit``; bytes from ``base`` on come from ``tail``."""
        self._limit, self._base, self._tail = limit, base, tail
        self._start, self._view, self._count = 0, memoryview(b""), 0

    def read(self, at: int, stop: int) -> Generator[Ask, memoryview, _Local | None]:
        """Return the member whose header is at byte ``at``, with places in the file; None if none ends by ``stop``."""
        size = _LOCAL.size
        for _ in range(2):
            if at + size > stop:
                return None
            data = yield from self._bytes(at, at + size)
            size = _LOCAL.size + sum(_LOCAL.unpack_from(data)[-2:])
        if data[: len(_HEADER)] != _HEADER:
            return None
        found = _local(memoryview(data), 0)
        return found._replace(start=found.start + at, end=found.end + at, stop=found.stop + at)

    def _bytes(self, at: int, stop: int) -> Generator[Ask, memoryview, bytes]:
        known = self._start + len(self._view)
        if at < self._limit and known < (least := min(stop, self._limit)):
            kept = bytes(self._view[at - self._start :]) if at < known else b""
            start, self._count = max(at, known), self._count + 1
            step = _HEADER_BYTES if self._count <= _FEW_HEADERS else _BLOCK_BYTES
            more = yield Ask(start, min(self._limit, max(least, start + step)))
            self._start, self._view = at, memoryview(kept + more)
        near = bytes(self._view[at - self._start : stop - self._start]) if at < self._limit else b""
        return near + bytes(self._tail[max(at - self._base, 0) : max(stop - self._base, 0)])


def _check_local(members: _Members, row: int, found: _Local) -> None:
    """Compare the local header of a member with the directory: readers trust either one silently."""
    name, (at, _, packed, _, flags, method, crc, length) = members.names[row], members.values[row].tolist()
    if flags & _SECRET:
        return
    ours: tuple[object, ...] = (name, method)
    theirs: tuple[object, ...] = (found.name, found.method)
    if not found.flags & _STREAMED:
        ours, theirs = (*ours, crc, packed, length), (*theirs, found.crc, found.end - found.start, found.length)
    if ours != theirs:
        one, other = next(pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1])
        raise Damaged(
            f"the zip directory has {one!r} for the member {name!r} at byte {at}, and the member's own header has "
            f"{other!r}: {_REWRITE}"
        )


def _check_gaps(found: Extents, gaps: list[int]) -> None:
    for gap in gaps:
        row = int(np.searchsorted(found.offsets, gap)) - 1
        if row >= 0 and gap < found.offsets[row] + found.sizes[row]:
            raise Damaged(
                f"the sample {found.keys[row]!r} has unknown bytes between its members, from byte {gap} on: {_REWRITE}"
            )


def _local(data: memoryview, at: int) -> _Local:
    """Return the member whose local header is at byte ``at`` of a sample."""
    mark, flags, method, crc, packed, length, named, more = _LOCAL.unpack_from(data, at)
    middle = at + _LOCAL.size + named
    start = middle + more
    if mark != _HEADER or start > len(data):
        raise Damaged(f"no header of a zip member is at byte {at} of the sample")
    extra = bytes(data[middle:start]) if more else b""
    name = _name(bytes(data[at + _LOCAL.size : middle]), flags, extra, at)
    wide = _MOST32 in (packed, length)
    if wide:
        length, packed = _widen_values(extra, (length, packed), name)
    return _Local(name, flags, method, start, start + packed, start + packed, crc, length, wide)


def _next_described(data: memoryview, found: _Local) -> _Local | None:
    """Return a deflated member with the sizes of the first signature behind its header, if they fit, as nearly always.

    Deflate says where it ends, so no other bytes can pass for the member's. Those of a stored member could.
    """
    mark = _MARKS.search(data, found.start) if found.method == _DEFLATED else None
    if mark is None or mark[0] != _DESCRIPTOR:
        return None
    end = mark.start()
    sums = _SUMS64 if found.wide else _SUMS
    stop = mark.end() + sums.size
    if stop > len(data):
        return None
    crc, packed, length = sums.unpack_from(data, mark.end())
    if packed != end - found.start or not _fits(packed, length, _DEFLATED) or not _ends(data, stop):
        return None
    return found._replace(end=end, stop=stop, crc=crc, length=length)


def _descriptors(data: memoryview) -> dict[int, list[_Stated]]:
    """Return possible data descriptors, by the first byte of the member whose packed size each declares.

    A descriptor has a signature, or a header or the end of the sample follows it. One pass finds those of all members.
    """
    found = dict[int, list[_Stated]]()

    def note(end: int, begin: int, *, wide: bool) -> None:
        sums = _SUMS64 if wide else _SUMS
        if end >= 0 and begin + sums.size <= len(data):
            crc, packed, length = sums.unpack_from(data, begin)
            if packed <= end:
                stated = _Stated(begin == end, wide, end, begin + sums.size, crc, length)
                found.setdefault(end - packed, []).append(stated)

    for mark in _MARKS.finditer(data):
        at = mark.start()
        for wide in (False, True):
            if data[at + 2] == _DESCRIPTOR[2]:
                note(at, at + len(_DESCRIPTOR), wide=wide)
            else:
                end = at - (_SUMS64 if wide else _SUMS).size
                note(end, end, wide=wide)
    for end in (len(data) - _SUMS.size, len(data) - _SUMS64.size):
        note(end, end, wide=end + _SUMS64.size == len(data))
    return found


def _apply_descriptor(data: memoryview, found: _Local, stated: list[_Stated]) -> _Local:
    """Return a member with the sizes of its data descriptor, which a streaming writer appends."""
    fitting = [
        each for each in stated if _fits(each.end - found.start, each.length, found.method) and _ends(data, each.stop)
    ]
    if found.end > found.start or found.start == len(data):
        # A few programs know the sizes, and some of them write no descriptor.
        same = [each for each in fitting if each.end == found.end]
        if not same and _ends(data, found.end):
            return found
        fitting = same or fitting
    # Signatures first; sizes have eight bytes if the header has zip64's extra field, but not all programs keep to it.
    fitting.sort(key=lambda each: (each.bare, each.wide != found.wide, each.end))
    fitting = [each for each in fitting if each.bare == fitting[0].bare]
    if found.method == _STORED and len({each.end for each in fitting}) > 1:
        # Bytes that look like a descriptor are inside a stored member, or behind it.
        crc32 = _library().crc32
        fitting = [each for each in fitting[:_MOST_FITTING] if crc32(data[found.start : each.end]) == each.crc]
        if len({each.end for each in fitting}) > 1:
            raise Damaged(f"the end of the stored member {found.name!r} is ambiguous: {_REWRITE}")
    if not fitting:
        raise Damaged(f"the member {found.name!r} has no data descriptor, and no size in its header")
    best = fitting[0]
    return found._replace(end=best.end, stop=best.stop, crc=best.crc, length=best.length)


def _fits(packed: int, length: int, method: int) -> bool:
    if method == _DEFLATED:
        return (length > 0 or packed <= _EMPTY_BYTES) and length <= packed * _RATIO
    return method != _STORED or packed == length


def _ends(data: memoryview, at: int) -> bool:
    """Return whether a member may end at byte ``at``: another one follows, or no more than `_stops` may have added."""
    return len(data) - at <= _SHORTER_BYTES or data[at : at + 4] == _HEADER


def _content(data: memoryview, found: _Local) -> memoryview:
    """Return the bytes of a member, after a comparison with their CRC-32."""
    if found.flags & _SECRET or found.method not in {_STORED, _DEFLATED}:
        raise _unreadable(found.name, found.flags, found.method)
    content = data[found.start : found.end]
    if found.method == _DEFLATED:
        content = _inflate_member(content, found.length, found.name)
    if len(content) != found.length:
        raise Damaged(f"the member {found.name!r} has {len(content)} bytes, but declares {found.length}")
    if _library().crc32(content) != found.crc:
        raise ChecksumMismatch(f"the CRC-32 of the member {found.name!r} does not match its {found.length} bytes")
    return content


def _inflate_member(packed: memoryview, length: int, name: str) -> memoryview:
    """Return the inflated bytes: exactly ``length``, and never more."""
    if length > len(packed) * _RATIO:
        raise Damaged(f"the member {name!r} declares {length} bytes, too many for {len(packed)} compressed bytes")
    library = _library()
    stream = library.decompressobj(-15)
    try:
        # One byte more than there should be shows whether there is more.
        found = stream.decompress(packed, length + 1)
    except library.error as error:
        raise Damaged(f"the member {name!r} cannot be decompressed: {error}") from error
    if len(found) != length or not stream.eof or stream.unused_data:
        raise Damaged(f"the member {name!r} does not decompress to the {length} bytes that it declares")
    return memoryview(found)


def _unreadable(name: str, flags: int, method: int) -> Unsupported:
    if flags & _SECRET:
        return Unsupported(f"the member {name!r} is encrypted: {_REWRITE} without a password, or leave it out (skip=…)")
    return Unsupported(
        f"the member {name!r} is compressed with {_METHODS.get(method, f'method {method}')}, which cannot be read: "
        f"{_REWRITE} with members that are stored or deflated, or leave it out (skip=…)"
    )


def _name(raw: bytes, flags: int, extra: bytes, at: int) -> str:
    """Return the name of the member whose header is at byte ``at``."""
    if b"\0" in raw:
        raise Damaged(f"the name {raw!r} of the member at byte {at} has a NUL")
    if raw.isascii():
        return raw.decode()
    if not flags & _UTF8:
        path = _field(extra, _UNICODE_PATH)
        # Version 1, CRC-32 of the name that it replaces, and the name.
        if path[:1] != b"\1" or zlib.crc32(raw).to_bytes(4, "little") != path[1:5]:
            return raw.decode("cp437")
        raw = path[5:]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Damaged(f"the name {raw!r} of the member at byte {at} is marked as UTF-8, but is not") from None


def _field(extra: bytes, wanted: int) -> bytes:
    """Return the extra field of a type; empty if there is none."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        if kind == wanted:
            return extra[at + 4 : at + 4 + length]
        at += 4 + length
    return b""


def _widen_values(extra: bytes, values: tuple[int, ...], name: str) -> list[int]:
    """Return sizes (8 bytes), offset (8) and disk (4), large values from zip64's extra field."""
    field, found, at = _field(extra, _ZIP64), list[int](), 0
    for value, most, width in zip(values, (_MOST32, _MOST32, _MOST32, _MOST16), (8, 8, 8, 4), strict=False):
        if value != most:
            found.append(value)
            continue
        found.append(int.from_bytes(field[at : at + width], "little"))
        at += width
    if at > len(field):
        raise Damaged(f"the member {name!r} lacks the extra field with its sizes (zip64)")
    return found


@cache
def _library() -> Any:  # noqa: ANN401  one of two modules with the same functions
    """Return the module for inflation and CRC-32: isal if it is installed (``penstock[torch]``), otherwise zlib.

    Of 100 KB, isal takes 1.6 µs for a sum and 110 µs to inflate, zlib 14 and 220.
    """
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib
