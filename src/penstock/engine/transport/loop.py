"""I/O thread: takes operations from any thread, keeps libcurl busy with them, and delivers each response.

``Multi`` is libcurl's handle for many transfers, ``_Loop`` the thread that advances it, ``Backlog`` its waiting
operations. ``room`` and ``Token`` watch over the descriptors: how many are left, and whether they are still ours.
"""

from __future__ import annotations

import atexit
import ctypes
import heapq
import os
import threading
from collections import deque
from contextlib import suppress
from itertools import count, repeat, starmap
from math import inf
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from sys import maxsize
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from penstock.engine.contracts.exchange import Request, Response
from penstock.engine.node.member import member
from penstock.engine.transport.codes import WHERE, advise_on_open_files, deliver, ours
from penstock.engine.transport.easy import CUT
from penstock.engine.transport.late_calls import Lookout
from penstock.engine.transport.libcurl import (
    OK,
    Message,
    multi_add,
    multi_info,
    multi_init,
    multi_perform,
    multi_poll,
    multi_remove,
    multi_remove_waiting,
    multi_setopt,
    multi_wakeup,
)
from penstock.engine.transport.session import KEPT, Connections, Mailbox, Session
from penstock.engine.waiting import Wakeup, serve
from penstock.errors import Bug, Cancelled, Transient, Unreachable, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.engine.contracts.exchange import Operation
    from penstock.engine.transport.easy import Easy
    from penstock.engine.transport.session import Transfer
    from penstock.engine.transport.stream import Pointer
    from penstock.options import TransportOptions

_MAXCONNECTS, _RESOLVE_THREADS_MAX = 6, 20  # CURLMOPT_*, from curl/multi.h
# A store starts with 64 requests (see session.Limit) of two queries each, and glibc waits 10 s for a silent server:
# twice as long as a transfer waits by default. libcurl's own 20 threads would all wait for one name, and the look-ups
# of every other host would wait behind them. Threads start on demand. libcurl before 8.20 has neither a bound nor this
# option.
_RESOLVE_THREADS = 384

_MESSAGES = 4096  # views of messages that are kept

_int, _long = ctypes.c_int, ctypes.c_long


class Multi:
    """Many transfers at once on one thread; only ``wakeup`` may be called from another thread."""

    __slots__ = ("_handle", "_left", "_left_at", "_messages", "_running")

    def __init__(self, connections: int) -> None:
        self._handle: Pointer = multi_init()
        if not self._handle:
            raise MemoryError
        self._running, self._left = _int(), _int()
        self._left_at = ctypes.byref(self._left)
        self._messages: dict[int, Message] = {}
        self.keep(connections)
        multi_setopt(self._handle, _RESOLVE_THREADS_MAX, _long(_RESOLVE_THREADS))

    def keep(self, connections: int) -> None:
        multi_setopt(self._handle, _MAXCONNECTS, _long(connections))

    def add(self, easy: Easy) -> None:
        code = multi_add(self._handle, easy.handle)
        if code != OK:
            message = f"curl_multi_add_handle: {code}"
            raise Bug(message)

    def remove(self, easy: Easy, *, unfinished: bool = False) -> None:
        """Remove a transfer. An unfinished one closes its connection, which may take a moment."""
        (multi_remove_waiting if unfinished else multi_remove)(self._handle, easy.handle)

    def perform(self) -> bool:
        """Advance all transfers without waiting; return False if the multi handle is broken."""
        return bool(multi_perform(self._handle, self._running) == OK)

    def poll(self, timeout_ms: int) -> bool:
        """Wait until a transfer can advance, ``wakeup`` is called or the time is over; False as ``perform``."""
        return bool(multi_poll(self._handle, None, 0, timeout_ms, None) == OK)

    def wakeup(self) -> bool:
        return bool(multi_wakeup(self._handle) == OK)

    def finished(self) -> list[tuple[int, int]]:
        """Return pointer and libcurl's code of each transfer that ended since the last call."""
        ended, messages = [], self._messages
        while at := multi_info(self._handle, self._left_at):
            # libcurl keeps each message within a handle: few addresses, whose views are made once.
            message = messages.get(at)
            if message is None:
                if len(messages) >= _MESSAGES:
                    messages.clear()
                message = messages[at] = Message.from_address(at)
            ended.append((message.easy, message.result))
        return ended


