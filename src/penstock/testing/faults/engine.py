"""The server itself: a thread for each connection, the script asked for each request, and a record of them all."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from penstock.testing.faults.dialect import Dialect
from penstock.testing.faults.dialects import spoken
from penstock.testing.faults.kinds import FAULTS, Fault
from penstock.testing.faults.message import Answer, Refused, Request, receive
from penstock.testing.faults.script import Match, Script
from penstock.testing.faults.shelf import Stored
from penstock.testing.faults.wire import changed, refusal, send

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import BufferedReader

    from penstock.testing.faults.settings import Settings

__all__ = ["Engine", "Seen"]

_NONE = Fault(name="", about="")
_SHOWN = ("range", "if-match", "if-none-match", "content-type", "content-length", "x-amz-content-sha256", "expect")
_SHOWN_TOO = ("meta-", "copy-source", "if-", "hash", "forbid-overwrite", "source-")  # after the dialect's prefix


@dataclass(frozen=True, slots=True)
class Seen:
    """One request and what became of it.

    Attributes:
        number: From 1, in the order of arrival.
        connection: From 1; the same for requests over the same connection.
        verb: A name in ``VERBS``; empty for what S3 does not know.
        method: HTTP's.
        bucket: The bucket.
        key: The object's full key, or empty.
        headers: Those of interest, lower case: range, conditions, type, length, digest, ``x-amz-meta-*``,
            ``x-amz-copy-source*``, and the like of other dialects.
        fault: Name of the fault it met, or empty.
        status: What was answered, or would have been; 0 where nothing was done.
        outcome: ``answered``, ``reset``, ``close``, ``stall``, or ``client left``; empty before the answer begins.

    """

    number: int
    connection: int
    verb: str
    method: str
    bucket: str
    key: str
    headers: dict[str, str]
    fault: str
    status: int = 0
    outcome: str = ""


class Engine:
    """A server in this process. ``close`` it in the end; whatever it holds is gone then."""

    def __init__(self, settings: Settings, log: Callable[[Seen], None] = lambda _seen: None) -> None:
        """Listen; ``log`` is called with each finished request, on the thread of its connection."""
        self._settings = settings
        self._log = log
        self._words = spoken(settings.dialect)
        self._dialect = Dialect(settings, self._words)
        self._script = Script()
        self._seen: list[Seen] = []
        self._connections: dict[int, socket.socket] = {}
        self._numbers = count(1)
        self._opened = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", settings.port), backlog=1024)
        threading.Thread(target=self._accept, name="penstock-faults", daemon=True).start()

    def port(self) -> int:
        """Return where it listens on loopback."""
        number: int = self._listener.getsockname()[1]
        return number

    def make(self, bucket: str) -> None:
        """Make a bucket, unless it is there."""
        self._dialect.make(bucket)

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Store an object without a request; returns its version."""
        self.make(bucket)
        stored = Stored.of(data, {"content-type": "application/octet-stream"})
        with self._dialect.lock:
            self._dialect.buckets[bucket].objects[key] = stored
        return self._words.named(stored)

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return what is visible in a bucket."""
        with self._dialect.lock:
            return {key: stored.data for key, stored in self._dialect.buckets[bucket].objects.items()}

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of the unfinished uploads to a bucket."""
        with self._dialect.lock:
            return sorted(upload.key for upload in self._dialect.buckets[bucket].uploads.values())

    def admit(self, tokens: Sequence[str]) -> None:
        """Take these tokens from now on, and no others."""
        self._dialect.access.tokens = frozenset(tokens)

    def fail(self, faults: Sequence[Fault], when: Match) -> None:
        """Have requests that fit ``when`` meet the faults, one after another, each as the dialect knows it."""
        own = self._words.faults
        self._script.add([own.get(each.name, each) if each == FAULTS.get(each.name) else each for each in faults], when)

    def heal(self) -> None:
        """Forget every fault that was planted and not met yet."""
        self._script.clear()

    def seen(self, verb: str, bucket: str, key: str | None) -> list[Seen]:
        """Return the requests so far, in the order of arrival; empty words and None stand for any."""
        with self._lock:
            return [
                each
                for each in self._seen
                if verb in ("", each.verb) and bucket in ("", each.bucket) and key in (None, each.key)
            ]

    def opened(self) -> int:
        """Return how many connections were ever opened."""
        with self._lock:
            return self._opened

    def close(self) -> None:
        """Stop listening and end every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        with self._lock:
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._opened += 1
                number = self._opened
                self._connections[number] = connection
            threading.Thread(target=self._serve, args=(number, connection), daemon=True).start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        """Answer requests over one connection until it ends."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The reader must not outlive a reset: SO_LINGER acts when the last handle on the socket is closed.
        with suppress(OSError), connection, connection.makefile("rb") as reader:
            reused = False
            while self._exchange(number, connection, reader, reused=reused):
                reused = True
        with self._lock:
            del self._connections[number]

    def _exchange(self, number: int, connection: socket.socket, reader: BufferedReader, *, reused: bool) -> bool:
        """Take one request and answer it; returns whether the connection can be used again."""
        try:
            request = receive(reader, connection)
        except Refused as error:
            send(connection, Request("GET", "", "", {"connection": "close"}, bytearray()), error.answer(), _NONE)
            return False
        if request is None:
            return False
        self._words.locate(request)
        fault = self._script.play(request, reused=reused) or _NONE
        at = self._note(number, request, fault)
        answer = self._answer(request, fault)
        if self._settings.latency_ms:
            time.sleep(self._settings.latency_ms / 1000)
        # Told before it happens, so that a client that has the answer finds it in the record.
        self._finish(at, 0 if fault.undone else answer.status, fault.how if fault.cut else "answered")
        try:
            return send(connection, request, answer, fault)
        except OSError:
            self._finish(at, answer.status, "client left")
            return False

    def _answer(self, request: Request, fault: Fault) -> Answer:
        if fault.status:
            return refusal(fault)
        if fault.undone:
            return Answer(503)
        if fault.change == "corrupt" and request.body:
            request.body[len(request.body) // 2] ^= 1
        try:
            self._dialect.check(request, self._script.regions(request.bucket))
            asked = _shifted(request, fault.change)
            return changed(self._dialect.answer(asked), fault, self._words.version)
        except Refused as error:
            return self._words.refused(error, request)

    def _note(self, connection: int, request: Request, fault: Fault) -> int:
        own = tuple(f"{self._words.prefix}{each}" for each in _SHOWN_TOO)
        headers = {name: value for name, value in request.headers.items() if name in _SHOWN or name.startswith(own)}
        about = (request.verb, request.method, request.bucket, request.key, headers, fault.name)
        with self._lock:
            self._seen.append(Seen(len(self._seen) + 1, connection, *about))
            return len(self._seen) - 1

    def _finish(self, at: int, status: int, outcome: str) -> None:
        with self._lock:
            seen = self._seen[at] = replace(self._seen[at], status=status, outcome=outcome)
        self._log(seen)


def _shifted(request: Request, change: str) -> Request:
    """Return the request with its range gone (``whole``) or one byte on (``next``); the signature has been checked."""
    headers = dict(request.headers)
    if change == "whole":
        headers.pop("range", None)
    elif change == "next":
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        # One byte more of an end, too, begins elsewhere.
        headers["range"] = f"bytes={int(first) + 1 if first else ''}-{int(last) + 1 if last else ''}"
    return replace(request, headers=headers)
