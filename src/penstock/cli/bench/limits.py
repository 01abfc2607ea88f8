"""Limits of this machine, the result of one benchmark step, and the limit that its rate has reached."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from time import monotonic, process_time
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np

from penstock.errors import PenstockError, Unsupported, printable
from penstock.events import HostTimings, measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from penstock.options import StoreOptions

__all__ = ["Machine", "Occupied", "Result", "binding", "epoch", "examined", "network", "occupied", "step"]

_CGROUP, _NET, _STAT = Path("/sys/fs/cgroup"), Path("/sys/class/net"), Path("/proc/stat")
# Positions among the ticks of /proc/stat: proc(5).
_IDLE, _IOWAIT = 3, 4
_SOCKET_S = 0.2
_PIECE_BYTES = 1 << 20
_COPY_BYTES = 64 << 20
# Share of a limit that counts as reached; headers and other users take the rest.
_NEAR = 0.8
# Busy share of a processor, or of all, that counts as the limit; share of throttled requests that does.
_BUSY, _THROTTLED = 0.85, 0.01
_PAGE_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits of a machine; 0 means unknown.

    Attributes:
        cores: Processors that this process may use, by its affinity and the quota of its container.
        memory_bytes: Free memory, within the limit of this process's container.
        copy_bytes_per_s: Bytes per second that one thread copies in memory.
        socket_bytes_per_s: Bytes per second through a plain TCP connection within this machine.
        network: Interface that the requests use: ``eth0``; ``lo`` for this machine; empty without a network.
        network_bytes_per_s: Speed of the interface, as its driver reports it.

    """

    cores: float
    memory_bytes: int = 0
    copy_bytes_per_s: float = 0.0
    socket_bytes_per_s: float = 0.0
    network: str = ""
    network_bytes_per_s: float = 0.0


class Occupied(NamedTuple):
    """Processor time since the machine started, summed over all its processors; in a container, that of the host.

    Attributes:
        busy_s: Busy seconds, for any program or a different virtual machine.
        total_s: Busy and idle seconds.

    """

    busy_s: float
    total_s: float

    def share(self, before: Occupied) -> float:
        """Return the busy share of the time since ``before``, 0 to 1; 0.0 if it is unknown."""
        total_s = self.total_s - before.total_s
        return (self.busy_s - before.busy_s) / total_s if total_s > 0 else 0.0


def occupied() -> Occupied:
    """Return the processor time so far; zeros if the system does not report it (only Linux does)."""
    words = _text(_STAT).partition("\n")[0].split()[1:9]
    ticks = [int(word) for word in words]
    if len(ticks) <= _IOWAIT:
        return Occupied(0.0, 0.0)
    total, a_second = sum(ticks), os.sysconf("SC_CLK_TCK")
    return Occupied((total - ticks[_IDLE] - ticks[_IOWAIT]) / a_second, total / a_second)


def examined(host: str = "") -> Machine:
    """Measure this machine for about half a second; requests go to ``host`` (with its port, as in ``measured()``)."""
    name, speed = network(host)
    return Machine(_cores(), _memory_bytes(), _copying(), _sockets(), name, speed)


def _cores() -> float:
    # Other systems than Linux have no affinity.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity is not None else os.cpu_count() or 1)
    quota, _, period = _text(_CGROUP / "cpu.max").partition(" ")
    return min(cores, int(quota) / int(period)) if quota.isdecimal() and period.isdecimal() else cores


def _memory_bytes() -> int:
    fields = dict(line.split(":", 1) for line in _text(Path("/proc/meminfo")).splitlines())
    words = fields.get("MemAvailable", "").split()
    free = int(words[0]) << 10 if words else 0
    most, used = _text(_CGROUP / "memory.max"), _text(_CGROUP / "memory.current")
    return min(free, max(0, int(most) - int(used))) if most.isdecimal() and used.isdecimal() else free


def network(host: str) -> tuple[str, float]:
    """Return the interface that requests to ``host`` use and its bytes per second; 0.0 if it reports no speed.

    Interfaces of virtual machines often report none, or 10 Gb/s regardless of what the provider allows.
    """
    if not host or (":" not in host and "." not in host and host != "localhost"):
        # The store has no network.
        return "", 0.0
    try:
        if _is_local(host):
            return "lo", 0.0
    except OSError:
        return "", 0.0
    name = next((words[0] for words in _routes() if words[1:2] == ["00000000"]), "")
    megabits = _text(_NET / name / "speed") if name else ""
    return name, int(megabits) * 125_000.0 if megabits.isdecimal() else 0.0


