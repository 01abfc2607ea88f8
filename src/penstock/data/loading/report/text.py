"""The report as text."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.data.loading.report.summary import HostReport, Summary

__all__ = ["circumstances", "rate", "reads", "seconds", "size", "text"]

_WIDE: Final = 100
_BAR: Final = 30
_URL: Final = 60
_KIB: Final = 1024


def text(report: Summary) -> str:
    """Return the report as text, at most 100 columns wide."""
    return "\n".join(_lines(report))


def _lines(report: Summary) -> Iterator[str]:
    counted = f"{report.batches:,} batches, {report.samples:,} samples"
    whole = seconds(report.waiting_s + report.computing_s)
    yield f"The training loop waited {report.waiting:.0%} of {whole}: {counted}."
    yield f"Cause: {report.cause}." if report.cause else "It is not input bound."
    yield from wrap(report.recommendation, _WIDE)
    yield f"Reads: {reads(report)}."
    yield from wrap(circumstances(report), _WIDE)
    yield ""
    longest = max(report.causes.values(), default=0.0)
    for cause, spent in sorted(report.causes.items(), key=lambda each: -each[1]):
        if spent > 0:
            yield f"  {cause:14}{seconds(spent):>9}  {'█' * max(1, round(spent / longest * _BAR))}"
    for host in report.hosts:
        yield from _host(host)
    if report.rates:
        yield "\nRates that the store was seen to take:"
    for bound in report.rates:
        yield f"  {bound.requests}: {bound.per_s:,.1f} a second on this machine, {bound.share_per_s:,.1f} of them here"
    if report.cost is not None:
        yield f"\nRequests and bytes at the prices given: {report.cost:,.4f} {report.currency}."
    if report.slowest:
        yield "\nThe slowest reads:"
    for each in report.slowest:
        url = each.url if len(each.url) <= _URL else f"…{each.url[1 - _URL :]}"
        again = f", {each.attempts} attempts" if each.attempts > 1 else ""
        yield f"  {seconds(each.elapsed_s):>9}  {size(each.size_bytes):>9}  {url}{again}"


def circumstances(report: Summary) -> str:
    """Return the time, machine and loader options of the report as a sentence; "" if they are unknown."""
    made = report.context
    if made is None:
        return ""
    readers = f"num_workers={made.num_workers}" if made.num_workers else f"decode_threads={made.decode_threads}"
    of = f" of {made.url}" if made.url else ""
    rank = f", rank {report.rank} of {report.world}" if report.world > 1 else ""
    return (
        f"{made.time}, Penstock {made.version} on {made.host}{rank}: a loader{of}, batch_size={made.batch_size}, "
        f"{readers}, prefetch={made.prefetch}."
    )


def reads(report: Summary) -> str:
    """Return the number of requests, and of the retried, failed and cached ones, as text."""
    kinds = (
        (report.retries, "repeated"),
        (report.errors, "failed for good"),
        (report.cached, "from a cache, without one"),
    )
    return f"{report.requests:,} requests" + "".join(f", {count:,} {word}" for count, word in kinds if count)


def _host(host: HostReport) -> Iterator[str]:
    first, speed = host.first_byte_s, host.body_bytes_per_s
    troubles = [(host.failed, "failed"), (host.throttled, "throttled"), (host.retried, "made again")]
    troubles += [(host.hedged, "second ones for slow reads"), (host.hedges_won, "of these answered first")]
    named = "".join(f", {count:,} {word}" for count, word in troubles if count)
    yield f"\n{host.host}: {host.responses:,} requests{named}; {size(host.received_bytes)} read"
    yield f"  first byte   p50 {seconds(first.p50)}, p95 {seconds(first.p95)}, p99 {seconds(first.p99)}"
    if speed.p50:
        yield f"  body rate    p50 {rate(speed.p50)}, p95 {rate(speed.p95)}, p99 {rate(speed.p99)}"


def seconds(value: float) -> str:
    """Return seconds as readable text."""
    for unit, least in (("s", 1.0), ("ms", 1e-3)):
        if value >= least:
            return f"{value / least:,.1f} {unit}"
    return f"{value * 1e6:,.0f} µs"


def size(value: float) -> str:
    """Return bytes as readable text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIB:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= _KIB
    return f"{value:,.1f} TiB"


def rate(value: float) -> str:
    """Return bytes per second as readable text."""
    return f"{size(value)}/s"
