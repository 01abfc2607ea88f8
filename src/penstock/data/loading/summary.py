"""A loader's performance as plain values: shares of time, hosts, workers, and the slowest requests.

The seconds that a training loop waited are divided by cause (design/0047), and each cause has a recommendation.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.data.datasets.batched import SourceShare
    from penstock.data.loading.stats import LoaderStats, ReaderStats
    from penstock.engine.node.member import NodeRate
    from penstock.events import HostTimings, SlowRequest
    from penstock.histogram import Histogram

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """List prices of a store, for an estimate of the cost of requests.

    Attributes:
        per_1000_requests: Price of 1,000 reads.
        per_gib: Price of a GiB that leaves the store; within a cloud region mostly 0.
        currency: Label of the sum.

    Example:
        >>> prices = ps.observe.Prices(per_1000_requests=0.0004, per_gib=0.09)
        >>> prices.of(1_000_000, size_bytes=1 << 30)
        0.49
    """

    per_1000_requests: float = 0.0
    per_gib: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("per_1000_requests", "per_gib"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not isfinite(value) or value < 0:
                raise Unusable(f"{name} must be 0 or more, got {value!r}")
        if not isinstance(self.currency, str):
            raise Unusable(f"currency must be a text, got {self.currency!r}")

    def of(self, requests: int, size_bytes: int) -> float:
        """Return the cost of requests.

        Args:
            requests: Number of requests.
            size_bytes: Bytes that they read in total.
        """
        return requests / 1000 * self.per_1000_requests + size_bytes / _GIB * self.per_gib


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Percentiles 50, 95 and 99 of times, or of rates, from the fastest."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class HostReport:
    """The requests to one host.

    Attributes:
        host: Name and port; for stores without a network, the scheme.
        responses: Attempts of requests that ended.
        failed: Number of these that failed; a HEAD that finds no object has not failed.
        throttled: Number of these that the store refused because of its rate limit.
        retried: Number of these that were retried.
        hedged: Second requests for slow reads.
        hedges_won: Number of these that were answered first.
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
        retries: Number of these that were retries.
        errors: Reads that failed in the end.
        cached: Reads that needed no request, because a cache or another worker process had them.
        hosts: Requests by host, the busiest first.
        workers: Counts of each worker process, or of all decoding threads together.
        slowest: The ten slowest reads.
        cost: Cost of all requests at the given prices; None without prices.
        currency: Currency of the cost.
        rates: Request rates that the loader's own stores were seen to accept, by prefix: see
            ``penstock.cache.node_status``.
        rank: The rank that reports.
        world: Number of ranks.
        context: Time, machine and loader options.
        sources: Share wanted, samples and waits of each source of a ``ps.Mix``.
        read_bytes: Bytes that came by requests.
        used_bytes: Bytes of the delivered samples, by the mean of the dataset; 0 if unknown. Where ``read_bytes`` is
            far above it, worker processes or ranks read the same blocks, or samples are cut from larger reads.
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
    sources: tuple[SourceShare, ...] = ()
    read_bytes: int = 0
    used_bytes: int = 0

    @property
    def waiting(self) -> float:
        """Share of time that the training loop waited, 0 to 1."""
        seconds = self.waiting_s + self.computing_s
        return self.waiting_s / seconds if seconds else 0.0

    def values(self) -> dict[str, Any]:
        """Return everything as dicts, lists, numbers and texts."""
        found = asdict(self)
        found["slowest"] = [each._asdict() for each in self.slowest]
        found["sources"] = [each._asdict() for each in self.sources]
        found["waiting"] = self.waiting
        return found

    def json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.values())


def host_report(name: str, timings: HostTimings) -> HostReport:
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


_MOST: Final = 0.7  # share of the slowest requests whose common prefix is named


@dataclass(frozen=True, slots=True)
class Setup:
    """Options of a loader, and the processors that it may use."""

    num_workers: int  # worker processes
    decode_threads: int  # decoding threads, without worker processes
    processors: int  # processors that this rank may use
    prefetch: int  # batches ahead
    batch_size: int  # samples per batch
    scattered: bool = False  # whether small samples of files are each read by one request
    asleep: float = 0.0  # share of the time of transforms in which they waited while processors were free


