"""What passes between drivers, transports and the fetch engine: a request, its response, and how to read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.buffer import Buffer
    from penstock.errors import PenstockError

__all__ = [
    "TEXT_BYTES",
    "Call",
    "Exchange",
    "Gate",
    "Gated",
    "Request",
    "Response",
    "Traffic",
    "Transport",
    "UnderWay",
    "Watch",
    "Watchable",
    "Work",
]

T = TypeVar("T")

TEXT_BYTES: Final = 1 << 20  # most that is kept of an error's text, or of an answer that no request asked more of


@dataclass(slots=True)
class Request:
    """One HTTP request, signed and complete.

    Attributes:
        method: Verb.
        url: Absolute, with every byte of path and query already escaped; sent as it is.
        headers: Lines ``Name: value``; ``Host`` and ``Content-Length`` are the transport's.
        wants: Response headers the driver will look at, lower case; None for all. An error, or a target that
            was not filled, always brings all.
        target: Where a body goes that is as long, at most; None collects it.
        shorter: A body shorter than the target is a whole answer, too: only the wanted headers come with it.
        body: What is sent; a buffer that stays untouched until the response.
        most_bytes: How much may be collected of a body without a target; a longer one is an ``overflow``. Up to what
            can arrive in 10 ms may be held beyond it.

    """

    method: str
    url: str
    headers: tuple[str, ...] = ()
    wants: tuple[str, ...] | None = None
    target: Buffer | None = None
    body: bytes | bytearray | memoryview | None = None
    most_bytes: int = TEXT_BYTES
    shorter: bool = False


@dataclass(slots=True)
class Work:
    """One call instead of a request: it returns a value or raises one of our errors.

    Attributes:
        run: The call.
        url: Empty: it is no request.
        blocks: It may wait (for a disk, say), so a transport with threads for it carries it out. A call that does not
            is a verb of an HTTP dialect that needs no request: the I/O thread carries it out in passing.

    """

    url: ClassVar[str] = ""
    run: Callable[[], object]
    blocks: bool = True


@dataclass(slots=True)
class Response:
    """What came back.

    Attributes:
        status: HTTP status; 0 when there was none.
        headers: The wanted headers that were there, names in lower case.
        body: The collected body (``bytes``), or a ``Work``'s value; with a target, only the body of an error. Of an
            error's body, the first ``TEXT_BYTES``; with a target no more than 16 KiB, or than a larger target holds.
        received: Bytes that arrived in the target.
        fault: Why the exchange did not complete (connection, TLS, time, a ``Work``'s error); None when it did.
        first_byte_s: Seconds from the request, on a connection that stood, to the response's first byte; known of a
            sample of responses, and of all while somebody listens to events (``penstock.events``), else 0.0.
        body_s: Seconds from there to the last byte; known where that is.
        overflow: More bytes came than the target holds, or than were to be collected; then ``body`` is empty.

    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: object = b""
    received: int = 0
    fault: PenstockError | None = None
    overflow: bool = False
    first_byte_s: float = 0.0
    body_s: float = 0.0


@dataclass(slots=True)
class Exchange(Generic[T]):
    """A request and the function that reads its response: returns the verb's result, or raises one of our errors."""

    request: Request | Work
    parse: Callable[[Response], T]


class Call(Protocol):
    """Something a transport carries out, perhaps several times. Both methods run on the transport's thread.

    1. ``request()`` just before each attempt is sent, so signatures are fresh;
    2. ``done(response)`` after it: None ends the call, a number of seconds asks for another attempt after that time.
       Neither may block, and neither may raise.
    """

    def request(self) -> Request | Work:
        """Return the next attempt's request."""

    def done(self, response: Response) -> float | None:
        """Take the response; say whether and when to try again."""


class Transport(Protocol):
    """Carries calls out, many at once."""

    def submit(self, calls: Iterable[Call]) -> None:
        """Queue calls; returns at once."""

    def concurrency(self) -> int:
        """Return how many calls may be under way at once, at present; further ones wait for their place."""

    def cancel(self, calls: Iterable[Call]) -> None:
        """End those of the calls that are not done; each gets ``done`` with a ``Cancelled`` fault, soon."""

    def close(self) -> None:
        """End all calls with ``Cancelled``, soon, and let go of connections and threads; later calls are refused."""

    def usable(self) -> bool:
        """Say whether it carries calls: not once it was closed, or has broken."""


class Gate(Protocol):
    """Decides when calls of one store may be sent. All of it happens on the transport's thread; nothing may block.

    Attributes:
        closed: Calls have to be asked for; otherwise all of them are sent.

    """

    closed: bool

    def wait(self, call: Call) -> float:
        """Return 0.0 where the call may be sent now, else the seconds after which to ask again."""

    def failed(self, call: Call, delay_s: float) -> float:
        """Take note of a call that asks for another attempt after ``delay_s``; return its delay, in seconds."""


@runtime_checkable
class Gated(Protocol):
    """A transport that can have a gate."""

    def guard(self, gate: Gate) -> None:
        """Ask ``gate`` before each attempt from here on."""


@dataclass(slots=True)
class UnderWay:
    """A call that was sent a while ago, and has not ended.

    Attributes:
        call: The call.
        waited_s: Seconds since its request was sent; while its connection is being opened, since that was begun.
        connecting: Its connection is still being opened.
        received: Bytes of the response's body so far.
        body_s: Seconds since the response's first byte; 0.0 where none has come.
        passed: How many other requests have ended since it was sent.

    """

    call: Call
    waited_s: float
    connecting: bool = False
    received: int = 0
    body_s: float = 0.0
    passed: int = 0


@dataclass(slots=True)
class Traffic:
    """What one transport has in flight that takes long, and what it has carried.

    Attributes:
        under_way: Calls that were sent at least half of ``late_s`` ago, the oldest first.
        ended: Requests that have ended so far.
        transport: The transport itself.

    """

    under_way: Sequence[UnderWay]
    ended: int
    transport: Transport


class Watch(Protocol):
    """Is asked about calls that take long, on the transport's thread; its methods may neither block nor raise."""

    def late_s(self, now: float, /) -> float:
        """Return how many seconds after it was sent a call is late; ``inf`` where none is, at present.

        ``now`` is the time of ``time.monotonic``.
        """

    def look(self, traffic: Traffic, /) -> list[tuple[Call, Call]]:
        """Look at traffic in which at least one call is late.

        Returns pairs of a call that is late and one that the transport is to carry out besides, before those that wait,
        over a new connection, and to another address of the same host where there is one.
        """


@runtime_checkable
class Watchable(Protocol):
    """A transport whose calls can be watched: one with a wire."""

    def watch(self, watch: Watch) -> None:
        """Have ``watch`` asked about calls that take long, from here on."""
