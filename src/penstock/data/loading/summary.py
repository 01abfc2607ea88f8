"""A loader's performance as plain values: shares of time, hosts, workers, and the slowest requests."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import Unusable

if TYPE_CHECKING:
    from penstock.data.loading.advice import Cause
    from penstock.data.loading.stats import ReaderStats
    from penstock.engine.node.member import NodeRate
    from penstock.events import HostTimings, SlowRequest
    from penstock.histogram import Histogram

__all__ = ["Context", "HostReport", "Prices", "Quantiles", "Summary", "host_report"]

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """List prices of a store, for an estimate of what requests cost.

    Attributes:
        per_1000_requests: Price of 1,000 reads.
        per_gib: Price of a GiB that leaves the store; within a cloud region mostly 0.
        currency: Label of the sum.

    Example:
        >>> prices = ps.Prices(per_1000_requests=0.0004, per_gib=0.09)
        >>> prices.of(1_000_000, size_bytes=1 << 30)
        0.49

    """

    per_1000_requests: float = 0.0
    per_gib: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        """Raise for prices that are negative or not finite numbers, and for a currency that is not a text."""
        for name in ("per_1000_requests", "per_gib"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not isfinite(value) or value < 0:
                raise Unusable(f"{name} must be a price, 0 or more and not negative, not {value!r}")
        if not isinstance(self.currency, str):
            raise Unusable(f"currency must be a text, not {self.currency!r}")

    def of(self, requests: int, size_bytes: int) -> float:
        """Return the cost of requests.

        Args:
            requests: Number of requests.
            size_bytes: Bytes that they read in total.

        """
        return requests / 1000 * self.per_1000_requests + size_bytes / _GIB * self.per_gib


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Times that 50, 95 and 99 % of all do not exceed, or rates that 50, 95 and 99 % of all reach or exceed."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class HostReport:
    """The requests to one host.

    Attributes:
        host: Name and port; for stores without a network, the scheme.
        responses: Attempts of requests that ended.
        failed: How many of these failed.
        throttled: How many the store refused because requests came too fast.
        retried: How many were retried.
        hedged: Second requests for slow reads.
        hedges_won: How many of these were answered first.
        received_bytes: Bytes of the objects that were read.
        sent_bytes: Bytes that were written.
        first_byte_s: Seconds to the first byte of a read.
        body_bytes_per_s: Bytes per second of single bodies of 64 KiB or more.
        first_bytes: Histogram of ``first_byte_s`` as ``(low, high, count)``.
        body_rates: Histogram of ``body_bytes_per_s``, likewise.

    """

    host: str
    responses: int
    failed: int
    throttled: int
    retried: int
    hedged: int
    hedges_won: int
    received_bytes: int
    sent_bytes: int
    first_byte_s: Quantiles
    body_bytes_per_s: Quantiles
    first_bytes: tuple[tuple[float, float, int], ...] = field(repr=False, default=())
    body_rates: tuple[tuple[float, float, int], ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class Context:
    """Time, machine and loader options of a report.

    Attributes:
        time: UTC, as ISO 8601.
        host: Name of the machine.
        version: Version of Penstock.
        url: URL below which the samples are, without a query; "" if the dataset does not give it.
        batch_size: Samples per batch.
        num_workers: Worker processes; 0: threads.
        decode_threads: Decoding threads, with ``num_workers=0``.
        prefetch: Batches ahead.

    """

    time: str
    host: str
    version: str
    url: str
    batch_size: int
    num_workers: int
    decode_threads: int
    prefetch: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Whether a training loop waits for its batches, and why: see ``DataLoader.report``.

    Attributes:
        cause: Main cause of waiting; None if the loop waits for less than 5 % of the time.
        recommendation: One recommendation, which names the option to change.
        waiting_s: Seconds that the training loop waited for batches.
        computing_s: Seconds between receiving a batch and asking for the next one.
        causes: The seconds of ``waiting_s`` by cause: ``"first byte"``, ``"disk"``, ``"bandwidth"``, ``"throttled"``,
            ``"paced"``, ``"retries"``, ``"memory budget"``, ``"opening"``, ``"decode"``, ``"collate"``, ``"device"``,
            ``"python"``.
        batches: Batches that the loop received.
        samples: Samples in these batches.
        requests: Requests for the samples, retries included.
        retries: How many of these were retries.
        errors: Reads that failed in the end.
        cached: Reads that needed no request, because a cache had them.
        hosts: Requests by host, the busiest first.
        workers: Counts of each worker process, or of all decoding threads together.
        slowest: The ten slowest reads.
        cost: Cost of all requests at the given prices; None without prices.
        currency: Currency of the cost.
        rates: Request rates that the loader's own stores were seen to accept, by prefix: see ``penstock.node_status``.
        rank: The rank that reports.
        world: Number of ranks.
        context: Time, machine and loader options.

    """

    cause: Cause | None
    recommendation: str
    waiting_s: float
    computing_s: float
    causes: dict[Cause, float]
    batches: int
    samples: int
    requests: int
    retries: int
    errors: int
    cached: int
    hosts: tuple[HostReport, ...]
    workers: tuple[ReaderStats, ...]
    slowest: tuple[SlowRequest, ...]
    cost: float | None = None
    currency: str = ""
    rates: tuple[NodeRate, ...] = ()
    rank: int = 0
    world: int = 1
    context: Context | None = None

    @property
    def waiting(self) -> float:
        """Share of time that the training loop waited, 0 to 1."""
        seconds = self.waiting_s + self.computing_s
        return self.waiting_s / seconds if seconds else 0.0

    def values(self) -> dict[str, Any]:
        """Return everything as dicts, lists, numbers and texts."""
        found = asdict(self)
        found["slowest"] = [each._asdict() for each in self.slowest]
        found["waiting"] = self.waiting
        return found

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.values())


def host_report(name: str, timings: HostTimings) -> HostReport:
    """Return the counts of a host as plain values."""
    first, rate = timings.first_byte, timings.body_rate
    return HostReport(
        name,
        timings.responses,
        timings.failed,
        timings.throttled,
        timings.retried,
        timings.hedged,
        timings.hedges_won,
        timings.received_bytes,
        timings.sent_bytes,
        Quantiles(first.quantile(0.5), first.quantile(0.95), first.quantile(0.99)),
        Quantiles(rate.quantile(0.5), rate.quantile(0.05), rate.quantile(0.01)),
        _counts(first),
        _counts(rate),
    )


def _counts(histogram: Histogram) -> tuple[tuple[float, float, int], ...]:
    least, most = histogram.least, histogram.least * 2.0**30
    return tuple((max(low, least / 2), min(high, 2 * most), size) for low, high, size in histogram.buckets())
