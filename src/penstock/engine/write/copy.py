"""Server-side copies of objects within a bucket, in one request or in parts, always of one version."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.engine.budget import Budget
from penstock.engine.contracts.driver import Attributes, Copy, PartCopy
from penstock.engine.read.lookahead import Lookahead
from penstock.engine.support import require, supports
from penstock.engine.write.upload import Writer
from penstock.errors import Changed, Unsupported
from penstock.values import cut_spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.fetch.fetcher import Fetcher
    from penstock.options import WriteOptions
    from penstock.values import ObjectMeta

    _Way = Callable[[Fetcher, ObjectMeta, Writer], None]

_AT_ONCE = 8
_PIECE_BYTES = 8 << 20


def copy(fetcher: Fetcher, meta: ObjectMeta, to: str, options: WriteOptions) -> None:
    """Copy the version that ``meta`` describes to the key ``to``; ``Changed`` if the object has a new version.

    Takes one request up to the store's ``copy_bytes``; beyond, one for each ``copy_part_bytes``, eight at once, and
    five more. If the store refuses to copy (``Unsupported``), the bytes are read and written. Content type and metadata
    are kept. No new object appears before the copy is complete and the source was verified to be unchanged.
    """
    try:
        if meta.size <= fetcher.limits.copy_bytes:
            fetcher.run(partial(require(fetcher.driver, Copy, to).copy, meta.key, to, meta.etag))
        else:
            _write_copy(fetcher, meta, to, options, _in_parts)
    except Unsupported:
        require(fetcher.driver, Copy, to)
        _write_copy(fetcher, meta, to, options, _through)


def _write_copy(fetcher: Fetcher, meta: ObjectMeta, to: str, options: WriteOptions, way: _Way) -> None:
    said = _require_unchanged(fetcher, meta)
    attributes = Attributes(said.content_type or options.content_type, said.metadata)
    with Writer(fetcher, to, options, attributes) as writer:
        way(fetcher, meta, writer)
        # Not every store honours the version of a request; no store shows the parts before this check.
        _require_unchanged(fetcher, meta)


def _in_parts(fetcher: Fetcher, meta: ObjectMeta, writer: Writer) -> None:
    limits = fetcher.limits
    if "%" in meta.key or not supports(fetcher.driver, PartCopy):  # Ceph 16 unescapes a part's source twice
        _through(fetcher, meta, writer)
        return
    part_bytes = max(min(limits.copy_part_bytes, limits.copy_bytes), -(-meta.size // limits.most_parts))
    for span in cut_spans(meta, part_bytes):
        writer.append(span, _AT_ONCE)
    writer.settle()


def _through(fetcher: Fetcher, meta: ObjectMeta, writer: Writer) -> None:
    with Lookahead(fetcher, cut_spans(meta, _PIECE_BYTES), Budget(_AT_ONCE * _PIECE_BYTES, _AT_ONCE)) as pieces:
        for piece in pieces:
            writer.write(piece)


def _require_unchanged(fetcher: Fetcher, meta: ObjectMeta) -> ObjectMeta:
    found = fetcher.run(partial(fetcher.driver.head, meta.key))
    if (found.size, found.etag) != (meta.size, meta.etag):
        raise Changed("the object has changed since it was listed or looked up", url=fetcher.driver.url(meta.key))
    return found
