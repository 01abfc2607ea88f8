"""Messages between drivers, transports and the fetch engine: a request, its response, and how to parse it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.errors import PenstockError

T = TypeVar("T")

# Most bytes kept of an error's text, or of an answer whose request sets no other bound.
TEXT_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Request:
    """An HTTP request, signed and complete.

    Attributes:
        method: HTTP method.
        url: Absolute URL, with every byte of path and query already escaped; sent unchanged.
        headers: Lines ``Name: value``; the transport adds ``Host`` and ``Content-Length``.
        wants: Response headers that the driver reads, in lower case; None for all. An error, or a target that was not
            filled, always brings all.
        target: Buffer for a body of at most its size; None collects the body.
        shorter: A body shorter than the target is also a complete answer: only the wanted headers come with it.
        body: Bytes to send, in a buffer that must not change until the response.
        public: Send only to a public internet address, whatever the host name resolves to, because a public server has
            named the host.
        most_bytes: Most bytes to collect of a body without a target; a longer body is an ``overflow``. Bytes that
            arrive within 10 ms may be held beyond it.
        deferred: A large answer is parsed by the thread that takes the result, so that the transport's thread can carry
            others.
    """

    method: str
    url: str
    headers: tuple[str, ...] = ()
    wants: tuple[str, ...] | None = None
    target: Buffer | None = None
    body: bytes | bytearray | memoryview | None = None
    most_bytes: int = TEXT_BYTES
    shorter: bool = False
    deferred: bool = False
    public: bool = False


@dataclass(slots=True)
class Work:
    """A function call instead of a request: it returns a value or raises a Penstock error.

    Attributes:
        run: The call.
        url: Empty, because nothing is sent.
        blocks: The operation may wait (for a disk, say), so a transport with threads for it executes it. An operation
            that does not wait is a verb of an HTTP dialect that needs no request: the I/O thread executes it directly.
    """

    url: ClassVar[str] = ""
    run: Callable[[], object]
    blocks: bool = True


@dataclass(slots=True)
class Response:
    """The result of a request.

    Attributes:
        status: HTTP status; 0 without an HTTP response.
        headers: The wanted headers that were present, names in lower case.
        body: The collected body (``bytes``), or a ``Work``'s value; with a target, only the body of an error. An
            error's body is cut to ``TEXT_BYTES``; with a target, to 16 KiB or the size of a larger target.
        received: Bytes that arrived in the target.
        fault: Why the exchange did not complete (connection, TLS, timeout, a ``Work``'s error); None if it did.
        first_byte_s: Seconds from sending the request, on an open connection, to the response's first byte; measured
            for a sample of responses, and for all while events are listened to (``penstock.events``), else 0.0.
        body_s: Seconds from the first byte to the last; measured together with ``first_byte_s``.
        address: The connected address that sent a redirect; empty for other answers.
        overflow: More bytes came than the target holds, or than were to be collected; ``body`` is then empty.
        version: Version of the object that the bytes are of, set by the parser of a read; empty if the answer names
            none that later reads can be pinned to.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: object = b""
    received: int = 0
    fault: PenstockError | None = None
    overflow: bool = False
    address: str = ""
    first_byte_s: float = 0.0
    body_s: float = 0.0
    version: str = ""


@dataclass(slots=True)
class Exchange(Generic[T]):
    """A request and the function that parses its response: returns the verb's result, or raises a Penstock error."""

    request: Request | Work
    parse: Callable[[Response], T]


class Operation(Protocol):
    """A unit of work that a transport carries out, perhaps in several attempts.

    Both methods run on the transport's thread, and may neither block nor raise:

    1. ``request()`` is called just before each attempt is sent, so that signatures are fresh.
    2. ``done(response)`` is called after it: None ends the operation, a number of seconds requests another attempt
       after that time.
    """

    def request(self) -> Request | Work:
        """Return the next attempt's request."""

    def done(self, response: Response) -> float | None:
        """Process the response; return the delay before another attempt, in seconds, or None to end."""


class Transport(Protocol):
    """A carrier of operations, many at once."""

    def submit(self, operations: Iterable[Operation]) -> None:
        """Queue operations; returns at once."""

    def concurrency(self) -> int:
        """Return how many operations may currently be in flight at once; further operations wait for a slot."""

    def cancel(self, operations: Iterable[Operation], *, sent: bool = True) -> None:
        """End those of the operations that are not done; each soon gets ``done`` with a ``Cancelled`` fault.

        Without ``sent``, all but those whose request was sent whole: it may take effect, and is answered.
        """

    def close(self) -> None:
        """End all operations soon, with ``Cancelled``; release connections and threads; refuse later operations."""

    def usable(self) -> bool:
        """Return whether it carries operations; False once it is closed or broken."""


class Gate(Protocol):
    """A limiter of the rate at which operations are sent. Methods run on the transport's thread and must not block.

    Attributes:
        closed: Whether each operation must ask before it is sent; otherwise all operations are sent.
    """

    closed: bool

    def wait(self, operation: Operation) -> float:
        """Return 0.0 if the operation may be sent now, else the seconds after which to ask again."""

    def failed(self, operation: Operation, delay_s: float) -> float:
        """Record an operation that requests another attempt after ``delay_s``; return its delay, in seconds."""


@runtime_checkable
class Gated(Protocol):
    """A transport that accepts a gate."""

    def guard(self, gate: Gate) -> None:
        """Ask ``gate`` before each attempt from here on."""


@dataclass(slots=True)
class UnderWay:
    """An operation that was sent a while ago and has not ended.

    Attributes:
        operation: The operation.
        waited_s: Seconds since its request was sent; while its connection is being opened, since the opening began.
        connecting: Whether its connection is still being opened.
        received: Bytes of the response's body so far.
        body_s: Seconds since the response's first byte; 0.0 before it.
        passed: Number of other requests that ended since it was sent.
    """

    operation: Operation
    waited_s: float
    connecting: bool = False
    received: int = 0
    body_s: float = 0.0
    passed: int = 0


@dataclass(slots=True)
class Traffic:
    """The slow operations of one transport, sent at least half of ``late_s`` ago, oldest first, and its requests."""

    under_way: Sequence[UnderWay]
    ended: int
    transport: Transport


class Watch(Protocol):
    """An observer of slow operations; its methods run on the transport's thread, and may neither block nor raise."""

    def late_s(self, now: float, /) -> float:
        """Return the age in seconds at which an operation is late; ``inf`` if none is late now.

        ``now`` is the time of ``time.monotonic``.
        """

    def look(self, traffic: Traffic, /) -> list[tuple[Operation, Operation]]:
        """Inspect traffic in which at least one operation is late; return operations to carry out in addition.

        Each pair holds a late operation and an additional one, which the transport carries out before waiting
        operations, over a new connection, and to another address of the same host if there is one.
        """


@runtime_checkable
class Watchable(Protocol):
    """A transport over a network, whose operations can be watched."""

    def watch(self, watch: Watch) -> None:
        """Ask ``watch`` about slow operations from here on."""
