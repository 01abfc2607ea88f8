"""Speed of a store from this machine: keys listed, small objects and large ranges read per second."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import chain, repeat
from random import Random
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from penstock.cli.findings import Finding, step
from penstock.cli.output import readable
from penstock.display import counted
from penstock.errors import PenstockError
from penstock.jobs import tasks
from penstock.jobs.tasks import run_jobs
from penstock.values import ObjectMeta, Span, cut_spans, span_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.source import Source

# Each measurement ends after this time; the first fifth is a warm-up, in which connections open.
_SECONDS, _WARM_SHARE = 3.0, 0.2
# Largest size of a small object; smallest size of a large one, which is read in ranges.
_SMALL_BYTES, _LARGE_BYTES, _RANGE_BYTES = 1 << 20, 16 << 20, 8 << 20
# More objects than a store keeps in its caches, if there are as many.
_MOST_OBJECTS = 10_000
_WRITTEN, _WRITTEN_BYTES = 256, 100 << 10
# From here on, a rate is shown as a whole number.
_WHOLE = 100


def written_keys(stem: str) -> list[str]:
    """Return the keys that ``measure_speed`` may write."""
    return [f"{stem}large", *(f"{stem}small-{number:03}" for number in range(_WRITTEN))]


def measure_speed(source: Source, prefix: str, stem: str) -> Iterator[Finding]:
    """Yield the rates of keys, small objects and large ranges per second below ``prefix``.

    Objects of up to 1 MiB are read whole, in a random order, and objects of 16 MiB or more in ranges of 8 MiB. Where
    there are none, 256 objects of 100 KiB and one of 16 MiB are written to ``written_keys(stem)``, which the caller
    deletes; with an empty ``stem``, nothing is written. Each step takes 3 s at most.
    """
    listed, metas = _measure_listing(source, prefix, stem)
    yield listed
    if listed.outcome != "passed":
        return
    with step("speed of small objects") as small:
        _measure_reads(
            small, source, _small_spans(_of_size(metas, 1, _SMALL_BYTES) or _write_small(source, stem)), "objects"
        )
    yield small
    with step("speed of large objects") as large:
        found = _of_size(metas, _LARGE_BYTES) or _write_large(source, stem)
        endless = chain.from_iterable(repeat(found)) if found else iter(())
        _measure_reads(large, source, (span for meta in endless for span in cut_spans(meta, _RANGE_BYTES)), "ranges")
    yield large


def _measure_listing(source: Source, prefix: str, stem: str) -> tuple[Finding, list[ObjectMeta]]:
    """List for 3 s; return the finding and the objects that the examination has not written."""
    metas: list[ObjectMeta] = []
    with step("speed of list") as finding:
        began, count = monotonic(), 0
        for page in source.pages(prefix):
            count += len(page.entries)
            others = [meta for meta in page.entries if not stem or not meta.key.startswith(stem)]
            metas += others[: _MOST_OBJECTS - len(metas)]
            if monotonic() - began > _SECONDS:
                break
        took = monotonic() - began
        finding.detail = f"{count / took:,.0f} keys/s ({counted(count, 'key')})"
    return finding, metas


def _of_size(metas: Sequence[ObjectMeta], least: int, most: int = 1 << 62) -> list[ObjectMeta]:
    return [meta for meta in metas if least <= meta.size <= most]


def _write_small(source: Source, stem: str) -> list[ObjectMeta]:
    keys, body = written_keys(stem)[1:] if stem else [], os.urandom(_WRITTEN_BYTES)
    metas = []

    async def write(key: str) -> str:
        return await tasks.put(source, key, body, metadata={}, content_type="")

    with closing(run_jobs(keys, write, lambda _: _WRITTEN_BYTES, Event())) as ended:
        for key, etag in ended:
            if isinstance(etag, PenstockError):
                raise etag
            metas.append(ObjectMeta(key, _WRITTEN_BYTES, etag))
    return metas


def _write_large(source: Source, stem: str) -> list[ObjectMeta]:
    if not stem:
        return []
    key = written_keys(stem)[0]
    with source.open_write(key) as file:
        for _ in range(16):
            file.write(os.urandom(_LARGE_BYTES // 16))
    return [source.head(key)]


def _small_spans(metas: Sequence[ObjectMeta]) -> Iterator[Span]:
    draw = Random(0)  # noqa: S311  an order, no secret
    order = [span_in(meta) for meta in metas]
    while order:
        draw.shuffle(order)
        yield from order


def _measure_reads(finding: Finding, source: Source, spans: Iterator[Span], what: str) -> None:
    began = monotonic()
    warm_s, count, size = 0.0, 0, 0
    with source.lookahead(spans) as ahead:
        for data in ahead:
            now = monotonic() - began
            if not warm_s:
                warm_s = now if now > _WARM_SHARE * _SECONDS else 0.0
                continue
            count += 1
            size += len(data)
            if now > _SECONDS:
                break
    took = monotonic() - began - warm_s
    if not count:
        finding.skip("no objects of this size below the URL")
        return
    rate = count / took
    digits = f"{rate:,.0f}" if rate >= _WHOLE else f"{rate:.3g}"
    finding.detail = f"{digits} {what}/s, {readable(int(size / took))}/s"
