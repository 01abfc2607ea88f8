"""Takes one object from where it is to where it goes, whole or not at all, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING

from penstock.cli.pick import local
from penstock.errors import Cancelled, Changed, Damaged, NoSpace, NotFound
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
        NoSpace: The disk is full, or a quota used up; the text says how much the object takes.

    """
    size = load.meta.size
    if load.source.root == load.target.root and not local(load.source):
        load.source.copy(load.meta.key, load.to, load.meta)
        moved(size)
    else:
        _through(load, moved, stop)


def is_there(load: Load, *, surely: bool) -> bool:
    """Say whether what is at the destination is this object: one request.

    Its size must be the same; and its ETag, where both stores made it of the content. Else its time must not be before
    the source's, or, ``surely``, files are read for their MD5, and what cannot be compared is not there.
    """
    try:
        found = load.target.head(load.to)
    except NotFound:
        return False
    if found.size != load.meta.size:
        return False
    if _of_content(found.etag) and _of_content(load.meta.etag):
        return found.etag == load.meta.etag
    if surely:
        content = _content(load.source, load.meta)
        return content != "" and content == _content(load.target, found)
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


def _through(load: Load, moved: Callable[[int], None], stop: Event) -> None:
    """Carry it through this machine, and with it what its store says of it."""
    size, said = load.meta.size, _said(load)
    if size <= _WHOLE_BYTES:
        data = load.source.read(Span(load.meta.key, 0, size, load.meta.etag, whole=True))
        load.target.put(load.to, data, metadata=said.metadata, content_type=said.content_type)
        moved(size)
        return
    try:
        _stream(load, said, moved, stop)
    except NoSpace as error:
        error.message += f"; the whole object takes {size}"
        raise


def _said(load: Load) -> ObjectMeta:
    """Return what is known of the object besides its bytes, where it is going to a place for it: one request."""
    if local(load.target) or load.meta.content_type:
        return load.meta
    said = load.source.head(load.meta.key)
    if said.etag != load.meta.etag:
        raise Changed("it was written to since it was listed: copy it again", url=load.source.url(load.meta.key))
    return said


def _stream(load: Load, said: ObjectMeta, moved: Callable[[int], None], stop: Event) -> None:
    target = load.target.open_write(load.to, metadata=said.metadata, content_type=said.content_type)
    with load.source.lookahead(_spans(load.meta), _READERS) as pieces, target as writer:
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


def _content(source: Source, meta: ObjectMeta) -> str:
    """Return an object's MD5, for which a file is read; empty where the store does not tell it."""
    if _of_content(meta.etag) or not local(source):
        return meta.etag if _of_content(meta.etag) else ""
    digest = md5(usedforsecurity=False)
    with source.lookahead(_spans(meta), _READERS) as pieces:
        for piece in pieces:
            digest.update(piece)
    return digest.hexdigest()


def _of_content(etag: str) -> bool:
    """Say whether an ETag is an MD5; those of uploads in parts and of files are not, and tell nothing elsewhere."""
    return len(etag) == _MD5_HEX and etag.isalnum()
