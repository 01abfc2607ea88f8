"""Limits of this machine: its processors, memory and network, and sockets without a store behind them."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import NamedTuple

import numpy as np

__all__ = ["Machine", "Occupied", "examined", "network", "occupied"]

_CGROUP, _NET, _STAT = Path("/sys/fs/cgroup"), Path("/sys/class/net"), Path("/proc/stat")
_IDLE, _IOWAIT = 3, 4  # among the ticks of /proc/stat: proc(5)
_SOCKET_S = 0.2
_PIECE_BYTES = 1 << 20
_COPY_BYTES = 64 << 20


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
    affinity = getattr(os, "sched_getaffinity", None)  # only on Linux
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
        return "", 0.0  # a store without a network
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
    np.copyto(target, source)  # allocates the pages
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
        except OSError:  # the receiver has closed
            return
