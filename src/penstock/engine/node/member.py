"""This process as a member of its node: a few times a second it states its demand and updates its share."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from errno import EBADF, ENOSPC
from functools import cache
from itertools import count
from math import inf
from pathlib import Path
from secrets import randbits
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import ref

from penstock.engine.node.table import (
    GROUPS,
    HEADER,
    MEMBERS,
    SIZE,
    GroupCounts,
    NodeTable,
    ProcessRow,
    RequestGroup,
    member_at,
    merge_counts,
    rate_at,
)
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.engine.budget import Budget
    from penstock.options import NodeOptions

T = TypeVar("T")
V = TypeVar("V")

_TICK_S: Final = 0.25
_AGAIN_S: Final = 30.0  # until an unusable directory is tried again
# Seconds between checks that others still find the same file.
_CHECK_S: Final = 5.0
# Expensive ticks come less often, so that they take at most 1/300 of the thread's time.
_COST: Final = 300
# Ticks that wait for a slow disk come less often, so that they take at most 1/20 of the time.
_SLOWNESS: Final = 20
_MEMORY_PARTS: Final = 4
# Rate of a process that has not asked for requests yet; its share is known a quarter of a second later.
_LEAST_RATE: Final = 1.0
_ROOM: Final = 1.5  # factor on the present use, for growth


class Paced(Protocol):
    """A store whose requests are counted, and limited to a rate if it refuses more."""

    store: int

    def counted(self) -> dict[int, GroupCounts]: ...

    def bound(self, rates: dict[int, float]) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeRate:
    """A bounded request rate.

    Attributes:
        requests: Kind of requests: ``reads`` or ``writes``, and the URL of their prefix.
        per_s: Requests per second of all processes of the node; ``inf`` while no bound has been found.
        share_per_s: This process's share of them.
    """

    requests: str
    per_s: float
    share_per_s: float


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Resources that this process shares with others of its node, at most a quarter of a second old.

    Attributes:
        directory: The directory they share; empty if this process does not share.
        reason: Why this process does not share; empty if it does.
        processes: Process ids of the other live members.
        connections: Requests that this process may have in flight, over all stores; ``inf`` without a limit.
        ahead_share: The part of its options' ``ahead_bytes`` that this process may use, from 0 to 1.
        rates: Rates of prefixes whose store refused requests for their rate.
    """

    directory: str = ""
    reason: str = "no store takes part yet"
    processes: tuple[int, ...] = ()
    connections: float = inf
    ahead_share: float = 1.0
    rates: tuple[NodeRate, ...] = ()


