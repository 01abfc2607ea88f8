"""URLs with their signature in the query: version 4 of AWS and, under other names, of Google."""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import Unsupported
from penstock.stores.http.escape import query_string
from penstock.stores.s3.signing import AMAZON_SCHEME, UNSIGNED, Scheme, day_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.contracts.credentials import Credentials

__all__ = ["Address", "amazon_query", "keyed_query", "signed_query"]


class Address(NamedTuple):
    """Request that a presigned URL is for.

    Attributes:
        bucket: Name of the bucket.
        key: Key as sent, escaped: the end of ``path``.
        host: Host, with its port unless that is the URL scheme's default.
        region: Region of the signature.
        method: HTTP method.
        path: Path as sent.
        expires_s: Lifetime in seconds.
        now: Start of the lifetime, in seconds since the epoch.

    """

    bucket: str
    key: str
    host: str
    region: str
    method: str
    path: str
    expires_s: int
    now: float

    @property
    def stamp(self) -> str:
        """Time of the signature, in the format of version 4 signatures."""
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(self.now)))


def signed_query(
    address: Address,
    scheme: Scheme,
    algorithm: str,
    fields: Mapping[str, str],
    sign: Callable[[str], str],
) -> str:
    """Return the query that authorises ``address``: its fields, and the signature of all of it by ``sign``.

    ``fields`` holds the fields that depend on the signer: capitalised names without their prefix, other names as they
    are. Sources: "Authenticating Requests: Using Query Parameters" of Amazon's reference, "Canonical requests" and
    "Signatures" of Google's.
    """
    prefix = scheme.prefix.title()
    scope = f"{address.stamp[:8]}/{address.region}/{scheme.service}/{scheme.name.lower()}_request"
    own = {
        "Algorithm": algorithm,
        "Date": address.stamp,
        "Expires": str(address.expires_s),
        "SignedHeaders": "host",
        **fields,
        "Credential": f"{fields['Credential']}/{scope}",
    }
    query = query_string({name if name[:1].islower() else f"{prefix}{name}": value for name, value in own.items()})
    canonical = f"{address.method}\n{address.path}\n{query}\nhost:{address.host}\n\nhost\n{UNSIGNED}"
    digest = sha256(canonical.encode("latin-1")).hexdigest()
    signature = sign(f"{algorithm}\n{address.stamp}\n{scope}\n{digest}")
    return f"{query}&{prefix}Signature={quote(signature, safe='')}"


def keyed_query(
    address: Address, credentials: Credentials, scheme: Scheme, fields: Mapping[str, str] | None = None
) -> str:
    """Return the query signed with a pair of keys; ``fields`` are added to it."""
    key = day_key(scheme, credentials.secret_key, address.stamp[:8], address.region)
    own = {"Credential": credentials.access_key, **(fields or {})}
    if credentials.token:
        own["Security-Token"] = credentials.token
    algorithm = f"{scheme.name}-HMAC-SHA256"
    return signed_query(address, scheme, algorithm, own, lambda text: hmac.digest(key, text.encode(), "sha256").hex())


def amazon_query(address: Address, credentials: Any) -> str:  # noqa: ANN401  keys, or the token of a cluster
    """Return the query of S3 itself; raise ``Unsupported`` for a bearer token, which cannot sign."""
    if isinstance(credentials, BearerToken):
        raise Unsupported("a bearer token signs no address: use an access key and its secret")
    return keyed_query(address, credentials, AMAZON_SCHEME)