def _is_local(host: str) -> bool:
    name, _, _ = host.rpartition(":") if host.rpartition(":")[2].isdecimal() else (host, "", "")
    found = socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)
    return all(ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)


def _routes() -> list[list[str]]:
    return [line.split() for line in _text(Path("/proc/net/route")).splitlines()[1:]]


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError):
        # Some interfaces do not report their speed.
        return ""


def _copying() -> float:
    source, target = np.ones(_COPY_BYTES, np.uint8), np.empty(_COPY_BYTES, np.uint8)
    # The first copy allocates the pages.
    np.copyto(target, source)
    began = monotonic()
    np.copyto(target, source)
    return _COPY_BYTES / max(monotonic() - began, 1e-9)


def _sockets() -> float:
    """Return the rate of one connection over loopback, both ends in this process; 0.0 without a loopback."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            sender = socket.create_connection(server.getsockname(), timeout=1)
            receiver, _ = server.accept()
    except OSError:
        return 0.0
    thread = Thread(target=_send, args=(sender,), daemon=True)
    buffer = bytearray(_PIECE_BYTES)
    with receiver:
        thread.start()
        began, received = monotonic(), 0
        while (elapsed_s := monotonic() - began) < _SOCKET_S:
            received += receiver.recv_into(buffer)
    thread.join()
    return received / elapsed_s


def _send(sender: socket.socket) -> None:
    piece = bytes(_PIECE_BYTES)
    with sender:
        try:
            while True:
                sender.sendall(piece)
        except OSError:
            # The receiver has closed.
            return


@dataclass(slots=True)
class Result:
    """Result of one step; the warm-up is not counted.

    Attributes:
        name: ``list``, ``write small``, ``read small``, ``write large``, ``read large``, ``decode``,
            ``decode in threads`` or ``delete``.
        outcome: ``measured``; ``failed``; ``skipped``: not tried.
        detail: Description of the measurement, or the reason why the step was not measured, in one line.
        objects: Number of objects (``list``: keys; ``decode``: samples).
        size_bytes: Number of bytes moved.
        elapsed_s: Wall time.
        cpu_s: Processor time of this process, over all its threads.
        machine_busy: Busy share of the machine's processors, for any program, 0 to 1; 0.0: unknown.
        requests: Number of request attempts that ended.
        throttled: Number of these attempts that the store throttled.
        first_byte_p50_s: Median of the seconds to the first byte of responses to reads; 0.0 if none were measured.
        first_byte_p99_s: 99th percentile of the same.
        in_flight: Average number of concurrent reads.
        threads: Number of concurrent threads.
        binds: Limit of the rate, empty if unknown: see ``binding``.
        error: The failure.

    """

    name: str
    outcome: Literal["measured", "failed", "skipped"] = "measured"
    detail: str = ""
    objects: int = 0
    size_bytes: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    machine_busy: float = 0.0
    requests: int = 0
    throttled: int = 0
    first_byte_p50_s: float = 0.0
    first_byte_p99_s: float = 0.0
    in_flight: float = 0.0
    threads: int = 1
    binds: str = ""
    error: Exception | None = field(default=None, compare=False)

    @property
    def objects_per_s(self) -> float:
        """Objects per second; 0.0 if no time has passed."""
        return self.objects / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second; 0.0 if no time has passed."""
        return self.size_bytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cores(self) -> float:
        """Processors that this process kept busy, on average."""
        return self.cpu_s / self.elapsed_s if self.elapsed_s else 0.0

    def skip(self, detail: str) -> None:
        """Set the outcome to ``skipped``."""
        self.outcome, self.detail = "skipped", detail


class step:  # noqa: N801  used like a function
    """Context manager that measures a block from ``start`` on; an error of the block becomes its result.

    ``Unsupported`` skips the step. Only errors of ``kind`` are suppressed, never Ctrl-C.
    """

    def __init__(self, name: str, kind: type[Exception] = PenstockError) -> None:
        """Start the measurement; ``start`` restarts it after a warm-up."""
        self.result, self._kind = Result(name), kind
        self.start()

    def start(self) -> None:
        """Restart the measurement."""
        self._hosts, self._occupied = measured(), occupied()
        self._cpu_s, self._began = process_time(), monotonic()
        self.result.objects = self.result.size_bytes = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since ``start``."""
        return monotonic() - self._began

    def stop(self) -> None:
        """Stop the measurement; the rest of the block only releases resources."""
        result = self.result
        result.elapsed_s, result.cpu_s = monotonic() - self._began, process_time() - self._cpu_s
        spent = HostTimings()
        for name, host in measured().items():
            before = self._hosts.get(name)
            spent += host if before is None else host - before
        result.machine_busy = occupied().share(self._occupied)
        result.requests, result.throttled = spent.responses, spent.throttled
        result.first_byte_p50_s = spent.first_byte.quantile(0.5)
        result.first_byte_p99_s = spent.first_byte.quantile(0.99)
        if result.elapsed_s:
            result.in_flight = (spent.first_byte_s + spent.body_s) / result.elapsed_s

    def __enter__(self) -> Self:
        """Return itself; the block fills ``result``."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Complete the result."""
        result = self.result
        if not result.elapsed_s:
            self.stop()
        if isinstance(error, Unsupported):
            result.skip(str(error))
        elif isinstance(error, self._kind):
            text = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            result.outcome, result.detail, result.error = "failed", text, error
        result.detail = printable(result.detail)
        return isinstance(error, self._kind)


