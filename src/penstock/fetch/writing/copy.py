"""Copies an object within its bucket on the store's side, in one request or in parts, always of one version."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.budget import Budget
from penstock.errors import Changed, Unsupported
from penstock.fetch.reading.lookahead import Lookahead
from penstock.fetch.writing.upload import Writer
from penstock.protocols.driver import Attributes, Copy, PartCopy
from penstock.support import require, supports
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.fetch.fetcher import Fetcher
    from penstock.options import WriteOptions
    from penstock.values import ObjectMeta

    _Way = Callable[[Fetcher, ObjectMeta, Writer], None]

__all__ = ["copy"]

_AT_ONCE = 8
_PIECE_BYTES = 8 << 20


def copy(fetcher: Fetcher, meta: ObjectMeta, to: str, options: WriteOptions) -> None:
    """Copy the version that ``meta`` describes to the key ``to``.

    One request up to the store's ``copy_bytes``; beyond, one for each ``copy_part_bytes``, eight at once, and five
    more. Where the store refuses to copy (``Unsupported``), the bytes are read and written. Type and metadata go along,
    and nothing appears before the whole copy is there and the object was seen to be the same still.

    Raises:
        Changed: It is another version by now.

    """
    try:
        if meta.size <= fetcher.limits.copy_bytes:
            fetcher.run(partial(require(fetcher.driver, Copy, to).copy, meta.key, to, meta.etag))
        else:
            _written(fetcher, meta, to, options, _in_parts)
    except Unsupported:
        require(fetcher.driver, Copy, to)
        _written(fetcher, meta, to, options, _through)


def _written(fetcher: Fetcher, meta: ObjectMeta, to: str, options: WriteOptions, way: _Way) -> None:
    """Write the copy as an object of its own, which ``way`` fills."""
    said = _unchanged(fetcher, meta)
    attributes = Attributes(said.content_type or options.content_type, said.metadata)
    with Writer(fetcher, to, options, attributes) as writer:
        way(fetcher, meta, writer)
        _unchanged(fetcher, meta)  # not every store heeds the version it was told; none shows the parts before this


def _spans(meta: ObjectMeta, most_bytes: int) -> Iterator[Span]:
    for start in range(0, meta.size, most_bytes):
        yield Span(meta.key, start, min(start + most_bytes, meta.size), meta.etag)


def _in_parts(fetcher: Fetcher, meta: ObjectMeta, writer: Writer) -> None:
    limits = fetcher.limits
    if "%" in meta.key or not supports(fetcher.driver, PartCopy):  # Ceph 16 unescapes a part's source twice
        _through(fetcher, meta, writer)
        return
    part_bytes = max(min(limits.copy_part_bytes, limits.copy_bytes), -(-meta.size // limits.most_parts))
    for span in _spans(meta, part_bytes):
        writer.append(span, _AT_ONCE)
    writer.settle()


def _through(fetcher: Fetcher, meta: ObjectMeta, writer: Writer) -> None:
    """Read and write the bytes."""
    with Lookahead(fetcher, _spans(meta, _PIECE_BYTES), Budget(_AT_ONCE * _PIECE_BYTES, _AT_ONCE)) as pieces:
        for piece in pieces:
            writer.write(piece)


def _unchanged(fetcher: Fetcher, meta: ObjectMeta) -> ObjectMeta:
    found = fetcher.run(partial(fetcher.driver.head, meta.key))
    if (found.size, found.etag) != (meta.size, meta.etag):
        message = "the object is no longer the one that was listed or looked at"
        raise Changed(message, url=fetcher.driver.url(meta.key))
    return found
