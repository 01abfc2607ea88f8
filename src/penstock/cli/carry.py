"""Takes one object from where it is to where it goes, whole or not at all, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.pick import local
from penstock.errors import Cancelled, Changed, Damaged, NotFound
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["Load", "carry", "cost_bytes", "is_there", "settle"]

_WHOLE_BYTES = 8 << 20  # up to here an object is two requests: read, put
_PIECE_BYTES = 8 << 20
_STREAM_BYTES = 128 << 20  # held by one long object: 64 MiB by its writer, 32 MiB read ahead, pieces in between
_READERS = 8  # share options.read.ahead_bytes, 256 MiB, as that many
_SERVER_SIDE_BYTES = 5 << 30  # S3's bound for a copy in one request
_MD5_HEX = 32


@dataclass(frozen=True, slots=True)
class Load:
    """One object, as it was listed, and where it goes."""

    source: Source
    meta: ObjectMeta
    target: Source
    to: str


def cost_bytes(meta: ObjectMeta) -> int:
    """Return how much memory carrying an object takes, at most."""
    return meta.size if meta.size <= _WHOLE_BYTES else _STREAM_BYTES


def carry(load: Load, moved: Callable[[int], None], stop: Event) -> None:
    """Copy it: on the server within a bucket, in two requests when it is small, else in pieces.

    ``moved`` is told the bytes as they go. Once ``stop`` is set nothing is published that still comes in pieces.

    Raises:
        Changed: The source is no longer what was listed; nothing was published then.

    """
    size = load.meta.size
    if load.source.root == load.target.root and not local(load.source) and size <= _SERVER_SIDE_BYTES:
        load.source.copy(load.meta.key, load.to)
        moved(size)
    elif size <= _WHOLE_BYTES:
        load.target.put(load.to, load.source.read(Span(load.meta.key, 0, size, load.meta.etag, whole=True)))
        moved(size)
    else:
        _stream(load, moved, stop)


def is_there(load: Load) -> bool:
    """Say whether what is at the destination is surely this object: one request.

    Its size must be the same; and its ETag, where both stores made it of the content, or else its time must not be
    before the source's.
    """
    try:
        found = load.target.head(load.to)
    except NotFound:
        return False
    if found.size != load.meta.size:
        return False
    if _of_content(found.etag) and _of_content(load.meta.etag):
        return found.etag == load.meta.etag
    return found.modified is not None and load.meta.modified is not None and found.modified >= load.meta.modified


def settle(load: Load) -> None:
    """Delete the source of what was carried, once its copy was seen whole and the source as it was: three requests.

    Raises:
        Damaged: The copy has another size. The source stands.
        Changed: The source was written since. It stands, and the copy is of its former version.

    """
    found = load.target.head(load.to)
    if found.size != load.meta.size:
        message = f"{load.meta.size} bytes were copied, {found.size} are there; the source was not deleted"
        raise Damaged(message, url=load.target.url(load.to))
    _unchanged(load)
    load.source.delete([load.meta.key])


def _stream(load: Load, moved: Callable[[int], None], stop: Event) -> None:
    with load.source.lookahead(_spans(load.meta), _READERS) as pieces, load.target.open_write(load.to) as writer:
        for piece in pieces:
            if stop.is_set():
                raise Cancelled("called off", url=writer.url)
            writer.write(piece)
            moved(len(piece))
        if local(load.source):  # a store holds every read to the version that was listed; a file may yet have moved on
            _unchanged(load)


def _spans(meta: ObjectMeta) -> Iterator[Span]:
    for start in range(0, meta.size, _PIECE_BYTES):
        yield Span(meta.key, start, min(start + _PIECE_BYTES, meta.size), meta.etag)


def _unchanged(load: Load) -> None:
    now = load.source.head(load.meta.key)
    if (now.size, now.etag) != (load.meta.size, load.meta.etag):
        raise Changed("it was written to while it was copied: copy it again", url=load.source.url(load.meta.key))


def _of_content(etag: str) -> bool:
    """Say whether an ETag is an MD5; those of uploads in parts and of files are not, and tell nothing elsewhere."""
    return len(etag) == _MD5_HEX and etag.isalnum()
