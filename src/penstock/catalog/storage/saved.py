"""A table of objects as a file: what describes it first, then the columns as they lie in memory, sealed by digests."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from penstock.catalog.storage.column import DTYPES, Column, Numbers
from penstock.catalog.storage.digest import digest_of
from penstock.catalog.storage.region import Region
from penstock.catalog.storage.strings import encode
from penstock.catalog.storage.table import Ranges, Shape, Table, layout
from penstock.errors import ChecksumMismatch, ManifestError, Unusable
from penstock.providers.urls import is_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase

__all__ = ["Saved", "load", "save"]

_MAGIC = b"\x89penstock.cat\r\n\x1a"  # as PNG's: not text, and a transfer that takes it for text shows
_PLAIN, _WIDE = 1, 2  # versions: the second one where there are ranges, classes or columns
_START = struct.Struct("<16sQ32s")  # magic, bytes of the header, SHA-256 of the header
_PARTS = {"numbers": "any", "ends": "<u8", "texts": "|u1"}  # of a column, and numpy's name of each one's type
_ALIGN = 64  # columns begin at a multiple of it, for programs that map the file
_HEADER_BYTES = 1 << 20  # of a thousand or so; more is no header
_HEAD_BYTES = 64 << 10  # one read brings the header, in most cases


class Saved(NamedTuple):
    """What a file holds: ``Catalog``'s attributes, and its table."""

    root: str
    base: str
    digest: str
    table: Table


class Readable(Protocol):
    """What loading needs of a ``Reader``."""

    @property
    def size(self) -> int:
        """Bytes in the file."""

    def seek(self, offset: int, /) -> int:
        """Move to a byte."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, fewer only at the end."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer; return how much of it."""


def save(file: BufferedIOBase, saved: Saved) -> None:
    """Write it all; the file is the caller's to close.

    The form: 16 bytes of magic; the header's length (uint64) and SHA-256; the header, JSON padded with spaces, which
    names every column with its offset, length and type; the columns, as ``table.layout`` describes them; in version 2
    the vectors that ``_Vector`` describes, each from a multiple of 64 bytes on.
    """
    table = saved.table
    vectors, values = _vectors(table)
    pieces = list(_padded(table.region.view[: table.shape.size_bytes], vectors, values))
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(piece)
    header = {
        "format": "penstock catalog",
        "version": _WIDE if vectors else _PLAIN,
        "objects": table.rows,
        "root": saved.root,
        "base": saved.base,
        "digest": saved.digest,
        "columns": layout(table.shape),
        "sha256": whole.hexdigest(),
    }
    if vectors:
        header |= {"keys": table.shape.objects, "vectors": [each._asdict() for each in vectors]}
    text = json.dumps(header).encode()
    text += b" " * (-(_START.size + len(text)) % _ALIGN)
    file.write(_START.pack(_MAGIC, len(text), hashlib.sha256(text).digest()) + text)
    for piece in pieces:
        file.write(piece)


def load(file: Readable) -> Saved:
    """Read a file straight into the memory it will live in, and verify every byte of it, and its catalog's digest.

    Nothing larger than the file itself is allocated for it, whatever it says.

    Raises:
        ManifestError: It is no catalog, a newer one, not as long as it says, or contradicts itself.
        ChecksumMismatch: Bytes of it have changed since it was written.

    """
    header, start = _header(file)
    try:
        shape = _shape(header)
        vectors = _described(header, shape.size_bytes)
        size = vectors[-1].stop if vectors else shape.size_bytes
        if start + size != file.size:
            raise ValueError(f"{file.size} bytes, where {start + size} were written")
        root, base, digest = (_text(header[name]) for name in ("root", "base", "digest"))
        if not is_root(root):
            raise ValueError(f"{root[:200]!r} is no bucket")
        region = _region(file, start, size, header["sha256"])
        table = Table(region, shape, **_extras(region, vectors))
        table.check()
        if digest_of(table, range(table.rows), encode(base)) != digest:
            raise ValueError("its digest is another one than that of what it lists")
    except (KeyError, TypeError, ValueError, Unusable) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"not a catalog that can be read: {error!r}") from error
    return Saved(root, base, digest, table)


