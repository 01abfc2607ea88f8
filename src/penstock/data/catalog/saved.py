"""Catalogs as files: a header that describes the vectors, then the vectors as in memory, protected by digests.

The digest of a table: the names of its objects below their base, and their sizes, in order. An opened catalog may be
relocated: the same names, sizes and labels below another URL, where a copy of them is.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from penstock.data.catalog.columns.column import blocks, decode, encode, taken
from penstock.data.catalog.columns.table import described, pad_vectors, parts_of, table_of, vectors_of
from penstock.data.catalog.groups import FieldGroup, FieldObjects
from penstock.data.catalog.rows import build_table, entry_of
from penstock.data.node_copy import node_region
from penstock.data.shards.registry import format_of
from penstock.errors import ChecksumMismatch, ManifestError, Unusable
from penstock.stores.urls import is_root, parse
from penstock.values import as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from io import BufferedIOBase

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Numbers, Rows, Strings
    from penstock.data.catalog.columns.compact import Keys
    from penstock.data.catalog.columns.table import Parts, Table, Vector
    from penstock.data.catalog.rows import Entry
    from penstock.data.region import Region
    from penstock.stores.urls import Location

# Like the magic of PNG: not text, and damaged visibly by a transfer that converts it as text.
_MAGIC = b"\x89penstock.cat\r\n\x1a"
_VERSION = 3
_START = struct.Struct("<16sQ32s")  # magic, bytes of the header, SHA-256 of the header
_ALIGN = 64  # the header ends at a multiple of it
_HEADER_BYTES = 1 << 20  # limit; most headers have about a thousand
HEAD_BYTES = 64 << 10  # of the first read, mostly the whole header
_MOST_SENT = 20_000_000


class Saved(NamedTuple):
    """Contents of a file: ``Catalog``'s attributes, and its table."""

    root: str
    base: str
    digest: str
    table: Table


class Readable(Protocol):
    """The part of a ``Reader`` that loading needs."""

    @property
    def size(self) -> int: ...
    def seek(self, offset: int, /) -> int: ...
    def read(self, size: int, /) -> bytes: ...
    def readinto(self, buffer: memoryview, /) -> int: ...


def version_of(file: Readable, url: str) -> str:
    """Return the digest of all that a saved catalog holds: one short read."""
    head = file.read(_START.size)
    if len(head) < _START.size or not is_catalog(head):
        raise ManifestError("not a catalog: Catalog.save writes one", url=url)
    found: bytes = _START.unpack(head)[2]
    return found.hex()


def version_of_saved(saved: Saved) -> str:
    """Return the result of ``version_of`` for the catalog once saved; nothing is written."""
    return hashlib.sha256(_encode_catalog(saved)[0]).hexdigest()


def save(file: BufferedIOBase, saved: Saved) -> None:
    """Write a catalog to a file, which the caller closes.

    The format: 16 bytes of magic; the header's length (uint64) and SHA-256; the header, JSON padded with spaces, which
    describes every vector (``table.Vector``); the vectors, each beginning at a multiple of 64 bytes.
    """
    text, pieces = _encode_catalog(saved)
    file.write(_START.pack(_MAGIC, len(text), hashlib.sha256(text).digest()) + text)
    file.writelines(pieces)


def _encode_catalog(saved: Saved) -> tuple[bytes, list[memoryview | bytes]]:
    """Return the header of a catalog, which has a digest of the rest, and the pieces of the rest."""
    table = saved.table
    vectors, values = vectors_of(table)
    count, group = len(vectors), {}
    if table.group is not None:
        group = {"group": _describe_group(table.group.settled(table.keys), vectors, values)}
    pieces = list(pad_vectors(vectors, values))
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(piece)
    header = {
        "format": "penstock catalog",
        "version": _VERSION,
        "objects": table.rows,
        "keys": len(table.keys),
        "root": saved.root,
        "base": saved.base,
        "digest": saved.digest,
        "vectors": [each._asdict() for each in vectors[:count]],
        "sha256": whole.hexdigest(),
        **group,
    }
    if table.format is not None:
        header["format of shards"] = table.format.described()
    text = json.dumps(header).encode()
    text += b" " * (-(_START.size + len(text)) % _ALIGN)
    if len(text) > _HEADER_BYTES:
        raise Unusable(
            f"the header of a catalog is limited to {_HEADER_BYTES} bytes, got {len(text)}: it contains too many names"
        )
    return text, pieces


