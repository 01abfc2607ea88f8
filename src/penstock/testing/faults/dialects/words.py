"""What one dialect of S3's family calls things, on the server's side; written without the driver's vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.testing.faults.message import Answer, Refused, Request
from penstock.testing.faults.shelf import Bucket, Stored

if TYPE_CHECKING:
    from penstock.options import StoreOptions
    from penstock.testing.faults.kinds import Fault
    from penstock.testing.faults.settings import Settings

__all__ = ["Access", "Shelves", "Verb", "Words"]


class Shelves(Protocol):
    """What a verb may ask of the server, besides its bucket."""

    @property
    def words(self) -> Words:
        """The dialect that is spoken."""

    @property
    def access(self) -> Access:
        """Who may come in."""

    def bucket(self, name: str) -> Bucket:
        """Return a bucket."""

    def kept(self, request: Request) -> dict[str, str]:
        """Return the headers of a request that an object keeps."""

    def origin(self, request: Request) -> Stored:
        """Return what is copied."""


Verb = Callable[[Shelves, Bucket, Request], Answer]


@dataclass(slots=True)
class Access:
    """Who may come in.

    Attributes:
        keys: Secrets by key id.
        regions: What requests may be signed for; a service without regions ignores them.
        tokens: Of bearers, where the dialect has them, and of temporary keys.

    """

    keys: Mapping[str, str]
    regions: frozenset[str]
    tokens: frozenset[str] = frozenset()


def _as_it_came(_request: Request) -> None:
    """Leave bucket and key as they were read from a path, ``/bucket/key``."""


def _etag(found: Stored) -> str:
    return found.etag


def _in_xml(error: Refused, _request: Request) -> Answer:
    return error.answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One dialect. Functions that refuse raise ``Refused``.

    Attributes:
        scheme: Of its URLs in Penstock.
        prefix: What its own headers begin with.
        version: The header that names an object's version.
        check: Refuses a request that is not signed by someone who may come in (at a time, in seconds since the epoch),
            or whose body is another than the digests that came with it say.
        locate: Reads bucket, key and verb where they do not stand in the path alone, and sets them on the request.
        hold: Refuses a write (any verb that has a condition) whose conditions do not hold; ``Settings.conditions``
            comes last.
        pin: Refuses to read another version of an object than is asked for.
        pin_source: The same for the source of a copy.
        described: The headers of an answer that brings an object, or a part of it: version, digests.
        digests: Further headers of an answer that brings a whole object.
        written: The headers of an answer to a write.
        listed: The elements of an entry of a listing, after its key and date.
        refused: Words a refusal.
        named: Returns an object's version as Penstock names it.
        missing_deleted: Deleting what is not there is a success.
        verbs: Verbs that S3 lacks, or that are not carried out as on S3.
        faults: Faults of ``kinds.FAULTS`` that look otherwise here, by name; one without verbs cannot happen.
        store: The options that reach a server at an endpoint.
        environment: The environment variables that do.

    """

    scheme: str
    prefix: str
    version: str
    check: Callable[[Request, Access, float], None]
    locate: Callable[[Request], None] = _as_it_came
    hold: Callable[[Bucket, Request, str], None]
    pin: Callable[[Stored, Request], None]
    pin_source: Callable[[Stored, Request], None]
    described: Callable[[Stored], dict[str, str]]
    digests: Callable[[Stored, Request], dict[str, str]]
    written: Callable[[Stored], dict[str, str]]
    listed: Callable[[Stored], dict[str, str]]
    refused: Callable[[Refused, Request], Answer] = _in_xml
    named: Callable[[Stored], str] = _etag
    missing_deleted: bool = True
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    store: Callable[[Settings, str], StoreOptions]
    environment: Callable[[Settings, str], dict[str, str]]
