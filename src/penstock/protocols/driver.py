"""The verbs of a store's dialect, each a small protocol: a verb returns an exchange, and a driver sends nothing itself.

A driver has the verbs whose methods it implements (``penstock.support``); reading is the one that every driver has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.buffer import Buffer
    from penstock.errors import PenstockError
    from penstock.protocols.exchange import Exchange
    from penstock.values import ObjectMeta, Page, Presigned, Span, Uploads

__all__ = [
    "MOVED",
    "RANGE_IGNORED",
    "STAGED",
    "UNFINISHED",
    "UNKNOWN_BYTES",
    "Abilities",
    "Attributes",
    "Beginning",
    "ConditionForm",
    "Conditions",
    "Copy",
    "Delete",
    "Digest",
    "Driver",
    "Ending",
    "Head",
    "List",
    "Move",
    "Multipart",
    "Part",
    "PartCopy",
    "Payload",
    "Presign",
    "Put",
    "PutMany",
    "Read",
    "Suffix",
]

UNKNOWN_BYTES = 2 << 30  # most that is read of an object of unknown size, unless another bound is given
STAGED = ".penstock-uploads/"  # begins the keys of objects that are uploaded and wait to be moved to their own
UNFINISHED = ".penstock-"  # begins the name of what is being written beside its key; listings do not show it
MOVED = "Moved"  # the code of the error that says: ask again at once, the driver knows another way now
RANGE_IGNORED = "RangeIgnored"  # the code of the error that says: this store answers a range with the whole object


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes to send and the digest that goes with them, computed once however often they are sent.

    Attributes:
        data: A buffer that stays untouched until it has been sent.
        digest: Of the data, by the store's ``Abilities.digest``, in hexadecimal; empty where the store checks none.
        later: Other digests by name, which a store asked for when the body had been made.

    """

    data: bytes | bytearray | memoryview
    digest: str = ""
    later: dict[str, str] = field(default_factory=dict, compare=False, repr=False)


class Digest(Protocol):
    """A digest under way, as ``hashlib`` has them."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far."""


class Beginning(NamedTuple):
    """The first bytes of an object that is larger than its buffer.

    Attributes:
        data: The bytes.
        size: Of the whole object; 0 where the server does not say.
        etag: The version that they are from; empty where none can be asked for.

    """

    data: bytes
    size: int
    etag: str


class Ending(NamedTuple):
    """The last bytes of an object, or as many of them as arrived.

    Attributes:
        start: Where in the object they begin.
        size: Of the whole object.
        etag: The version that they are from; empty where none can be asked for.
        received: How many of them are in the target; fewer than ``size - start`` where the body broke off.

    """

    start: int
    size: int
    etag: str
    received: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """Which conditions a store heeds on one kind of write; where it heeds none, a look before the write has to do.

    Attributes:
        create: It refuses where there is an object already.
        replace: It refuses where there is no object of the version that is to be replaced.

    """

    create: bool = True
    replace: bool = True


_BOTH = Conditions()
ConditionForm = Literal["usual", "bare", "none"]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a store can do; no code asks for a provider's name.

    A provider declares them. ``form``, ``tags`` and ``ranges`` are what is known before a store has answered: what its
    answers teach is set on the driver (``dataclasses.replace``).

    Attributes:
        digest: Begins the digest by which the store refuses a damaged body before it publishes it; None where there
            is none. A driver says where in a request it stands: S3's signature takes SHA-256 and no other.
        put_digest: The same for a body that its PUT publishes, where a part's digest is only compared with the answer:
            slower, and in front of its hexadecimal form stands that of ``digest``. None where ``digest`` does.
        put: What a PUT may be held to.
        complete: What the completion of an upload may be held to. Where that is less than a PUT, and the driver has the
            verb ``Move``, such an upload goes to a key of its own first and is moved on its condition.
        forms: In which forms the store's servers may want a condition, ``form`` among them: after a refusal the others
            are tried. A store with one form is believed at once.
        form: How a write says its condition: the ``usual`` form of the dialect (S3: the ETag in quotes, as HTTP has
            it); ``bare``, without the quotes, as Ceph 16 wants it; ``none`` where the store refuses whatever has one
            (501), so that a look has to do. Learned.
        tags: An object keeps the ETag that its write was answered with. Learned.
        seeks: A listing can begin after any key. Where it cannot, ``start_after`` lists what comes before it, too, so
            the parts of a prefix are not listed concurrently.
        jumps: Beginning a listing after any key costs the store no more than any other page does, however many keys
            lie before it. Where it does not (a folder is read and sorted for it), keys of one folder are not divided.
        ranges: A span of an object can be had without the rest of it; None until the store has shown it. Learned: a
            driver whose store may answer with the whole object sets it, by each answer.
        forks: A forked process uses it as its parent does, and finds in it what the parent has written.

    """

    digest: Callable[[], Digest] | None = sha256
    put_digest: Callable[[], Digest] | None = None
    put: Conditions = _BOTH
    complete: Conditions = _BOTH
    forms: tuple[ConditionForm, ...] = ("usual",)
    form: ConditionForm = "usual"
    tags: bool = True
    seeks: bool = True
    jumps: bool = False
    ranges: bool | None = True
    forks: bool = True


@dataclass(frozen=True, slots=True)
class Attributes:
    """The properties of an object that is written, and the condition of the write.

    Attributes:
        content_type: ``Content-Type``.
        metadata: User metadata; names are case-insensitive.
        create_only: Refuse with ``AlreadyExists`` where there is an object already.
        replaces: Unless empty, refuse with ``PreconditionFailed`` where there is no object with this ETag.

    """

    content_type: str = "application/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    create_only: bool = False
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of an upload: its number, from 1, and where in the object it begins."""

    number: int
    offset: int


