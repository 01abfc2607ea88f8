"""Reading steps: list, look up, read, read a range, and hold a read to its version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.doctor.findings import Finding, step
from penstock.errors import Changed
from penstock.protocols.driver import List
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.source import Source

__all__ = ["listing", "reading"]

_MOST_BYTES = 1 << 20  # of an object that the user has there: enough to see that it arrives


def listing(source: Source, prefix: str) -> tuple[Finding, ObjectMeta | None]:
    """List one page below ``prefix``; returns the finding and the first object that is not empty, if there is one."""
    first = None
    with step("list") as finding:
        source.require(List, prefix)
        page = source.page(prefix)
        count = len(page.entries)
        more = " and more" if page.token else ""
        finding.detail = f"{count:,} object{'s' * (count != 1)}{more} [{source.url(prefix)}]"
        first = next((entry for entry in page.entries if entry.size), None)
    return finding, first


def reading(source: Source, key: str, expected: bytes | None = None) -> Iterator[Finding]:
    """Look an object up and read it: all of it, up to 1 MiB; a range of it; and the version that is not there.

    ``expected`` is what it must hold.
    """
    meta = None
    with step("look up") as looked:
        meta = source.head(key)
        looked.detail = f"{meta.size:,} bytes, version {meta.etag or 'unknown'}"
        if expected is not None and meta.size != len(expected):
            looked.fail(f"{meta.size:,} bytes where {len(expected):,} were written [{source.url(key)}]")
    yield looked
    if meta is None:
        return
    size = min(meta.size, _MOST_BYTES)
    with step("read") as read:
        data = source.read(Span(key, 0, size, meta.etag, whole=size == meta.size))
        read.detail = f"{len(data):,} bytes"
        if expected is not None and data != expected[:size]:
            read.fail("the bytes are not those that were written: something on the way changes them")
    yield read
    if read.outcome == "failed":
        return
    if size > 1:
        with step("read a range") as ranged:
            _read_range(ranged, source, Span(key, size // 3, size // 3 * 2 or size, meta.etag), data)
        yield ranged
    with step("hold a read to a version") as pinned:
        _pin(pinned, source, meta, size)
    yield pinned


def _read_range(finding: Finding, source: Source, span: Span, whole: bytes) -> None:
    part = source.read(span)
    finding.detail = f"bytes {span.start:,} to {(span.stop or 0) - 1:,}"
    if part != whole[span.start : span.stop]:
        finding.fail(f"{finding.detail} are not those of the whole object")


def _pin(finding: Finding, source: Source, meta: ObjectMeta, size: int) -> None:
    """Ask for a version that never was: a store that heeds versions refuses."""
    if not meta.etag:
        finding.warn("the store names no version: an object that is replaced during an epoch is not noticed")
        return
    try:
        source.read(Span(meta.key, 0, size, _other(meta.etag)))
    except Changed:
        finding.detail = "another version is refused"
    else:
        finding.fail("the store sent an object of another version than was asked for")


def _other(etag: str) -> str:
    """Return an ETag of the same form that is not this one."""
    return etag[:-1] + ("1" if etag[-1] != "1" else "2")