def binding(result: Result, machine: Machine, options: StoreOptions) -> str:
    """Return the bottleneck of a measured step, and what to do about it; empty if it is unknown."""
    few = result.name == "delete" or (result.name == "list" and result.objects <= _PAGE_KEYS)
    if result.outcome != "measured" or not result.elapsed_s or few:
        return ""
    if result.name.startswith("decode"):
        return _decoding(result, machine)
    return next(text for holds, text in _limits(result, machine, options) if holds)


def _limits(result: Result, machine: Machine, options: StoreOptions) -> Iterator[tuple[bool, str]]:
    """Yield for each limit whether the rate reached it, and its text; most specific first, the last always holds."""
    reads, cores = result.name.startswith("read"), machine.cores
    share = result.throttled / max(result.requests, 1)
    yield (
        share > _THROTTLED,
        f"the store: it throttled {share:.0%} of the requests; spread the keys over more prefixes, or ask less",
    )
    speed = machine.network_bytes_per_s
    yield (
        bool(speed) and result.bytes_per_s >= _NEAR * speed,
        f"the network: {machine.network} carries {speed / 125_000_000:.3g} Gb/s",
    )
    yield result.cores >= _BUSY * cores, f"the processors: {result.cores:.3g} of {cores:.3g} are busy"
    yield (
        result.cores >= _BUSY,
        "one processor: Python and the I/O thread of this process take turns; worker processes read more",
    )
    yield result.machine_busy >= _BUSY, _others(result)
    connections = options.transport.connections
    yield (
        reads and result.in_flight >= _NEAR * connections,
        f"connections: all {connections} are in use; raise TransportOptions.connections",
    )
    held = result.in_flight * result.size_bytes / max(result.objects, 1)
    yield (
        reads and held >= _NEAR * options.read.ahead_bytes,
        "the memory for reads ahead: raise ReadOptions.ahead_bytes",
    )
    yield result.name == "list", "the store: a page is asked for when the one before it has come"
    wait = f"half of the requests wait {result.first_byte_p50_s * 1000:.3g} ms or more for the first byte"
    yield bool(result.first_byte_p50_s), f"the store, or the way to it: {wait}"
    yield True, "the store, or the way to it"


def _decoding(result: Result, machine: Machine) -> str:
    if result.cores >= _BUSY * min(result.threads, machine.cores):
        if result.threads == 1:
            return "one processor"
        return f"the processors: {result.threads} threads keep {result.cores:.3g} of {machine.cores:.3g} busy"
    if result.machine_busy >= _BUSY:
        return _others(result)
    if result.cores < _BUSY:
        return f"the transform waits for something else than a processor: it keeps {result.cores:.3g} busy"
    return (
        f"Python's lock (the GIL): {result.threads} threads keep only {result.cores:.3g} of {machine.cores:.3g} "
        "processors busy; use worker processes (num_workers=)"
    )


def _others(result: Result) -> str:
    return (
        f"other programs: the machine's processors are {result.machine_busy:.0%} busy, and this one has "
        f"{result.cores:.3g} of them"
    )


def epoch(results: Sequence[Result]) -> str:
    """Return whether reading or decoding limits an epoch of small objects; empty if one was not measured."""
    rates = {each.name: each.objects_per_s for each in results if each.outcome == "measured"}
    read, decoded = rates.get("read small", 0.0), max(rates.get("decode", 0.0), rates.get("decode in threads", 0.0))
    if not (read and decoded):
        return ""
    slower, other = ("decode", read) if decoded < read else ("read", decoded)
    where = "their processors" if slower == "decode" else "their reads"
    return (
        f"An epoch of such objects is bound by {where}: {min(read, decoded):,.0f} a second, "
        f"where the other side can do {other:,.0f}."
    )
