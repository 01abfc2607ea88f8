"""Tar files: ustar, pax and GNU headers; WebDataset's shards. Pure.

Formats: POSIX.1-2001 (pax) and GNU tar's manual, "Basic Tar Format". A header is a block of 512 bytes. An extension
(pax records, or a GNU long name) is a member before the one that it describes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from zlib import adler32

from penstock.data.shards.format import Ask
from penstock.data.shards.keys import ArchiveFormat, Grouping
from penstock.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.data.shards.format import Fields, Walk

_BLOCK = 512
# Name, size, sum, type, magic and prefix.
_HEADER = struct.Struct("100s 24x 12s 12x 8s c 100x 6s 82x 155s 12x")
# Name, digits of the size, the byte after these, digits of the sum, the two bytes after these, type, first byte of the
# prefix.
_plain = struct.Struct("<100s 24x 11s B 12x 6s H c 188x B 166x").unpack_from
_ENDING = 0x2000  # a zero and a space after the digits of the sum, as tar programs write them
_UNDERSCORE, _SLASH = b"_/"  # numbers, because bytes in bytes raises an error within
_USTAR = b"ustar\0"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZERO = bytes(_BLOCK)
_MOST_DIGITS = 19  # of 2^63
_NAME_BYTES = 1 << 20  # limit of an extension: no file system has longer names
_MOST_OCTAL = 8**11  # bytes that the size of a header states up to
_REGULAR = b"0\x007"
_FOLDER = b"5D"  # D: GNU's list of a folder in an incremental archive
_PAX, _PAX_ALL = b"x", b"g"
_EXTENSIONS = b"LKxg"  # L, K: GNU's long names of a member and of a link
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}
_FIRST_BYTES, _MOST_BYTES = 64 << 10, 8 << 20  # of one Ask while reading on
# Members at least this large are skipped: a request for the next header costs less than their bytes.
_SKIP_BYTES = 256 << 10
_HEADER_BYTES = 3 * _BLOCK  # of one Ask after a skipped member: an extension, its block, and the header
_TAIL_BYTES = 8 << 20  # of one Ask for the zeros after the end of the archive
_MOST_EXTENSIONS = 16  # before one member


class TarMember(NamedTuple):
    """A member: where its headers begin, where its bytes are, its name and its type."""

    start: int
    data: int
    stop: int
    name: str
    kind: bytes

    @property
    def next(self) -> int:
        return self.stop + -self.stop % _BLOCK


@dataclass(frozen=True, slots=True)
class TarFormat(ArchiveFormat):
    """Tar files whose neighbouring members with the same key form a sample, as in WebDataset's shards.

    Args:
        fields: Names of the fields to take, which are the ends of members' names, in lower case; empty: all. A single
            name as a str: samples are the members with this end.
        key: ``"first-dot"``: a key ends at the first dot of a file's name (WebDataset's rule); ``"last-dot"``; a
            regular expression with the groups ``key`` and ``field``; or a function from a name to both, or to None.
        missing: Treatment of a sample that lacks one of ``fields``: ``"error"``, ``"drop"`` to leave the sample out,
            or ``"none"`` for None as the value of the field.
        skip: Globs of the names of members that are left out.
    """

    name: ClassVar[str] = "tar"
    # How a member is left out, in errors.
    leave_out: ClassVar[str] = "leave it out (skip=…)"
    suffixes: ClassVar[tuple[str, ...]] = (".tar",)

    def walk(self, size: int) -> Walk:
        grouping = Grouping(self)
        base = at = 0  # `view` has the bytes from `base` on; the next header is at `at`
        step = 2 * _FIRST_BYTES
        if not size:
            raise Damaged("the tar file has 0 bytes: it is incomplete")
        view = yield Ask(0, min(size, step))
        _check_first(view)
        while at < size:
            found = read_member(view, at - base, at, size)
            if isinstance(found, int):
                # More bytes are needed, up to `found`: go on after the last byte, or at a header behind a large member.
                known = base + len(view)
                if at > known:
                    start, step = at, _HEADER_BYTES
                else:
                    start, step = known, min(_MOST_BYTES, 2 * step)
                stop = min(size, max(found, start + step))
                kept = view[at - base :] if at < known else view[:0]
                if stop <= known:
                    raise Damaged(f"the tar file ends within the member at byte {at}")
                more = yield Ask(start, stop)
                view, base = memoryview(bytes(kept) + more) if len(kept) else more, at
                continue
            if found is None:
                known = base + len(view)
                yield from check_tail(at, view[at - base :], (known, size))
                break
            if found.stop > size:
                raise Damaged(f"the tar file ends within the member {found.name!r} at byte {found.start}")
            _check_kind(self, found)
            if found.kind in _REGULAR:
                grouping.add(found.name, found.start, found.stop)
            at = found.next
            known = base + len(view)
            if known < at < min(size, known + _SKIP_BYTES):
                step = min(_MOST_BYTES, 2 * step)
                stop = min(size, max(known + step, at + _HEADER_BYTES))
                view, base = (yield Ask(known, stop)), known
        else:
            raise Damaged(
                f"the tar file has {size} bytes, but does not end in a block of zeros: it is truncated; if "
                "it is complete, append 1,024 bytes of zeros"
            )
        return grouping.extents()

    def sample(self, data: memoryview) -> Fields | memoryview:  # noqa: C901, PLR0912  calls cost too much here
        key, known = "", b""
        values: dict[str, Any] = {}
        at, size, wanted = 0, len(data), self.wanted if self.fields else ()
        # A subclass may split names in another way.
        simple = self.key == "first-dot" and not self.skip and type(self).split is ArchiveFormat.split
        while at < size:
            name, length, last, total, ending, kind, prefix = _plain(data, at)
            start, stop = at + _BLOCK, -1
            # A plain header, as almost all are, is read here: the same as below in a third of the time.
            # Old programs write a twelfth digit of the size in place of a zero or a space.
            if ending == _ENDING and kind == b"0" and not prefix and not last & ~0x20:
                try:
                    if adler32(data[at:start]) & 0xFFFF == _expect_adler(total):
                        stop = start + int(length, 8)
                except ValueError:
                    pass
            stem, dot, rest = name.partition(b".")
            if stop < start:
                title, start, stop, kind = _other(self, data, at)
                known, split = b"", self.split(title, at) if kind in _REGULAR else None
            elif (
                simple
                and dot
                and (stem == known != b"" or (stem and 0 not in stem and stem[0] != _UNDERSCORE and stem[-1] != _SLASH))
                and _SLASH not in rest
            ):
                # The first dot of the name is that of its last component, and the member is not left out.
                field = rest.partition(b"\0")[0].decode("utf-8", "surrogateescape").lower()
                split = (key if stem == known else stem.decode("utf-8", "surrogateescape")), field
                known = stem
            else:
                title = name.partition(b"\0")[0].decode("utf-8", "surrogateescape")
                known, split = b"", self.split(title, at)
            if not start <= stop <= size:
                raise Damaged("the bytes of a sample are not those of tar members")
            at = stop + -stop % _BLOCK
            if split is None:
                continue
            owner, field = split
            if owner != key:
                if key or values:
                    raise Damaged(f"the bytes of the sample {key!r} also hold a member of {owner!r}")
                key = owner
            if not wanted or field in wanted:
                if field in values:
                    raise Damaged(f"the bytes of the sample {key!r} hold the field {field!r} twice")
                values[field] = data[start:stop]
        return self.made(key, values)


# A thousand sums or so are all that there are; to compute each anew takes 0.1 µs more.
@lru_cache(1 << 12)
def _expect_adler(total: bytes) -> int:
    """Return the low half of Adler-32 of a plain header with the sum ``total``: see ``_verify_header_sum``."""
    return (int(total, 8) + sum(total) - 223) % 65521


def _other(form: TarFormat, data: memoryview, at: int) -> tuple[str, int, int, bytes]:
    """Return name, first byte, end and type of the member at ``data[at]``, for any kind of headers."""
    found = read_member(data, at, at, len(data))
    if not isinstance(found, TarMember):
        raise Damaged("the bytes of a sample are not those of tar members")
    # A walk has done so; a side index has not.
    _check_kind(form, found)
    return found.name, found.data, found.stop, found.kind


def _check_first(data: memoryview) -> None:
    kind = "gzip" if data[:2] == _GZIP else "zstd" if data[:4] == _ZSTD else ""
    if kind:
        raise Unsupported(
            f'the tar file is compressed with {kind}, so samples cannot be read separately: pass format="tar.gz" '
            "with the URL of the file, or a glob; or write the samples into a tar or zip file with ps.pack"
        )


def _check_kind(form: TarFormat, found: TarMember) -> None:
    """Refuse members that are neither files nor folders, unless excluded by name; always refuse sparse files."""
    if found.kind in _REGULAR + _FOLDER:
        return
    if found.kind == b"S" or form.split(found.name, found.start) is not None:
        kind = _KINDS.get(found.kind, f"a member of type {found.kind.decode('latin-1')!r}")
        raise Unsupported(
            f"the member {found.name!r} at byte {found.start} is {kind}, which has no bytes: store the file "
            f"itself (tar --dereference --hard-dereference), or {form.leave_out}"
        )


def check_tail(end: int, view: memoryview, rest: tuple[int, int]) -> Generator[Ask, memoryview, None]:
    """Check that nothing but zeros follows the end of the archive at ``end``: another archive would be lost.

    tar fills up a record, of 10 KiB by default, and of any size with ``-b``. ``view`` has the known bytes from ``end``
    on, and ``rest`` the first byte that is not known, and the size of the file.
    """
    for at in (None, *range(*rest, _TAIL_BYTES)):
        piece = view if at is None else (yield Ask(at, min(at + _TAIL_BYTES, rest[1])))
        if bytes(piece).strip(b"\0"):
            raise Damaged(
                f"the archive ends at byte {end}, and other bytes than zeros follow it: are several concatenated?"
            )


def read_member(view: memoryview, at: int, offset: int, size: int) -> TarMember | int | None:
    """Return the member whose headers begin at ``view[at]``, which is byte ``offset`` of a file of ``size`` bytes.

    None at the end of the archive; or the byte of the file up to which the view must reach.
    """
    start, shift, given, count = offset, offset - at, None, 0
    while True:
        if at + _BLOCK > len(view):
            return _within(shift + at + _BLOCK, size, "a header")
        name, length, total, kind, magic, prefix = _HEADER.unpack_from(view, at)
        found = _verify_header_sum(view[at : at + _BLOCK], total, shift + at)
        if not found:
            if at + shift != start:
                raise Damaged(f"no member follows the extension at byte {start}")
            return None
        number = _decode_header_number(length)
        if number < 0:
            raise Damaged(f"the tar header at byte {shift + at} has no valid size")
        at += _BLOCK
        if kind not in _EXTENSIONS:
            # GNU's magic has a space here, and other values in place of the prefix.
            title = (
                _decode_field(prefix) + "/" + _decode_field(name)
                if prefix[0] and magic == _USTAR
                else _decode_field(name)
            )
            return _build_member(given, title, kind, (start, shift + at, number))
        count += 1
        if count > _MOST_EXTENSIONS:
            raise Damaged(f"more than {_MOST_EXTENSIONS} extensions follow each other from byte {start} on")
        if number > _NAME_BYTES:
            raise Damaged(f"the extension at byte {shift + at - _BLOCK} has {number} bytes, too many for names")
        stop = at + number + -number % _BLOCK
        if stop > len(view):
            return _within(shift + stop, size, "an extension")
        given = given or _Extended()
        given.add(kind, bytes(view[at : at + number]), start)
        at = stop


def _within(stop: int, size: int, place: str) -> int:
    if stop > size:
        raise Damaged(f"the tar file ends within {place}, which reaches to byte {stop}")
    return stop


class _Extended:
    """Values of the extensions before a member, which replace those of its header."""

    def __init__(self) -> None:
        self.name = ""
        self.length = -1
        self.sparse = False

    def add(self, kind: bytes, data: bytes, start: int) -> None:
        """Take the values of one extension of the member at byte ``start``."""
        if kind == b"L":
            self._rename(_decode_field(data), start)
        if kind not in (_PAX, _PAX_ALL):
            return
        found = _records(data, start)
        if kind == _PAX_ALL and found.keys() & {b"path", b"size"}:
            raise Unsupported(f"the global pax header at byte {start} sets a name or a size for all members")
        self.sparse = self.sparse or any(each.startswith(b"GNU.sparse.") for each in found)
        if b"path" in found:
            self._rename(_decode_field(found[b"path"]), start)
        if b"size" in found:
            length = _decimal(found[b"size"], start)
            if self.length not in (-1, length):
                raise Damaged(f"two extensions of the member at byte {start} state {self.length} and {length} bytes")
            self.length = length

    def _rename(self, name: str, start: int) -> None:
        if self.name not in ("", name):
            raise Damaged(f"two extensions of the member at byte {start} name it {self.name!r} and {name!r}")
        self.name = name


def _build_member(given: _Extended | None, name: str, kind: bytes, place: tuple[int, int, int]) -> TarMember:
    """Return the member of a header; ``place``: where its headers and its bytes begin, and the size in the header."""
    start, data, length = place
    if given is not None:
        name, kind = given.name or name, b"S" if given.sparse else kind
        if given.length >= 0:
            # A header cannot hold more than 8 GiB in octal digits, and has any value then.
            if given.length != length and given.length < _MOST_OCTAL and not given.sparse:
                raise Damaged(
                    f"the member {name!r} at byte {start} has {length} bytes by its header and {given.length} by its "
                    "pax records"
                )
            length = given.length
    if kind == b"\0" and name.endswith("/"):
        kind = _FOLDER
    # Links and folders have no bytes, whatever their headers say.
    return TarMember(start, data, data if kind in b"123456" else data + length, name, kind)


def _verify_header_sum(block: memoryview, total: bytes, offset: int) -> bool:
    """Return whether the block is a header; False for a block of zeros, at the end of the archive."""
    given = _decode_header_number(total)
    # The low half of Adler-32 is the sum of the bytes modulo 65,521, plus 1; the sum counts its own field as spaces.
    if given >= 0 and not ((adler32(block) & 0xFFFF) - 1 - sum(total) + 256 - given) % 65521:
        return True
    if block == _ZERO:
        return False
    # Old programs sum signed bytes.
    rest = bytes(block[:148]) + b" " * 8 + bytes(block[156:])
    if given != sum(rest) - 256 * sum(each > 127 for each in rest):  # noqa: PLR2004  the sign bit
        raise Damaged(f"no tar header is at byte {offset}: the file is damaged, or not a tar file")
    return True


def _decode_header_number(data: bytes) -> int:
    """Return a number in octal digits, or in base 256 if the first bit is set; -1 if it is neither."""
    if data[0] & 0x80:
        return int.from_bytes(bytes([data[0] & 0x7F]) + data[1:], "big")
    digits = data.rstrip(b"\0 ").lstrip(b" ")
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        return -1


def _decode_field(data: bytes) -> str:
    end = data.find(b"\0")
    return (data if end < 0 else data[:end]).decode("utf-8", "surrogateescape")


def _decimal(data: bytes, offset: int) -> int:
    if not data.isdigit() or len(data) > _MOST_DIGITS:
        raise Damaged(f"the pax header at byte {offset} has no valid size")
    return int(data)


def _records(data: bytes, offset: int) -> dict[bytes, bytes]:
    """Return the records of a pax header: a length, a space, ``name=value`` and a line break each."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + _MOST_DIGITS + 1)
        stop = at + int(data[at:space]) if space > at and data[at:space].isdigit() else 0
        name, equals, value = data[space + 1 : stop - 1].partition(b"=")
        if not space < stop <= len(data) or not equals or data[stop - 1 : stop] != b"\n":
            raise Damaged(f"the pax header before byte {offset} has an invalid record")
        found[name] = value
        at = stop
    return found
