"""One frozen value per engine; every field says its unit, its default, and where the default came from."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.errors import ConfigError, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ReadOptions", "RetryOptions", "S3Options", "StoreOptions", "TransportOptions", "WriteOptions"]

PUBLIC = {"public": True}  # metadata of a field that never holds a secret: ``field(default="", metadata=PUBLIC)``
_MIB = 1 << 20


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            message = f"{type(owner).__name__}.{name} must be positive, not {value!r}"
            raise ConfigError(message)


class _Private:
    """Options that may hold a secret: those that do are pickled for workers of this process alone (design/0012).

    Whatever a field holds counts as a secret, is not shown and not pickled, unless its kind cannot be one (numbers,
    truth values, Penstock's own parts), or the field says ``metadata=PUBLIC``, or the value is its default. So a class
    of a third party that says nothing gives nothing away. A copy in memory is the value itself: it cannot change.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        """Hold each kind of options to this, third parties' kinds too, whatever ``dataclass`` would write for it."""
        super().__init_subclass__(**options)
        ForkingPickler.register(cls, _for_worker)
        if "__repr__" not in vars(cls):
            cls.__repr__ = _Private.__repr__  # type: ignore[method-assign]  # before dataclass writes one that shows all

    def __repr__(self) -> str:
        """Return the public fields."""
        hidden = self._secrets()
        shown = [each for each in fields(self) if each.repr and each.name not in hidden]  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(f'{each.name}={getattr(self, each.name)!r}' for each in shown)})"

    def _secrets(self) -> list[str]:
        """Return which fields may hold one."""
        return [each.name for each in fields(self) if _may_be_secret(each, getattr(self, each.name))]  # type: ignore[arg-type]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what holds no secret; ``Unusable`` for what does."""
        if secrets := self._secrets():
            raise Unusable(
                f"{type(self).__name__} with a secret in it ({', '.join(secrets)}) is pickled for worker processes "
                "only, never into a file or for another machine: pass profile=, or set the environment where it is "
                "loaded, or pass store= there"
            )
        return _for_worker(self)


def _may_be_secret(field: Field[Any], value: object) -> bool:
    if not field.repr:
        return value is not None
    plain = isinstance(value, bool | int | float | _Private | RetryOptions | ReadOptions | WriteOptions)
    return not (plain or value is None or value == field.default or field.metadata.get("public", False))


def _for_worker(options: _Private) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Pickle all: what ``multiprocessing`` pickles goes to a process of ours, by a pipe, and into no file."""
    return _again, (type(options), {each.name: getattr(options, each.name) for each in fields(options) if each.init})  # type: ignore[arg-type]


def _again(kind: type[_Private], values: dict[str, object]) -> _Private:
    return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions(_Private):
    """How this process talks HTTP.

    Attributes:
        connections: Most requests in flight at once per process and store; Penstock uses as many of them as raise the
            rate, and over all stores at most a third of what the limit of open files (``ulimit -n``) leaves. 256
            covers 30 ms to the first byte at 7,000 objects/s (measured with 100 KiB objects).
        connect_timeout_s: Seconds to a connection, TLS included. 5 s is ten round trips around the world.
        stall_timeout_s: Seconds without progress after which a transfer is given up and retried. There is no limit
            on a transfer's total duration: a slow one that moves is left alone.
        stall_bytes_per_s: What counts as progress, averaged over ``stall_timeout_s``.
        ca_file: PEM file to verify servers by; default ``AWS_CA_BUNDLE``, ``SSL_CERT_FILE``, ``CURL_CA_BUNDLE``,
            certifi, then the system's.
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
    idle_s: int = 45

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        _positive(self, "connections", "connect_timeout_s", "stall_timeout_s", "stall_bytes_per_s", "idle_s")
        if not (self.user_agent_extra.isascii() and self.user_agent_extra.isprintable()):
            raise ConfigError("TransportOptions.user_agent_extra must be printable ASCII: it is a part of a header")

    def _secrets(self) -> list[str]:
        return ["proxy"] if "@" in (self.proxy or "") else []


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
class ReadOptions:
    """How reads are cut and how far ahead they run.

    Attributes:
        split_bytes: Reads longer than this are cut into parallel ranges of about this size. 16 MiB keeps the cost of
            a request below 1 % of its transfer at 10 Gb/s.
        ahead_bytes: Bytes an iterable dataset may hold ahead of its consumer, per process (workers
            of one loader share it); and, on a server that ignores ``Range``, of objects that are read in pieces.
        ahead_items: Reads an iterable dataset may have in flight or waiting, per process (shared like the bytes).

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
class StoreOptions(_Private):
    """How a store is talked to, whichever provider it is; each provider's own class adds to these.

    Given for a URL of any provider, these are its defaults with the parts below. Options with secrets are pickled for
    worker processes and nowhere else.

    Attributes:
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.

    """

    transport: TransportOptions = field(default_factory=TransportOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    write: WriteOptions = field(default_factory=WriteOptions)

    def __new__(cls, **options: object) -> Self:
        """Refuse an option that this class does not have, and name the one that was meant."""
        if strange := [name for name in options if name not in cls.__dataclass_fields__]:
            raise ConfigError(_stranger(cls, strange[0]))
        return object.__new__(cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(StoreOptions):
    """Where an S3-compatible store is and who you are to it. These beat the environment and every file.

    Attributes:
        endpoint: Base URL of an S3-compatible server, with a path where it has one; default ``AWS_ENDPOINT_URL_S3``,
            ``AWS_ENDPOINT_URL``, the profile's ``endpoint_url``, then AWS's own for the region.
        region: Signing region; default ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the profile's, then ``us-east-1``.
        access_key: Key id; with ``secret_key``. Default: the credential chain.
        secret_key: Secret; never shown, logged or written. Options with it are pickled for workers and nowhere else.
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

    endpoint: str | None = field(default=None, metadata=PUBLIC)
    region: str | None = field(default=None, metadata=PUBLIC)
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = field(default=None, metadata=PUBLIC)
    anonymous: bool = False
    addressing: Literal["auto", "path", "virtual"] = field(default="auto", metadata=PUBLIC)

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


def _stranger(kind: type[StoreOptions], name: str) -> str:
    """Say what to do about an option that ``kind`` does not have."""
    if name in S3Options.__dataclass_fields__:
        return f"{kind.__name__} has no option {name!r}: it is S3's, write S3Options({name}=…)"
    near = get_close_matches(name, kind.__dataclass_fields__, 1)
    meant = f": did you mean {near[0]!r}?" if near else f", only {', '.join(kind.__dataclass_fields__)}"
    return f"{kind.__name__} has no option {name!r}{meant}"
