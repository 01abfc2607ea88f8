"""A table of objects as a file: what describes it first, then the columns as they lie in memory, sealed by digests."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.catalog.digest import digest_of
from penstock.catalog.region import Region
from penstock.catalog.table import Shape, Table, encode, layout
from penstock.errors import ChecksumMismatch, ManifestError, Unusable
from penstock.providers.urls import parse

if TYPE_CHECKING:
    from io import BufferedIOBase

__all__ = ["Saved", "load", "save"]

_MAGIC = b"\x89penstock.cat\r\n\x1a"  # as PNG's: not text, and a transfer that takes it for text shows
_VERSION = 1
_START = struct.Struct("<16sQ32s")  # magic, bytes of the header, SHA-256 of the header
_ALIGN = 64  # columns begin at a multiple of it, for whoever maps the file
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
    names every column with its offset, length and type; the columns, as ``table.layout`` describes them.
    """
    table = saved.table
    header = {
        "format": "penstock catalog",
        "version": _VERSION,
        "objects": table.rows,
        "root": saved.root,
        "base": saved.base,
        "digest": saved.digest,
        "columns": layout(table.shape),
        "sha256": hashlib.sha256(table.region.view).hexdigest(),
    }
    text = json.dumps(header).encode()
    text += b" " * (-(_START.size + len(text)) % _ALIGN)
    file.write(_START.pack(_MAGIC, len(text), hashlib.sha256(text).digest()) + text)
    file.write(table.region.view)


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
        if start + shape.size_bytes != file.size:
            raise ValueError(f"{file.size} bytes, where {start + shape.size_bytes} were written")
        root, base, digest = (_text(header[name]) for name in ("root", "base", "digest"))
        if parse(root).root != root:
            raise ValueError(f"{root[:200]!r} is no bucket")
        table = Table(_region(file, start, shape.size_bytes, header["sha256"]), shape)
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
    if version != _VERSION:
        raise ManifestError(f"a catalog of version {version!r}, and this Penstock reads {_VERSION}: use a newer one")
    return header, stop


def _shape(header: dict[str, Any]) -> Shape:
    """Return the one shape that gives exactly these columns, so that no offset needs to be believed."""
    length = {column["name"]: column["bytes"] for column in header["columns"]}
    shape = Shape(header["objects"], length["keys"], length["etags"], length["labels"])
    if min(shape) < 0 or layout(shape) != header["columns"]:
        raise ValueError("its columns do not lie as they should")
    return shape


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
