"""Which counts are metrics: their names, units and sentences, for every system of metrics alike."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events import HostTimings
    from penstock.histogram import Histogram

__all__ = ["COUNTS", "DISTRIBUTIONS", "Count", "Distribution", "cumulated"]


class Count(NamedTuple):
    """A number of each host that only grows.

    Attributes:
        name: In words with underscores.
        unit: UCUM's, as OpenTelemetry writes them.
        help: One sentence.
        value: Reads it.

    """

    name: str
    unit: str
    help: str
    value: Callable[[HostTimings], float]


class Distribution(NamedTuple):
    """Numbers of each host of which there is a histogram; see ``Count``."""

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
    Count("retried_seconds", "s", "Seconds that requests waited after other failures.", lambda host: host.retried_s),
)
DISTRIBUTIONS: Final = (
    Distribution("first_byte_seconds", "s", "Seconds from a read to its first byte.", lambda host: host.first_byte),
    Distribution(
        "body_bytes_per_second", "By/s", "Rates of single bodies of 64 KiB or more.", lambda host: host.body_rate
    ),
)


def cumulated(histogram: Histogram, bounds: tuple[float, ...]) -> list[int]:
    """Return how many numbers do not exceed each bound, and, last, how many there are.

    A bucket of the histogram counts where its own upper bound lies.
    """
    counts = [0] * (len(bounds) + 1)
    for bucket in histogram.buckets():
        at = next((at for at, bound in enumerate(bounds) if bucket.high <= bound * 1.000001), len(bounds))
        counts[at] += bucket.size
    return [*accumulate(counts)]
