"""The fault server: a thread for each connection, a script of faults, and a record of all requests.

``Engine`` listens and answers; ``FaultServer`` is the handle of an engine in a separate process or in this one.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.testing.faults.dialect import Dialect, Stored, find_words
from penstock.testing.faults.message import Answer, Refused, Request, receive
from penstock.testing.faults.script import FAULTS, Fault, Match, Script, Settings
from penstock.testing.servers import accept_all, close_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from io import BufferedReader

    from penstock.options import StoreOptions

_NONE = Fault(name="", about="")
_SHOWN = ("range", "if-match", "if-none-match", "content-type", "content-length", "x-amz-content-sha256", "expect")
# These follow the dialect's prefix.
_SHOWN_TOO = ("meta-", "copy-source", "if-", "hash", "forbid-overwrite", "source-", "user-project")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request and its outcome.

    Attributes:
        number: Number of the request, from 1, in the order of arrival.
        connection: Number of the connection, from 1; the same for requests over the same connection.
        verb: A name in ``VERBS``; empty for a request that S3 does not know.
        method: HTTP method.
        bucket: The bucket.
        key: The object's full key, or empty.
        headers: The headers of interest, in lower case: range, conditions, type, length, digest, ``x-amz-meta-*``,
            ``x-amz-copy-source*``, and those of other dialects that correspond to them.
        fault: Name of its fault, or empty.
        status: The status that was answered, or would have been; 0 if nothing was done.
        outcome: ``answered``, ``reset``, ``close``, ``stall``, or ``client left``; empty before the answer begins.

    Example:
        >>> from penstock.testing.faults import FaultServer
        >>> with FaultServer.within() as server:
        ...     etag = server.put("bucket", "key", b"bytes")
        ...     meta = ps.stat("s3://bucket/key", store=server.store)
        ...     print([(each.verb, each.status) for each in server.seen()])
        [('head', 200)]
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
    """A server in this process. ``close`` it at the end; its objects are then lost."""

    def __init__(self, settings: Settings, log: Callable[[Seen], None] = lambda _seen: None) -> None:
        """Listen; ``log`` is called with each finished request, on the thread of its connection."""
        self._settings = settings
        self._log = log
        self._words = find_words(settings.dialect)
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
        number: int = self._listener.getsockname()[1]
        return number

    def make(self, bucket: str) -> None:
        self._dialect.make(bucket)

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Store an object without a request; return its version."""
        self.make(bucket)
        stored = Stored.of(data, {"content-type": "application/octet-stream"})
        with self._dialect.lock:
            self._dialect.buckets[bucket].objects[key] = stored
        return self._words.named(stored)

    def objects(self, bucket: str) -> dict[str, bytes]:
        with self._dialect.lock:
            return {key: stored.data for key, stored in self._dialect.buckets[bucket].objects.items()}

    def uploads(self, bucket: str) -> list[str]:
        with self._dialect.lock:
            return sorted(upload.key for upload in self._dialect.buckets[bucket].uploads.values())

    def admit(self, tokens: Sequence[str]) -> None:
        """Accept these tokens from now on, and no others."""
        self._dialect.access.tokens = frozenset(tokens)

    def fail(self, faults: Sequence[Fault], when: Match) -> None:
        """Inject the faults, one after another, into requests that fit ``when``, each in the dialect's form."""
        own = self._words.faults
        self._script.add([own.get(each.name, each) if each == FAULTS.get(each.name) else each for each in faults], when)

    def heal(self) -> None:
        self._script.clear()

    def seen(self, verb: str, bucket: str, key: str | None) -> list[Seen]:
        """Return the requests so far that fit, in the order of arrival; empty strings and None match any."""
        with self._lock:
            return [
                each
                for each in self._seen
                if verb in ("", each.verb) and bucket in ("", each.bucket) and key in (None, each.key)
            ]

    def opened(self) -> int:
        with self._lock:
            return self._opened

    def close(self) -> None:
        """Stop listening and end every connection."""
        with self._lock:
            close_all(self._listener, self._connections.values())

    def _accept(self) -> None:
        for connection in accept_all(self._listener):
            with self._lock:
                self._opened += 1
                number = self._opened
                self._connections[number] = connection
            threading.Thread(target=self._serve, args=(number, connection), daemon=True).start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        # The reader must not outlive a reset: SO_LINGER acts when the last handle on the socket is closed.
        with suppress(OSError), connection, connection.makefile("rb") as reader:
            reused = False
            while self._exchange(number, connection, reader, reused=reused):
                reused = True
        with self._lock:
            del self._connections[number]

    def _exchange(self, number: int, connection: socket.socket, reader: BufferedReader, *, reused: bool) -> bool:
        """Receive one request and answer it; return whether the connection can be used again."""
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
        # Recorded before the answer is sent, so that a client that has the answer finds it in the record.
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
            asked = _shift_range(request, fault.change)
            return apply_fault(self._dialect.answer(asked), fault, self._words.version)
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


