"""The verbs of a store's dialect, each a small protocol: a verb returns an exchange, and a driver sends nothing itself.

A driver has the verbs whose methods it implements (``penstock.engine.support``); every driver can read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from sys import maxsize
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.exchange import Exchange
    from penstock.errors import PenstockError
    from penstock.values import Checksum, ObjectMeta, Page, Presigned, Span, Uploads

# Largest read of an object of unknown size, unless another bound is given.
UNKNOWN_BYTES = 2 << 30
# Key prefix of objects that are uploaded and wait to be moved to their final keys.
STAGED = ".penstock-uploads/"
# Name prefix of files being written beside their final key; listings do not show them.
UNFINISHED = ".penstock-"
# Code of an error to retry at once, because the driver now knows a different way.
MOVED = "Moved"
# Code of an error of a store that answers a range with the whole object.
RANGE_IGNORED = "RangeIgnored"


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes to send and their digest, computed once for all attempts.

    Attributes:
        data: A buffer that must not change until it has been sent.
        digest: Digest of the data by the store's ``Abilities.digest``, in hexadecimal; empty if the store checks none.
        later: Other digests by name, requested by a store after the body was made.
    """

    data: bytes | bytearray | memoryview
    digest: str = ""
    later: dict[str, str] = field(default_factory=dict, compare=False, repr=False)


class Digest(Protocol):
    """An incremental digest, as in ``hashlib``."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far."""


class Beginning(NamedTuple):
    """The first bytes of an object that is larger than its buffer.

    Attributes:
        data: The bytes.
        size: Size of the whole object; 0 if the server does not report it.
        etag: Version of the bytes; empty if the store cannot be asked for a version.
    """

    data: bytes
    size: int
    etag: str


class Ending(NamedTuple):
    """The last bytes of an object, or as many of them as arrived.

    Attributes:
        start: Offset of the bytes in the object.
        size: Size of the whole object.
        etag: Version of the bytes; empty if the store cannot be asked for a version.
        received: Number of bytes in the target; fewer than ``size - start`` if the body broke off.
    """

    start: int
    size: int
    etag: str
    received: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that a store honours on one kind of write; without them a check before the write must suffice.

    Attributes:
        create: The store refuses the write if the object exists.
        replace: The store refuses the write unless the object has the version to be replaced.
    """

    create: bool = True
    replace: bool = True


_BOTH = Conditions()
ConditionForm = Literal["usual", "bare", "none"]


@dataclass(frozen=True, slots=True)
class Abilities:
    """Capabilities of a store; code tests these and never a provider's name.

    A provider declares them. ``form``, ``tags`` and ``ranges`` are assumptions until a store has answered; what its
    answers teach is set on the driver (``dataclasses.replace``).

    Attributes:
        digest: Begins the digest by which the store refuses a damaged body before publishing it; None if it checks
            none. The driver decides where a request carries it: S3's signature accepts SHA-256 only.
        put_digest: Begins the digest of a body that its PUT publishes, for stores where a part's digest is only
            compared with the answer. It is slower, and its hexadecimal form follows that of ``digest``. None if
            ``digest`` suffices.
        put: Conditions that a PUT honours.
        complete: Conditions that the completion of an upload honours. If they are fewer than a PUT's, and the driver
            has the verb ``Move``, a conditional upload goes to a separate key first and is moved on its condition.
        forms: Forms in which the store's servers may expect a condition, including ``form``: after a refusal the others
            are tried. A refusal by a store with one form is final.
        form: Form of a write's condition: the ``usual`` form of the dialect (S3: the ETag in quotes, as in HTTP);
            ``bare``, without the quotes, for Ceph 16; ``none`` if the store refuses every conditional write (501), so
            that a check before the write must suffice. Learned.
        tags: An object keeps the ETag that its write returned. Learned.
        seeks: A listing can begin after any key. Otherwise ``start_after`` also lists the keys before it, so the parts
            of a prefix are not listed concurrently.
        jumps: Beginning a listing after any key costs the store no more than any other page, however many keys precede
            it. Otherwise (a folder is read and sorted for it), keys of one folder are not divided.
        ranges: A span of an object can be read without the rest of it; None until the store has shown it. Learned: a
            driver whose store may answer with the whole object sets it from each answer.
        sums: The store reports checksums of whole objects, which the driver compares (``Summed``).
        untold_bytes: Most bytes to read of an object whose size no answer reports (``ReadOptions.unknown_bytes``).
        forks: A forked process can use the store like its parent, and finds there what the parent has written.
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
    sums: bool = False
    untold_bytes: int = 256 << 20
    forks: bool = True


