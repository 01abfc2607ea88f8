"""Names, headers and checks of one S3-like dialect, on the server's side; independent of the driver's vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.testing.faults.message import Answer, Refused, Request
from penstock.testing.faults.shelf import Bucket, Stored

if TYPE_CHECKING:
    from penstock.options import StoreOptions
    from penstock.testing.faults.kinds import Fault
    from penstock.testing.faults.script import Settings

__all__ = ["Access", "Shelves", "Verb", "Words"]


class Shelves(Protocol):
    """The parts of the server that a verb may use, besides its bucket."""

    @property
    def words(self) -> Words:
        """The dialect in use."""

    @property
    def access(self) -> Access:
        """The accepted keys, regions and tokens."""

    def bucket(self, name: str) -> Bucket:
        """Return a bucket."""

    def kept(self, request: Request) -> dict[str, str]:
        """Return the headers of a request that its object keeps."""

    def origin(self, request: Request) -> Stored:
        """Return the source of a copy."""


Verb = Callable[[Shelves, Bucket, Request], Answer]


@dataclass(slots=True)
class Access:
    """The accepted keys, regions and tokens.

    Attributes:
        keys: Secrets by key id.
        regions: Regions that requests may be signed for; a service without regions ignores them.
        tokens: Tokens of bearers, if the dialect has them, and of temporary keys.

    """

    keys: Mapping[str, str]
    regions: frozenset[str]
    tokens: frozenset[str] = frozenset()


def _as_it_came(_request: Request) -> None:
    """Keep bucket and key as they were parsed from a path, ``/bucket/key``."""


def _etag(found: Stored) -> str:
    return found.etag


def _in_xml(error: Refused, _request: Request) -> Answer:
    return error.answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The definition of a dialect. Functions that refuse raise ``Refused``.

    Attributes:
        scheme: Scheme of its URLs in Penstock.
        prefix: Prefix of the headers that the dialect adds to HTTP's.
        version: The header that names an object's version.
        check: Refuses a request that is not signed with accepted credentials (at a time, in seconds since the epoch),
            or whose body does not match the digests that came with it.
        locate: Reads bucket, key and verb if they are not in the path alone, and sets them on the request.
        hold: Refuses a write (any verb that has a condition) whose conditions do not hold; the last argument is
            ``Settings.conditions``.
        pin: Refuses to read a version of an object different from the requested one.
        pin_source: The same for the source of a copy.
        described: The headers of an answer with an object, or a part of it: version, digests.
        digests: Further headers of an answer with a whole object.
        written: The headers of an answer to a write.
        listed: The elements of an entry of a listing, after its key and date.
        refused: Returns the answer for a refusal.
        named: Returns an object's version as Penstock names it.
        missing_deleted: Deleting a missing object is a success.
        verbs: Verbs that S3 lacks, or that differ from S3's.
        faults: Faults of ``kinds.FAULTS`` that differ here, by name; a fault without verbs cannot happen.
        store: Returns the options that connect to a server at an endpoint.
        environment: Returns the environment variables that connect to it.

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
