"""The plain values every room speaks in: spans of objects, what a listing says, where a process stands."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "PAUSE",
    "UNKNOWN_SIZE",
    "ObjectMeta",
    "Page",
    "Place",
    "Presigned",
    "Span",
    "Upload",
    "Uploads",
    "as_folder",
    "content_type_of",
    "whole",
]

UNKNOWN_SIZE: Final = -1  # of an object in a listing or a catalog; ``head`` tells it, or the read of the whole object


def whole(value: object, name: str, least: int | None = None) -> int:
    """Return an integer, of Python's or numpy's, as Python's; ``name`` is what it is called in the error.

    Raises:
        Unusable: It is no whole number (a bool, a float, a text), or below ``least``.

    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Unusable(f"{name} must be a whole number, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:  # an array or a tensor that is no single whole number
        raise Unusable(f"{name} must be a whole number, not {value!r}") from None
    if least is not None and number < least:
        raise Unusable(f"{name} must be {least} or more, not {number}")
    return number


class Span(NamedTuple):
    """A half-open run of bytes of one object: ``[start, stop)``; ``stop=None`` is the object's end, wherever that is.

    ``Span(key, -n)`` is the object's last ``n`` bytes, as in Python's slices, and all of a shorter object.

    A tuple and not a dataclass: one is made for every object read, and a frozen dataclass costs four times as much.

    Attributes:
        key: The object's full key within its bucket.
        start: First byte, inclusive. Negative, and ``stop`` None: so many bytes before the object's end.
        stop: Last byte, exclusive; None when the size is not known yet.
        etag: The version these bytes must come from (sent as ``If-Match``); empty to take any.
        whole: True when ``[start, stop)`` is known to be the entire object, so no ``Range`` need be sent.
        most: Where ``stop`` is None, the bytes that the object has at most, as far as the caller knows: the size of its
            buffer. A larger object is read all the same, in two requests. 0 where nothing is known.

    """

    key: str
    start: int = 0
    stop: int | None = None
    etag: str = ""
    whole: bool = False
    most: int = 0


PAUSE: Final = Span("")  # among spans that are drawn from ahead: none for now, ask again once some have been taken


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store says of one object without giving its bytes.

    Attributes:
        key: Full key within the bucket.
        size: Bytes; ``UNKNOWN_SIZE`` (-1) in listings of stores that do not say it (index pages of web servers).
        etag: Opaque version tag without quotes; empty where the store has none.
        modified: Seconds since the epoch by the server's clock; None where unknown.
        url: Where it lies; ``ps.list`` and ``ps.stat`` fill it.
        metadata: User metadata (``x-amz-meta-*``), lower-case names; only ``head`` fills it.
        content_type: ``Content-Type``, of a file by its name; empty where unknown; only ``head`` fills it.

    """

    key: str
    size: int
    etag: str = ""
    modified: float | None = None
    url: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing, in key order.

    Attributes:
        entries: Objects on this page.
        prefixes: Common prefixes (only with a delimiter).
        token: Pass it on to get the next page; empty on the last one.
        advanced: The listing has come further, even where the page is empty: a folder without objects was looked at.

    """

    entries: Sequence[ObjectMeta]
    prefixes: tuple[str, ...] = ()
    token: str = ""
    advanced: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was begun and neither completed nor aborted: invisible, and its parts are paid for.

    Attributes:
        key: The object it was to become.
        id: The store's name for it.
        begun: Seconds since the epoch by the server's clock; None where unknown.

    """

    key: str
    id: str
    begun: float | None = None


@dataclass(frozen=True, slots=True)
class Uploads:
    """One page of unfinished uploads, in key order; pass ``token`` on for the next one, empty on the last."""

    entries: tuple[Upload, ...]
    token: str = ""


@dataclass(frozen=True, slots=True)
class Presigned:
    """An address at which one object may be read or written without credentials, for a time. The repr hides the URL.

    Attributes:
        url: The address, a secret: anybody who has it may use it. ``str`` of this value is it, too.
        method: The HTTP method that it is for.
        expires_at: When it ends, in seconds since the epoch by this machine's clock.
        headers: What the request must send besides (Azure's ``x-ms-blob-type`` of a PUT).
        note: What may end it sooner; empty where nothing is known.

    """

    url: str = field(repr=False)
    method: str
    expires_at: float
    headers: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        """Return the address."""
        return self.url


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands: rank ``rank`` of ``world``, and within it worker ``worker`` of ``workers``."""

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        """Refuse places that do not exist: a wrong one would lose samples silently."""
        for name in ("rank", "world", "worker", "workers"):
            # numpy's small integers would overflow
            object.__setattr__(self, name, whole(getattr(self, name), f"Place's {name}"))
        if not (0 <= self.rank < self.world and 0 <= self.worker < self.workers):
            numbers = f"rank {self.rank} of {self.world}, worker {self.worker} of {self.workers}"
            raise Unusable(f"no such place: {numbers}; both count from 0")

    @classmethod
    def from_environment(cls) -> Place:
        """Read ``RANK`` and ``WORLD_SIZE`` as torchrun and its like set them; alone when they are unset.

        Raises:
            Unusable: One of the two is set without the other, or is no number.

        """
        rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if rank is None and world is None:
            return cls()
        if rank is None or world is None:
            message = "RANK and WORLD_SIZE must be set together (or neither): pass place=ps.Place(rank=…, world=…)"
            raise Unusable(message)
        if not (rank.isdecimal() and world.isdecimal()):
            message = f"RANK={rank!r} and WORLD_SIZE={world!r} must be whole numbers"
            raise Unusable(message)
        return cls(rank=int(rank), world=int(world))


def as_folder(key: str) -> str:
    """Return the prefix of all keys below ``key``, ending in ``/``; "" is the whole bucket."""
    return key if key.endswith("/") or not key else key + "/"


def content_type_of(key: str) -> str:
    """Guess a content type by a name; of what is compressed nothing: it would be what it is a type of unpacked."""
    from mimetypes import guess_type  # reads the machine's tables: few programs need it

    kind, packed = guess_type(f"x/{key}")  # not a URL, whatever it begins with
    return "" if packed else kind or ""
