"""Report of a job, from its records: results, failures, rate, machines and bottleneck."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.display import html_page, safe, table
from penstock.jobs.parts.operation import SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobs.parts.records import JobSummary, PartRecord, Records

# Seconds of processors in a second of a part, from which on the processors bind.
_BUSY = 0.8
_FAILURES = 1000
_SLOWEST = 10
_KIB = 1024


@dataclass(slots=True)
class HostSums:
    """Sums of the parts that one machine has done, those with failures included."""

    parts: int = 0
    processes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class JobReport:
    """Sums of the records of a job."""

    url: str
    operation: str
    arguments: dict[str, Any]
    created: str
    finished: bool  # all parts and the last step are done
    parts: int
    objects: int  # of the plan, as are the bytes
    bytes: int
    parts_done: int = 0
    parts_failed: int = 0  # with failures of objects
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0  # of the parts, added up
    cpu_seconds: float = 0.0  # of the processors, added up
    wall_seconds: float = 0.0  # from the first part's beginning to the last one's end, pauses included
    hosts: dict[str, HostSums] = field(default_factory=dict)
    slowest: list[tuple[int, float]] = field(default_factory=list)  # numbers and seconds
    failures: list[dict[str, str]] = field(default_factory=list)  # the first 1,000: ``url`` and ``error``

    @classmethod
    def of(cls, records: Records, plan: JobSummary) -> JobReport:
        """Read the records: one request for each, and for each 1,000."""
        found = cls(
            records.url, plan.operation, dict(plan.arguments), plan.created, records.finished(), plan.part_count,
            plan.objects, plan.size_bytes,
        )  # fmt: skip
        processes, times = set[tuple[str, int]](), list[tuple[datetime, datetime]]()
        for record in records.read_all():
            found._add(record, new=(record.host, record.process) not in processes)
            processes.add((record.host, record.process))
            if record.began:
                began = datetime.fromisoformat(record.began)
                times.append((began, began + timedelta(seconds=record.seconds)))
        if times:
            span = max(end for _, end in times) - min(began for began, _ in times)
            found.wall_seconds = round(span.total_seconds(), 3)
        return found

    def _add(self, record: PartRecord, *, new: bool) -> None:
        host = self.hosts.setdefault(record.host, HostSums())
        host.processes += new
        host.parts += 1
        self.parts_failed += record.failed > 0
        self.parts_done += not record.failed
        for each in (self, host):
            each.counts.update(record.counts)
            each.seconds += record.seconds
            each.cpu_seconds += record.cpu_seconds
        self.slowest = sorted([*self.slowest, (record.part, record.seconds)], key=lambda pair: -pair[1])[:_SLOWEST]
        self.failures += record.failures[: _FAILURES - len(self.failures)]

    @property
    def bytes_per_s(self) -> float:
        """Bytes of finished parts per second of wall time."""
        moved = sum(number for name, number in self.counts.items() if name.endswith("bytes"))
        return moved / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that the remaining parts take at the rate so far; None before there is a rate."""
        left = self.parts - self.parts_done
        return self.wall_seconds / self.parts_done * left if self.parts_done and self.wall_seconds else None

    @property
    def bound(self) -> str:
        """The bottleneck of the job: the processors, or waiting for stores; empty before a part is done."""
        if not self.seconds:
            return ""
        share = self.cpu_seconds / self.seconds
        if share >= _BUSY:
            return f"processors: {share:.0%} of the time of a part; more or faster ones help"
        return f"stores and network: processors worked {share:.0%} of the time of a part; more parts at once help"

    def as_record(self) -> dict[str, Any]:
        record = _flat(self) | {"hosts": {name: _flat(each) for name, each in self.hosts.items()}}
        return record | {"bytes_per_s": round(self.bytes_per_s), "left_s": self.left_s, "bound": self.bound}

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "job", f"{self.operation}, planned {self.created}" + ("" if self.finished else ", not finished")
        yield from ((name, str(value)) for name, value in self.arguments.items() if value not in ([], None, False))
        yield "parts", f"{self.parts_done:,} of {self.parts:,} done, {self.parts_failed:,} with failures"
        yield "planned", f"{self.objects:,} objects, {_size(self.bytes)}"
        for name, number in self.counts.items():
            yield name.replace("_", " "), _size(number) if name.endswith("bytes") else f"{number:,}"
        if self.wall_seconds:
            yield "time", f"{self.wall_seconds:,.1f} s, {self.seconds / self.wall_seconds:.1f} parts at once"
            yield "rate", f"{_size(int(self.bytes_per_s))} a second"
        if self.parts_done < self.parts and self.left_s is not None:
            yield "left", f"about {self.left_s:,.0f} s"
        if self.bound:
            yield "bound by", self.bound

    def to_html(self) -> str:
        hosts = (
            (name, each.parts, each.processes, f"{each.seconds:,.1f}", f"{each.cpu_seconds:,.1f}")
            for name, each in sorted(self.hosts.items())
        )
        slowest = ((part, f"{seconds:,.1f}") for part, seconds in self.slowest)
        failures = [(each.get("url", ""), each.get("error", "")) for each in self.failures]
        made = datetime.now(UTC).isoformat(timespec="seconds")
        machines = ("machine", "parts", "processes", "seconds", "of processors")
        return html_page(
            self.operation,
            f"<p><code>{safe(self.url)}</code>, {made}</p>{table(self.rows())}"
            f"<h2>Machines</h2>{table(hosts, machines, align='lrrrr')}"
            f"<h2>Slowest parts</h2>{table(slowest, ('part', 'seconds'), align='rr')}"
            f"<h2>Failures</h2>{table(failures or [('none',)])}",
        )

    def lines(self, most: int) -> Iterator[str]:
        rows = [*self.rows()]
        width = max(len(name) for name, _ in rows)
        yield from (f"{name:<{width}}  {value}" for name, value in rows)
        for each in islice(self.failures, most):
            error = each.get("error", "")
            # Samples that a map has left out are recorded with the failures.
            kind = SKIPPED if error.startswith(SKIPPED) else "failed: "
            yield f"{kind}{each.get('url')}: {error.removeprefix(SKIPPED)}"


def _flat(given: JobReport | HostSums) -> dict[str, Any]:
    found = {each.name: getattr(given, each.name) for each in fields(given)}
    rounded = {name: round(found[name], 3) for name in ("seconds", "cpu_seconds")}
    counts = found.pop("counts")
    return {**found, **rounded, **counts}


def _size(size_bytes: int) -> str:
    value, units = float(size_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= _KIB and len(units) > 1:
        value, units = value / _KIB, units[1:]
    return f"{value:,.4g} {units[0]}"
