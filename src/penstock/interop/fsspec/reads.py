"""Reads of one slice or of thousands, without a file object and in as few requests as possible.

Byte ranges: Python slices as spans, and nearby spans merged into one request; pure arithmetic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError, Truncated, Unusable
from penstock.interop.awaiting import read, read_each, stat, stat_each
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.source import Source
    from penstock.values import ObjectMeta

    Outcome = bytes | PenstockError
    Slice = tuple[str, int | None, int | None]  # key, start, end

__all__ = [
    "GAP_BYTES",
    "Run",
    "check_lists",
    "exact",
    "gap",
    "gather_slices",
    "merged",
    "read_slice",
    "read_slice_here",
    "read_slices",
    "spanned",
]


async def read_slice(source: Source, wanted: Slice) -> bytes:
    """Return ``object[start:end]``: one request.

    If the slice needs the object's size, a HEAD precedes it. If it ends beyond the object, a HEAD and a second read
    follow.
    """
    span = spanned(*wanted)
    if span is not None:
        if span.stop == span.start:
            return b""
        try:
            return await read(source, span)
        except Truncated:
            if span.stop is None:
                raise
    span = exact(await stat(source, wanted[0]), *wanted[1:])
    return await read(source, span) if span.stop != span.start else b""


def read_slice_here(source: Source, wanted: Slice) -> bytes:
    """Return the same as ``read_slice``, and block the calling thread."""
    span = spanned(*wanted)
    if span is not None:
        if span.stop == span.start:
            return b""
        try:
            return source.read(span)
        except Truncated:
            if span.stop is None:
                raise
    span = exact(source.head(wanted[0]), *wanted[1:])
    return source.read(span) if span.stop != span.start else b""


async def read_slices(source: Source, wanted: Sequence[Slice], gap_bytes: int) -> list[Outcome]:
    """Read many slices in parallel; return the bytes or the error of each, in order.

    Nearby slices of an object share a request. An object costs a HEAD if one of its slices needs the size or ends
    beyond it.
    """
    spans = [spanned(*each) for each in wanted]
    results: list[Outcome] = [b""] * len(wanted)
    quick = [at for at, span in enumerate(spans) if span is not None and span.stop != span.start]
    await _read(source, [(at, span) for at in quick if (span := spans[at]) is not None], gap_bytes, results)
    late = [at for at, span in enumerate(spans) if span is None]
    late += [at for at in quick if isinstance(results[at], Truncated)]
    if late:
        metas = await _metas(source, [wanted[at][0] for at in late])
        sized: list[tuple[int, Span]] = []
        for at in late:
            key, start, end = wanted[at]
            meta = metas[key]
            if isinstance(meta, PenstockError):
                results[at] = meta
            else:
                span = exact(meta, start, end)
                results[at] = b""
                sized += [(at, span)] if span.stop != span.start else []
        await _read(source, sized, gap_bytes, results)
    return results


async def _read(source: Source, spans: Sequence[tuple[int, Span]], gap_bytes: int, results: list[Outcome]) -> None:
    """Read spans, nearby ones in one request, and store each outcome in ``results`` at the span's position."""
    runs = [*merged([span for _, span in spans], gap_bytes)]
    found = await read_each(source, [run.span for run in runs])
    for run, outcome in zip(runs, found, strict=True):
        for member in run.members:
            at, span = spans[member]
            if isinstance(outcome, PenstockError) or len(run.members) == 1:
                results[at] = outcome
            else:
                start = span.start - run.span.start
                results[at] = outcome[start : start + (span.stop or 0) - span.start]


async def _metas(source: Source, keys: Sequence[str]) -> dict[str, ObjectMeta | PenstockError]:
    once = [*dict.fromkeys(keys)]
    return dict(zip(once, await stat_each(source, once), strict=True))


def check_lists(paths: object, starts: object, ends: object) -> tuple[list[int | None], list[int | None]]:
    """Return starts and ends for each path; as in fsspec, one number may stand for all.

    Raises:
        TypeError: ``paths`` is not a list.
        ValueError: The number of starts or of ends differs from that of paths.

    """
    if not isinstance(paths, list):
        message = f"cat_ranges takes a list of paths, not {type(paths).__name__}"
        raise TypeError(message)
    each: list[list[int | None]] = []
    for name, given in (("starts", starts), ("ends", ends)):
        values = [given] * len(paths) if given is None or isinstance(given, int) else list(given)  # type: ignore[call-overload]
        if len(values) != len(paths):
            message = f"cat_ranges takes as many {name} as paths: {len(values)} for {len(paths)}"
            raise ValueError(message)
        each.append(values)
    return each[0], each[1]


async def gather_slices(
    tasks: Sequence[tuple[Source, list[int], list[Slice]]], gap_bytes: int, results: list[Outcome]
) -> None:
    """Read slices of several sources, one batch per source, into ``results`` at the given positions."""
    found = await asyncio.gather(*(read_slices(source, wanted, gap_bytes) for source, _, wanted in tasks))
    for (_, positions, _), outcomes in zip(tasks, found, strict=True):
        for at, outcome in zip(positions, outcomes, strict=True):
            results[at] = outcome


def gap(max_gap: object) -> int:
    """Return ``max_gap``; raise ``Unusable`` unless it is a whole number of bytes, at least 0."""
    if not isinstance(max_gap, int) or isinstance(max_gap, bool) or max_gap < 0:
        raise Unusable(f"max_gap is a number of bytes from 0 on, not {max_gap!r}")
    return max_gap


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