class MissingMulti(Multi):
    """Substitute for a multi handle that cannot be created: every ``add`` fails."""

    __slots__ = ("_error",)

    def __init__(self, error: Unreachable) -> None:
        self._error = error

    def add(self, easy: Easy) -> None:  # noqa: ARG002  same signature as Multi.add
        error = self._error
        # A new error each time, because each operation completes its own error.
        raise Unreachable(error.message) from error.__cause__

    def keep(self, connections: int) -> None:
        """Do nothing."""

    def perform(self) -> bool:
        return True

    def finished(self) -> list[tuple[int, int]]:
        return []


# After this time asleep, the thread checks whether its descriptors are still its own.
_IDLE_S = 1.0
_CLOSE_S = 5.0
# A program that ends earlier needs no share.
_SHARE_S = 0.25
# A response may grow for this long before its size is checked.
_WATCH_S = 0.01


class _Loop:
    """A thread with a libcurl multi handle.

    A cycle accepts operations, starts, performs and finishes transfers, and polls when nothing is ready.
    """

    def __init__(self) -> None:
        """Start the thread. Raises ``Unreachable`` if no descriptor is left for it."""
        self._connections = Connections()
        self.mailbox = Mailbox(self._wake, self._connections.discarded, room())
        self._token: Token
        self._multi: Multi
        self._renew()
        self._backlog = Backlog()
        self._busy: dict[int, Transfer] = {}  # by the pointer of the handle
        self._lookout = Lookout()
        self._watch_at = 0.0
        self._share: float = inf  # of the node's requests in flight
        self._share_at = monotonic() + _SHARE_S
        self._wakeup = Wakeup()
        self._sleeps: Literal["", "idle", "poll"] = ""
        self._closing = False
        self._broken = False
        self._thread = threading.Thread(target=self._run, name="penstock-io", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._wake()
        self._thread.join(_CLOSE_S)

    def disown(self) -> None:
        """Refuse, in a forked child, all operations of the parent's loop, whose thread does not run here."""
        self.mailbox.told.clear()
        self.mailbox.dead = Unusable("cannot be used after a fork: open it in the process that uses it")

    def _run(self) -> None:
        serve()
        try:
            while not self._closing:
                self._cycle()
            self.mailbox.dead = Cancelled("this process is closing its connections")
        except BaseException as error:  # noqa: BLE001  callers must get every error instead of waiting forever
            self.mailbox.dead = Bug(f"the I/O thread broke: {error!r}")
            self.mailbox.dead.__cause__ = error
        self._end()

    def _wake(self) -> None:
        """Wake the thread if it sleeps; if that is impossible, its sleep ends within a second."""
        if self._sleeps == "idle":
            self._wakeup.set()
        elif self._sleeps == "poll" and not (self._token.there() and self._multi.wakeup()):
            self._broken = True

    def _renew(self) -> None:
        """Create new descriptors. Raises ``Unreachable``, with nothing changed, if none are left."""
        try:
            token = Token()
            try:
                multi = Multi(min(KEPT, self.mailbox.most))
            except BaseException:
                token.close()
                raise
        except (MemoryError, OSError) as error:
            raise Unreachable(f"cannot make connections: {advise_on_open_files() or error!r}") from error
        self._token, self._multi, self._broken = token, multi, False

    def _abandon(self) -> None:
        """Give up all transfers and descriptors, which are closed or belong to other files; touch none of them again.

        Daemons close descriptors this way (``os.closerange``). libcurl's multi handle is leaked, because freeing it
        would close descriptors. While no new descriptors are left, operations fail: each cycle tries again, at least
        once a second.
        """
        self._broken = True
        left = list(self._busy)
        for pointer in left:
            self._busy[pointer].response(CUT)
        for pointer in left:
            session, operation = self._release(pointer)
            self._deliver(
                session, operation, Response(fault=Unreachable("this process's connections were closed under it"))
            )
        self._connections.abandon()
        try:
            self._renew()
        except Unreachable as error:
            self._multi = MissingMulti(error)

    def _cycle(self) -> None:
        if self._broken or not self._token.there():
            self._abandon()
        now = monotonic()
        self._accept(now)
        if self._connections.untidy(now):
            self._connections.tidy(now)
            self._make_room()
        waiting = self._backlog.sessions
        for session in list(waiting):
            if not self._full(session):
                self._start(session, now)
                del waiting[session]
                if session.ready:
                    # At the end of the queue: sessions take turns while descriptors are few.
                    waiting[session] = None
        if not self._multi.perform():
            self._broken = True
        ended = self._multi.finished()
        sessions = dict.fromkeys(starmap(self._finish, ended))
        if now >= self._watch_at:
            self._watch_at = now + _WATCH_S
            sessions |= dict.fromkeys([self._finish(pointer, CUT) for pointer in self._excessive()])
            self._look_out(now)
        if sessions:
            now = monotonic()
            for session in sessions:
                session.limit.record(session.ended, now, waiting=bool(session.ready))
                session.handles.ended += session.ended
                session.ended, session.handles.used_s = 0, now
        else:
            self._sleep()

    def _accept(self, now: float) -> None:
        """Take submitted and delayed operations that are due and, sometimes, this process's share of the node."""
        while self.mailbox.told:
            session, operations, what = self.mailbox.told.popleft()
            if what in ("cancel", "withdraw"):
                ids = {id(operation) for operation in operations}
                if what == "withdraw":
                    ids -= {id(each.operation) for each in self._busy.values() if each.easy.sent()}
                self._call_off(lambda _session, operation, ids=ids: id(operation) in ids, "cancelled")  # type: ignore[misc]
            elif what == "close":
                self._call_off(lambda its, _call, closed=session: its is closed, "its store was closed")  # type: ignore[misc]
                self._connections.close(session.handles)
            elif session.closed:
                for operation in operations:
                    self._deliver(session, operation, Response(fault=Unusable("this store was closed: open it again")))
            else:
                self._backlog.add(session, operations)
        self._backlog.take_due(now)
        if now >= self._share_at:
            self._take_share(now)

    def _make_room(self) -> None:
        self._multi.keep(self._connections.make_room(int(min(self.mailbox.most, self._share))))

    def _excessive(self) -> list[int]:
        busy = self._busy.items()
        return [at for at, transfer in busy if transfer.easy.collected is not None and transfer.easy.excessive()]

    def _look_out(self, now: float) -> None:
        if now >= self._lookout.next_at:
            for session, operation, fresh in self._lookout.look(self._busy.values(), self._connections.held(), now):
                self._backlog.prefer(session, operation, fresh=fresh)

    def _full(self, session: Session) -> bool:
        return session.full() or len(self._busy) >= min(self.mailbox.most, self._share)

    def _start(self, session: Session, now: float) -> None:
        ready = session.ready
        handles = session.handles
        before, ended = handles.count(), handles.ended
        if ready:
            self._connections.hold(handles)
        free, busy, add, limit = handles.free, self._busy, self._multi.add, session.limit
        gate, most = session.gate, min(self.mailbox.most, self._share)
        gated = gate is not None and gate.closed
        places = min(limit.now - handles.active, most - len(busy))  # see _full
        while ready and places > 0:
            operation, fresh = ready.popleft()
            if gated and self._backlog.hold(session, operation, fresh=fresh):
                continue
            try:
                transfer = free.pop() if free else session.transfer()
                transfer.session = session
            except Exception as error:  # noqa: BLE001  see below
                self._deliver(session, operation, Response(fault=ours(error)))
                continue
            try:
                request = operation.request()
                if not isinstance(request, Request):
                    if request.blocks:
                        raise Bug("the HTTP transport received a call that is not an HTTP request")
                    response = Response(body=request.run())
                    transfer.free()
                    self._deliver(session, operation, response)
                    continue
                easy = transfer.easy
                easy.load(request, fresh=fresh)
                add(easy)
            except Exception as error:  # noqa: BLE001  every error is reported to the caller
                transfer.response(CUT)
                transfer.free()
                self._deliver(session, operation, Response(fault=ours(error)))
                continue
            places -= 1
            handles.active += 1
            transfer.operation, transfer.began, transfer.ended_before = operation, now, ended
            busy[easy.pointer] = transfer
        if handles.count() > before:
            self._make_room()

    def _finish(self, pointer: int, code: int) -> Session:
        # The transfer stays in _busy until its outcome is known: see _end.
        transfer = self._busy[pointer]
        response = transfer.response(code)
        self._multi.remove(transfer.easy, unfinished=code == CUT)
        session, operation = self._release(pointer)
        session.ended += 1
        # As in _deliver; a function call costs too much here.
        try:
            delay_s = operation.done(response)
        except Exception as error:  # noqa: BLE001  see deliver
            with suppress(Exception):
                operation.done(Response(fault=ours(error)))
        else:
            if delay_s is not None:
                self._backlog.again(session, operation, response, delay_s)
        return session

    def _release(self, pointer: int) -> tuple[Session, Operation]:
        """Free a transfer for another operation; return its session and the operation that it carried."""
        transfer = self._busy.pop(pointer)
        operation, session = transfer.operation, transfer.session
        # Only the caller may keep the data of the operation alive; for the session see Transfer.free.
        del transfer.operation, transfer.session
        handles = session.handles
        handles.free.append(transfer)
        handles.active -= 1
        if session.ready:
            self._backlog.sessions[session] = None
        elif self._connections.crowded and not handles.active:
            self._make_room()
        return session, operation

    def _deliver(self, session: Session, operation: Operation, response: Response) -> None:
        delay_s = deliver(operation, response)
        if delay_s is not None:
            self._backlog.again(session, operation, response, delay_s)

    def _take_share(self, now: float) -> None:
        """Update this process's share of the node's requests in flight; an error removes the limit permanently."""
        full = bool(self._backlog.sessions) and len(self._busy) >= self._share
        try:
            self._share, self._share_at = member.tick(now, len(self._busy), full=full)
        except Exception:  # noqa: BLE001  requests go on without a share, whatever the error
            self._share, self._share_at = inf, inf

    def _call_off(self, chosen: Callable[[Session, Operation], bool], words: str) -> None:
        ended: list[tuple[Session, Operation, int]] = []
        for pointer, transfer in list(self._busy.items()):
            if chosen(transfer.session, transfer.operation):
                self._multi.remove(transfer.easy, unfinished=True)
                received = transfer.response(CUT).received
                ended.append((*self._release(pointer), received))
        left = self._backlog.call_off(chosen, {transfer.session for transfer in self._busy.values()})
        for session, operation, received in (*ended, *((*each, 0) for each in left)):
            self._deliver(session, operation, Response(fault=Cancelled(words), received=received))

    def _sleep(self) -> None:
        """Wait for the network, a deadline or a caller; ``_sleeps`` is set before the last look into the inbox.

        While nothing is in flight, no descriptor is polled: the number of a closed one could belong to another file,
        and libcurl would read from it.
        """
        self._sleeps = "poll" if self._busy else "idle"
        told = self.mailbox.told or self._connections.discarded or self._closing
        if not told and all(map(self._full, self._backlog.sessions)):
            timeout_s, looks_s, next_at = _IDLE_S, self._lookout.every_s, self._backlog.next_at()
            if next_at is not None:
                timeout_s = max(0.0, min(timeout_s, next_at - monotonic()))
            if not self._busy:
                self._wakeup.wait(timeout_s)
            elif not self._token.there() or not self._multi.poll(int(min(timeout_s, looks_s) * 1000) + 1):
                self._broken = True
        self._sleeps = ""

    def _end(self) -> None:
        """Stop all transfers, so that nothing writes any longer, and end every remaining operation."""
        left = [transfer.operation for transfer in self._busy.values()] + self._backlog.operations()
        if not self._broken and self._token.there():
            for transfer in self._busy.values():
                self._multi.remove(transfer.easy, unfinished=True)
        for operation in left:
            with suppress(Exception):
                # An operation that raises must not keep the others waiting.
                operation.done(Response(fault=self.mailbox.dead))
        if self.mailbox.broke() and not self._broken:
            # The process goes on with another thread.
            with suppress(Exception):
                self._connections.close_all()
        self.mailbox.refuse()


_LEAST: Final = 4  # connections


def room() -> int:
    """Return how many connections fit into the limit of open files: a third of the unused descriptors.

    A connection may need a second or third one while it looks up a name, and the user opens files, too.
    """
    most = getrlimit(RLIMIT_NOFILE)[0]
    try:
        used = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        used = 0
    return maxsize if most == RLIM_INFINITY else max(_LEAST, (most - used) // 3)


class Token:
    """A descriptor that shows whether this process's descriptors are still its own.

    ``os.closerange``, as daemons call it, closes the token with all other descriptors. Its number may then belong to
    another file.
    """

    __slots__ = ("_descriptor", "_identity")

    def __init__(self) -> None:
        # Each pipe is a separate file, and no path leads to it.
        self._descriptor, other = os.pipe()
        os.close(other)
        self._identity = self._look()

    def close(self) -> None:
        """Close the descriptor. Call this only while no other code can have closed it."""
        os.close(self._descriptor)

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def there(self) -> bool:
        """Return whether the descriptor is still the one that was opened; takes about 1 µs."""
        try:
            return self._look() == self._identity
        except OSError:
            return False


_lock = threading.Lock()
_loop: _Loop | None = None
_inherited: list[_Loop] = []


def connect(options: TransportOptions, where: str = WHERE) -> Session:
    """Return a transport on this process's I/O thread, which starts with the first operation, and again if it broke.

    ``where`` names the settings of the store's host, for messages.
    """
    global _loop  # noqa: PLW0603  one I/O thread per process is the design
    with _lock:
        if _loop is None or _loop.mailbox.broke():
            _loop = _Loop()
            atexit.register(_close)
        _loop.mailbox.most = room()
        return Session(_loop.mailbox, options, where)


def _close() -> None:
    if _loop is not None:
        _loop.close()


def _reset_loop() -> None:
    """Reset after a fork: the parent's thread does not run here, and its handles must be neither used nor freed."""
    global _loop, _lock  # noqa: PLW0603  see connect
    _lock = threading.Lock()
    if _loop is not None:
        _loop.disown()
        _inherited.append(_loop)
        _loop = None


os.register_at_fork(after_in_child=_reset_loop)


class Backlog:
    """Waiting operations of all sessions; used only by the I/O thread."""

    def __init__(self) -> None:
        self.sessions: dict[Session, None] = {}
        self._later: list[tuple[float, int, Session, Operation, str | bool]] = []
        self._order = count()

    def add(self, session: Session, operations: Iterable[Operation]) -> None:
        session.ready.extend(zip(operations, repeat(object=False), strict=False))
        self.sessions[session] = None

    def prefer(self, session: Session, operation: Operation, *, fresh: str | bool) -> None:
        """Let an operation wait before all others of its session, for a new connection (to the address ``fresh``)."""
        session.ready.appendleft((operation, fresh))
        self.sessions[session] = None

    def delay(self, until: float, session: Session, operation: Operation, *, fresh: str | bool) -> None:
        heapq.heappush(self._later, (until, next(self._order), session, operation, fresh))

    def again(self, session: Session, operation: Operation, response: Response, delay_s: float) -> None:
        """Delay an operation until its next attempt, by ``delay_s`` seconds or as its session's gate requires."""
        # Do not retry on the connection that has just failed.
        fresh = isinstance(response.fault, Transient)
        delay_s = session.delay_s(operation, delay_s)
        self.delay(monotonic() + delay_s, session, operation, fresh=fresh)

    def hold(self, session: Session, operation: Operation, *, fresh: str | bool) -> bool:
        """Delay an operation for its turn if the store's rate is bounded; return whether it was delayed."""
        wait_s = session.wait_s(operation)
        if wait_s:
            self.delay(monotonic() + wait_s, session, operation, fresh=fresh)
        return wait_s > 0

    def take_due(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            _, _, session, operation, fresh = heapq.heappop(self._later)
            session.ready.append((operation, fresh))
            self.sessions[session] = None

    def next_at(self) -> float | None:
        return self._later[0][0] if self._later else None

    def call_off(
        self, chosen: Callable[[Session, Operation], bool], sessions: Iterable[Session]
    ) -> list[tuple[Session, Operation]]:
        """Remove and return the chosen operations; ``sessions`` are further sessions that may have ready operations."""
        ended: list[tuple[Session, Operation]] = []
        for session in {*sessions, *self.sessions}:
            off = [operation for operation, _ in session.ready if chosen(session, operation)]
            if off:
                ended += [(session, operation) for operation in off]
                session.ready = deque(item for item in session.ready if not chosen(session, item[0]))
        ended += [(session, operation) for _, _, session, operation, _ in self._later if chosen(session, operation)]
        self._later = [item for item in self._later if not chosen(item[2], item[3])]
        heapq.heapify(self._later)
        return ended

    def operations(self) -> list[Operation]:
        delayed = [operation for _, _, _, operation, _ in self._later]
        return delayed + [operation for session in self.sessions for operation, _ in session.ready]
