"""Definitions of the metrics, and counts of several processes in one folder.

Names, units and descriptions are the same for every metrics system. Each process writes its own counts, and one
process adds them up.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from array import array
from contextlib import suppress
from dataclasses import astuple
from itertools import accumulate
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

from penstock.engine.waiting import Wakeup
from penstock.errors import Damaged, printable
from penstock.events import HOST_WORDS, CacheCounts, HostTimings, JobCounts, measured, measured_caches, measured_jobs
from penstock.schema import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.histogram import Histogram
    from penstock.observe.sink import Record

T = TypeVar("T", HostTimings, CacheCounts, JobCounts)
K = TypeVar("K")
V = TypeVar("V")

_EVERY_S: Final = 1.0
_FORM: Final = {"hosts": {str: [int]}, "caches": {str: [int]}, "jobs": {str: [(float, bool)]}}


class Tally(NamedTuple):
    """Counts of one process, or of several: by host, by directory of a cache, and by operation of jobs."""

    hosts: dict[str, HostTimings]
    caches: dict[str, CacheCounts]
    jobs: dict[str, JobCounts]

    def plus(self, other: Tally) -> Self:
        return type(self)(
            _add_counts(self.hosts, other.hosts),
            _add_counts(self.caches, other.caches),
            _add_counts(self.jobs, other.jobs),
        )


class Board:
    """The folder in the process that adds up its own counts and those of the processes that it has started.

    Counts of a process that has ended stay in the sums; its file is removed after it has been read.
    """

    def __init__(self, name: str) -> None:
        self.folder = folder_of(name)
        self.folder.mkdir(0o700)
        self._ended = Tally({}, {}, {})
        self._lock = threading.Lock()  # of concurrent calls of ``gather``

    def gather(self) -> Tally:
        with self._lock:
            found = self._ended.plus(count_process())
            for path in sorted(self.folder.glob("*.json")):
                ended = not _lives(path.name)
                counts = _read_tally(path)
                found = found.plus(counts)
                if ended:
                    # Checked before the file was read: nothing has been written since.
                    self._ended = self._ended.plus(counts)
                    path.unlink(missing_ok=True)
            return found

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Notice:
    """Writer of a child process's counts to the board of its parent: once a second, and when the child ends.

    A sink's ``Writer``, which takes no events.
    """

    def __init__(self, name: str) -> None:
        self._path = folder_of(name) / f"{os.getpid()}-{token_hex(4)}.json"
        self._stop = Wakeup()
        self._thread = threading.Thread(target=self._run, name="penstock-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.publish()

    def publish(self) -> None:
        aside = self._path.with_suffix(".tmp")
        # The disk may be full, or the board removed; the next write may succeed.
        with suppress(OSError):
            aside.write_text(json.dumps(_serialize_tally(count_process())), "utf-8")
            aside.replace(self._path)

    def close(self) -> None:
        """Stop the thread, and publish for the last time."""
        self._stop.set()
        self._thread.join(_EVERY_S)
        self.publish()

    def write(self, records: Sequence[Record]) -> None:
        """Do nothing: this sink takes no events."""

    def leave(self) -> None:
        """Do nothing: the thread does not exist in a forked child."""


def count_process() -> Tally:
    """Return the counts of this process; local files, which have no host, count as ``file``."""
    hosts: dict[str, HostTimings] = {}
    for name, host in measured().items():
        hosts = _add_counts(hosts, {"file" if name.startswith("/") or not name else name: host})
    # The name of a directory may hold bytes that no exposition or OTLP message can encode.
    return Tally(hosts, {printable(name): cache for name, cache in measured_caches().items()}, measured_jobs())


def folder_of(name: str) -> Path:
    """Return the folder of a board; ``name`` must be unpredictable."""
    return Path(tempfile.gettempdir()) / f"penstock-metrics-{name}"


def _add_counts(one: dict[str, T], other: dict[str, T]) -> dict[str, T]:
    sums = dict(one)
    for name, counts in other.items():
        sums[name] = sums[name] + counts if name in sums else counts
    return sums


def _serialize_tally(tally: Tally) -> dict[str, dict[str, list[Any]]]:
    hosts = {name: [*host.words] for name, host in tally.hosts.items()}
    caches, jobs = ({name: [*astuple(counts)] for name, counts in each.items()} for each in (tally.caches, tally.jobs))
    return {"hosts": hosts, "caches": caches, "jobs": jobs}


def _read_tally(path: Path) -> Tally:
    try:
        table = read_json(path.read_bytes(), _FORM, "the counts of a process", str(path))
        hosts = {
            name: HostTimings(array("q", words)) for name, words in table["hosts"].items() if len(words) == HOST_WORDS
        }
        caches = {name: CacheCounts(*each) for name, each in table["caches"].items()}
        return Tally(hosts, caches, {name: JobCounts(*each) for name, each in table["jobs"].items()})
    except (OSError, Damaged, TypeError):
        return Tally({}, {}, {})


def _lives(name: str) -> bool:
    with suppress(PermissionError, ValueError):
        try:
            os.kill(int(name.partition("-")[0]), 0)
        except ProcessLookupError:
            return False
    return True


class Metric(NamedTuple, Generic[K, V]):
    """A metric of each host, cache or operation of jobs: a counter, which only grows, or a histogram.

    ``unit`` is of UCUM, as in OpenTelemetry; ``value`` reads the number or the histogram.
    """

    name: str
    unit: str
    help: str
    value: Callable[[K], V]


COUNTS: Final[tuple[Metric[HostTimings, float], ...]] = (
    Metric("requests", "{request}", "Attempts of requests that ended.", lambda host: host.responses),
    Metric(
        "failed_requests",
        "{request}",
        "Attempts of requests that failed; not HEADs that found no object.",
        lambda host: host.failed,
    ),
    Metric("throttled_requests", "{request}", "Attempts refused for their rate.", lambda host: host.throttled),
    Metric("retried_requests", "{request}", "Attempts that were made again.", lambda host: host.retried),
    Metric("hedged_requests", "{request}", "Second requests for slow reads.", lambda host: host.hedged),
    Metric("hedges_won", "{request}", "Second requests that came first.", lambda host: host.hedges_won),
    Metric("received_bytes", "By", "Bytes of responses' bodies.", lambda host: host.received_bytes),
    Metric("sent_bytes", "By", "Bytes of requests' bodies.", lambda host: host.sent_bytes),
    Metric("throttled_seconds", "s", "Seconds that requests waited when throttled.", lambda host: host.throttled_s),
    Metric("paced_seconds", "s", "Seconds that requests waited for their turn.", lambda host: host.paced_s),
    Metric("retried_seconds", "s", "Seconds that requests waited after other failures.", lambda host: host.retried_s),
)
CACHE_COUNTS: Final[tuple[Metric[CacheCounts, float], ...]] = (
    Metric("cache_hits", "{read}", "Reads that a cache served.", lambda cache: cache.hits),
    Metric("cache_misses", "{read}", "Reads that a cache did not have.", lambda cache: cache.misses),
    Metric("cache_hit_bytes", "By", "Bytes that a cache served.", lambda cache: cache.hit_bytes),
    Metric("cache_stored_bytes", "By", "Bytes written into a cache.", lambda cache: cache.stored_bytes),
    Metric("cache_refused", "{entry}", "Entries that a cache did not take in.", lambda cache: cache.refused),
    Metric("cache_damaged", "{entry}", "Entries that were damaged, and removed.", lambda cache: cache.damaged),
)
JOB_COUNTS: Final[tuple[Metric[JobCounts, float], ...]] = (
    Metric("job_parts", "{part}", "Parts of jobs that ended.", lambda job: job.parts),
    Metric("job_failed_parts", "{part}", "Parts of jobs in which objects failed.", lambda job: job.failed_parts),
    Metric("job_objects", "{object}", "Objects of the parts that ended.", lambda job: job.objects),
    Metric("job_failed_objects", "{object}", "Objects of jobs that failed.", lambda job: job.failed_objects),
    Metric("job_bytes", "By", "Bytes that jobs moved or read.", lambda job: job.size_bytes),
    Metric("job_seconds", "s", "Seconds of the parts, added up.", lambda job: job.seconds),
    Metric("job_cpu_seconds", "s", "Seconds of processors in the parts, added up.", lambda job: job.cpu_seconds),
)
# Of each table of a ``Tally``.
COUNTERS: Final[tuple[tuple[Metric[Any, float], ...], ...]] = (COUNTS, CACHE_COUNTS, JOB_COUNTS)
DISTRIBUTIONS: Final[tuple[Metric[HostTimings, Histogram], ...]] = (
    Metric("first_byte_seconds", "s", "Seconds from a read to its first byte.", lambda host: host.first_byte),
    Metric("body_bytes_per_second", "By/s", "Rates of single bodies of 64 KiB or more.", lambda host: host.body_rate),
)


def cumulate_buckets(histogram: Histogram, bounds: tuple[float, ...]) -> list[int]:
    """Return, for each bound, how many numbers do not exceed it, and, as the last item, the total count.

    Numbers in a bucket of the histogram count as its upper bound.
    """
    counts = [0] * (len(bounds) + 1)
    for bucket in histogram.buckets():
        at = next((at for at, bound in enumerate(bounds) if bucket.high <= bound * 1.000001), len(bounds))
        counts[at] += bucket.size
    return [*accumulate(counts)]
