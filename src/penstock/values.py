"""Plain value types: byte spans, object metadata, listing pages, a process's place among ranks and workers."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import uuid4

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Metadata key that identifies one write, even if its response is lost.
MARK: Final = "penstockwrite"
# Size of an object in a listing or catalog that lacks it; ``head``, or a read of the whole object, returns the size.
UNKNOWN_SIZE: Final = -1


def whole(value: object, name: str, least: int | None = None) -> int:
    """Return an integer of Python or NumPy as an int, or raise ``Unusable``; ``name`` is its name in the error."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Unusable(f"{name} must be a whole number, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:  # e.g. an array or a tensor with several elements
        raise Unusable(f"{name} must be a whole number, got {value!r}") from None
    if least is not None and number < least:
        raise Unusable(f"{name} must be {least} or more, got {number}")
    return number


def switch(value: object, name: str) -> bool:
    """Return True or False, for Python's and NumPy's values, 1 and 0; ``Unusable`` for other values, such as a text."""
    # An array of several elements cannot be compared with one value.
    if getattr(value, "shape", ()) or value not in (True, False):
        raise Unusable(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_choice(value: object, words: Sequence[str], name: str) -> None:
    """Raise ``Unusable`` for a value of any type that is not one of ``words``; ``name`` is its name in the error."""
    if not isinstance(value, str) or value not in words:
        *others, last = map(repr, words)
        raise Unusable(f"{name} must be {', '.join(others)} or {last}, got {value!r}")


def marked(metadata: Mapping[str, str]) -> Mapping[str, str]:
    return {**metadata, MARK: uuid4().hex}


class Running(Protocol):
    """A checksum computation in progress."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None: ...

    def matches(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Checksum:
    """The checksum of a whole object, as its store reports it.

    Attributes:
        name: Header that contained it.
        stored: The header's value.
        start: Starts a comparison of bytes with ``stored``; returns None if ``stored`` is not over the object's bytes.
    """

    name: str
    stored: str
    start: Callable[[str], Running | None] = field(repr=False)

    def begin(self) -> Running | None:
        return self.start(self.stored)

    def holds(self, data: bytes | memoryview) -> bool:
        """Return whether ``data``, the whole object, has this checksum; True if it cannot be compared."""
        running = self.start(self.stored)
        if running is None:
            return True
        running.update(data)
        return running.matches()


class Span(NamedTuple):
    """A half-open range of bytes of one object: ``[start, stop)``; ``stop=None`` is the object's end.

    ``Span(key, -n)`` is the object's last ``n`` bytes, as in Python's slices, or all bytes of a shorter object.

    A NamedTuple because one is made for every object read, and a frozen dataclass costs four times as much.

    Attributes:
        key: The object's full key within its bucket.
        start: First byte, inclusive. Negative with ``stop`` None: this many bytes before the object's end.
        stop: Last byte, exclusive; None if the size is not known yet.
        etag: The version to read (sent as ``If-Match``); empty for any version. One with a version id (``version_id``)
            is read even if the object was replaced.
        whole: True if ``[start, stop)`` is known to be the entire object, so that no ``Range`` is needed.
        most: If ``stop`` is None, the largest size that the caller expects: the size of its buffer. A larger object is
            still read, in two requests. Otherwise the object's size, as a listing has it: another one in the answer
            raises ``Changed``. 0 if unknown.
        checksum: If ``whole`` is True, the object's checksum, if known before the read.
    """

    key: str
    start: int = 0
    stop: int | None = None
    etag: str = ""
    whole: bool = False
    most: int = 0
    checksum: Checksum | None = None


# Between an ETag and the id of a version in one text; no ETag holds a space.
VERSION: Final = " version="


def tag_of(etag: str) -> str:
    """Return an etag without the version id that it may hold."""
    return etag.partition(VERSION)[0]


def version_id(etag: str) -> str:
    """Return the id by which a bucket that keeps versions addresses this one; empty if the etag holds none."""
    return etag.partition(VERSION)[2]


# In a stream of spans for reading ahead: none available now; ask again after some were taken.
PAUSE: Final = Span("")


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """The metadata of one object, without its bytes.

    Attributes:
        key: Full key within the bucket.
        size: Bytes; ``UNKNOWN_SIZE`` (-1) in listings of stores that omit it (index pages of web servers).
        etag: Opaque version tag without quotes; empty if the store has none.
        modified: Seconds since the epoch by the server's clock; None if unknown.
        url: The object's URL; ``ps.list`` and ``ps.stat`` fill it.
        metadata: User metadata (``x-amz-meta-*``), lower-case names; only ``head`` fills it.
        content_type: ``Content-Type``; for a file derived from its name; empty if unknown; only ``head`` fills it.
        checksum: Checksum of the whole object; None if unknown; only ``head`` fills it, if the store reports one.

    Example:
        >>> meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> meta.key, meta.url
        ('train/3/0000.png', 's3://bucket/train/3/0000.png')
    """

    key: str
    size: int
    etag: str = ""
    modified: float | None = None
    url: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    content_type: str = ""
    checksum: Checksum | None = field(default=None, compare=False, repr=False)


def span_in(meta: ObjectMeta, start: int = 0, stop: int | None = None) -> Span:
    """Return bytes of an object, by default all, bound to the version of ``meta``."""
    stop = meta.size if stop is None else stop
    return Span(meta.key, start, stop, meta.etag, whole=not start and stop == meta.size)


def cut_spans(meta: ObjectMeta, piece_bytes: int, start: int = 0, stop: int | None = None) -> Iterator[Span]:
    """Yield an object's bytes from ``start`` to ``stop`` in pieces, all pinned to the version of ``meta``."""
    stop = meta.size if stop is None else min(stop, meta.size)
    for at in range(start, stop, piece_bytes):
        yield Span(meta.key, at, min(at + piece_bytes, stop), meta.etag)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing, in key order.

    Attributes:
        entries: Objects on this page.
        prefixes: Common prefixes (only with a delimiter).
        token: Token to request the next page; empty on the last one.
        advanced: Whether the listing has progressed although the page may be empty: a folder without objects was read.
    """

    entries: Sequence[ObjectMeta]
    prefixes: tuple[str, ...] = ()
    token: str = ""
    advanced: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was started but not completed or aborted: invisible, but its parts are billed.

    Attributes:
        key: The key of the object that it would create.
        id: The store's id of it.
        begun: Seconds since the epoch by the server's clock; None if unknown.
    """

    key: str
    id: str
    begun: float | None = None


@dataclass(frozen=True, slots=True)
class Uploads:
    """A page of unfinished uploads, in key order; ``token`` requests the next page and is empty on the last."""

    entries: tuple[Upload, ...]
    token: str = ""


@dataclass(frozen=True, slots=True)
class Presigned:
    """A URL that allows reading or writing one object without credentials, for a limited time. The repr hides it.

    Attributes:
        url: The URL, a secret: anyone who has it can use it. ``str`` of this value returns it, too.
        method: The HTTP method that it is valid for.
        expires_at: Expiry time, in seconds since the epoch by this machine's clock.
        headers: Headers that the request must also send (Azure's ``x-ms-blob-type`` of a PUT).
        note: Conditions that may end it sooner; empty if none are known.
    """

    url: str = field(repr=False)
    method: str
    expires_at: float
    headers: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process: rank ``rank`` of ``world``, and in it worker ``worker`` of ``workers``.

    Attributes:
        rank: Number of the rank, from 0.
        world: Number of ranks.
        worker: Number of the worker process in its rank, from 0.
        workers: Number of worker processes of the rank.

    Raises:
        Unusable: No such place exists, such as rank 2 of 2.

    Example:
        >>> place = ps.Place(rank=1, world=2)
        >>> dataset = ps.IterableDataset.from_prefix("s3://bucket/train/3/", place=place)
        >>> sum(1 for sample in dataset)
        30
    """

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        """Raise ``Unusable`` for a place that does not exist: a wrong one would lose samples silently."""
        for name in ("rank", "world", "worker", "workers"):
            # NumPy's small integers would overflow
            object.__setattr__(self, name, whole(getattr(self, name), f"Place's {name}"))
        if not (0 <= self.rank < self.world and 0 <= self.worker < self.workers):
            numbers = f"rank {self.rank} of {self.world}, worker {self.worker} of {self.workers}"
            raise Unusable(f"invalid place: {numbers}; both count from 0")

    @classmethod
    def from_environment(cls) -> Place:
        """Return the place that ``RANK`` and ``WORLD_SIZE`` describe, as torchrun sets them; rank 0 of 1 without.

        Raises:
            Unusable: Only one of the two is set, or one is not a number.

        Example:
            >>> ps.Place.from_environment()  # without RANK and WORLD_SIZE
            Place(rank=0, world=1, worker=0, workers=1)
        """
        rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if rank is None and world is None:
            return cls()
        if rank is None or world is None:
            message = "RANK and WORLD_SIZE must be set together (or neither): pass place=ps.Place(rank=…, world=…)"
            raise Unusable(message)
        if not (rank.isdecimal() and world.isdecimal()):
            raise Unusable(f"RANK={rank!r} and WORLD_SIZE={world!r} must be whole numbers")
        return cls(rank=int(rank), world=int(world))


def as_folder(key: str) -> str:
    """Return the prefix of all keys below ``key``, ending in ``/``; an empty ``key`` is the whole bucket."""
    return key if key.endswith("/") or not key else key + "/"


def common_folder(first: str, second: str) -> str:
    """Return the longest common beginning of two prefixes that ends in ``/``, or the prefix if both are equal."""
    if first == second:
        return first
    # Compare by character, not by path component: keys are not paths.
    shared = os.path.commonprefix([first, second])  # noqa: RUF071
    return shared[: shared.rfind("/") + 1]


def content_type_of(key: str) -> str:
    """Return a content type guessed from a name; empty for compressed data, where it would be the unpacked type."""
    from mimetypes import guess_type  # reads the system's tables; rarely needed

    kind, packed = guess_type(f"x/{key}")  # never parsed as a URL
    return "" if packed else kind or ""