@dataclass(frozen=True, slots=True)
class Attributes:
    """Properties of an object to be written, and the condition of the write.

    Attributes:
        content_type: ``Content-Type``.
        metadata: User metadata; names are case-insensitive.
        create_only: Refuse with ``AlreadyExists`` if the object exists.
        replaces: If not empty, refuse with ``PreconditionFailed`` unless the object has this ETag.
    """

    content_type: str = "application/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    create_only: bool = False
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part of an upload: its number, from 1, and its offset in the object."""

    number: int
    offset: int


class Head(Protocol):
    """The verb that describes objects. Keys are full keys within the bucket; a missing object raises ``NotFound``."""

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one object."""


class Read(Protocol):
    """The verb that reads objects. A missing object raises ``NotFound``, an unexpected version ``Changed``.

    The parser of a read that is pinned to no version sets ``Response.version``, if the answer names one.
    """

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read ``[span.start, span.stop)`` into a target of exactly that size; return the number of valid bytes.

        A smaller number means that the body ended early: request the rest.
        """

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        """Read a whole object of unknown size; ``Unusable`` if it has more than ``most_bytes``.

        If no answer reports the size, more than ``Abilities.untold_bytes`` are ``Damaged``. A ``buffer`` of a likely
        size saves time: the object is copied out of it. If the buffer is too small, a ``Beginning`` is returned.
        Without a buffer, the object's memory is needed twice for a moment, at the end; an object beyond
        ``untold_bytes`` whose size the answer reports gives a ``Beginning`` without bytes.
        """


class Suffix(Protocol):
    """The verb that reads the ends of objects. Without it (Azure has no such range), a HEAD finds an end's start."""

    def suffix(self, key: str, etag: str, target: Buffer) -> Exchange[Ending | None]:
        """Read an object's last bytes, as many as the target holds; all of a shorter object.

        Returns None if the answer does not show where they begin, so that ``head`` must (an empty object; a store that
        answers with the whole of a longer one). Errors are those of ``Read``.
        """


class Summed(Protocol):
    """The verb that reports checksums of whole objects, for stores whose ``Abilities.sums`` is true."""

    def head(self, key: str, *, sums: bool = False) -> Exchange[ObjectMeta]:
        """Describe one object; with ``sums`` request its checksum, which on S3 may need permission to decrypt it."""

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        """Return the checksum of the whole object from the headers of a read's response, if present."""


class Metered(Protocol):
    """The verb of stores that count requests in quotas, and state in their answers how much of each is left.

    ``rates``: requests per second that answers have allowed, by quota, since the last look, which clears them.
    """

    rates: dict[str, float]

    def quota(self, verb: str, key: str) -> str:
        """Return the name of the quota that the next request of a verb for ``key`` counts in. No exchange."""


class List(Protocol):
    """The verb that lists objects."""

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page (at most 1,000 keys), in UTF-8 byte order, of the keys that begin with ``prefix``.

        ``start_after`` is exclusive and for the first page only; ``token`` continues an earlier page.
        """


class Versions(Protocol):
    """The verbs of buckets that keep versions of objects.

    The etag of such a version holds its ETag and its id (``values.VERSION``). All reads of a driver with these verbs
    take it: they read that version also after the object was replaced or deleted, and still compare the ETag.
    """

    def versioning(self, prefix: str) -> Exchange[bool]:
        """Return whether a write now keeps the version that it replaces; ``prefix`` is for messages."""

    def list_versions(
        self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = ""
    ) -> Exchange[Page]:
        """List as ``List.list`` does, with etags that hold version ids; deleted objects are left out."""

    def head_version(self, key: str, etag: str = "", *, sums: bool = False) -> Exchange[ObjectMeta]:
        """Describe a version; its etag is ``etag`` only if the ETags are equal.

        With an empty ``etag`` describe the latest one, with an etag that holds its id.
        """


class Put(Protocol):
    """The verb that writes an object in one request, replacing its predecessor atomically."""

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write one object; return its ETag."""