def advise_order(setup: Setup, read_bytes: int, used_bytes: int) -> str:
    """Return advice on reads of several times the bytes of the samples; "" for others."""
    if not setup.scattered or read_bytes <= _MOST_EXCESS * used_bytes or not used_bytes:
        return ""
    return f"The reads are {read_bytes / used_bytes:.1f} times the bytes of the samples: {_EXCESS}"


def advice(cause: Cause | None, setup: Setup, slowest: Sequence[str] = ()) -> str:
    """Return one or two sentences of advice on ``cause``; ``slowest`` are the URLs of the slowest requests."""
    if cause is None:
        return "The loader keeps up with the training loop: nothing is to be changed."
    if setup.scattered and cause in _BY_REQUESTS:
        return _SCATTERED
    if cause == "decode":
        return _decode(setup)
    if cause == "python":
        return _python(setup)
    if cause == "first byte":
        prefix = common_prefix(slowest)
        return _FIRST_BYTE + (
            f" Most of the slowest reads are under {prefix}: see how these are stored." if prefix else ""
        )
    return _OTHERS[cause]


# Causes that fewer requests make smaller.
_BY_REQUESTS: Final = frozenset(("first byte", "throttled", "paced", "retries", "memory budget", "python"))
_SCATTERED: Final = (
    "Each small sample of a shard or video takes one request: pass shuffle=ps.order.Lanes(), which reads neighbours "
    "in one request of about 1 MiB, and mixes those of 160 such blocks."
)
_MOST_EXCESS: Final = 4
_EXCESS: Final = (
    "each clip is read by itself, from a key frame on. Pass shuffle=ps.order.Lanes(), which reads neighbours in one "
    "request of about 1 MiB, so that an epoch reads little more than the files."
)
_FIRST_BYTE: Final = (
    "The store takes long to begin its answers: raise TransportOptions(connections=…), so that more reads are under "
    "way at once."
)
_OTHERS: Final[dict[Cause, str]] = {
    "disk": (
        "Local files, or those of a cache, are read slowly: put them on a faster disk, or read several at once from "
        "more processes, with num_workers=."
    ),
    "bandwidth": (
        "The network is the limit: store smaller or compressed objects, or keep them on local disk after the first "
        "epoch, with StoreOptions(cache=CacheOptions(…))."
    ),
    "throttled": (
        "The store refuses requests because they come too fast: spread keys over more prefixes, or lower "
        "TransportOptions(connections=…) until throttling ends."
    ),
    "paced": (
        "Requests wait for their turn, at the rate that the store was seen to take: spread keys over more prefixes, or "
        "ask for fewer of them: larger objects, or a cache, StoreOptions(cache=CacheOptions(…))."
    ),
    "retries": (
        "Requests fail and are made again: see the warnings in the log, and lower "
        "TransportOptions(stall_timeout_s=…) if connections hang."
    ),
    "memory budget": (
        "The budget for reading ahead holds requests back: raise ReadOptions(ahead_bytes=…), or ahead_items=… where "
        "objects are small. Worker processes share the budget equally."
    ),
    "opening": (
        "Worker processes take long to open the store, each in every epoch: pass persistent_workers=True, or "
        "num_workers=0; `penstock doctor` shows whether credentials are what takes long."
    ),
    "collate": (
        "collate_fn is the limit: pass a faster collate_fn= (tensors of one shape, one torch.stack), or raise "
        "prefetch= so that several batches are collated at once."
    ),
    "device": (
        "Moving batches to the device is the limit: pass pin_memory=True together with device=, and return smaller "
        "types (uint8 instead of float32) from the transform."
    ),
}


def _decode(setup: Setup) -> str:
    if setup.asleep >= _LEAST_ASLEEP:
        return _wait_at_once(setup)
    if setup.num_workers and setup.num_workers < setup.processors:
        count = f"num_workers= (now {setup.num_workers})"
        return f"Transforms are the limit: raise {count} up to {setup.processors} processors."
    if not setup.num_workers and setup.decode_threads < setup.processors:
        return (
            f"Transforms are the limit: raise decode_threads= (now {setup.decode_threads}) up to {setup.processors} "
            "processors."
        )
    return (
        "Transforms are the limit, and all processors are in use: pass a cheaper transform=, or store smaller samples."
    )


