"""Options that all stores have (transport, retries, reads, writes, cache, node), and their base class."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal, Self

from penstock.errors import ConfigError, kind_of
from penstock.options.private import PUBLIC, OptionsPart, Private

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB = 1 << 20
# Below this size, the cache's own directories would take most of the space.
_LEAST_BYTES = 4 * _MIB


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            raise ConfigError(f"{type(owner).__name__}.{name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions(Private):
    """HTTP options of this process.

    Attributes:
        connections: Maximum requests in flight at once per process and store; Penstock uses only as many as increase
            the rate, and over all stores at most a third of what the limit of open files (``ulimit -n``) leaves. 256
            covers 30 ms to the first byte at 7,000 objects/s (measured with 100 KiB objects).
        connect_timeout_s: Seconds to establish a connection, TLS included. 5 s is ten round trips around the world.
        stall_timeout_s: Seconds without progress (less than 1 KiB/s on average) after which a transfer is given up and
            retried. The total duration of a transfer has no limit: a slow transfer that makes progress continues.
        ca_file: PEM file to verify servers by; default ``AWS_CA_BUNDLE`` (S3), ``SSL_CERT_FILE``,
            ``CURL_CA_BUNDLE``, certifi, then the system's.
        verify: False switches TLS verification off, for a test server only; the log warns of it once per store.
        proxy: URL of an HTTP proxy; default: as ``https_proxy``, ``http_proxy`` and ``no_proxy`` specify.
        user_agent_extra: Text after ``penstock/x.y (…)`` in ``User-Agent``, which distinguishes programs in a store's
            logs; printable ASCII.
        idle_s: Seconds an unused connection is kept. Below the 60 s after which common load balancers drop it.

    Example:
        >>> options = ps.S3Options(transport=ps.TransportOptions(connections=64, connect_timeout_s=2))
        >>> ps.stat("s3://bucket/train/3/0000.png", store=options).key
        'train/3/0000.png'
    """

    connections: int = 256
    connect_timeout_s: float = 5.0
    stall_timeout_s: float = 20.0
    ca_file: str | None = field(default=None, metadata=PUBLIC)
    verify: bool = True
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    user_agent_extra: str = field(default="", metadata=PUBLIC)
    idle_s: float = 45

    def __post_init__(self) -> None:
        _positive(self, "connections", "connect_timeout_s", "stall_timeout_s", "idle_s")
        if not (self.user_agent_extra.isascii() and self.user_agent_extra.isprintable()):
            raise ConfigError("TransportOptions.user_agent_extra must be printable ASCII: it is a part of a header")

    def _secrets(self) -> list[str]:
        return ["proxy"] if "@" in (self.proxy or "") else []


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions(OptionsPart):
    """Retry policy for failed requests: ``Transient`` errors, and few others (design/0006).

    Delays are drawn uniformly from ``[0, min(cap_s, base_s * 2**n)]`` ("full jitter", AWS Architecture Blog, 2015).
    All operations on a store share 500 tokens for such retries; each success returns a tenth of a token. Without tokens
    every delay is drawn from ``[0, cap_s]``. This token bucket stops a retry storm, as in the AWS SDKs' standard mode;
    there an empty bucket ends the operation, here it slows the operation down.

    Attributes:
        base_s: Scale of the first delay, in seconds.
        cap_s: Longest single delay, in seconds; a server's ``Retry-After`` may ask for more, up to ``patience_s``.
        patience_s: Seconds after which an operation gives up on a store that has answered before. 120 s outlasts a
            fail-over; a shorter limit can end an overnight run.
        first_contact_s: The same limit for a store that has never answered this process: a mistyped endpoint fails in
            seconds, not minutes.
        attempts: Maximum requests per operation, at any duration. ``patience_s`` ends an operation long before 1,000;
            set a small number to fail early.

    Example:
        >>> options = ps.S3Options(retry=ps.RetryOptions(attempts=3, patience_s=30))
        >>> ps.stat("s3://bucket/train/3/0000.png", store=options).key
        'train/3/0000.png'
    """

    base_s: float = 0.1
    cap_s: float = 10.0
    patience_s: float = 120.0
    first_contact_s: float = 8.0
    attempts: int = 1000

    def __post_init__(self) -> None:
        _positive(self, "base_s", "cap_s", "patience_s", "first_contact_s", "attempts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(OptionsPart):
    """Options of reads: splitting, read-ahead and hedging.

    Attributes:
        split_bytes: Reads longer than this are split into parallel ranges of about this size. 16 MiB keeps the cost of
            a request below 1 % of its transfer at 10 Gb/s.
        ahead_bytes: Bytes that an iterable dataset may hold ahead of its consumer, per process (workers of one loader
            share it); also, on a server that ignores ``Range``, bytes held of objects that are read in pieces.
        ahead_items: Reads that an iterable dataset may have in flight or waiting, per process (shared like the bytes).
        hedge: Send a second request for a slow read (twice the 95th percentile of the seconds to the first byte, or a
            body at a tenth of the median rate), and use the first answer: at most 2 % more requests. No second request
            is made while the store throttles or fails.
        unknown_bytes: Maximum bytes that are read of an object whose size the server does not report (no
            ``Content-Length``, or an fsspec filesystem that does not know it); a longer object raises ``Damaged``. Each
            such read may hold this many bytes, and briefly twice as many at its end.

    Example:
        >>> options = ps.S3Options(read=ps.ReadOptions(ahead_bytes=1 << 30, hedge=False))
        >>> ps.stat("s3://bucket/train/3/0000.png", store=options).key
        'train/3/0000.png'
    """

    split_bytes: int = 16 * _MIB
    ahead_bytes: int = 256 * _MIB
    ahead_items: int = 512
    hedge: bool = True
    unknown_bytes: int = 256 * _MIB

    def __post_init__(self) -> None:
        _positive(self, "split_bytes", "ahead_bytes", "ahead_items", "unknown_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(OptionsPart):
    """Options of uploads.

    Attributes:
        part_bytes: Size of a part, within the store's limits (S3: 5 MiB to 5 GiB); an object that fits in one part is
            sent as a single PUT. Parts grow automatically, so that S3's 10,000 parts hold 5 TiB.
        buffer_bytes: Bytes held by one open writer: the part being filled plus the parts in flight; two
            parts at least.
        content_type: ``Content-Type`` of the object.

    Example:
        >>> options = ps.S3Options(write=ps.WriteOptions(part_bytes=8 << 20, content_type="text/plain"))
        >>> with ps.open("s3://bucket/a.txt", "w", store=options) as file:
        ...     file.write("a")
        1
        >>> ps.stat("s3://bucket/a.txt").content_type
        'text/plain'
    """

    part_bytes: int = 16 * _MIB
    buffer_bytes: int = 64 * _MIB
    content_type: str = field(default="application/octet-stream", metadata=PUBLIC)

    def __post_init__(self) -> None:
        _positive(self, "part_bytes", "buffer_bytes")
        if self.buffer_bytes < 2 * self.part_bytes:
            raise ConfigError("WriteOptions.buffer_bytes must hold two parts, or nothing can be sent while you write")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions(OptionsPart):
    """A cache on local disk, shared by all processes of a machine that name the same directory.

    Attributes:
        path: A directory on a local disk, in which the cache makes a subdirectory. Default:
            ``$XDG_CACHE_HOME/penstock``, then ``~/.cache/penstock``.
        size_bytes: Maximum bytes on disk, as ``du`` counts them, over all processes.
        memory_bytes: Maximum bytes that each process also keeps in memory; 0 keeps none. The operating system itself
            keeps recently read files in memory, once for all processes.
        block_bytes: Objects longer than this are kept in blocks of this size, which are stored and removed separately.
            4 MiB is the block size of open files.
        mode: How reads without a version (an ETag) are served. ``immutable``: by the store. ``ttl``: also by data that
            were read up to ``ttl_s`` ago. ``revalidate``: a HEAD request finds the current version, which is served.
            In each of these modes, reads of a known version are served without a request. ``off``: this store has no
            cache, even if ``PENSTOCK_CACHE`` names one.
        ttl_s: Seconds, for the mode ``ttl`` only. Use ``math.inf`` for objects that are never replaced.

    Example:
        >>> cache = ps.CacheOptions(path="cache", size_bytes=100 << 30, mode="revalidate")
        >>> with ps.open("s3://bucket/train/3/0000.png", store=ps.S3Options(cache=cache)) as file:
        ...     file.read()[1:4]
        b'PNG'
        >>> ps.cache.open_cache("cache").usage().entries
        1
    """

    path: str = field(default="", metadata=PUBLIC)
    size_bytes: int = field(default=10 * 1024 * _MIB, metadata={"elsewhere": ("max_bytes", "max_size", "size")})
    memory_bytes: int = 0
    block_bytes: int = 4 * _MIB
    mode: Literal["immutable", "ttl", "revalidate", "off"] = field(default="immutable", metadata=PUBLIC)
    ttl_s: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("size_bytes", _LEAST_BYTES), ("memory_bytes", 0), ("block_bytes", 64 << 10)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"CacheOptions.{name} must be at least {least}, got {getattr(self, name)!r}")
        if self.mode not in ("immutable", "ttl", "revalidate", "off"):
            raise ConfigError(f"CacheOptions.mode must be 'immutable', 'ttl', 'revalidate' or 'off', got {self.mode!r}")
        if not self.ttl_s > 0:
            raise ConfigError(f"CacheOptions.ttl_s must be positive, got {self.ttl_s!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions(OptionsPart):
    """Limits shared by all processes (ranks and workers) of one user on one machine: see docs/node.md.

    If processes have different options, the smallest value counts.

    Attributes:
        share: Whether this store takes part; False excludes its requests from everything that is shared.
        connections: Maximum requests in flight at once, over all processes and stores. 4,096 fill 100 Gb/s with
            objects of 100 KiB and 30 ms to the first byte.
        ahead_bytes: Maximum bytes that all processes together hold ahead of their consumers
            (``ReadOptions.ahead_bytes`` is the limit of each process); 0: a quarter of the memory of the machine or of
            the container.

    Example:
        >>> options = ps.S3Options(node=ps.NodeOptions(connections=512, ahead_bytes=8 << 30))
        >>> options.node.connections
        512
    """

    share: bool = True
    connections: int = 4096
    ahead_bytes: int = 0

    def __post_init__(self) -> None:
        _positive(self, "connections")
        if self.ahead_bytes < 0:
            raise ConfigError(f"NodeOptions.ahead_bytes must not be negative, got {self.ahead_bytes!r}")


# The fields of ``StoreOptions``, and the class of each.
PART_KINDS: Mapping[str, type] = {
    "transport": TransportOptions,
    "retry": RetryOptions,
    "read": ReadOptions,
    "write": WriteOptions,
    "cache": CacheOptions,
    "node": NodeOptions,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions(Private):
    """Options common to the stores of all providers; each provider's class adds its own.

    If these options are passed for a URL, the provider's defaults apply, with the parts below. Options with secrets are
    pickled only for worker processes.

    Attributes:
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Limits shared with other processes of the machine.

    Example:
        >>> options = ps.StoreOptions(retry=ps.RetryOptions(attempts=3))  # for a store of any kind
        >>> [each.key for each in ps.list("s3://bucket/train/3/", store=options)][0]
        'train/3/0000.png'
    """

    transport: TransportOptions = field(default_factory=TransportOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    cache: CacheOptions | None = None
    node: NodeOptions = field(default_factory=NodeOptions)

    def __new__(cls, *values: object, **options: object) -> Self:
        """Refuse an unknown option, naming the one probably intended, and a part that is not of its class."""
        made = super(StoreOptions, cls).__new__(cls, *values, **options)
        for name, kind in PART_KINDS.items():
            part = options.get(name)
            if name in options and not isinstance(part, kind) and not (name == "cache" and part is None):
                example = "path=…" if name == "cache" else "…"
                raise ConfigError(f"{cls.__name__}.{name} must be {kind.__name__}({example}), got {kind_of(part)}")
        return made


def check_sources(options: object, *names: str) -> None:
    """Refuse half a pair of keys, two sources of credentials, or a source that is not valid.

    ``names`` are the options that are sources, in the order in which the error text names them.
    """
    keys = ("access_key", "secret_key", "session_token")
    access_key, secret_key, token = (getattr(options, name, None) for name in keys)
    if (access_key is None) != (secret_key is None):
        raise ConfigError("access_key and secret_key go together: one of them is missing")
    if token is not None and access_key is None:
        raise ConfigError("session_token needs access_key and secret_key")
    if getattr(options, "requester_pays", False) and getattr(options, "anonymous", False):
        raise ConfigError("requester_pays needs credentials to bill: pass it without anonymous=True")
    given = [name for name in names if getattr(options, name) not in (None, False)]
    for one, other in combinations(given, 2):
        first = f"{one}=True" if getattr(options, one) is True else one
        raise ConfigError(f"{first} and {other} contradict one another: name one source of credentials")
    function: object = getattr(options, "credentials", None)
    if function is not None and not callable(function):
        raise ConfigError(f"credentials must be a function that returns credentials, got {kind_of(function)}")
    process: object = getattr(options, "credentials_process", None)
    words = process if isinstance(process, tuple) else (process,)
    if process is not None and not (words and all(isinstance(each, str) for each in words) and words[0]):
        raise ConfigError("credentials_process must be a command, or a tuple of a program and its arguments")