class NodeMember:
    """This process, as a member of its node. One thread calls ``tick``; any thread may call ``enter`` and ``hold``."""

    def __init__(self) -> None:
        self._begin()

    def forget(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._begin()

    def _begin(self) -> None:
        self._shared: Shared | None = None
        self._reason = ""
        self._keys = count()
        self._paces: dict[int, tuple[ref[Paced], NodeOptions]] = {}
        self._budgets: dict[int, tuple[ref[Budget], int]] = {}
        self._pending: dict[int, GroupCounts] = {}
        self._groups: dict[int, RequestGroup] = {}  # while this process does not share
        self._busy = 0.0
        self._told_at = 0.0
        self._open_at = 0.0
        self._check_at = 0.0
        self.status = NodeStatus()

    def enter(self, pace: Paced, options: NodeOptions) -> None:
        if options.share:
            self._paces[next(self._keys)] = ref(pace), options

    def hold(self, budget: Budget, options: NodeOptions) -> Budget:
        """Return ``budget``, whose ``bytes_limit`` follows this process's share until it is garbage-collected."""
        if options.share:
            # The callback forgets the budget: without a transport that ticks, nothing else would.
            held, key = self._budgets, next(self._keys)
            held[key] = ref(budget, lambda _: held.pop(key, None)), (own := budget.bytes_limit)
            budget.bytes_limit = max(1, int(own * self.status.ahead_share))
        return budget

    def tick(self, now: float, busy: int, *, full: bool) -> tuple[float, float]:
        """Update this process's share; return how many requests it may have in flight, and when to call again.

        ``busy`` requests are in flight, and ``full`` means that more would be. The call waits neither for a lock nor
        for another process.
        """
        began_s = thread_time()
        self._busy = inf if full else max(float(busy), self._busy / 2 if self._busy < inf else 0.0)
        paces = _list_alive(self._paces)
        budgets = _list_alive(self._budgets)
        if not paces:
            self._rest(budgets)
            return inf, now + _TICK_S
        self._gather([pace for pace, _ in paces])
        row = self._row([options for _, options in paces], sum(own for _, own in budgets), now)
        told = self._exchange(row, now)
        if told is not None:
            self._apply(row, *told, paces=[pace for pace, _ in paces], budgets=budgets, now=now)
        cost_s, took_s = thread_time() - began_s, monotonic() - now
        return self.status.connections, now + max(_TICK_S, _COST * cost_s, _SLOWNESS * took_s)

    def _rest(self, budgets: list[tuple[Budget, int]]) -> None:
        if self.status.directory or self.status.ahead_share < 1:
            self._leave("", 0.0)
            self._open_at = 0.0
            self.status = NodeStatus()
            for budget, own in budgets:
                budget.bytes_limit = own

    def _gather(self, paces: list[Paced]) -> None:
        for pace in paces:
            for group, new in pace.counted().items():
                before = self._pending.setdefault(group, new)
                if before is not new:
                    before.sent, before.refused = before.sent + new.sent, before.refused + new.refused
                    before.waits, before.label = new.waits, before.label or new.label
                    before.stated = before.stated if new.stated is None else new.stated

    def _row(self, options: list[NodeOptions], size_bytes: int, now: float) -> ProcessRow:
        most_bytes = [each.ahead_bytes or memory_bytes() // _MEMORY_PARTS for each in options]
        passed_s = max(_TICK_S, now - self._told_at)
        rates = [(group, inf if new.waits else _ROOM * new.sent / passed_s + 1) for group, new in self._pending.items()]
        most_connections = min(each.connections for each in options)
        return ProcessRow(
            seen_at=now,
            connections=_ROOM * self._busy + 1,
            most_connections=most_connections,
            size_bytes=size_bytes,
            most_bytes=min(most_bytes),
            rates=tuple(sorted(rates, key=lambda each: -each[1])[:GROUPS]),
        )

    def _exchange(self, row: ProcessRow, now: float) -> tuple[list[ProcessRow], list[RequestGroup]] | None:
        """Publish this process's row and return the others' and the rates; None if that is not possible now."""
        try:
            shared = self._join(now)
            told = self._alone(now) if shared is None else self._meet(shared, row, now)
        except (ConfigError, OSError) as error:
            self._leave(str(error), now)
            told = self._alone(now)
        if told is not None:
            self._pending, self._told_at = {}, now
        return told

    def _join(self, now: float) -> Shared | None:
        if self._shared is not None and now >= self._check_at:
            self._check_at = now + _CHECK_S
            # The directory was removed, or this process has closed its files.
            if not self._shared.there():
                self._shared.close()
                self._shared, self._open_at = None, now
        if self._shared is None and now >= self._open_at:
            self._open_at = now + _AGAIN_S
            where = directory(os.environ)
            self._reason = "PENSTOCK_NODE=off"
            if where is not None:
                self._shared, self._reason = Shared(where), ""
        return self._shared

    def _leave(self, reason: str, now: float) -> None:
        if self._shared is not None:
            self._shared.close()
        self._shared, self._reason, self._open_at = None, reason, now + _AGAIN_S

    def _alone(self, now: float) -> tuple[list[ProcessRow], list[RequestGroup]]:
        self._groups |= merge_counts(self._groups, self._pending, now)
        self._groups = {place: group for place, group in self._groups.items() if group.id}
        return [], list(self._groups.values())

    def _meet(self, shared: Shared, row: ProcessRow, now: float) -> tuple[list[ProcessRow], list[RequestGroup]] | None:
        with shared.locked() as within:
            if not within:
                return None
            table = shared.read()
            others = shared.living(table, now)
            if not shared.write(row, others):
                raise ConfigError(f"{shared.where} is full: no room for another process")
            changed = merge_counts(table.groups, self._pending, now)
            shared.keep(changed)
        return list(others.values()), [group for group in (table.groups | changed).values() if group.id]

    def _apply(
        self,
        row: ProcessRow,
        others: list[ProcessRow],
        groups: list[RequestGroup],
        *,
        paces: list[Paced],
        budgets: list[tuple[Budget, int]],
        now: float,
    ) -> None:
        rows = [row, *others]
        rates = {group.id: _rate(group, rows, now) for group in groups}
        for pace in paces:
            pace.bound({group.id: rates[group.id] for group in groups if group.store == pace.store})
        total = min(each.most_bytes for each in rows)
        ahead = share(total, [each.size_bytes for each in rows], 0) / row.size_bytes if row.size_bytes else 1.0
        total = min(each.most_connections for each in rows)
        connections = share(total, [each.connections for each in rows], 0)
        self.status = NodeStatus(
            directory=str(self._shared.where) if self._shared is not None else "",
            reason=self._reason,
            processes=tuple(each.process for each in others),
            connections=max(1, int(connections)),
            ahead_share=min(1.0, ahead),
            rates=tuple(NodeRate(each.label, each.rate.present(now), rates[each.id]) for each in groups),
        )
        for budget, own in budgets:
            budget.bytes_limit = max(1, int(own * self.status.ahead_share))


def _list_alive(held: dict[int, tuple[ref[T], V]]) -> list[tuple[T, V]]:
    found: list[tuple[T, V]] = []
    for key, (weak, with_it) in list(held.items()):
        each = weak()
        if each is None:
            held.pop(key, None)
        else:
            found.append((each, with_it))
    return found


def _rate(group: RequestGroup, rows: list[ProcessRow], now: float) -> float:
    """Return the share of a group's rate that the first of ``rows`` gets."""
    total = group.rate.present(now)
    wanted = [dict(row.rates).get(group.id, 0.0) for row in rows]
    return max(_LEAST_RATE, share(total, wanted, 0)) if total < inf else inf


member = NodeMember()
os.register_at_fork(after_in_child=member.forget)


def node_status() -> NodeStatus:
    """Return the resources that this process shares with others of its machine; no request, no file access.

    Example:
        >>> ps.stat("s3://bucket/train/3/0000.png").size > 0
        True
        >>> ps.cache.node_status().connections > 0
        True
    """
    return member.status


_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2, version 1


@cache
def memory_bytes(limits: tuple[str, ...] = _LIMITS) -> int:
    """Return the bytes of memory that all processes here may use together: the machine's, or the control group's."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in limits:
        with suppress(OSError, ValueError):  # another version, or "max"
            found = min(found, int(Path(limit).read_text("ascii")))
    return found


def share(total: float, demands: Sequence[float], mine: int) -> float:
    """Return the part of ``total`` that process number ``mine`` may use, by max-min fairness.

    No process gets less than an equal part, unless its demand is smaller. The part of the total that demands leave is
    added to all of them equally, so that a demand may grow. The shares add up to ``total`` at most. A demand of ``inf``
    means as much as possible.
    """
    left, count = total, len(demands)
    # A demand above this level is not met in full.
    level = inf
    for place, demand in enumerate(sorted(demands)):
        equal = left / (count - place)
        if demand > equal:
            level = equal
            break
        left -= demand
    granted = min(demands[mine], level)
    return granted if level < inf else granted + left / count


_FRESH_S: Final = 2.0  # a newer row belongs to a live process
# Byte whose lock guards the whole file; locks on the bytes after it show which processes live.
_EVERYONE: Final = 0


class Shared:
    """A process's place in the shared file. Not thread-safe, and for one process: a forked child creates a new place.

    The file is read and written by system calls, not mapped, so that a truncated file or a full disk is an error of one
    call. Locks are POSIX record locks: a child does not inherit them, and the kernel releases them when a process ends,
    however that happens. So a place is free when its lock is.
    """

    def __init__(self, where: Path) -> None:
        """Open the file without taking a place; ``ConfigError`` or ``OSError`` if that is not possible."""
        self.where = where
        self._nonce = randbits(63) + 1
        self._place: int | None = None
        self._descriptor = open_file(where)
        found = os.fstat(self._descriptor)
        self._identity = found.st_dev, found.st_ino

    def close(self) -> None:
        if self._there():
            os.close(self._descriptor)  # this releases its locks
        self._descriptor = -1

    def there(self) -> bool:
        """Return whether other processes find this same file; False once its directory was removed."""
        try:
            found = (self.where / FILE).stat(follow_symlinks=False)
        except OSError:
            return False
        return self._there() and (found.st_dev, found.st_ino) == self._identity

    def _there(self) -> bool:
        """Return whether the descriptor still refers to this file (daemons close all descriptors)."""
        try:
            found = os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Exclude all other processes; yields False if another process holds the lock at the moment: try again later.

        ``OSError`` if the descriptor now refers to a different file, which is not touched.
        """
        if not self._there():
            raise OSError(EBADF, "this process has closed its files", str(self.where / FILE))
        if not self._try(_EVERYONE):
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _EVERYONE)

    def read(self) -> NodeTable:
        """Return the file's table, initializing an empty file; only while ``locked``."""
        data = os.pread(self._descriptor, SIZE, 0)
        if len(data) < SIZE and data[: len(HEADER)] == HEADER[: len(data)]:  # empty, or its writer was killed
            # Write the full size, so that a full disk cannot fail a later write.
            data = HEADER + bytes(SIZE - len(HEADER))
            if os.pwrite(self._descriptor, data, 0) < SIZE:
                raise OSError(ENOSPC, os.strerror(ENOSPC), str(self.where / FILE))
        if len(data) != SIZE or not data.startswith(HEADER):
            raise ConfigError(f"{self.where / FILE} was not written by Penstock, or is damaged: remove it")
        return NodeTable.unpack(data)

    def living(self, table: NodeTable, now: float) -> dict[int, ProcessRow]:
        """Return the rows of other live processes, and clear those of dead ones; only while ``locked``."""
        rows = {}
        for place, row in table.rows.items():
            if place == self._place and row.nonce == self._nonce:
                continue
            if not 0 <= now - row.seen_at <= _FRESH_S and self._try(1 + place):
                os.pwrite(self._descriptor, ProcessRow().pack(), member_at(place))
                if place != self._place:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, 1 + place)
                continue
            rows[place] = row
        return rows

    def write(self, row: ProcessRow, rows: dict[int, ProcessRow]) -> bool:
        """Publish this process's demand; return False if all places are taken. Only while ``locked``.

        ``rows`` are those of the other live processes.
        """
        if self._place is None or self._place in rows or not self._try(1 + self._place):
            free = (place for place in range(MEMBERS) if place not in rows and self._try(1 + place))
            self._place = next(free, None)
        if self._place is None:
            return False
        named = replace(row, nonce=self._nonce, process=os.getpid())
        os.pwrite(self._descriptor, named.pack(), member_at(self._place))
        return True

    def keep(self, groups: dict[int, RequestGroup]) -> None:
        for place, group in groups.items():
            os.pwrite(self._descriptor, group.pack(), rate_at(place))

    def _try(self, at: int) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            return False
        return True