def _wait_at_once(setup: Setup) -> str:
    """Return advice for transforms that wait: more threads, and as many samples as these need."""
    running = max(1 - setup.asleep, 0.01)
    waits = f"Transforms wait for {setup.asleep:.0%} of their time (for a service, a disk, a lock, a sleep)"
    if setup.num_workers and setup.num_workers * running >= _FEW_PROCESSORS:
        # Threads that also run Python would use no more than one processor.
        workers = min(round(setup.num_workers / running), 2 * setup.num_workers)
        return f"{waits}: raise num_workers= (now {setup.num_workers}) to {workers}, so that more of them wait at once."
    now = setup.num_workers or min(setup.decode_threads, setup.prefetch * setup.batch_size)
    threads = max(now + 1, min(round(now / running), max(_MANY_THREADS, 2 * now)))
    prefetch = max(setup.prefetch, ceil(threads / setup.batch_size) + 1)
    more = f"decode_threads={threads} (now {setup.decode_threads})"
    if setup.num_workers:
        more = f"num_workers=0 and decode_threads={threads} (now num_workers={setup.num_workers})"
    if prefetch > setup.prefetch:
        more += f" and prefetch={prefetch} (now {setup.prefetch}: {setup.prefetch * setup.batch_size} samples)"
    alone = setup.num_workers or setup.processors == 1
    other = "" if alone else f"; if they wait for one another, num_workers={setup.processors}"
    return f"{waits}: pass {more}, so that more of them wait at once{other}."


def _python(setup: Setup) -> str:
    if setup.num_workers:
        return (
            "Workers are not the limit, but starting them, pickling and passing batches on: pass "
            "persistent_workers=True, and make batches larger or of tensors only."
        )
    if setup.processors == 1:
        return "Transforms are the limit, and use the one processor for Python code: pass a cheaper transform=."
    # Transforms that also wait may need more processes than processors: their threads have shown how many.
    workers = max(setup.processors, min(setup.decode_threads, _PER_PROCESSOR * setup.processors))
    return (
        "Transforms wait for one another, because they are pure Python and hold its lock (the GIL): pass "
        f"num_workers={workers}, which transform in processes."
    )