class PutMany(Protocol):
    """The verb that writes several small objects together, where that is cheaper: files share one flush of folders."""

    def put_many(
        self, prefix: str, puts: Sequence[tuple[str, Payload, Attributes]]
    ) -> Exchange[Sequence[str | PenstockError]]:
        """Write objects whose keys begin with ``prefix``; return the ETag or the error of each."""


class Delete(Protocol):
    """The verb that deletes objects."""

    def delete(self, key: str) -> Exchange[None]:
        """Delete one object; a missing one is not an error. No bulk form is universal, so many run in parallel."""


class Buckets(Protocol):
    """The verbs that create and delete the bucket itself."""

    def make_bucket(self) -> Exchange[None]:
        """Create the bucket. Whether an existing one is an error depends on the store: look first."""

    def remove_bucket(self) -> Exchange[None]:
        """Delete the bucket. Azure deletes its objects, too: look first."""


class Multipart(Protocol):
    """The verb that uploads in parts: create once, part many (in any order), then complete or abort once."""

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Open an upload; return its id. Its condition counts when it is completed."""

    def part(self, key: str, upload: str, part: UploadPart, body: Payload) -> Exchange[str]:
        """Send one part; return its ETag. Sending a part again replaces it."""

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Make the object visible, on the conditions of a put; return its ETag, which some stores leave empty."""

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Discard the upload and its parts; a missing upload is not an error."""

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List one page of the uploads to keys that begin with ``prefix``, neither completed nor aborted."""


class Copy(Protocol):
    """The verb that copies objects within the bucket, server side. A missing source raises ``NotFound``, naming it."""

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy one object with its content type and metadata; return the copy's ETag.

        A version different from ``etag`` raises ``Changed``, if the store checks it (Ceph 16 does not).
        """


class Move(Protocol):
    """The verb that moves objects within the bucket, server side: for conditions that completion does not honour."""

    def move(
        self, source: str, key: str, etag: str = "", *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Move the version ``etag`` of an object, with content type and metadata, on conditions like those of a put.

        Returns its ETag there. ``key`` shows the old object or the whole new one at any moment. The source may stay:
        delete it afterwards.
        """


class PartCopy(Protocol):
    """The verb that copies spans of objects as parts of an upload, server side."""

    def copy_part(self, key: str, upload: str, part: UploadPart, span: Span) -> Exchange[str]:
        """Copy a span of another object as one part of an upload; return the part's ETag.

        A version different from ``span.etag`` raises ``Changed``, if the store checks it: check the version again
        afterwards.
        """


class Presign(Protocol):
    """The verb that signs URLs which work without credentials for a limited time. No exchange: nothing is sent."""

    def presign(self, key: str, method: Literal["GET", "PUT"], expires_s: float | None, now: float) -> Presigned:
        """Return a URL at which one object may be read or written for ``expires_s`` seconds from ``now`` on.

        None means one hour, or less if the credentials or the store allow less. ``Unusable`` if it is longer than they
        allow; ``Unsupported`` if such credentials cannot sign a URL.
        """


class Driver(Head, Read, Protocol):
    """A store's driver: reading, which every store has, the store's abilities, and the verbs that it implements.

    Request any other verb with ``penstock.engine.support.require``, which raises an error if the driver lacks it.
    """

    abilities: Abilities

    def url(self, key: str) -> str:
        """Return the URL of an object as a user writes it, for messages."""

    def prepare(self) -> None:
        """Do blocking work before a batch of calls (refresh credentials); called on the caller's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one store. By default only pages and copied parts are limited.

    Attributes:
        least_part_bytes: Least size of every part of an upload but the last.
        most_part_bytes: Largest part.
        most_parts: Most parts of one upload.
        equal_parts: All parts of an upload but the last must have the same size (R2).
        put_bytes: Largest object that one PUT writes.
        copy_bytes: Largest object that one ``copy`` may copy; a larger one is copied in parts.
        copy_part_bytes: Size of the span that one ``copy_part`` copies.
        page_keys: Most keys of one page of a listing; a driver requests this many.
        key_bytes: Longest key, in bytes of UTF-8.
        metadata_bytes: Most bytes of user metadata, names and values together.
    """

    least_part_bytes: int = 1
    most_part_bytes: int = maxsize
    most_parts: int = maxsize
    equal_parts: bool = False
    put_bytes: int = maxsize
    copy_bytes: int = maxsize
    copy_part_bytes: int = 128 << 20
    page_keys: int = 1000
    key_bytes: int = maxsize
    metadata_bytes: int = maxsize
