"""A loader's requests: timings by host, the slowest, and limited rates; those of workers in shared memory."""

from __future__ import annotations

import json
import os
from array import array
from contextlib import suppress
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from penstock.data.region import Region
from penstock.engine.node.member import NodeRate, node_status
from penstock.errors import Unusable
from penstock.events import HOST_WORDS, HostTimings, Slowest, SlowRequest, counted, measured

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from penstock.data.datasets.policy import Delivery

__all__ = ["KEPT", "Requests", "WorkerRequests", "lives"]

KEPT: Final = 10  # slowest requests
_HOSTS: Final = 4  # of a worker; further hosts are left out
_NAME_BYTES: Final = 256
_TEXT_BYTES: Final = 16 << 10  # for the slowest requests and the rates
_HOST_BYTES: Final = _NAME_BYTES + 8 * HOST_WORDS
_BYTES: Final = 16 + _HOSTS * _HOST_BYTES + _TEXT_BYTES  # the owner, the text's length, hosts, the text
_EVERY_S: Final = 0.5


class Requests:
    """Timings of the requests of ``workers`` worker processes; with 0, of this process from now on.

    The latter include requests of other loaders, checkpoints and files of the same process.
    """

    def __init__(self, workers: int) -> None:
        """Begin at zero."""
        self.workers = workers
        self._region: Region | None = None
        self._before = {} if workers else counted()
        self._slowest = None if workers else Slowest(KEPT)
        if workers:
            with suppress(Unusable, OSError):
                # If no descriptor is left, a loader works without the region.
                self._region = Region(workers * _BYTES)

    def claim(self, worker: int) -> WorkerRequests:
        """Return the row in which this process, worker number ``worker``, records its requests from now on."""
        if self._region is None:
            return WorkerRequests(memoryview(bytearray(_BYTES)))
        return WorkerRequests(self._region.view[worker * _BYTES : (worker + 1) * _BYTES])

    def hosts(self) -> dict[str, HostTimings]:
        """Return the timings of requests so far, by host; any thread may call it."""
        if self._slowest is not None:
            return measured(self._before)
        found: dict[str, HostTimings] = {}
        for name, words in (each for row in self._rows() for each in _hosts(row)):
            found[name] = found.get(name, HostTimings()) + HostTimings(words)
        return found

    def slowest(self) -> list[SlowRequest]:
        """Return the slowest reads so far, the slowest first."""
        if self._slowest is not None:
            return self._slowest.found()
        return sorted((each for row in self._rows() for each in _texts(row)[0]), reverse=True)[:KEPT]

    def rates(self) -> tuple[NodeRate, ...]:
        """Return the rates that limit these requests, or did recently; shares are those of all these processes."""
        if self._slowest is not None:
            return _bounded()
        found: dict[str, NodeRate] = {}
        for each in (each for row in self._rows() for each in _texts(row)[1]):
            held = found.get(each.requests, NodeRate(each.requests, 0.0, 0.0))
            # The rate of the node, which the workers learned at different times.
            per_s = max(held.per_s, each.per_s)
            found[each.requests] = NodeRate(each.requests, per_s, min(per_s, held.share_per_s + each.share_per_s))
        return (*found.values(),)

    def _rows(self) -> list[memoryview]:
        view = self._region.view if self._region is not None else memoryview(b"")
        return [view[at : at + _BYTES] for at in range(0, len(view), _BYTES)]

    def __getstate__(self) -> tuple[int, Region | None]:
        """Pickle the shared memory, if there is any."""
        return self.workers, self._region

    def __setstate__(self, state: tuple[int, Region | None]) -> None:
        """Attach to the shared memory in a worker."""
        self.workers, self._region = state
        self._before, self._slowest = {}, None


class WorkerRequests:
    """Timings of one worker process's requests, continued from those of an earlier worker with the same number."""

    def __init__(self, row: memoryview) -> None:
        """Take over the row; if another live process already writes it, write to private memory."""
        owner = row[:8].cast("q")
        if owner[0] != os.getpid() and lives(owner[0]):
            row = memoryview(bytearray(_BYTES))
        row[:8].cast("q")[0] = os.getpid()
        self._row = row
        self._left = {name: HostTimings(words).copy() for name, words in _hosts(row)}
        self._slow_before = _texts(row)[0]
        self._before = counted()
        self._slowest = Slowest(KEPT)
        self._write_s = 0.0

    def followed(self, deliveries: Iterable[Delivery]) -> Generator[Delivery]:
        """Yield deliveries; write the timings before a delivery, at most twice a second, and at the end."""
        try:
            for delivery in deliveries:
                if monotonic() >= self._write_s:
                    self.write()
                    self._write_s = monotonic() + _EVERY_S
                yield delivery
        finally:
            self.write()
            self._row[:8].cast("q")[0] = 0

    def write(self) -> None:
        """Write the timings so far to the row."""
        costs = dict(self._left)
        for name, since in measured(self._before).items():
            costs[name] = since + costs.get(name, HostTimings())
        for at, (name, cost) in enumerate([*costs.items()][:_HOSTS]):
            start = 16 + at * _HOST_BYTES
            label = name.encode()[: _NAME_BYTES - 1]
            self._row[start + _NAME_BYTES : start + _HOST_BYTES].cast("q")[:] = array("q", cost.words)
            self._row[start : start + _NAME_BYTES] = label.ljust(_NAME_BYTES, b"\0")
        self._write_texts()

    def _write_texts(self) -> None:
        found = sorted([*self._slow_before, *self._slowest.found()], reverse=True)[:KEPT]
        rates = [[each.requests, each.per_s, each.share_per_s] for each in _bounded()]
        text = json.dumps([found, rates]).encode()
        while len(text) > _TEXT_BYTES:
            (found or rates).pop()
            text = json.dumps([found, rates]).encode()
        length, start = self._row[8:16].cast("q"), _BYTES - _TEXT_BYTES
        length[0] = 0  # readers see no text meanwhile
        self._row[start : start + len(text)] = text
        length[0] = len(text)


def _hosts(row: memoryview) -> list[tuple[str, Any]]:
    found = []
    for at in range(_HOSTS):
        start = 16 + at * _HOST_BYTES
        name = bytes(row[start : start + _NAME_BYTES]).rstrip(b"\0").decode("utf-8", "replace")
        if name:
            found.append((name, row[start + _NAME_BYTES : start + _HOST_BYTES].cast("q")))
    return found


def _bounded() -> tuple[NodeRate, ...]:
    """Return the rates that limit this process."""
    return tuple(each for each in node_status().rates if isfinite(each.per_s) and isfinite(each.share_per_s))


def _texts(row: memoryview) -> tuple[list[SlowRequest], list[NodeRate]]:
    start, length = _BYTES - _TEXT_BYTES, row[8:16].cast("q")[0]
    with suppress(ValueError, TypeError):  # it was being written
        slowest, rates = json.loads(bytes(row[start : start + length]) or b"[[], []]")
        return [SlowRequest(*each) for each in slowest], [NodeRate(*each) for each in rates]
    return [], []


def lives(pid: int) -> bool:
    """Return whether the process ``pid`` exists; False for 0."""
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
