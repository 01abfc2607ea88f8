"""Files of vectors: plans of packed rows, and indexes of media files. One process makes such a file, and many open it.

The file: 16 bytes of magic; the header's length (uint64) and SHA-256; the header, JSON; then the vectors as they are in
memory, each beginning at a multiple of 64 bytes after the header. They are in one section or more: the header has the
type and length of each vector, and the SHA-256 of each section. Some first sections can be read alone.
"""

from __future__ import annotations

import json
import re
import struct
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.catalog.columns.column import Numbers
from penstock.data.node_copy import node_region
from penstock.errors import AlreadyExists, ChecksumMismatch, Damaged, NotFound, PenstockError, Unusable, public_url
from penstock.schema import COUNT, check_json, read_json
from penstock.stores.urls import parse
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.options import StoreOptions
    from penstock.source import Reader

_MAGIC = b"\x89penstock.%b\r\n\x1a"
_KINDS = {
    _MAGIC % b"cat": "a catalog",
    _MAGIC % b"pak": "a plan of packed rows",
    _MAGIC % b"vid": "an index of media files",
}
_START = struct.Struct("<16sQ32s")
_ALIGN = 64
_HEAD_BYTES = 64 << 10  # of the first read
_FORM = {"sections": [{"vectors": [[re.compile(r"[|<][iu][1248]"), COUNT]], "sha256": str}]}


class FileKind(NamedTuple):
    """A kind of files of vectors."""

    code: bytes  # three letters of the magic
    version: int
    form: dict[str, Any]  # the fields of its header
    again: str  # how to make the file anew

    @property
    def magic(self) -> bytes:
        return _MAGIC % self.code

    @property
    def name(self) -> str:
        return _KINDS[self.magic].partition(" ")[2]


def has_file(kind: FileKind, dest: str | os.PathLike[str], store: StoreOptions | str | None) -> bool:
    """Return whether a file of this kind may be at ``dest``; raise ``AlreadyExists`` if another file is there."""
    place = parse(dest)
    if not place.key or place.key.endswith("/"):
        raise Unusable(f"the {kind.name} must be the URL of a file, got that of a folder", url=public_url(place.url))
    try:
        with open_object(dest, "rb", store=None if place.local else store) as file:
            head = file.read(len(kind.magic))
    except NotFound:
        return False
    if head != kind.magic:
        text = f"cannot write the {kind.name}: the existing file is not one; choose another name"
        raise AlreadyExists(text, url=public_url(place.url))
    return True


def write_vectors(
    kind: FileKind,
    dest: str | os.PathLike[str],
    about: dict[str, Any],
    sections: Sequence[Sequence[NDArray[Any]]],
    store: StoreOptions | str | None,
) -> None:
    """Write a file of this kind, whose header has the fields ``about``; nothing is published before its last byte."""
    pieces, described = list[memoryview | bytes](), list[dict[str, Any]]()
    for vectors in sections:
        mine = [piece for each in vectors for piece in (each.data, bytes(-each.nbytes % _ALIGN))]
        whole = sha256()
        for piece in mine:
            whole.update(piece)
        shapes = [(each.dtype.str, len(each)) for each in vectors]
        described.append({"vectors": shapes, "sha256": whole.hexdigest()})
        pieces += mine
    text = json.dumps({"version": kind.version, **about, "sections": described}).encode()
    with open_object(dest, "wb", store=None if parse(dest).local else store) as file:
        file.write(_START.pack(kind.magic, len(text), sha256(text).digest()) + text)
        for piece in pieces:
            file.write(piece)


def read_vectors(
    kind: FileKind, url: str | os.PathLike[str], store: StoreOptions | str | None, sections: int = 1
) -> tuple[dict[str, Any], list[list[Numbers]]]:
    """Return the header and the vectors of some first sections, in memory that workers map; no value is checked.

    Of a large file, only the header is read if another process of the node has read and verified the same contents. No
    allocation is larger than the file, even if the header declares more.
    """
    place = parse(url)
    try:
        with open_object(url, "rb", store=None if place.local else store) as file:
            return _read_vectors(kind, file, sections)
    except PenstockError as error:
        error.url = error.url or public_url(place.url)
        raise


def _read_vectors(kind: FileKind, file: Reader, sections: int) -> tuple[dict[str, Any], list[list[Numbers]]]:
    head = file.read(_HEAD_BYTES)
    if len(head) < _START.size or not head.startswith(kind.magic):
        other = _KINDS.get(head[: len(kind.magic)], "another file")
        raise Damaged(f"not {_KINDS[kind.magic]}, but {other}: {kind.again}")
    _, length, digest = _START.unpack_from(head)
    start = _START.size + length
    if start > file.size:
        raise Damaged(f"the {kind.name} ends early: {kind.again}")
    head += file.read(max(0, start - len(head)))
    text = head[_START.size : start]
    if sha256(text).digest() != digest:
        raise ChecksumMismatch(f"the header of the {kind.name} does not match its SHA-256")
    found = read_json(text, {"version": int}, _KINDS[kind.magic])
    if found["version"] != kind.version:
        version = found["version"]
        raise Unusable(f"the {kind.name} has version {version}, known is {kind.version}: {kind.again}")
    check_json(found, {**kind.form, **_FORM}, _KINDS[kind.magic])
    places, ends, at = list[list[tuple[str, int, int]]](), [0], 0
    for each in found["sections"]:
        places.append([])
        for dtype, count in each["vectors"]:
            places[-1].append((dtype, at, count))
            at += -(-count * np.dtype(dtype).itemsize // _ALIGN) * _ALIGN
        ends.append(at)
    if start + at != file.size or len(places) < sections:
        raise Damaged(f"the {kind.name} has {file.size} bytes, and its header describes {start + at}: {kind.again}")
    with node_region(sha256(digest + bytes([sections])).digest(), ends[sections]) as (region, checked):
        if not checked:
            file.seek(start)
            view, borders = region.view[: ends[sections]], pairwise(ends[: sections + 1])
            # Memory that is read in part differs, too.
            file.readinto(view)
            digests = [sha256(view[first:stop]).hexdigest() for first, stop in borders]
            if digests != [each["sha256"] for each in found["sections"][:sections]]:
                raise ChecksumMismatch(f"the {kind.name} does not match its SHA-256: {kind.again}")
    return found, [[Numbers(region, *each) for each in vectors] for vectors in places[:sections]]