def _shift_range(request: Request, change: str) -> Request:
    """Return the request without its range (``whole``) or one byte later (``next``), after the signature check."""
    headers = dict(request.headers)
    if change == "whole":
        headers.pop("range", None)
    elif change == "next":
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        # An end that is one byte longer also begins elsewhere.
        headers["range"] = f"bytes={int(first) + 1 if first else ''}-{int(last) + 1 if last else ''}"
    return replace(request, headers=headers)


_PAGE = b"<html><head><title>Bad gateway</title></head><body>" + b"<p>upstream is away</p>\n" * 4300 + b"</body></html>"
_GARBAGE = b"<html><p>This is a & captive portal: please log in<br>"
_OTHER_ETAG = "00000000000000000000000000000000"
_OTHER_VERSION = "1"  # a generation that no object has
# After this time even a client without a timeout is released.
_STALL_MS = 120_000
_DRIPS_PER_S = 20
_BODYLESS = (204, 304)


def refusal(fault: Fault) -> Answer:
    if not fault.code:
        return Answer(fault.status, {"Content-Type": "text/html", **dict(fault.headers)}, _PAGE)
    answer = Refused(fault.status, fault.code, fault.about, region=fault.region).answer()
    answer.headers.update(fault.headers)
    return answer


def apply_fault(answer: Answer, fault: Fault, version: str = "ETag") -> Answer:
    """Return the answer with the fault's changes; changes to requests are made elsewhere.

    ``version`` is the header that names an object's version.
    """
    headers, body = answer.headers | dict(fault.headers), answer.body
    if fault.change == "etag":
        etag = headers.get("ETag", "")
        body = body.replace(_find_etag(body), _OTHER_ETAG.encode()) if not etag else body
        headers |= {"ETag": f'"{_OTHER_ETAG}"'} if etag else {}
        headers |= {version: _OTHER_VERSION} if version != "ETag" and version in headers else {}
    elif fault.change == "corrupt" and "Accept-Ranges" in headers and body:
        middle = len(body) // 2
        body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
    elif fault.change == "garbage":
        body = _GARBAGE
    status = 200 if fault.change == "part" else answer.status
    return replace(answer, status=status, headers=headers, body=body)


def _find_etag(body: bytes) -> bytes:
    return (
        body.partition(b"<ETag>&quot;")[2].partition(b"&quot;")[0] or body.partition(b'<ETag>"')[2].partition(b'"')[0]
    )