def _describe_group(group: FieldGroup, vectors: list[Vector], values: list[Numbers]) -> dict[str, Any]:
    """Return the description of a group, and append the vectors of its parts to those of the table."""
    if not isinstance(group.rule, str):
        raise Unusable("cannot save a catalog whose samples a function formed: pass a regular expression")
    found = []
    for field, part in group.parts.items():
        mine, more = vectors_of(part.table, vectors[-1].stop, part.places)
        vectors += mine
        values += more
        described = {"field": field, "root": part.root, "base": part.base, "objects": part.table.rows}
        described |= {"keys": len(part.table.keys), "vectors": [each._asdict() for each in mine]}
        if part.table.format is not None:
            described["format of shards"] = part.table.format.described()
        found.append(described)
    return {"fields": group.fields, "lead": group.lead, "rule": group.rule, "parts": found}


def load(file: Readable) -> Saved:
    """Read a file directly into shared memory, and verify every byte of it, and the digest of the catalog.

    Of a large file, only the header is read if another process of the node has read and verified the same contents,
    which the digest of the header names. No allocation is larger than the file itself, whatever the header declares.
    """
    header, start, identity = _header(file)
    try:
        vectors = described(header["vectors"])
        size = vectors[-1].stop if vectors else 0
        members: list[list[Vector]] = []
        for each in header["group"]["parts"] if "group" in header else ():
            members.append(described(each["vectors"], size))
            size = members[-1][-1].stop if members[-1] else size
        if start + size != file.size:
            raise ValueError(f"the file has {file.size} bytes, but {start + size} were written")
        root, base, digest = (_require_str(header[name]) for name in ("root", "base", "digest"))
        if not is_root(root):
            raise ValueError(f"root must be a bucket, got {root[:200]!r}")
        with node_region(identity, size) as (region, checked):
            if not checked:
                _fill(region.view[:size], file, start, header["sha256"])
            table = _grouped_table(header, region, vectors, members)
            if not checked:
                table.check()
                if digest_of(table, range(table.rows), encode(base)) != digest:
                    raise ValueError("catalog digest does not match its contents")
    except (KeyError, TypeError, ValueError, Unusable) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError(f"cannot read the catalog: {error!r}") from error
    return Saved(root, base, digest, table)


def _grouped_table(header: dict[str, Any], region: Region, vectors: list[Vector], members: list[list[Vector]]) -> Table:
    """Return the table that a header describes, with its group; ``Table.check`` checks its values."""
    table = _table(header, parts_of(region, vectors))
    if "group" not in header:
        return table
    if table.units is not None:
        raise ValueError("units of samples that are made of several objects")
    return table.having(group=_group(header["group"], region, members, table.keys))


class _InMemory(io.BytesIO):
    """A saved catalog in memory."""

    @property
    def size(self) -> int:
        return len(self.getbuffer())


def to_bytes(saved: Saved) -> bytes:
    """Return a catalog for another process; ``Unusable`` above 20 million entries: some 500 MiB, held twice."""
    if saved.table.rows > _MOST_SENT:
        raise Unusable(f"cannot send a catalog of {saved.table.rows} entries: save it, and let all ranks open it")
    file = io.BytesIO()
    save(file, saved)
    return file.getvalue()


def from_bytes(data: bytes) -> Saved:
    return load(_InMemory(data))


def _group(header: dict[str, Any], region: Region, members: list[list[Vector]], keys: Keys) -> FieldGroup:
    """Return the group that a header describes, of samples with these keys; ``Table.check`` checks its values."""
    parts: dict[str, FieldObjects] = {}
    for each, vectors in zip(header["parts"], members, strict=True):
        root, base, field = (_require_str(each[name]) for name in ("root", "base", "field"))
        if not is_root(root):
            raise ValueError(f"root must be a bucket, got {root[:200]!r}")
        found = parts_of(region, vectors)
        placed = found.pop(("place", ""), None)
        table = _table(each, found, keys)
        if table.units is not None:
            raise ValueError("a field of samples in units")
        parts[field] = FieldObjects(root, base, table, None if placed is None else placed["numbers"])
    return FieldGroup(
        tuple(map(_require_str, header["fields"])), _require_str(header["lead"]), _require_str(header["rule"]), parts
    )


def _table(about: dict[str, Any], parts: Parts, origin: Keys | None = None) -> Table:
    table = table_of(parts, _count(about["objects"]), _count(about["keys"]), origin)
    if (form := about.get("format of shards")) is not None:
        table = table.having(format=format_of(form))
    if (table.units is not None) is not (table.format is not None and table.format.in_units):
        raise ValueError("units of samples do not match the format of shards")
    return table


