"""One frozen value per engine; every field says its unit, its default, and where the default came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import ConfigError

__all__ = ["ReadOptions", "RetryOptions", "StoreOptions", "TransportOptions", "WriteOptions"]

_MIB = 1 << 20
_S3_LEAST_PART = 5 * _MIB  # AWS: every part but the last is at least 5 MiB


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            message = f"{type(owner).__name__}.{name} must be positive, not {value!r}"
            raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """How this process talks HTTP.

    Attributes:
        connections: Most requests in flight at once per process and store; Penstock uses as many of them as raise the
            rate. 256 covers 30 ms to the first byte at 7,000 objects/s (measured with 100 KiB objects).
        connect_timeout_s: Seconds to a connection, TLS included. 5 s is ten round trips around the world.
        stall_timeout_s: Seconds without progress after which a transfer is given up and retried. There is no limit
            on a transfer's total duration: a slow one that moves is left alone.
        stall_bytes_per_s: What counts as progress, averaged over ``stall_timeout_s``.
        ca_file: PEM file to verify servers by; default ``AWS_CA_BUNDLE``, ``SSL_CERT_FILE``, ``CURL_CA_BUNDLE``,
            certifi, then the system's.
        verify: False switches TLS verification off, for a test server only.
        proxy: URL of an HTTP proxy; default what ``https_proxy``, ``http_proxy`` and ``no_proxy`` say.
        idle_s: Seconds an unused connection is kept. Below the 60 s after which common load balancers drop it.

    """

    connections: int = 256
    connect_timeout_s: float = 5.0
    stall_timeout_s: float = 20.0
    stall_bytes_per_s: int = 1024
    ca_file: str | None = None
    verify: bool = True
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    idle_s: int = 45

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "connections", "connect_timeout_s", "stall_timeout_s", "stall_bytes_per_s", "idle_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """When a failed request is tried again: ``Transient`` errors, and few others (design/0006).

    Delays are drawn uniformly from ``[0, min(cap_s, base_s * 2**n)]`` ("full jitter", AWS Architecture Blog, 2015).

    Attributes:
        base_s: Scale of the first delay, in seconds.
        cap_s: Longest single delay, in seconds; a server's ``Retry-After`` may ask for more, up to ``patience_s``.
        patience_s: Seconds after which an operation gives up on a store that has answered before. 120 s outlives a
            fail-over; nights are lost to less.
        first_contact_s: The same while the store has never answered this process: a mistyped endpoint is told in
            seconds, not minutes.
        attempts: Most requests per operation, whatever the time.
        tokens: Retries that may be spent at once over all operations; each success gives a tenth of one back. It is
            what stops a retry storm (token bucket, as in gRPC's and AWS SDKs' standard mode).

    """

    base_s: float = 0.1
    cap_s: float = 10.0
    patience_s: float = 120.0
    first_contact_s: float = 8.0
    attempts: int = 24
    tokens: int = 500

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "base_s", "cap_s", "patience_s", "first_contact_s", "attempts", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How reads are cut and how far ahead they run.

    Attributes:
        split_bytes: Reads longer than this are cut into parallel ranges of about this size. 16 MiB keeps the cost of
            a request below 1 % of its transfer at 10 Gb/s.
        ahead_bytes: Bytes an iterable data set may hold ahead of its consumer, per process (workers
            of one loader share it).
        ahead_items: Reads an iterable data set may have in flight or waiting, per process (shared like the bytes).

    """

    split_bytes: int = 16 * _MIB
    ahead_bytes: int = 256 * _MIB
    ahead_items: int = 512

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "split_bytes", "ahead_bytes", "ahead_items")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How objects are uploaded.

    Attributes:
        part_bytes: Size of a part; an object that fits in one is sent as a single PUT. Parts grow by themselves so
            that 5 TiB fit in 10,000 of them (S3's limits).
        buffer_bytes: Bytes held by one open writer: what is being filled plus what is in flight.
        content_type: ``Content-Type`` of the object.

    """

    part_bytes: int = 16 * _MIB
    buffer_bytes: int = 64 * _MIB
    content_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        if self.part_bytes < _S3_LEAST_PART:
            message = (
                f"WriteOptions.part_bytes must be at least {_S3_LEAST_PART} (S3's least part), not {self.part_bytes}"
            )
            raise ConfigError(message)
        if self.buffer_bytes < 2 * self.part_bytes:
            message = "WriteOptions.buffer_bytes must hold two parts, else nothing is sent while you write"
            raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Where a store is and who you are to it. What you set here beats the environment and every file.

    Attributes:
        endpoint: Base URL of an S3-compatible server; default ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``, the
            profile's ``endpoint_url``, then AWS's own for the region.
        region: Signing region; default ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the profile's, then ``us-east-1``.
        access_key: Key id; with ``secret_key``. Default: the credential chain.
        secret_key: Secret; never shown, logged or written; goes to workers only because you passed it.
        session_token: Token of temporary credentials.
        profile: Name in the shared AWS files; default ``AWS_PROFILE``.
        anonymous: Send unsigned requests (public data).
        addressing: ``path`` (``host/bucket/key``), ``virtual`` (``bucket.host/key``), or ``auto``: virtual on AWS
            itself, path wherever an endpoint is given.
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.

    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    anonymous: bool = False
    addressing: Literal["auto", "path", "virtual"] = "auto"
    transport: TransportOptions = field(default_factory=TransportOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    write: WriteOptions = field(default_factory=WriteOptions)

    def __post_init__(self) -> None:
        """Refuse halves and contradictions at once, not at the first request."""
        if (self.access_key is None) != (self.secret_key is None):
            message = "access_key and secret_key go together: one of them is missing"
            raise ConfigError(message)
        if self.session_token is not None and self.access_key is None:
            message = "session_token needs access_key and secret_key"
            raise ConfigError(message)
        if self.anonymous and self.access_key is not None:
            message = "anonymous=True and access_key contradict one another"
            raise ConfigError(message)
        if self.addressing not in ("auto", "path", "virtual"):
            message = f"addressing must be 'auto', 'path' or 'virtual', not {self.addressing!r}"
            raise ConfigError(message)