def send(connection: socket.socket, request: Request, answer: Answer, fault: Fault) -> bool:
    """Send the answer; return whether the connection can be used again, else the caller closes it. Raises OSError."""
    head, body = _serialize_answer(request, answer, fault)
    whole = (head + body) * fault.copies
    pieces = {"": whole, "start": b"", "headers": head[: len(head) // 2], "body": head + body[: len(body) // 2]}
    _write(connection, pieces[fault.cut], fault.bytes_per_s)
    if fault.cut:
        _break(connection, fault.how)
    return not (fault.cut or fault.unsized or answer.unsized or fault.longer > 0 or request.last)


def _serialize_answer(request: Request, answer: Answer, fault: Fault) -> tuple[bytes, bytes]:
    headers = {**answer.headers, "Server": "penstock-faults", "x-amz-request-id": "0123456789ABCDEF"}
    unsized = fault.unsized or answer.unsized
    if not unsized and answer.status not in _BODYLESS:
        headers["Content-Length"] = str(len(answer.body) + fault.longer)
    if unsized or request.last:
        headers["Connection"] = "close"
    lines = [answer.line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1"), b"" if request.method == "HEAD" else answer.body


def _write(connection: socket.socket, data: bytes, bytes_per_s: int) -> None:
    if not bytes_per_s:
        connection.sendall(data)
        return
    step = max(1, bytes_per_s // _DRIPS_PER_S)
    for at in range(0, len(data), step):
        connection.sendall(data[at : at + step])
        time.sleep(step / bytes_per_s)


def _break(connection: socket.socket, how: str) -> None:
    if how == "stall":
        poll = select.poll()
        poll.register(connection, select.POLLIN | select.POLLHUP)
        poll.poll(_STALL_MS)
    elif how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        connection.shutdown(socket.SHUT_RDWR)


_ANY = Match()


class FaultServer:
    """An object store on loopback that fails on demand. Thread-safe; unusable in a forked child.

    Objects are addressed path-style, held in memory, and lost at the end. Use ``start`` or ``within`` to make one.

    Args:
        settings: Settings of the running server.
        ask: Function that calls a method of the server's engine by its name.

    Example:
        >>> from penstock.testing.faults import FAULTS, FaultServer
        >>> with FaultServer.within() as server:
        ...     etag = server.put("bucket", "key", b"bytes")
        ...     server.fail(FAULTS["reset"])
        ...     print(ps.open("s3://bucket/key", store=server.store).read(), len(server.seen("get")))
        b'bytes' 1
    """

    def __init__(self, settings: Settings, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self.settings = settings
        self.endpoint = f"http://127.0.0.1:{ask('port')}"

    @classmethod
    @contextmanager
    def start(cls, settings: Settings | None = None) -> Iterator[FaultServer]:
        """Run in a separate process until the block ends; the server also ends when this process is killed.

        Args:
            settings: Dialect, port, credentials and behaviour; default: those of ``Settings``.

        Yields:
            The server.

        Example:
            >>> from penstock.testing.faults import FaultServer
            >>> with FaultServer.start() as server:
            ...     etag = server.put("bucket", "key", b"bytes")
            ...     print(ps.stat("s3://bucket/key", store=server.store).etag == etag)
            True
        """
        settings = settings or Settings()
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).parents[3])  # a checkout need not be installed
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
        serve = "import sys; from penstock.testing.faults.server import attend; attend(int(sys.argv[1]))"
        command = [sys.executable, "-c", serve, str(theirs.fileno())]
        with subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()]) as child:  # noqa: S603  our own module
            theirs.close()
            try:
                with Connection(ours.detach()) as line:
                    line.send(settings)
                    yield cls(settings, _over(line))
            finally:
                child.kill()  # nothing to save

    @classmethod
    @contextmanager
    def within(cls, settings: Settings | None = None) -> Iterator[FaultServer]:
        """Run on threads of this process until the block ends: quick to start, but it takes a share of the GIL.

        Args:
            settings: As for ``start``.

        Yields:
            The server.

        Example:
            >>> from penstock.testing.faults import FaultServer, Settings
            >>> with FaultServer.within(Settings(dialect="gcs")) as server:
            ...     print(server.scheme)
            gs
        """
        settings = settings or Settings()
        engine = Engine(settings)
        try:
            yield cls(settings, lambda name, *arguments: getattr(engine, name)(*arguments))
        finally:
            engine.close()

    @property
    def store(self) -> StoreOptions:
        """Options that connect to the server."""
        return find_words(self.settings.dialect).store(self.settings, self.endpoint)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that connect to the server, for a training program that must not be changed."""
        return find_words(self.settings.dialect).environment(self.settings, self.endpoint)

    @property
    def scheme(self) -> str:
        """Scheme of its URLs, such as ``s3``."""
        return find_words(self.settings.dialect).scheme

    def admit(self, *tokens: str) -> None:
        """Accept these tokens, of bearers or of temporary keys, from now on, and no others.

        Args:
            *tokens: The tokens.
        """
        self._ask("admit", tokens)

    def make(self, bucket: str) -> None:
        """Create a bucket, unless it exists.

        Args:
            bucket: Its name.
        """
        self._ask("make", bucket)

    def put(self, bucket: str, key: str, data: bytes) -> str:
        """Store an object, and create its bucket, without a request.

        Args:
            bucket: The bucket.
            key: The object's full key.
            data: Its bytes.

        Returns:
            The object's version; on S3 the ETag.
        """
        version: str = self._ask("put", bucket, key, data)
        return version

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the visible objects of a bucket, by key; ``KeyError`` if the bucket does not exist.

        Args:
            bucket: The bucket.
        """
        found: dict[str, bytes] = self._ask("objects", bucket)
        return found

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of the unfinished uploads to a bucket.

        Args:
            bucket: The bucket.
        """
        found: list[str] = self._ask("uploads", bucket)
        return found

    def fail(self, *faults: Fault, when: Match = _ANY) -> None:
        """Inject faults, one after another, into some requests.

        Rules apply in the order in which they were added. A fault waits for a request that it can happen to.

        Args:
            *faults: The faults, such as ``FAULTS["503"]``.
            when: The requests; default: the next ones of any kind.
        """
        self._ask("fail", faults, when)

    def heal(self) -> None:
        """Remove all faults that have not happened yet."""
        self._ask("heal")

    def seen(self, verb: str = "", bucket: str = "", key: str | None = None) -> list[Seen]:
        """Return the requests so far that fit, in the order of arrival.

        Args:
            verb: A name in ``VERBS``; empty for any.
            bucket: The bucket; empty for any.
            key: The object's full key; None for any.
        """
        found: list[Seen] = self._ask("seen", verb, bucket, key)
        return found

    def opened(self) -> int:
        """Return how many connections to the server were ever opened."""
        found: int = self._ask("opened")
        return found


def _over(line: Connection) -> Callable[..., object]:
    lock = threading.Lock()

    def ask(*call: object) -> object:
        with lock:
            line.send(call)
            answer = line.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def attend(descriptor: int) -> None:
    """Serve in this process and carry out the owner's calls, which come over a socket, until the owner has ended."""
    # Ctrl-C is for the owner; when the owner ends, so does this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Connection(descriptor)
    engine = Engine(line.recv())
    while True:
        try:
            name, *arguments = line.recv()
        except (EOFError, ConnectionError):
            return
        try:
            line.send(getattr(engine, name)(*arguments))
        except Exception as error:  # noqa: BLE001  sent to the owner
            line.send(error)
