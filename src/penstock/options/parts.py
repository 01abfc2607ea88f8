"""The parts of a store's options that every provider has: transport, retries, reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.options.private import PUBLIC, Part, Private

__all__ = ["NodeOptions", "ReadOptions", "RetryOptions", "TransportOptions", "WriteOptions"]

_MIB = 1 << 20


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            message = f"{type(owner).__name__}.{name} must be positive, not {value!r}"
            raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions(Private):
    """How this process talks HTTP.

    Attributes:
        connections: Most requests in flight at once per process and store; Penstock uses as many of them as raise the
            rate, and over all stores at most a third of what the limit of open files (``ulimit -n``) leaves. 256
            covers 30 ms to the first byte at 7,000 objects/s (measured with 100 KiB objects).
        connect_timeout_s: Seconds to a connection, TLS included. 5 s is ten round trips around the world.
        stall_timeout_s: Seconds without progress after which a transfer is given up and retried. There is no limit
            on a transfer's total duration: a slow one that moves is left alone.
        stall_bytes_per_s: What counts as progress, averaged over ``stall_timeout_s``.
        ca_file: PEM file to verify servers by; default ``AWS_CA_BUNDLE`` (S3), ``SSL_CERT_FILE``,
            ``CURL_CA_BUNDLE``, certifi, then the system's.
        verify: False switches TLS verification off, for a test server only; the log warns of it once per store.
        proxy: URL of an HTTP proxy; default what ``https_proxy``, ``http_proxy`` and ``no_proxy`` say.
        user_agent_extra: Words to follow ``penstock/x.y (…)`` in ``User-Agent``, by which a store's logs tell programs
            apart; printable ASCII.
        idle_s: Seconds an unused connection is kept. Below the 60 s after which common load balancers drop it.

    """

    connections: int = 256
    connect_timeout_s: float = 5.0
    stall_timeout_s: float = 20.0
    stall_bytes_per_s: int = 1024
    ca_file: str | None = field(default=None, metadata=PUBLIC)
    verify: bool = True
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    user_agent_extra: str = field(default="", metadata=PUBLIC)
    idle_s: float = 45

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "connections", "connect_timeout_s", "stall_timeout_s", "stall_bytes_per_s", "idle_s")
        if not (self.user_agent_extra.isascii() and self.user_agent_extra.isprintable()):
            raise ConfigError("TransportOptions.user_agent_extra must be printable ASCII: it is a part of a header")

    def _secrets(self) -> list[str]:
        return ["proxy"] if "@" in (self.proxy or "") else []


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions(Part):
    """When a failed request is tried again: ``Transient`` errors, and few others (design/0006).

    Delays are drawn uniformly from ``[0, min(cap_s, base_s * 2**n)]`` ("full jitter", AWS Architecture Blog, 2015).

    Attributes:
        base_s: Scale of the first delay, in seconds.
        cap_s: Longest single delay, in seconds; a server's ``Retry-After`` may ask for more, up to ``patience_s``.
        patience_s: Seconds after which an operation gives up on a store that has answered before. 120 s outlives a
            fail-over; nights are lost to less.
        first_contact_s: The same while the store has never answered this process: a mistyped endpoint is told in
            seconds, not minutes.
        attempts: Most requests per operation, whatever the time. ``patience_s`` decides long before 1,000; set a small
            number to fail early.
        tokens: Retries after short delays that all operations on a store may spend together; each success gives a
            tenth of one back. Without tokens every delay is drawn from ``[0, cap_s]``. This token bucket stops a retry
            storm, as in AWS SDKs' standard mode; there an empty bucket ends the operation, here it slows it down.

    """

    base_s: float = 0.1
    cap_s: float = 10.0
    patience_s: float = 120.0
    first_contact_s: float = 8.0
    attempts: int = 1000
    tokens: int = 500

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "base_s", "cap_s", "patience_s", "first_contact_s", "attempts", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(Part):
    """How reads are cut and how far ahead they run.

    Attributes:
        split_bytes: Reads longer than this are cut into parallel ranges of about this size. 16 MiB keeps the cost of
            a request below 1 % of its transfer at 10 Gb/s.
        ahead_bytes: Bytes an iterable dataset may hold ahead of its consumer, per process (workers
            of one loader share it); and, on a server that ignores ``Range``, of objects that are read in pieces.
        ahead_items: Reads an iterable dataset may have in flight or waiting, per process (shared like the bytes).
        hedge: Ask a second time for a read that takes long (twice the 95th percentile of the seconds to the first byte,
            or a body at a tenth of the median rate), and take what comes first: at most 2 % more requests. None are
            made while the store throttles or fails.

    """

    split_bytes: int = 16 * _MIB
    ahead_bytes: int = 256 * _MIB
    ahead_items: int = 512
    hedge: bool = True

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "split_bytes", "ahead_bytes", "ahead_items")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(Part):
    """How objects are uploaded.

    Attributes:
        part_bytes: Size of a part, within the store's limits (S3: 5 MiB to 5 GiB); an object that fits in one is sent
            as a single PUT. Parts grow by themselves so that S3's 10,000 parts hold 5 TiB.
        buffer_bytes: Bytes held by one open writer: what is being filled plus what is in flight.
        content_type: ``Content-Type`` of the object.

    """

    part_bytes: int = 16 * _MIB
    buffer_bytes: int = 64 * _MIB
    content_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "part_bytes", "buffer_bytes")
        if self.buffer_bytes < 2 * self.part_bytes:
            message = "WriteOptions.buffer_bytes must hold two parts, else nothing is sent while you write"
            raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions(Part):
    """What all processes of one user on one machine share, ranks and workers alike: see docs/node.md.

    Where processes have different options, the smallest value counts.

    Attributes:
        share: Take part. False leaves this store's requests out of all of it.
        connections: Most requests in flight at once, of all processes and stores together. 4,096 fill 100 Gb/s with
            objects of 100 KiB and 30 ms to the first byte.
        ahead_bytes: Most bytes that all processes together hold ahead of their consumers (``ReadOptions.ahead_bytes``
            is each one's); 0 stands for a quarter of the memory that the machine or the container has.

    """

    share: bool = True
    connections: int = 4096
    ahead_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "connections")
        if self.ahead_bytes < 0:
            raise ConfigError(f"NodeOptions.ahead_bytes must not be negative, like {self.ahead_bytes!r}")