def is_catalog(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` may be a catalog."""
    return head[: len(_MAGIC)] == _MAGIC[: len(head)]


def _header(file: Readable) -> tuple[dict[str, Any], int, bytes]:
    """Return the header, the offset where the vectors begin, and the digest of all that the catalog holds."""
    head = file.read(HEAD_BYTES)
    if not head or not is_catalog(head):
        raise ManifestError("not a catalog: Catalog.save writes one")
    if len(head) < _START.size:
        raise ManifestError(f"the catalog is truncated after {len(head)} bytes")
    _, length, digest = _START.unpack_from(head)
    stop = _START.size + length
    if length > _HEADER_BYTES or stop > file.size:
        raise ManifestError(f"the catalog is truncated: a header of {length} bytes in a file of {file.size}")
    head += file.read(max(0, stop - len(head)))
    text = head[_START.size : stop]
    if hashlib.sha256(text).digest() != digest:
        raise ChecksumMismatch("the header of the catalog has changed since it was written")
    try:
        header = json.loads(text)
        version = header["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"cannot read the header of the catalog ({error!r})") from error
    if version != _VERSION or type(version) is not int:
        known = type(version) is int and version < _VERSION
        advice = "list the objects again with Catalog.scan and save them" if known else "use a newer Penstock"
        raise ManifestError(f"cannot read a catalog of version {version!r}, only version {_VERSION}: {advice}")
    return header, stop, digest


def _require_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {value!r}")
    return value


def _count(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer from 0, got {value!r}")
    return value


def _fill(view: memoryview, file: Readable, start: int, digest: str) -> None:
    file.seek(start)
    if file.readinto(view) != len(view):
        raise ValueError("the file ends early")
    if hashlib.sha256(view).hexdigest() != digest:
        raise ChecksumMismatch("the catalog has changed since it was written")


# Rows at once, whole objects and ranges; part of the format.
_BLOCK = 4096
_RANGES = 1 << 14
_AT_ONCE = 1 << 20  # bytes of bases compared at once


def digest_of(table: Table, rows: Rows, base: bytes) -> str:
    """Return the SHA-256, in hex, of the rows' names below ``base`` and their sizes: 0.1 s for a million.

    If a row is a range, all offsets are included, too, and the digest is never that of a catalog of whole objects.
    Rows that follow one another in one object have its name once.
    """
    if table.group is not None:
        return _digest_of_group(table, table.group, rows, base)
    offsets = None if table.ranges is None else table.ranges.offsets.values
    if offsets is not None and all(taken(offsets, block).max() < 0 for block in blocks(rows)):
        offsets = None
    form = f"1, {len(rows)} objects" if offsets is None else f"4, {len(rows)} ranges"
    whole = hashlib.sha256(f"penstock catalog {form}\n".encode())
    below = np.frombuffer(base, np.uint8)
    for block in blocks(rows, _BLOCK if offsets is None else _RANGES):
        if offsets is None:
            # Lengths before the names: otherwise ("ab", "c") and ("a", "bc") would have the same digest.
            numbers, names = strip_base(table.keys, table.objects(block), below)
        else:
            numbers, names = _name_runs(table.keys, table.objects(block), below)
        for each in (numbers, taken(table.sizes.values, block), *([] if offsets is None else [taken(offsets, block)])):
            whole.update(each.astype("<i8").data)
        whole.update(names)
    return whole.hexdigest()


def _digest_of_group(table: Table, group: FieldGroup, rows: Rows, base: bytes) -> str:
    """Return the digest of all fields: their names, which samples have them, and the digests of their objects."""
    whole = hashlib.sha256(f"penstock catalog 3, {len(rows)} samples\n".encode())
    for field, part in zip(group.fields, group.all("", decode(base), table.having(group=None)), strict=True):
        mine, there = (rows if part.places is None else taken(part.places.values, rows)), np.ones(len(rows), bool)
        if not isinstance(mine, range) and part.places is not None:
            there = mine >= 0
            mine = mine[there]
        whole.update(json.dumps([field, len(mine)]).encode())
        whole.update(np.packbits(there).tobytes())
        whole.update(digest_of(part.table, mine, encode(part.base)).encode())
    return whole.hexdigest()


def _name_runs(keys: Strings, objects: Rows, base: NDArray[np.uint8]) -> tuple[NDArray[np.int64], bytes]:
    """Return names of objects as ``strip_base`` does, equal ones in succession once, after the lengths of these runs.

    A name that is in ``keys`` twice is one name.
    """
    numbers = np.asarray(objects)
    starts = np.concatenate(([0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1))
    found, which = np.unique(numbers[starts], return_inverse=True)
    lengths, data = strip_base(keys, found, base)
    named = [data[start:stop] for start, stop in itertools.pairwise((0, *np.cumsum(lengths).tolist()))]
    names = [named[each] for each in which.tolist()]
    begin = [at for at, name in enumerate(names) if not at or name != names[at - 1]]
    counts = np.diff(starts[begin], append=len(numbers))
    return np.concatenate((counts, lengths[which][begin])), b"".join(names[at] for at in begin)


def strip_base(keys: Strings, rows: Rows, base: NDArray[np.uint8]) -> tuple[NDArray[np.int64], bytes]:
    """Return the lengths of the names below ``base``, and the concatenated names."""
    ends, data = keys.joined(rows)
    starts, lengths = ends[:-1], np.diff(ends) - len(base)
    if len(base):
        if (lengths < 0).any():
            raise ValueError("a key is not below its base")
        below = np.ones(len(data), bool)
        step = max(1, _AT_ONCE // len(base))
        for at in range(0, len(rows), step):
            index = starts[at : at + step, None] + np.arange(len(base))
            if (data[index] != base).any():
                raise ValueError("a key is not below its base")
            below[index] = False
        data = data[below]
    return lengths, data.tobytes()


def check_home(saved: Saved, file: Location) -> None:
    """Raise ``ManifestError`` if objects are in another bucket than the catalog's file, which names them."""
    places = _places(saved)
    if any(root != file.root for root, _ in places.values()):
        urls = {field: root + base for field, (root, base) in places.items()}
        told = urls if len({*urls.values()}) > 1 else saved.root + saved.base
        raise ManifestError(f"the objects of this catalog are elsewhere: to read them, pass root={told!r}")


def relocate_catalog(saved: Saved, root: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]) -> Saved:
    """Return the catalog of the same names below ``root``, a URL or one for each field."""
    group, places = saved.table.group, _places(saved)
    if isinstance(root, Mapping):
        fields = () if group is None else group.fields
        if not fields or {*root} != {*fields}:
            raise ManifestError(f"root= must have a URL for each field: {', '.join(fields) or 'it has no fields'}")
    elif len({*places.values()}) > 1:
        raise ManifestError(f"the fields {', '.join(places)} are at different places: pass root={{field: URL}}")
    else:
        root = dict.fromkeys(places, root)
    urls = {field: parse(url) for field, url in root.items()}
    # Without a field that leads, the rows repeat objects of other fields.
    lead = ("" if group is None else group.lead) or next(iter(urls))
    found = _move_part(FieldObjects(saved.root, saved.base, saved.table), urls[lead])
    table = found.table
    if group is not None:
        parts = {field: _move_part(part, urls[field]) for field, part in group.parts.items()}
        table = table.having(group=replace(group, parts=parts))
    return saved._replace(root=found.root, base=found.base, table=table)


def _places(saved: Saved) -> dict[str, tuple[str, str]]:
    """Return the bucket's URL and the prefix of each field's objects; without fields, the catalog's own as ""."""
    group = saved.table.group
    if group is None:
        return {"": (saved.root, saved.base)}
    parts = group.all(saved.root, saved.base, saved.table)
    return {field: (part.root, part.base) for field, part in zip(group.fields, parts, strict=True)}


def _move_part(part: FieldObjects, place: Location) -> FieldObjects:
    """Return the part with the same names below ``place``; the same part if that is where its objects were listed."""
    below, table = as_folder(place.key), part.table
    if (place.root, below) == (part.root, part.base):
        return part
    entries = (entry_of(table, row) for row in range(table.rows))
    base, copied = build_table(below, rename_entries(entries, part.base, place, labelled=table.classes is None))
    kept = {"classes": table.classes, "columns": table.columns, "format": table.format, "units": table.units}
    return part._replace(root=place.root, base=base, table=copied.having(**kept))


def rename_entries(entries: Iterable[Entry], base: str, place: Location, *, labelled: bool) -> Iterator[Entry]:
    """Yield the entries with the key prefix ``base`` replaced by that of ``place``, and without ETags.

    Names must not lead out of a local directory: the entries may come from another user's file.
    """
    below, skip = as_folder(place.key), len(base)
    for entry in entries:
        key = below + entry.key[skip:]
        if place.local and ".." in key.split("/"):
            raise ManifestError(f"{key[:200]!r} is outside of its directory")
        yield entry._replace(key=key, etag="", label=entry.label if labelled else None)
