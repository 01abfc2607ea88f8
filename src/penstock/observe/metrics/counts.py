"""Definitions of the metrics: names, units and descriptions, the same for every metrics system."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import CacheCounts, HostTimings
    from penstock.histogram import Histogram

__all__ = ["CACHE_COUNTS", "COUNTS", "DISTRIBUTIONS", "CacheCount", "Count", "Distribution", "cumulated"]


class Count(NamedTuple):
    """A counter of each host, which only grows.

    Attributes:
        name: Name in snake_case.
        unit: UCUM unit, as in OpenTelemetry.
        help: Description in one sentence.
        value: Function that reads the number.

    """

    name: str
    unit: str
    help: str
    value: Callable[[HostTimings], float]


class CacheCount(NamedTuple):
    """A counter of each cache, which only grows; see ``Count``."""

    name: str
    unit: str
    help: str
    value: Callable[[CacheCounts], float]


class Distribution(NamedTuple):
    """A histogram of each host; see ``Count``."""

    name: str
    unit: str
    help: str
    value: Callable[[HostTimings], Histogram]


COUNTS: Final = (
    Count("requests", "{request}", "Attempts of requests that ended.", lambda host: host.responses),
    Count("failed_requests", "{request}", "Attempts of requests that failed.", lambda host: host.failed),
    Count("throttled_requests", "{request}", "Attempts refused for their rate.", lambda host: host.throttled),
    Count("retried_requests", "{request}", "Attempts that were made again.", lambda host: host.retried),
    Count("hedged_requests", "{request}", "Second requests for slow reads.", lambda host: host.hedged),
    Count("hedges_won", "{request}", "Second requests that came first.", lambda host: host.hedges_won),
    Count("received_bytes", "By", "Bytes of responses' bodies.", lambda host: host.received_bytes),
    Count("sent_bytes", "By", "Bytes of requests' bodies.", lambda host: host.sent_bytes),
    Count("throttled_seconds", "s", "Seconds that requests waited when throttled.", lambda host: host.throttled_s),
    Count("paced_seconds", "s", "Seconds that requests waited for their turn.", lambda host: host.paced_s),
    Count("retried_seconds", "s", "Seconds that requests waited after other failures.", lambda host: host.retried_s),
)
CACHE_COUNTS: Final = (
    CacheCount("cache_hits", "{read}", "Reads that a cache served.", lambda cache: cache.hits),
    CacheCount("cache_misses", "{read}", "Reads that a cache did not have.", lambda cache: cache.misses),
    CacheCount("cache_hit_bytes", "By", "Bytes that a cache served.", lambda cache: cache.hit_bytes),
    CacheCount("cache_stored_bytes", "By", "Bytes written into a cache.", lambda cache: cache.stored_bytes),
    CacheCount("cache_refused", "{entry}", "Entries that a cache did not take in.", lambda cache: cache.refused),
    CacheCount("cache_damaged", "{entry}", "Entries that were damaged, and removed.", lambda cache: cache.damaged),
)
DISTRIBUTIONS: Final = (
    Distribution("first_byte_seconds", "s", "Seconds from a read to its first byte.", lambda host: host.first_byte),
    Distribution(
        "body_bytes_per_second", "By/s", "Rates of single bodies of 64 KiB or more.", lambda host: host.body_rate
    ),
)


def cumulated(histogram: Histogram, bounds: tuple[float, ...]) -> list[int]:
    """Return, for each bound, how many numbers do not exceed it, and, as the last item, the total count.

    A bucket of the histogram counts by its upper bound.
    """
    counts = [0] * (len(bounds) + 1)
    for bucket in histogram.buckets():
        at = next((at for at, bound in enumerate(bounds) if bucket.high <= bound * 1.000001), len(bounds))
        counts[at] += bucket.size
    return [*accumulate(counts)]
