"""What one dialect of S3's family calls things; the verbs are the same in all of them (S3, OSS, GCS's XML)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.drivers.http.verify import Verification
from penstock.drivers.s3.checksums import digests
from penstock.drivers.s3.codes import S3_CODES
from penstock.drivers.s3.presigning import amazon_query
from penstock.drivers.s3.signing import EMPTY_SHA256, Scheme, Signer
from penstock.protocols.credentials import BearerToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.drivers.http.codes import Codes
    from penstock.drivers.s3.presigning import Address
    from penstock.protocols.credentials import Credentials

__all__ = ["AMAZON", "CLUSTER", "PLAIN", "Bucket", "Sign", "Vocabulary", "own_endpoint", "sign_as_payer"]

_PAYER_SCHEME = Scheme(headers={"x-amz-request-payer": "requester"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a bucket is.

    Attributes:
        name: The bucket.
        endpoint: ``scheme://host[:port][/path]`` of the service; None for its own, which depends on the region.
        virtual: Address it as ``name.host/path`` and not as ``host/path/name``.
        scheme: Of its objects' URLs, in messages.
        shown: What stands for it in URLs, in messages, where that is more than its name.
        cluster: Hosts, domains and networks of the servers that the endpoint may redirect to, where it is a cluster's.
        cname: The endpoint's host is the bucket's own: its name stands neither in the host nor in the path.

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
        """Whether the paths of its objects begin with its name."""
        return not (self.virtual or self.cname)


Lines = tuple[str, ...]


class Sign(Protocol):
    """Signs one request."""

    def __call__(
        self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = ..., /
    ) -> tuple[str, ...]:
        """Return the header lines to send; see ``drivers.s3.signing.Signer.sign``."""


def sign_as_payer(bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
    """Sign for S3, and agree to pay for the request (Requester Pays)."""
    del bucket
    return Signer(host, region, credentials, scheme=_PAYER_SCHEME).sign


def _sign_amazon(bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
    del bucket
    return Signer(host, region, credentials).sign


def _sign_cluster(bucket: Bucket, host: str, region: str, credentials: Callable[[], Any]) -> Sign:
    """Sign as Amazon wants it, or say a bearer token: AIStore verifies tokens, and no signature."""
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
    """Return AWS's own endpoint for a region, of a form such as ``https://s3.{region}.{domain}``."""
    return pattern.format(region=region, domain=_domain(region))


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """One dialect of the family. The values are S3's unless another is given.

    Attributes:
        prefix: What the dialect's own headers begin with: ``x-amz-``, ``x-oss-``, ``x-goog-``.
        codes: Its code table.
        verification: How its answers show which bytes they bring, and which header holds a version.
        version_element: The element of a listing's entry that holds a version.
        escaped_token: A listing's continuation token is escaped where its keys are.
        signer: Makes the function that signs requests, from bucket, host, region and a source of credentials.
        presigner: Returns the query that authorises one address, signed with credentials.
        presigned_headers: What a request to an address that is signed for PUT has to send.
        body_headers: Returns the headers that the digest (``Payload.digest``) of a PUT's or a part's body is sent in,
            for the store to compare before it keeps the body; None where the signature holds it.
        stored_as: Says whether the headers of an answer to a PUT or a part name the digest that was sent, or none.
        endpoint: The service's own endpoint for a region.
        domain: The domain that all hosts of the service's own endpoint for a region lie in: requests follow an answer
            (a named region, a redirect) to these and to no other host.
        cluster: The endpoint is a gateway, which redirects requests to servers of its cluster, with a query of its own.
        pin: The header that holds a read to a version.
        copy_pin: The header that holds a copy to a version of its source.
        copy_root: What the path of a copy's source begins with, before the bucket.
        create: The header, and its value, that has a write refused where there is an object already.
        replace: The header that holds a write to the version it replaces; empty where the dialect has none.
        quotes: Versions stand in quotes in ``pin``, ``copy_pin`` and ``replace``, as ETags do.
        conditions_begin: An upload's conditions are sent where it begins as well as where it is completed.
        read_headers: Headers of every read.
        whole_headers: Headers of reads of whole objects, which ask for the store's digest.

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

# Stores that refuse, or do not have, the headers of checksums.
PLAIN = Vocabulary()
# AIStore: its gateways redirect each request for an object to the server that has it.
CLUSTER = Vocabulary(cluster=True, signer=_sign_cluster)
