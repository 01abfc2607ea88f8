"""The I/O thread: takes calls from any thread, keeps libcurl busy with them, and hands each its response."""

from __future__ import annotations

import atexit
import heapq
import os
import threading
from collections import deque
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

from penstock.errors import Bug, Cancelled, PenstockError, Transient, Unusable
from penstock.protocols.exchange import Request, Response
from penstock.transport.faults import fault
from penstock.transport.libcurl import OK, WRITE_ERROR, Easy, Multi
from penstock.transport.limit import Limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.options import TransportOptions
    from penstock.protocols.exchange import Call

__all__ = ["Session", "connect"]

_IDLE_MS = 60_000
_CLOSE_S = 5.0
_KEPT_CONNECTIONS = 1024  # across all stores of the process; a Session bounds its own


class Session:
    """The transport of one store: its options, its handles, and how many may be in flight."""

    __slots__ = ("_loop", "active", "ended", "free", "limit", "options", "ready")

    def __init__(self, loop: _Loop, options: TransportOptions) -> None:
        """Join the process's loop."""
        self._loop = loop
        self.options = options
        self.free: list[_Transfer] = []
        self.active = 0
        self.ended = 0  # since the limit was last told
        self.limit = Limit(options.connections)
        self.ready: deque[tuple[Call, bool]] = deque()

    def submit(self, calls: Iterable[Call]) -> None:
        """Queue calls; returns at once."""
        self._loop.tell(self, calls, cancel=False)

    def cancel(self, calls: Iterable[Call]) -> None:
        """End those of the calls that are not done; each gets ``done`` with a ``Cancelled`` fault, soon."""
        self._loop.tell(self, calls, cancel=True)

    def places(self) -> int:
        """Return how many may be in flight at present."""
        return self.limit.now

    def full(self) -> bool:
        """Say whether as many as allowed are in flight."""
        return self.active >= self.limit.now

    def transfer(self) -> _Transfer | None:
        """Return one that is free, or None while as many as allowed are in flight."""
        if self.active >= self.limit.now:
            return None
        return self.free.pop() if self.free else _Transfer(self)


