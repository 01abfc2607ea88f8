"""Reading steps: a listing, small objects, large objects in ranges; each for a given time."""

from __future__ import annotations

from collections import deque
from itertools import chain, repeat
from random import Random
from typing import TYPE_CHECKING

from penstock.bench.result import step
from penstock.protocols.driver import List
from penstock.values import ObjectMeta, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.bench.result import Result
    from penstock.source import Source

__all__ = ["LARGE_BYTES", "SMALL_BYTES", "listing", "read_large", "read_small"]

SMALL_BYTES = 1 << 20  # at most, of an object that counts as small
LARGE_BYTES = 16 << 20  # at least, of one that counts as large
_RANGE_BYTES = 8 << 20
_MOST = 10_000  # objects that are remembered: enough that a store's caches do not hold all answers
_WARM_SHARE = 0.2  # of the time: connections are made, and the number of requests in flight has settled
_KEPT, _KEPT_BYTES = 64, 32 << 20  # for decoding


def listing(source: Source, prefix: str, seconds: float) -> tuple[Result, list[ObjectMeta]]:
    """List for ``seconds``, page after page; return the result and up to 10,000 objects that are not empty."""
    found: list[ObjectMeta] = []
    with step("list") as watch:
        source.require(List, prefix)
        result, pages, more = watch.result, 0, False
        for page in source.pages(prefix):
            pages += 1
            result.objects += len(page.entries)
            found += [entry for entry in page.entries[: _MOST - len(found)] if entry.size > 0]
            more = bool(page.token)
            if watch.elapsed_s > seconds:
                break
        watch.stop()
        every = f"{result.elapsed_s / max(pages, 1) * 1000:,.0f} ms a page"
        ended = ", and more" if more else ""
        result.detail = f"{result.objects:,} key{'s' * (result.objects != 1)}{ended}, {every}"
    return watch.result, found


def read_small(source: Source, metas: Sequence[ObjectMeta], seconds: float) -> tuple[Result, list[tuple[Span, bytes]]]:
    """Read whole objects of up to 1 MiB in a random order; return the result and some of them, for decoding."""
    kept: list[tuple[Span, bytes]] = []
    small = [meta for meta in metas if meta.size <= SMALL_BYTES]
    if not small:
        return _skipped("read small", "no object of up to 1 MiB"), kept
    spans = [Span(meta.key, 0, meta.size, meta.etag, whole=True) for meta in small]
    mean = sum(meta.size for meta in small) / len(small)
    with step("read small") as watch:
        held = 0
        for span, data in _reads(source, _shuffled(spans), watch, seconds):
            if len(kept) < _KEPT and held < _KEPT_BYTES:
                kept.append((span, data))
                held += len(data)
        watch.result.detail = f"of {len(small):,} objects, {mean / 1024:,.3g} KiB on average"
    return watch.result, kept


def read_large(source: Source, metas: Sequence[ObjectMeta], seconds: float) -> Result:
    """Read objects of 16 MiB or more in parallel ranges of 8 MiB, from their beginnings to their ends."""
    large = [meta for meta in metas if meta.size >= LARGE_BYTES]
    if not large:
        return _skipped("read large", "no object of 16 MiB or more")
    with step("read large") as watch:
        for _ in _reads(source, chain.from_iterable(map(_ranges, chain.from_iterable(repeat(large)))), watch, seconds):
            pass
        watch.result.detail = f"of {len(large):,} object{'s' * (len(large) != 1)}, in ranges of 8 MiB"
    return watch.result


def _reads(source: Source, spans: Iterable[Span], watch: step, seconds: float) -> Iterator[tuple[Span, bytes]]:
    """Yield what is read for ``seconds`` after a warm-up, and count it."""
    drawn: deque[Span] = deque()
    result, warm = watch.result, False

    def noted() -> Iterator[Span]:
        for span in spans:
            drawn.append(span)
            yield span

    with source.lookahead(noted()) as ahead:
        for data in ahead:
            yield drawn.popleft(), data
            if not warm:
                warm = watch.elapsed_s > _WARM_SHARE * seconds
                if warm:
                    watch.start()
                continue
            result.objects += 1
            result.size_bytes += len(data)
            if watch.elapsed_s > seconds:
                watch.stop()
                return


def _shuffled(spans: Sequence[Span]) -> Iterator[Span]:
    draw = Random(0)  # noqa: S311  an order, no secret
    order = [*spans]
    while True:
        draw.shuffle(order)
        yield from order


def _ranges(meta: ObjectMeta) -> Iterator[Span]:
    for start in range(0, meta.size, _RANGE_BYTES):
        yield Span(meta.key, start, min(start + _RANGE_BYTES, meta.size), meta.etag)


def _skipped(name: str, why: str) -> Result:
    with step(name) as watch:
        watch.result.skip(why)
    return watch.result