FILE: Final = "node-1"  # includes the format's number
_OTHERS: Final = 0o077
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # never waits on a pipe


def directory(environ: Mapping[str, str]) -> Path | None:
    """Return the directory that ``environ`` selects, or None if ``PENSTOCK_NODE=off``.

    ``PENSTOCK_NODE`` is its absolute path. Without it, the directory is ``penstock`` in ``XDG_RUNTIME_DIR`` if that
    exists, else ``/tmp/penstock-UID``. ``TMPDIR`` is not used, because in some clusters it differs between jobs or is
    on a file server.
    """
    said = environ.get("PENSTOCK_NODE", "")
    if said.lower() == "off":
        return None
    if said.startswith("/"):
        return Path(said)
    if said:
        raise ConfigError(f"PENSTOCK_NODE must be the absolute path of a directory, or off, got {said!r}")
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and Path(runtime).is_dir():
        return Path(runtime, "penstock")
    return Path(f"/tmp/penstock-{os.geteuid()}")  # noqa: S108  open_file refuses other users' files


def open_file(where: Path) -> int:
    """Return a descriptor of the file in ``where``, made if missing; ``ConfigError`` unless it is this user's alone.

    Links are not followed.
    """
    folder = open_directory(where)
    try:
        descriptor = os.open(FILE, _FILE, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _check_table_file(descriptor, where)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_directory(where: Path) -> int:
    """Return a descriptor of the directory ``where``, which is made if it is missing. Raises like ``open_file``."""
    with suppress(FileExistsError):
        where.mkdir(mode=0o700)
    folder = os.open(where, _DIRECTORY)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        os.close(folder)
        raise ConfigError(f"{where} must belong to this user alone (mode 0700): nothing is shared through it")
    return folder


def _check_table_file(descriptor: int, where: Path) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise ConfigError(f"{where / FILE} is not a plain file: nothing is shared through it")
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise ConfigError(f"{where / FILE} must belong to this user alone (mode 0600): nothing is shared through it")
    if found.st_size > SIZE:
        raise ConfigError(f"{where / FILE} has {found.st_size} bytes, more than {SIZE}: nothing is shared through it")


def processors() -> int:
    """Return the processors that a job scheduler assigns to this process, or the machine's number if unknown."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
