"""The I/O thread: takes calls from any thread, keeps libcurl busy with them, and hands each its response."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from contextlib import suppress
from itertools import starmap
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Literal

from penstock.errors import Bug, Cancelled, PenstockError, Unreachable, Unusable
from penstock.node.member import member
from penstock.protocols.exchange import Request, Response
from penstock.transport.backlog import Backlog
from penstock.transport.codes import WHERE, deliver, ours
from penstock.transport.connections import KEPT, Connections
from penstock.transport.descriptors import Token, crowded, room
from penstock.transport.easy import CUT
from penstock.transport.late.lookout import Lookout
from penstock.transport.multi import MissingMulti, Multi
from penstock.transport.session import Session
from penstock.waiting import Wakeup, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.options import TransportOptions
    from penstock.protocols.exchange import Call
    from penstock.transport.session import Handles, Transfer, What

__all__ = ["connect"]

_IDLE_S = 1.0  # then it looks whether its descriptors are still its own
_CLOSE_S = 5.0
_SHARE_S = 0.25  # a program that ends before needs no share
_WATCH_S = 0.01  # how long an answer may grow before somebody looks how large it has become


class _Loop:
    """One thread, one libcurl multi handle. A cycle: accept, start, perform, finish, and poll when nothing is ready.

    Attributes:
        most: Requests that may be in flight, over all stores.

    """

    def __init__(self) -> None:
        """Start the thread; ``Unreachable`` where there is no descriptor left for it."""
        self.most = room()
        self._token: Token
        self._multi: Multi
        self._renew()
        self._inbox: deque[tuple[Session, list[Call], What]] = deque()
        self._connections = Connections()
        self._backlog = Backlog()
        self._busy: dict[int, Transfer] = {}  # by the pointer of its handle
        self._lookout = Lookout()
        self._watch_at = 0.0
        self._share: float = inf  # of what this node may have in flight
        self._share_at = monotonic() + _SHARE_S
        self._wakeup = Wakeup()
        self._sleeps: Literal["", "idle", "poll"] = ""
        self._closing = False
        self._broken = False
        self._dead: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-io", daemon=True)
        self._thread.start()

    def tell(self, session: Session, calls: Iterable[Call], what: What) -> None:
        """Pass calls to the thread, and wake it only if it sleeps."""
        self._inbox.append((session, list(calls), what))
        if self._dead is not None:
            self._refuse()
        else:
            self._wake()

    def broke(self) -> bool:
        """Say whether the thread broke; not whether it was closed, or left behind in another process."""
        return isinstance(self._dead, Bug)

    def discard(self, handles: Handles) -> None:
        """Free handles that carry no call, and close their connections; not in a forked child, nor at the end."""
        if self._dead is None:
            self._connections.discarded.append(handles)
            self._wake()

    def close(self) -> None:
        """End every call with ``Cancelled`` and the thread with it."""
        self._closing = True
        self._wake()
        self._thread.join(_CLOSE_S)

    def disown(self) -> None:
        """Refuse, in a forked child, whatever is still given to the parent's loop: its thread is not here."""
        self._inbox.clear()
        self._dead = Unusable("opened before a fork and used after it: open it in the process that uses it")

    def _run(self) -> None:
        serve()
        try:
            while not self._closing:
                self._cycle()
            self._dead = Cancelled("this process is closing its connections")
        except BaseException as error:  # noqa: BLE001  whatever it is, callers must hear of it instead of waiting for ever
            self._dead = Bug(f"the I/O thread broke: {error!r}")
            self._dead.__cause__ = error
        self._end()

    def _wake(self) -> None:
        """End the thread's sleep, if it sleeps; where that cannot be, it ends by itself within a second."""
        if self._sleeps == "idle":
            self._wakeup.set()
        elif self._sleeps == "poll" and not (self._token.there() and self._multi.wakeup()):
            self._broken = True

    def _renew(self) -> None:
        """Make new descriptors; ``Unreachable`` where there are none, and nothing has changed then."""
        try:
            token = Token()
            try:
                multi = Multi(min(KEPT, self.most))
            except BaseException:
                token.close()
                raise
        except (MemoryError, OSError) as error:
            raise Unreachable(f"no connections can be made: {crowded() or error!r}") from error
        self._token, self._multi, self._broken = token, multi, False

    def _abandon(self) -> None:
        """Leave what is under way, and all descriptors: they are closed, or others' by now, and none is touched again.

        Daemons do this (``os.closerange``). libcurl's set of transfers is leaked, for to free it closes.
        Where there are no new descriptors, calls fail until there are: each cycle looks, once a second at least.
        """
        self._broken = True
        left = list(self._busy)
        for pointer in left:
            self._busy[pointer].response(CUT)
        for pointer in left:
            session, call = self._release(pointer)
            self._deliver(session, call, Response(fault=Unreachable("this process's connections were closed under it")))
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
                    waiting[session] = None  # last: they take turns where descriptors are few
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
        """Take what callers sent, the calls whose delay is over, and now and then this process's share of the node."""
        while self._inbox:
            session, calls, what = self._inbox.popleft()
            if what == "cancel":
                ids = {id(call) for call in calls}
                self._call_off(lambda _session, call, ids=ids: id(call) in ids, "called off")  # type: ignore[misc]
            elif what == "close":
                self._call_off(lambda its, _call, closed=session: its is closed, "its store was closed")  # type: ignore[misc]
                self._connections.close(session.handles)
            elif session.closed:
                for call in calls:
                    self._deliver(session, call, Response(fault=Unusable("this store was closed: open it again")))
            else:
                self._backlog.add(session, calls)
        self._backlog.take_due(now)
        if now >= self._share_at:
            self._take_share(now)

    def _make_room(self) -> None:
        """Close connections that rest where there are too many, and bound those that each store keeps."""
        self._multi.keep(self._connections.make_room(int(min(self.most, self._share))))

    def _excessive(self) -> list[int]:
        """Return the transfers whose answers are larger than they may be."""
        busy = self._busy.items()
        return [at for at, transfer in busy if transfer.easy.collected is not None and transfer.easy.excessive()]

    def _look_out(self, now: float) -> None:
        """Have calls that take long looked at, where it is time, and carry out what is to be done besides."""
        if now >= self._lookout.next_at:
            for session, call, fresh in self._lookout.look(self._busy.values(), self._connections.held(), now):
                self._backlog.prefer(session, call, fresh=fresh)

    def _full(self, session: Session) -> bool:
        return session.full() or len(self._busy) >= min(self.most, self._share)

    def _start(self, session: Session, now: float) -> None:
        ready = session.ready
        handles = session.handles
        before, ended = handles.count(), handles.ended
        if ready:
            self._connections.hold(handles)
        free, busy, add, limit = handles.free, self._busy, self._multi.add, session.limit
        gate, most = session.gate, min(self.most, self._share)
        gated = gate is not None and gate.closed
        places = min(limit.now - handles.active, most - len(busy))  # see _full
        while ready and places > 0:
            call, fresh = ready.popleft()
            if gated and self._backlog.hold(session, call, fresh=fresh):
                continue
            try:
                transfer = free.pop() if free else session.transfer()
                transfer.session = session
            except Exception as error:  # noqa: BLE001  see below
                self._deliver(session, call, Response(fault=ours(error)))
                continue
            try:
                request = call.request()
                if not isinstance(request, Request):
                    if request.blocks:
                        raise Bug("a call that is no HTTP request was given to the HTTP transport")
                    response = Response(body=request.run())
                    transfer.free()
                    self._deliver(session, call, response)
                    continue
                easy = transfer.easy
                easy.load(request, fresh=fresh)
                add(easy)
            except Exception as error:  # noqa: BLE001  the caller's to hear, whatever it is
                transfer.response(CUT)
                transfer.free()
                self._deliver(session, call, Response(fault=ours(error)))
                continue
            places -= 1
            handles.active += 1
            transfer.call, transfer.began, transfer.ended_before = call, now, ended
            busy[easy.pointer] = transfer
        if handles.count() > before:
            self._make_room()

    def _finish(self, pointer: int, code: int) -> Session:
        transfer = self._busy[pointer]  # it stays there until it is known how it ended: see _end
        session = transfer.session
        response = transfer.response(code)
        self._multi.remove(transfer.easy, unfinished=code == CUT)
        session.ended += 1
        _, call = self._release(pointer)
        if (delay_s := deliver(call, response)) is not None:  # see _deliver; here a call costs too much
            self._backlog.again(session, call, response, delay_s)
        return session

    def _release(self, pointer: int) -> tuple[Session, Call]:
        """Make a transfer free for another call; returns the one it carried, and whose that is."""
        transfer = self._busy.pop(pointer)
        call = transfer.call
        del transfer.call  # what it read is its caller's alone
        session = transfer.session
        del transfer.session  # as Transfer.free
        handles = session.handles
        handles.free.append(transfer)
        handles.active -= 1
        if session.ready:
            self._backlog.sessions[session] = None
        elif self._connections.crowded and not handles.active:
            self._make_room()
        return session, call

    def _deliver(self, session: Session, call: Call, response: Response) -> None:
        delay_s = deliver(call, response)
        if delay_s is not None:
            self._backlog.again(session, call, response, delay_s)

    def _take_share(self, now: float) -> None:
        """Ask what this process may have in flight beside the others of its node; where that fails, it stays so."""
        full = bool(self._backlog.sessions) and len(self._busy) >= self._share
        try:
            self._share, self._share_at = member.tick(now, len(self._busy), full=full)
        except Exception:  # noqa: BLE001  whatever it is, requests go on without it
            self._share, self._share_at = inf, inf

    def _call_off(self, chosen: Callable[[Session, Call], bool], words: str) -> None:
        """End the chosen calls with ``Cancelled``, wherever they are."""
        ended: list[tuple[Session, Call, int]] = []
        for pointer, transfer in list(self._busy.items()):
            if chosen(transfer.session, transfer.call):
                self._multi.remove(transfer.easy, unfinished=True)
                received = transfer.response(CUT).received
                ended.append((*self._release(pointer), received))
        left = self._backlog.call_off(chosen, {transfer.session for transfer in self._busy.values()})
        for session, call, received in (*ended, *((*each, 0) for each in left)):
            self._deliver(session, call, Response(fault=Cancelled(words), received=received))

    def _sleep(self) -> None:
        """Wait for the network, a deadline or a caller; the flag goes up before the last look into the inbox.

        While nothing is under way, no descriptor is waited for: one that was closed could be another file's by then,
        and libcurl would read from it.
        """
        self._sleeps = "poll" if self._busy else "idle"
        told = self._inbox or self._connections.discarded or self._closing
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
        """Stop what is under way, so that nothing writes any more, and answer every call that is left."""
        left = [transfer.call for transfer in self._busy.values()] + self._backlog.calls()
        if not self._broken and self._token.there():
            for transfer in self._busy.values():
                self._multi.remove(transfer.easy, unfinished=True)
        for call in left:
            with suppress(Exception):  # one that breaks must not keep the others waiting
                call.done(Response(fault=self._dead))
        if self.broke() and not self._broken:  # this process goes on, with another thread
            with suppress(Exception):
                self._connections.close_all()
        self._refuse()

    def _refuse(self) -> None:
        while self._inbox:
            try:
                _, calls, what = self._inbox.popleft()
            except IndexError:
                return
            for call in calls if what == "submit" else ():
                with suppress(Exception):  # see _end
                    call.done(Response(fault=self._dead))


_lock = threading.Lock()
_loop: _Loop | None = None
_inherited: list[_Loop] = []


def connect(options: TransportOptions, where: str = WHERE) -> Session:
    """Return a transport with these options on this process's I/O thread, which starts with the first one.

    ``where`` are the settings that name the store's host, for texts.

    Where that thread broke, which is a bug, another one starts.
    """
    global _loop  # noqa: PLW0603  one I/O thread per process is the design
    with _lock:
        if _loop is None or _loop.broke():
            _loop = _Loop()
            atexit.register(_close)
        _loop.most = room()
        return Session(_loop, options, where)


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
