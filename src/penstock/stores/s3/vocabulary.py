"""Names of one dialect of the S3 family; the verbs are the same in all dialects (S3, OSS, GCS's XML)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.engine.contracts.credentials import BearerToken
from penstock.stores.http.verify import Verification
from penstock.stores.s3.checksums import digests
from penstock.stores.s3.codes import S3_CODES
from penstock.stores.s3.signing import EMPTY_SHA256, Scheme, Signer, amazon_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.contracts.credentials import Credentials
    from penstock.stores.http.answers import Codes
    from penstock.stores.s3.signing import Address

__all__ = ["AMAZON", "CLUSTER", "PLAIN", "Bucket", "Sign", "Vocabulary", "own_endpoint", "sign_as_payer"]

_PAYER_SCHEME = Scheme(headers={"x-amz-request-payer": "requester"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """Location of a bucket.

    Attributes:
        name: The bucket.
        endpoint: ``scheme://host[:port][/path]`` of the service; None for its own, which depends on the region.
        virtual: Address it as ``name.host/path`` and not as ``host/path/name``.
        scheme: Scheme of its objects' URLs, in messages.
        shown: Bucket in URLs, in messages, if that is more than its name.
        cluster: Hosts, domains and networks of the servers that the endpoint of a cluster may redirect to.
        cname: The endpoint's host is the bucket's own: the bucket's name is neither in the host nor in the path.

    """

    name: str
    endpoint: str | None
    virtual: bool
    scheme: str = "s3"
    cname: bool = False
    shown: str = ""
    cluster: tuple[str, ...] = ()

    @property
    def in_path(self) -> bool:
        """Whether the paths of its objects begin with the bucket's name."""
        return not (self.virtual or self.cname)


Lines = tuple[str, ...]


class Sign(Protocol):
    """Signer of one request."""

    def __call__(
        self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = ..., /
    ) -> tuple[str, ...]:
        """Return the header lines to send; see ``s3.signing.Signer.sign``."""


def sign_as_payer(bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
    """Return a signer for S3 that agrees to pay for the request (Requester Pays)."""
    del bucket
    return Signer(host, region, credentials, scheme=_PAYER_SCHEME).sign


def _sign_amazon(bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
    del bucket
    return Signer(host, region, credentials).sign


def _sign_cluster(bucket: Bucket, host: str, region: str, credentials: Callable[[], Any]) -> Sign:
    """Return a signer that signs for Amazon or sends a bearer token: AIStore verifies tokens, but no signature."""
    signed = _sign_amazon(bucket, host, region, credentials)

    def sign(method: str, path: str, query: str, headers: Mapping[str, str], digest: str = EMPTY_SHA256) -> Lines:
        held = credentials()
        if isinstance(held, BearerToken):
            return *[f"{name}: {value}" for name, value in headers.items()], f"Authorization: Bearer {held.token}"
        return signed(method, path, query, headers, digest)

    return sign


def _amazon_endpoint(region: str) -> str:
    return own_endpoint("https://s3.{region}.{domain}", region)


def own_endpoint(pattern: str, region: str) -> str:
    """Return AWS's own endpoint for a region, from a pattern such as ``https://s3.{region}.{domain}``."""
    return pattern.format(region=region, domain=_domain(region))


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Dialect of the family. The defaults are S3's.

    Attributes:
        prefix: Prefix of the dialect's own headers: ``x-amz-``, ``x-oss-``, ``x-goog-``.
        codes: Code table.
        verification: How answers show which bytes they bring, and which header holds a version.
        version_element: Element of a listing's entry that holds a version.
        escaped_token: A listing's continuation token is escaped if its keys are.
        signer: Makes the function that signs requests, from bucket, host, region and a source of credentials.
        presigner: Returns the query that authorises one address, signed with credentials.
        presigned_headers: Headers that a request to a URL signed for PUT must send.
        body_headers: Returns the headers for the digest (``Payload.digest``) of a PUT's or a part's body, which the
            store compares before it keeps the body; None if the signature holds the digest.
        stored_as: Returns False if the headers of an answer to a PUT or a part name another digest than was sent.
        endpoint: The service's own endpoint for a region.
        domain: Domain of all hosts of the service's own endpoint for a region: an answer (a named region, a redirect)
            may send requests to these hosts and to no other.
        cluster: The endpoint is a gateway, which redirects requests to servers of its cluster and sets their query.
        pin: Header that binds a read to a version.
        copy_pin: Header that binds a copy to a version of its source.
        copy_root: Prefix of the path of a copy's source, before the bucket.
        create: Header and value that make a write fail if there is an object already.
        replace: Header that binds a write to the version it replaces; empty if the dialect has none.
        quotes: Versions are in quotes in ``pin``, ``copy_pin`` and ``replace``, as ETags are.
        conditions_begin: An upload's conditions are sent at its begin as well as at its completion.
        read_headers: Headers of every read.
        whole_headers: Headers of reads of whole objects, which request the store's digest.

    """

    prefix: str = "x-amz-"
    codes: Codes = S3_CODES
    verification: Verification = field(default_factory=Verification)
    version_element: str = "ETag"
    escaped_token: bool = False
    signer: Callable[[Bucket, str, str, Callable[[], Any]], Sign] = _sign_amazon
    presigner: Callable[[Address, Any], str] = amazon_query
    presigned_headers: Mapping[str, str] = field(default_factory=dict)
    body_headers: Callable[[str], Mapping[str, str]] | None = None
    stored_as: Callable[[Mapping[str, str], str], bool] | None = None
    endpoint: Callable[[str], str] = _amazon_endpoint
    domain: Callable[[str], str] = _domain
    cluster: bool = False
    pin: str = "if-match"
    copy_pin: str = "x-amz-copy-source-if-match"
    copy_root: str = ""
    create: tuple[str, str] = ("if-none-match", "*")
    replace: str = "if-match"
    quotes: bool = True
    conditions_begin: bool = False
    read_headers: Mapping[str, str] = field(default_factory=dict)
    whole_headers: Mapping[str, str] = field(default_factory=dict)


AMAZON = Vocabulary(
    verification=Verification(digests=digests()),
    whole_headers={"x-amz-checksum-mode": "ENABLED"},
)

# Stores that refuse, or do not have, the headers for checksums.
PLAIN = Vocabulary()
# AIStore: its gateways redirect each request for an object to the server that has it.
CLUSTER = Vocabulary(cluster=True, signer=_sign_cluster)