def common_prefix(urls: Sequence[str]) -> str:
    """Return the longest folder common to at least 70 % of the URLs below their bucket, or an empty text."""
    folders = [url.rpartition("/")[0].split("/") for url in urls if "://" in url]
    if len(folders) < 3:  # noqa: PLR2004  two are no pattern
        return ""
    needed = -(-len(folders) * _MOST // 1)
    best: list[str] = []
    for folder in folders:
        for depth in range(4, len(folder) + 1):  # scheme, nothing, bucket, and one folder
            alike = sum(each[:depth] == folder[:depth] for each in folders)
            if alike >= needed and depth > len(best):
                best = folder[:depth]
    return "/".join(best) + "/" if best else ""


Cause = Literal[
    "first byte",
    "disk",
    "bandwidth",
    "throttled",
    "paced",
    "retries",
    "memory budget",
    "opening",
    "decode",
    "collate",
    "device",
    "python",
]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

_FILES: Final = "file"  # the "host" of local files
_LEAST_SHARE: Final = 0.05  # of wall time: below it the loop is not input bound
_LEAST_HELD: Final = 0.4  # share of probes from which transforms wait for the GIL
_LEAST_ASLEEP: Final = 0.25  # more transforms at once are a third faster
_BUSY: Final = 0.8  # share of the processors from which more transforms at once would wait for these
_FEW_PROCESSORS: Final = 0.5  # that worker processes use together: threads are faster even where they share the GIL
_MANY_THREADS: Final = 32  # up to which a first recommendation goes
_PER_PROCESSOR: Final = 4  # worker processes


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Numbers of processes or threads that make batches at once."""

    processes: int  # worker processes; 0: threads of this process
    threads: int  # threads that transform, without worker processes
    collating: int  # batches that these threads may collate at once


def causes(stats: LoaderStats, hosts: Mapping[str, HostTimings], at_once: Parallelism) -> dict[Cause, float]:
    """Return the seconds of ``stats.waiting_s``, divided by cause.

    The seconds in which the loop's own thread moves batches are measured. The other seconds are divided in proportion
    to the time of threads or workers: opening the store, waits for bytes (one thread waits for all), transforms and
    collation (a thread's share of their sum). Seconds beyond the time of the busiest worker process are Python's:
    processes started, and batches were pickled and passed on.
    """
    found: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
    found["device"] = min(stats.moving_s, stats.waiting_s)
    left_s = stats.waiting_s - found["device"]
    making = _divide_making_time(stats, at_once)
    reading_s = making.pop("first byte")
    shares = [*making.items(), *_divide_read_waits(reading_s, stats, hosts).items()]
    made_s = sum(seconds for _, seconds in shares)
    busiest_s = max((each.opening_s + each.waiting_s + each.working_s for each in stats.workers), default=0.0)
    known_s = min(left_s, busiest_s) if at_once.processes else left_s
    if made_s > 0:
        for cause, seconds in shares:
            found[cause] += seconds / made_s * known_s
        left_s -= known_s
    found["python"] += left_s
    return found


def main_cause(stats: LoaderStats, found: dict[Cause, float]) -> Cause | None:
    """Return the cause with the most seconds; None where the loop waited for less than 5 % of the time."""
    seconds = stats.waiting_s + stats.computing_s
    if not seconds or stats.waiting_s < _LEAST_SHARE * seconds:
        return None
    return max(found, key=found.__getitem__)


def _divide_making_time(stats: LoaderStats, at_once: Parallelism) -> dict[Cause, float]:
    """Return the wall time of threads or workers by cause; "first byte" stands for all waits for bytes."""
    total = stats.total
    transform_s = max(0.0, total.working_s - total.collating_s - total.pinning_s)
    # Threads that wait for a processor do not hold the lock; see GilProbe.
    transforms: Cause = "python" if stats.gil_held >= _LEAST_HELD else "decode"
    if at_once.processes:
        shares: dict[Cause, float] = {
            "first byte": total.waiting_s,
            "opening": total.opening_s,
            "decode": transform_s,
            "collate": total.collating_s,
        }
        return {cause: seconds / at_once.processes for cause, seconds in shares.items()}
    return {
        "first byte": total.waiting_s,
        "opening": total.opening_s,
        transforms: transform_s / at_once.threads,
        "collate": total.collating_s / at_once.collating,
        "device": total.pinning_s / at_once.collating,
    }


def measure_sleep(stats: LoaderStats, setup: Setup) -> float:
    """Return the share of the time of transforms in which they waited; 0.0 if no processor was free meanwhile.

    Transforms whose own library works on other threads wait, too, but keep the processors busy.
    """
    total = stats.total
    if total.working_s <= 0 or total.elapsed_s <= 0:
        return 0.0
    used = total.used_s / total.elapsed_s * max(1, setup.num_workers)
    if used >= _BUSY * setup.processors:
        return 0.0
    return max(0.0, 1 - total.demanded_s / total.working_s)


def _divide_read_waits(seconds: float, stats: LoaderStats, hosts: Mapping[str, HostTimings]) -> dict[Cause, float]:
    """Divide waits for bytes in proportion to the time of all requests.

    Waits for first bytes while the budget held requests back are attributed to the budget. Without any request, a cache
    on local disk was read.
    """
    first_s = body_s = throttled_s = paced_s = retried_s = disk_s = 0.0
    for name, host in hosts.items():
        if name == _FILES:
            disk_s += host.first_byte_s
            continue
        first_s, body_s = first_s + host.first_byte_s, body_s + host.body_s
        throttled_s, retried_s = throttled_s + host.throttled_s, retried_s + host.retried_s
        paced_s += host.paced_s
    whole_s, total = first_s + body_s + throttled_s + paced_s + retried_s + disk_s, stats.total
    if whole_s <= 0:
        whole_s = 1.0
        disk_s = 1.0 if total.cached and not hosts else 0.0  # a cache has all of it
        first_s = 1.0 - disk_s
    starved = min(1.0, total.starved_s / total.waiting_s) if total.waiting_s > 0 else 0.0
    return {
        "first byte": seconds * first_s / whole_s * (1 - starved),
        "disk": seconds * disk_s / whole_s,
        "memory budget": seconds * first_s / whole_s * starved,
        "bandwidth": seconds * body_s / whole_s,
        "throttled": seconds * throttled_s / whole_s,
        "paced": seconds * paced_s / whole_s,
        "retries": seconds * retried_s / whole_s,
    }