class _Transfer:
    """One handle of a session, with the call that it carries, if any. One for many calls: making these costs time."""

    __slots__ = ("call", "easy", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.easy = Easy(session.options)
        self.call: Call  # while it is busy


class _Loop:
    """One thread, one libcurl multi handle. A cycle: accept, start, perform, finish, and poll when nothing is ready."""

    def __init__(self) -> None:
        self._multi = Multi(_KEPT_CONNECTIONS)
        self._inbox: deque[tuple[Session, list[Call], bool]] = deque()
        self._busy: dict[int, _Transfer] = {}  # by the pointer of its handle
        self._later: list[tuple[float, int, Session, Call, bool]] = []
        self._waiting: dict[Session, None] = {}  # sessions with calls that are ready, in order
        self._order = count()
        self._sleeping = False
        self._closing = False
        self._dead: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-io", daemon=True)
        self._thread.start()

    def tell(self, session: Session, calls: Iterable[Call], *, cancel: bool) -> None:
        """Pass calls to the thread, and wake it only if it sleeps."""
        self._inbox.append((session, list(calls), cancel))
        if self._dead is not None:
            self._refuse()
        elif self._sleeping:
            self._multi.wakeup()

    def close(self) -> None:
        """End every call with ``Cancelled`` and the thread with it."""
        self._closing = True
        self._multi.wakeup()
        self._thread.join(_CLOSE_S)

    def disown(self) -> None:
        """Refuse, in a forked child, whatever is still given to the parent's loop: its thread is not here."""
        self._inbox.clear()
        self._dead = Unusable("opened before a fork and used after it: open it in the process that uses it")

    def _run(self) -> None:
        try:
            while not self._closing:
                self._cycle()
            self._dead = Cancelled("this process is closing its connections")
        except BaseException as error:  # noqa: BLE001  whatever it is, callers must hear of it instead of waiting for ever
            self._dead = Bug(f"the I/O thread broke: {error!r}")
            self._dead.__cause__ = error
        self._end()

    def _cycle(self) -> None:
        while self._inbox:
            session, calls, cancel = self._inbox.popleft()
            if cancel:
                self._cancel({id(call) for call in calls})
            else:
                session.ready.extend([(call, False) for call in calls])
                self._waiting[session] = None
        now = monotonic()
        while self._later and self._later[0][0] <= now:
            _, _, session, call, fresh = heapq.heappop(self._later)
            session.ready.append((call, fresh))
            self._waiting[session] = None
        for session in list(self._waiting):
            self._start(session)
        self._multi.perform()
        ended = self._multi.finished()
        sessions = dict.fromkeys([self._finish(pointer, code) for pointer, code in ended])
        if sessions:
            now = monotonic()
            for session in sessions:
                session.limit.record(session.ended, now, waiting=bool(session.ready))
                session.ended = 0
        else:
            self._sleep()

    def _start(self, session: Session) -> None:
        ready = session.ready
        while ready:
            transfer = session.transfer()
            if transfer is None:
                break
            call, fresh = ready.popleft()
            try:
                request = call.request()
                if not isinstance(request, Request):
                    raise Bug("a call that is no HTTP request was given to the HTTP transport")
                transfer.easy.load(request, fresh=fresh)
            except Exception as error:  # noqa: BLE001  the caller's to hear, whatever it is
                session.free.append(transfer)
                self._deliver(session, call, Response(fault=_ours(error)))
                continue
            session.active += 1
            transfer.call = call
            self._busy[transfer.easy.pointer] = transfer
            self._multi.add(transfer.easy)
        if not ready:
            self._waiting.pop(session, None)

    def _finish(self, pointer: int, code: int) -> Session:
        transfer = self._busy[pointer]  # it stays there until it is known how it ended: see _end
        easy, session = transfer.easy, transfer.session
        response = easy.unload(whole=code == OK)
        if code == WRITE_ERROR:
            response.overflow = True
        elif code != OK:
            response.fault = fault(code, easy.explain(code))
        elif not session.limit.located:
            session.limit.locate(easy.first_byte_s())
        self._multi.remove(easy)
        session.ended += 1
        self._deliver(session, self._release(pointer), response)
        return session

    def _release(self, pointer: int) -> Call:
        """Make a transfer free for another call; returns the one it carried."""
        transfer = self._busy.pop(pointer)
        session, call = transfer.session, transfer.call
        del transfer.call  # what it read is its caller's alone
        session.active -= 1
        session.free.append(transfer)
        if session.ready:
            self._waiting[session] = None
        return call

    def _deliver(self, session: Session, call: Call, response: Response) -> None:
        delay_s = call.done(response)
        if delay_s is not None:
            fresh = isinstance(response.fault, Transient)  # what just failed is not what to try again on
            heapq.heappush(self._later, (monotonic() + delay_s, next(self._order), session, call, fresh))

    def _cancel(self, ids: set[int]) -> None:
        ended: list[tuple[Session, Call]] = []
        for pointer, transfer in list(self._busy.items()):
            if id(transfer.call) in ids:
                self._multi.remove(transfer.easy, unfinished=True)
                transfer.easy.unload()
                ended.append((transfer.session, self._release(pointer)))
        for session in {transfer.session for transfer in self._busy.values()} | set(self._waiting):
            ended += [(session, call) for call, _ in session.ready if id(call) in ids]
            session.ready = deque(item for item in session.ready if id(item[0]) not in ids)
        ended += [(session, call) for _, _, session, call, _ in self._later if id(call) in ids]
        self._later = [item for item in self._later if id(item[3]) not in ids]
        heapq.heapify(self._later)
        for session, call in ended:
            self._deliver(session, call, Response(fault=Cancelled("called off")))

    def _sleep(self) -> None:
        """Wait for the network, a deadline or a caller; the flag goes up before the last look into the inbox."""
        self._sleeping = True
        if not self._inbox and not self._closing and all(session.full() for session in self._waiting):
            timeout_ms = _IDLE_MS
            if self._later:
                timeout_ms = max(0, min(timeout_ms, int((self._later[0][0] - monotonic()) * 1000) + 1))
            self._multi.poll(timeout_ms)
        self._sleeping = False

    def _end(self) -> None:
        """Stop what is under way, so that nothing writes any more, and answer every call that is left."""
        left = [transfer.call for transfer in self._busy.values()] + [item[3] for item in self._later]
        left += [call for session in self._waiting for call, _ in session.ready]
        for transfer in self._busy.values():
            self._multi.remove(transfer.easy, unfinished=True)
        for call in left:
            with suppress(Exception):  # one that breaks must not keep the others waiting
                call.done(Response(fault=self._dead))
        self._refuse()

    def _refuse(self) -> None:
        while self._inbox:
            try:
                _, calls, cancel = self._inbox.popleft()
            except IndexError:
                return
            for call in () if cancel else calls:
                with suppress(Exception):  # see _end
                    call.done(Response(fault=self._dead))


def _ours(error: Exception) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    wrapped = Bug(f"preparing a request failed: {error!r}")
    wrapped.__cause__ = error
    return wrapped


_lock = threading.Lock()
_loop: _Loop | None = None
_inherited: list[_Loop] = []


def connect(options: TransportOptions) -> Session:
    """Return a transport with these options on this process's I/O thread, which starts with the first one."""
    global _loop  # noqa: PLW0603  one I/O thread per process is the design
    with _lock:
        if _loop is None:
            _loop = _Loop()
            atexit.register(_close)
        return Session(_loop, options)


def _close() -> None:
    if _loop is not None:
        _loop.close()


def _forget() -> None:
    """After a fork: the parent's thread is not here, and its handles are not ours to touch, nor to free."""
    global _loop, _lock  # noqa: PLW0603  see connect
    _lock = threading.Lock()
    if _loop is not None:
        _loop.disown()
        _inherited.append(_loop)
        _loop = None


os.register_at_fork(after_in_child=_forget)