def _header(file: Readable) -> tuple[dict[str, Any], int]:
    """Return the header and where the columns begin."""
    head = file.read(_HEAD_BYTES)
    if head[:16] != _MAGIC[: len(head)] or not head:
        raise ManifestError("not a catalog: Catalog.save writes one")
    if len(head) < _START.size:
        raise ManifestError(f"a catalog cut off after {len(head)} bytes")
    _, length, digest = _START.unpack_from(head)
    stop = _START.size + length
    if length > _HEADER_BYTES or stop > file.size:
        raise ManifestError(f"a catalog with a header of {length} bytes in a file of {file.size}")
    head += file.read(max(0, stop - len(head)))
    text = head[_START.size : stop]
    if hashlib.sha256(text).digest() != digest:
        raise ChecksumMismatch("the header of a catalog has changed since it was written")
    try:
        header = json.loads(text)
        version = header["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"a catalog with a header that cannot be read ({error!r})") from error
    if version not in (_PLAIN, _WIDE):
        raise ManifestError(f"a catalog of version {version!r}, and this Penstock reads {_WIDE}: use a newer one")
    return header, stop


def _shape(header: dict[str, Any]) -> Shape:
    """Return the one shape that gives exactly these columns, so that no offset needs to be believed."""
    length = {column["name"]: column["bytes"] for column in header["columns"]}
    objects = header["keys"] if header["version"] == _WIDE else -1
    shape = Shape(header["objects"], length["keys"], length["etags"], length["labels"], objects)
    if min(shape[:-1]) < 0 or objects < -1 or layout(shape) != header["columns"]:
        raise ValueError("its columns do not lie as they should")
    return shape


class _Vector(NamedTuple):
    """One more vector of a file of version 2.

    Attributes:
        role: "object" (which key a row's is) and "offset" of ranges; "class" of labels; "column" of the user's.
        name: The user's column's; else "".
        part: "numbers", which are codes where there are also the "ends" and the "texts" of what they stand for.
        dtype: numpy's name, byte order included.
        offset: Where it begins, after the header.
        bytes: How long it is.

    """

    role: str
    name: str
    part: str
    dtype: str
    offset: int
    bytes: int

    @property
    def stop(self) -> int:
        return self.offset + self.bytes


def _vectors(table: Table) -> tuple[list[_Vector], list[Numbers]]:
    """Say where each vector will lie, and return their values; none for a table of whole objects alone."""
    found: list[tuple[str, str, str, Numbers]] = []
    if table.ranges is not None:
        found += [("object", "", "numbers", table.ranges.objects), ("offset", "", "numbers", table.ranges.offsets)]
    columns = [("column", name, column) for name, column in table.columns.items()]
    for role, name, column in [*([("class", "", table.classes)] if table.classes else []), *columns]:
        found.append((role, name, "numbers", column.numbers))
        found += [(role, name, *each) for each in zip(("ends", "texts"), column.texts or (), strict=False)]
    vectors, start = [], table.shape.size_bytes
    for role, name, part, numbers in found:
        vectors.append(_Vector(role, name, part, numbers.values.dtype.str, _aligned(start), numbers.values.nbytes))
        start = vectors[-1].stop
    return vectors, [numbers for *_, numbers in found]


def _aligned(start: int) -> int:
    return -(-start // _ALIGN) * _ALIGN


def _padded(first: memoryview, vectors: list[_Vector], values: list[Numbers]) -> Iterator[memoryview | bytes]:
    """Yield the columns, and the vectors, each where it is said to lie."""
    yield first
    at = len(first)
    for vector, numbers in zip(vectors, values, strict=True):
        yield bytes(vector.offset - at)
        yield numbers.values.view(np.uint8).data if len(numbers) else b""
        at = vector.stop


def _described(header: dict[str, Any], start: int) -> list[_Vector]:
    """Return the vectors that a header describes, which must lie one after another."""
    found = []
    for each in header["vectors"] if header["version"] == _WIDE else ():
        vector = _Vector(**each)
        if vector.dtype not in DTYPES or type(vector.bytes) is not int or vector.bytes < 0:
            raise ValueError("a vector of no such type or length")
        if vector.offset != _aligned(start) or vector.bytes % np.dtype(vector.dtype).itemsize:
            raise ValueError("its vectors do not lie as they should")
        found.append(vector)
        start = vector.stop
    return found


def _extras(region: Region, vectors: list[_Vector]) -> dict[str, Any]:
    """Return what ``Table`` has besides its first columns; ``Table.check`` looks into them."""
    parts: dict[tuple[str, str], dict[str, Numbers]] = {}
    for each in vectors:
        known = parts.setdefault((each.role, _text(each.name)), {})
        if each.part in known or _PARTS.get(each.part, "") not in ("any", each.dtype):
            raise ValueError(f"a vector {each.part!r} that does not belong there")
        known[each.part] = Numbers(region, each.dtype, each.offset, each.bytes // np.dtype(each.dtype).itemsize)
    extras: dict[str, Any] = {"columns": {}}
    ranges = [parts.pop((role, ""), {}).get("numbers") for role in ("object", "offset")]
    if ranges[0] is not None and ranges[1] is not None:
        extras["ranges"] = Ranges(ranges[0], ranges[1])
    for (role, name), known in parts.items():
        right = {"class": not name and len(known) == len(_PARTS), "column": len(known) in (1, len(_PARTS))}
        if not right.get(role):
            raise ValueError(f"a vector of {role!r} {name!r} that does not belong there")
        column = Column(known["numbers"], (known["ends"], known["texts"]) if len(known) > 1 else None)
        if role == "class":
            extras["classes"] = column
        else:
            extras["columns"][name] = column
    return extras


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no string")
    return value


def _region(file: Readable, start: int, size_bytes: int, digest: str) -> Region:
    region = Region(size_bytes)
    file.seek(start)
    if file.readinto(region.view) != size_bytes:
        raise ValueError("it ends early")
    if hashlib.sha256(region.view).hexdigest() != digest:
        raise ChecksumMismatch("a catalog has changed since it was written")
    return region