class Head(Protocol):
    """Describes objects. Keys are full keys within the bucket; a missing object is ``NotFound``."""

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one object."""


class Read(Protocol):
    """Reads objects. A missing one is ``NotFound``, another version than the one asked for ``Changed``."""

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read ``[span.start, span.stop)`` into a target of just that size; returns how many bytes of it are right.

        Fewer than asked means that the body ended early: ask for the rest.
        """

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        """Read a whole object whose size is not known; ``Unusable`` where it has more than ``most_bytes``.

        ``buffer``, of a size that is likely to do, saves time: the object is copied out of it. Where it is too small, a
        ``Beginning`` is returned. Without it the object's memory is needed twice for a moment, at the end.
        """


class Suffix(Protocol):
    """Reads the ends of objects. Where a store lacks it, a HEAD tells where an end begins (Azure has no such range)."""

    def suffix(self, key: str, etag: str, target: Buffer) -> Exchange[Ending | None]:
        """Read an object's last bytes, as many as the target holds; all of a shorter object.

        None: the answer does not show where they begin, and ``head`` has to (an empty object; a store that answers with
        the whole of a longer one). Errors are those of ``Read``.
        """


class List(Protocol):
    """Lists objects."""

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """One page (at most 1,000 keys), in UTF-8 byte order, of the keys that begin with ``prefix``.

        ``start_after`` is exclusive and is for the first page only; ``token`` continues an earlier page.
        """


class Put(Protocol):
    """Writes objects in one request: each replaces its predecessor, atomically."""

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write one object; returns its ETag."""


class PutMany(Protocol):
    """Writes several small objects together where that costs less: files, whose folders are flushed once for all."""

    def put_many(
        self, prefix: str, puts: Sequence[tuple[str, Payload, Attributes]]
    ) -> Exchange[Sequence[str | PenstockError]]:
        """Write objects whose keys begin with ``prefix``; returns for each its ETag, or why it was not written."""


class Delete(Protocol):
    """Deletes objects."""

    def delete(self, key: str) -> Exchange[None]:
        """Delete one object; a missing one is no error. No bulk form is universal, so many go in parallel."""


class Multipart(Protocol):
    """Uploads in parts, in this order: create once, part many (in any order), then complete or abort once."""

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Open an upload; returns its id. Its condition counts when it is completed."""

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        """Send one part; returns its ETag. Sending one again replaces it."""

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Make the object visible, on conditions as of a put; returns its ETag, which some stores leave empty."""

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Forget the upload and its parts; a missing one is no error."""

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """One page of the uploads to keys that begin with ``prefix`` and were neither completed nor aborted."""


class Copy(Protocol):
    """Copies objects within the bucket, server side. A source that is missing is ``NotFound``, by its own name."""

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy one object with its content type and metadata; returns the copy's ETag.

        Another version than ``etag`` is ``Changed``, where the store heeds that (Ceph 16 does not).
        """


class Move(Protocol):
    """Gives objects another key within the bucket, server side: for conditions that a completion cannot be held to."""

    def move(
        self, source: str, key: str, etag: str = "", *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Move the version ``etag`` of an object, with content type and metadata, on conditions as of a put.

        Returns its ETag there. ``key`` shows the old object or the whole new one at any moment. The source may stay:
        delete it afterwards.
        """


class PartCopy(Protocol):
    """Copies spans of objects as parts of an upload, server side."""

    def copy_part(self, key: str, upload: str, part: Part, span: Span) -> Exchange[str]:
        """Copy a span of another object as one part of an upload; returns the part's ETag.

        Another version than ``span.etag`` is ``Changed``, where the store heeds that: look at it again afterwards.
        """


class Presign(Protocol):
    """Signs addresses that work without credentials, for a time. No exchange: nothing is sent."""

    def presign(self, key: str, method: Literal["GET", "PUT"], expires_s: float | None, now: float) -> Presigned:
        """Return the address at which one object may be read or written for ``expires_s`` seconds from ``now`` on.

        None is an hour, or less where the credentials or the store allow less. ``Unusable`` where it is longer than
        they allow; ``Unsupported`` where such credentials sign no address.
        """


class Driver(Head, Read, Protocol):
    """A store: reading, which every store has, and what the store can do within its verbs.

    All other verbs are asked for by ``penstock.support.require``, which is an error where the driver lacks one.
    """

    abilities: Abilities

    def url(self, key: str) -> str:
        """Return the address of an object as a user writes it, for messages."""

    def prepare(self) -> None:
        """Do what may block before a batch of calls (refresh credentials); called on the caller's thread."""
