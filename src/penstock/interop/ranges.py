"""Byte ranges: Python slices as spans, and nearby spans merged into one request; pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.values import ObjectMeta

__all__ = ["GAP_BYTES", "Run", "exact", "merged", "spanned"]

# Largest gap between two ranges that share a request: Arrow's ``hole_size_limit``.
GAP_BYTES = 8 << 10
# Largest request for several ranges: the ranges of a longer one would arrive one after another.
_RUN_BYTES = 4 << 20


class Run(NamedTuple):
    """Nearby ranges of one object, read in one request.

    Attributes:
        span: The bytes to read: from the start of the first range to the end of the last.
        members: Positions of the contained spans in the caller's sequence.

    """

    span: Span
    members: list[int]


def spanned(key: str, start: int | None, end: int | None) -> Span | None:
    """Return ``object[start:end]`` as a span that can be read without the object's size; None if the size is needed.

    The span's ``stop`` may lie beyond the object's end. An empty slice has ``stop`` equal to ``start``.
    """
    start = start or 0
    if end is None:
        return Span(key, start) if start <= 0 else None
    if start < 0 or end < 0:
        return None
    return Span(key, start, max(start, end))


def exact(meta: ObjectMeta, start: int | None, end: int | None) -> Span:
    """Return ``object[start:end]`` as a span of the version that ``meta`` describes."""
    first, stop, _ = slice(start, end).indices(meta.size)
    return Span(meta.key, first, max(first, stop), meta.etag, whole=not first and stop == meta.size)


def merged(spans: Sequence[Span], gap_bytes: int) -> Iterator[Run]:
    """Yield runs that contain every span once; spans of one object at most ``gap_bytes`` apart share a run.

    A span without a ``stop`` gets a separate run. A span that would make a run longer than 4 MiB begins a new one.
    """
    order = sorted(range(len(spans)), key=lambda at: (spans[at].stop is None, *spans[at][:2]))
    run: Run | None = None
    for at in order:
        span = spans[at]
        if run is not None and (joined := _joined(run.span, span, gap_bytes)) is not None:
            run.members.append(at)
            run = Run(joined, run.members)
            continue
        if run is not None:
            yield run
        run = Run(span, [at])
    if run is not None:
        yield run


def _joined(run: Span, span: Span, gap_bytes: int) -> Span | None:
    if run.stop is None or span.stop is None or run.key != span.key or run.etag != span.etag:
        return None
    stop = max(run.stop, span.stop)
    if span.start - run.stop > gap_bytes or stop - run.start > _RUN_BYTES:
        return None
    return Span(run.key, run.start, stop, run.etag, run.whole or span.whole)
