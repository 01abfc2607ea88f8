"""A raw-socket HTTP server that sends scripted bytes, even bytes that no correct server would send."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came; names of headers are in lower case, ``connection`` and ``number`` count from 1."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)  # holds a signature
    body: bytes = field(repr=False)
    connection: int
    number: int

    @property
    def range(self) -> tuple[int, int] | None:
        """The requested half-open range; None without a ``Range``, and ``(-n, 0)`` for the last n bytes."""
        text = self.headers.get("range")
        if text is None:
            return None
        first, last = text.removeprefix("bytes=").split("-")
        return (int(first), int(last) + 1) if first else (-int(last), 0)

    def within(self, size: int) -> tuple[int, int]:
        """Return the requested range of an object of ``size`` bytes, as ``range`` but with the last bytes resolved."""
        start, stop = self.range or (0, size)
        return (max(0, size + start), size) if start < 0 else (start, stop)


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return a response with a ``Content-Length``; ``content_range="…"`` is the header ``content-range``.

    A given ``content_length`` is sent unchanged, even if it is wrong.
    """
    lines = {"content-length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} .\r\n{head}\r\n".encode("latin-1") + body


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield connections until the listener is closed."""
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with suppress(OSError):
                # The client may have gone already.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection


def close_all(listener: socket.socket, connections: Iterable[socket.socket]) -> None:
    """Stop listening and end connections."""
    with suppress(OSError):
        # ``close`` alone would not wake the thread in ``accept``.
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class Scripted:
    """A server on loopback, one thread for each connection; use it in a ``with`` block.

    ``answer(received, send)`` runs on a connection's thread for each request: it may send any bytes and may take any
    time; it returns True to keep the connection, False to close it.

    Attributes:
        url: ``http://127.0.0.1:port``, or https with ``tls``.
        received: All requests, in the order they came.
        connections: Number of accepted connections.
    """

    def __init__(
        self, answer: Callable[[Received, Callable[[bytes], None]], bool], tls: ssl.SSLContext | None = None
    ) -> None:
        """Listen at once; ``tls`` is a server's context with its certificate."""
        self._answer = answer
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received: list[Received] = []
        self.connections = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="scripted", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            close_all(self._listener, self._open)

    def _accept(self) -> None:
        for connection in accept_all(self._listener):
            with self._lock:
                self.connections += 1
                self._open.add(connection)
                number = self.connections
            threading.Thread(target=self._serve, args=(connection, number), name="scripted", daemon=True).start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            with connection.makefile("rb") as stream:
                while (received := self._receive(stream.readline, stream.read, number)) is not None:
                    if not self._answer(received, connection.sendall):
                        break
        except OSError:
            # The client disconnected, which some tests provoke.
            pass
        finally:
            with self._lock:
                self._open.discard(plain)
            with suppress(OSError):
                # ``close`` alone would wait for a forked child that has a copy.
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _receive(self, line: Callable[[], bytes], read: Callable[[int], bytes], connection: int) -> Received | None:
        first = line().decode("latin-1").split()
        if len(first) < 2:  # noqa: PLR2004  method and path; else the end, or not HTTP (a TLS client, say)
            return None
        headers = {}
        while text := line().decode("latin-1").strip():
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        body = read(int(headers.get("content-length", "0")))
        with self._lock:
            received = Received(first[0], first[1], headers, body, connection, len(self.received) + 1)
            self.received.append(received)
        return received
