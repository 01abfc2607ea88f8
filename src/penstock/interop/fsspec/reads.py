"""Reads of one slice or of thousands, without a file object and in as few requests as possible."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Truncated, Unusable
from penstock.interop.awaiting import read, read_each, stat, stat_each
from penstock.interop.ranges import exact, merged, spanned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.source import Source
    from penstock.values import ObjectMeta, Span

    Outcome = bytes | PenstockError
    Slice = tuple[str, int | None, int | None]  # key, start, end

__all__ = ["check_lists", "gap", "gather_slices", "read_slice", "read_slice_here", "read_slices"]


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
