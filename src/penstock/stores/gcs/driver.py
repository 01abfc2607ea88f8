"""Verbs and dialect of Google Cloud Storage: S3's, a conditional move, and listings that hide staged objects.

Requests are signed by an HMAC key or carry a bearer token. The service returns a CRC-32C for every object in
``x-goog-hash``, and checks one for every body.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import md5
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.engine.contracts.driver import STAGED, Abilities, Conditions
from penstock.engine.contracts.exchange import Exchange, Request
from penstock.errors import (
    Bug,
    ChecksumMismatch,
    ConfigError,
    Forbidden,
    InvalidURL,
    NoSpace,
    Throttled,
    Transient,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.stores.gcs.options import KEYS, WHERE
from penstock.stores.http.answers import STATUSES, Codes, Meaning
from penstock.stores.http.verify import Crc, RunningCrc, RunningHash, Verification, from_base64
from penstock.stores.s3.dialect import SHARED_CODES, Dialect
from penstock.stores.s3.driver import S3Driver
from penstock.stores.s3.signing import EMPTY_SHA256, S3Signer, Scheme, keyed_query, signed_query
from penstock.values import VERSION, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.contracts.credentials import Identity, Renewable
    from penstock.engine.contracts.exchange import Response
    from penstock.stores.s3.dialect import BucketAddress, Sign
    from penstock.stores.s3.signing import Address
    from penstock.values import Running

# crc32c=BASE64,md5=BASE64 in one line or in several, in either order.
HEADER = "x-goog-hash"


@cache
def library() -> Callable[..., int]:
    """Return the function for CRC-32C from bytes and an initial value: 33 GB/s on one core, no GIL (100 KiB)."""
    from fastcrc.crc32 import iscsi

    compute: Callable[..., int] = iscsi
    return compute


class Crc32c(Crc):
    """Running CRC-32C: the digest of a body."""

    __slots__ = ()

    digits = 8
    library = staticmethod(library)


def stored_sum(stored: str) -> Running | None:
    """Begin the comparison of bytes with the service's checksum of a whole object.

    The service sends a line for each checksum. If the transport kept only the line with the MD5, that is compared.
    """
    named = dict(each.strip().partition("=")[::2] for each in stored.split(","))
    if crc := named.get("crc32c"):
        return RunningCrc(library(), from_base64(crc))
    if whole := named.get("md5"):
        return RunningHash(md5(usedforsecurity=False), whole)
    return None


ABILITIES = Abilities(digest=Crc32c, complete=Conditions(create=False, replace=False), jumps=True, sums=True)
# As in a listing, escaped or not: ".", "/" and "-" are never escaped.
_NAMED = STAGED.encode()
# First characters of tokens for the second and the third part of ``uploads``; no key begins with them.
_PARTS, _OBJECTS = "\1", "\2"


class GCSDriver(S3Driver):
    """Bucket of Google Cloud Storage.

    Versions are generations. A multipart upload takes no condition: a conditional write goes to a key below ``STAGED``
    first (``fetch/writing/staging``), which listings hide and ``uploads`` shows.
    """

    abilities = ABILITIES
    copy_part = None  # type: ignore[assignment]  # the XML API cannot copy parts; a copy of any size is one request

    def __init__(self, bucket: BucketAddress, identity: Identity[Any], dialect: Google, payer: str = "") -> None:
        """Address ``bucket`` as ``identity``; ``payer`` is the project that pays, unless it is empty."""
        super().__init__(bucket, REGION, identity, dialect)
        self._payer = payer
        self._renames = True

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        found = super().list(prefix, token=token, start_after=start_after, delimiter=delimiter)

        def parse(response: Response) -> Page:
            page = found.parse(response)
            if not isinstance(response.body, bytes) or _NAMED not in response.body:  # nearly always
                return page
            entries = tuple(each for each in page.entries if not _waits(each.key))
            return Page(entries, tuple(each for each in page.prefixes if not _waits(each)), page.token)

        return Exchange(found.request, parse)

    def list_versions(
        self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = ""
    ) -> Exchange[Page]:
        found = self.list(prefix, token=token, start_after=start_after, delimiter=delimiter)

        def parse(response: Response) -> Page:
            page = found.parse(response)
            entries = tuple(replace(each, etag=f"{each.etag}{VERSION}{each.etag}") for each in page.entries)
            return replace(page, entries=entries)

        return Exchange(found.request, parse)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List a page of unfinished uploads: multipart at their keys, multipart below ``STAGED``, staged whole objects.

        To abort an upload below ``STAGED``, its original key is needed: the id includes that key.
        """
        if token.startswith(_OBJECTS):
            return self._staged_objects(prefix, token.removeprefix(_OBJECTS))
        staged = token.startswith(_PARTS)
        found = super().uploads(_beside(prefix) if staged else prefix, token=token.removeprefix(_PARTS))

        def parse(response: Response) -> Uploads:
            page = found.parse(response)
            entries = tuple(each for each in page.entries if each.key.startswith(STAGED) is staged)
            if staged:
                aimed = tuple(_parse_staged_key(each.key, each.id, each.begun) for each in entries)
                return Uploads(aimed, f"{_PARTS}{page.token}" if page.token else _OBJECTS)
            return Uploads(entries, page.token or _PARTS)

        return Exchange(found.request, parse)

    def _staged_objects(self, prefix: str, token: str) -> Exchange[Uploads]:
        found = super().list(_beside(prefix), token=token)

        def parse(response: Response) -> Uploads:
            page = found.parse(response)
            entries = tuple(_parse_staged_key(each.key, "", each.modified) for each in page.entries)
            return Uploads(entries, f"{_OBJECTS}{page.token}" if page.token else "")

        return Exchange(found.request, parse)

    def abort(self, key: str, upload: str) -> Exchange[None]:
        if not upload.startswith(STAGED):
            return super().abort(key, upload)
        staged, _, parts = upload.partition("\0")
        return super().abort(staged, parts) if parts else self.delete(staged)

    def move(
        self, source: str, key: str, etag: str = "", *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Move an object on a condition: with the JSON API for a token, otherwise as a copy.

        If a bucket or a role does not allow the move, a copy is used from then on.
        """
        action = "replace" if replaces else "write"
        if self._renames and isinstance(self.identity.current(), BearerToken):
            return self._rename(source, key, etag, "0" if create_only else replaces, action)
        headers = self._copy_source(source, etag) | self._conditions(create_only=create_only, replaces=replaces)
        return Exchange(self._request("PUT", key, headers=headers), self._versioned(action, key, "CopyObjectResult"))

    def _lasting(self, credentials: Renewable) -> Renewable:
        """Return non-expiring credentials for a token: only its account's private key can sign URLs."""
        return Credentials("", "") if isinstance(credentials, BearerToken) else credentials

    def _rename(self, source: str, key: str, etag: str, old: str, action: str) -> Exchange[str]:
        bucket, there, here = (quote(each, safe="") for each in (self._bucket, source, key))
        path = f"/storage/v1/b/{bucket}/o/{there}/moveTo/o/{here}"
        asked = {"ifGenerationMatch": old, "ifSourceGenerationMatch": etag, "userProject": self._payer}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
        parts = urlsplit(self._route.origin)
        origin, sign = f"{parts.scheme}://{parts.netloc}", self._route.sign
        lines = (*sign("POST", path, query, {}), "Content-Type:", "Expect:")

        def parse(response: Response) -> str:
            try:
                self._answers.headers(response, action, key)
            except (Forbidden, Unusable) as error:
                self._renames, error.retries = False, 1
                raise
            return _generation(response)

        return Exchange(Request("POST", f"{origin}{path}?{query}" if query else origin + path, lines), parse)


def _waits(key: str) -> bool:
    """Return whether an object is staged, in the whole bucket or in a profile's part of it."""
    return key.startswith(STAGED) or f"/{STAGED}" in key


def _beside(prefix: str) -> str:
    """Return the prefix of staged objects for keys that begin with ``prefix``."""
    return f"{STAGED}{quote(prefix, safe='')}"


def _parse_staged_key(staged: str, parts: str, begun: float | None) -> Upload:
    """Return the staged object or (with ``parts``) upload at the key ``staged``, under its final key."""
    key, dot, _ = staged.removeprefix(STAGED).rpartition(".")
    return Upload(unquote(key) if dot else staged, f"{staged}\0{parts}" if parts else staged, begun)


def _generation(response: Response) -> str:
    try:
        found = json.loads(response.body if isinstance(response.body, bytes) else b"")
    except (ValueError, RecursionError):
        return ""
    generation = found.get("generation", "") if isinstance(found, dict) else ""
    return generation if isinstance(generation, str) else ""


REGION = "auto"  # for signatures: the service ignores the region
_HOST = "storage.googleapis.com"
_IF = "x-goog-if-generation-match"


_WAYS = "credentials_file= or GOOGLE_APPLICATION_CREDENTIALS, token=, `gcloud auth application-default login`"
_LOGIN = f"; check the credentials ({_WAYS})"
_EXPIRED = f"; the token has expired, or is no longer valid: renew it ({_WAYS})"
_NOBODY = f"{_LOGIN}; anonymous=True (--anonymous) reads public data"
_KEYS = f"; check the HMAC key: access_key= and secret_key=, or {' and '.join(KEYS)}"
_PAYER = "; the bucket has Requester Pays: pass GCSOptions(user_project=…) with a project that you may bill"
_HELD = "; the object is held or retained: a new one may be written, this one may not be replaced or deleted"
_DAMAGED = "; the body was damaged on its way and was not stored"
_NOT_OFFERED = "; the store does not offer this"

# "HTTP status and error codes for XML" of Google's documentation.
_CODES: Mapping[str, Meaning] = {
    **SHARED_CODES,
    "AccessDenied": Meaning(Forbidden, "; these credentials may not do this here"),
    "AuthenticationRequired": Meaning(Unauthenticated, _NOBODY, renews=True),
    **dict.fromkeys(("AuthorizationHeaderMalformed", "InvalidAccessKeyId"), Meaning(Unauthenticated, _KEYS)),
    **dict.fromkeys(("InvalidSecurity", "MalformedSecurityHeader"), Meaning(Unauthenticated, _KEYS)),
    **dict.fromkeys(("MissingSecurityHeader", "SignatureDoesNotMatch"), Meaning(Unauthenticated, _KEYS)),
    "CrcMismatch": Meaning(ChecksumMismatch, _DAMAGED),
    "ExcessHeaderValues": Meaning(Bug),
    "ExpiredToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "InsufficientQuota": Meaning(NoSpace, "; the quota is used up"),
    "InvalidAuthentication": Meaning(Unauthenticated, _LOGIN, renews=True),
    "InvalidToken": Meaning(Unauthenticated, _EXPIRED, renews=True),
    "KeyTooLong": Meaning(InvalidURL, "; keys are at most 1,024 bytes of UTF-8"),
    "MetadataTooLarge": Meaning(Unusable, "; more metadata than the store takes"),
    "ObjectUnderActiveHold": Meaning(Forbidden, _HELD),
    "RetentionPolicyNotMet": Meaning(Forbidden, _HELD),
    "UserProjectAccessDenied": Meaning(Forbidden, "; these credentials may not bill the project of user_project="),
    "UserProjectAccountProblem": Meaning(Forbidden, "; the project of user_project= has no active billing"),
    "UserProjectInconsistent": Meaning(ConfigError, "; user_project= names another project than the credentials do"),
    "UserProjectInvalid": Meaning(ConfigError, "; user_project= must be an existing project"),
    "UserProjectMissing": Meaning(ConfigError, _PAYER),
    "UserRateLimitExceeded": Meaning(Throttled),
}

# HEAD and the JSON API answer without a code: a status alone may mean an expired token.
_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, _LOGIN, renews=True),
    410: Meaning(Transient),  # for an upload that the service lost: documentation, "Retry strategy"
}

GOOGLE_CODES = Codes(service="Google Cloud Storage", codes=_CODES, statuses=_STATUSES, where=WHERE)


_PROJECT = "x-goog-user-project"  # the header names the project that pays
_SCHEME = Scheme(name="GOOG4", service="storage", prefix="x-goog-")


@dataclass(frozen=True, slots=True)
class ServiceToken(BearerToken):
    """Token of a service account whose private key is local: its email address, and RSA-SHA256 by that key."""

    account: str = ""
    sign: Callable[[bytes], bytes] | None = field(default=None, compare=False)


class Bearer:
    """Signer that puts the current access token into each request."""

    def __init__(self, credentials: Callable[[], BearerToken | None], headers: Mapping[str, str]) -> None:
        self._credentials = credentials
        self._headers = tuple(f"{name}: {value}" for name, value in headers.items())
        self._token: BearerToken | None = None
        self._proof: tuple[str, ...] = ()

    def sign(
        self, method: str, path: str, query: str, headers: Mapping[str, str], digest: str = EMPTY_SHA256
    ) -> tuple[str, ...]:
        del method, path, query, digest
        token = self._credentials()
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if token is None:
            return tuple(lines)
        if token is not self._token:
            self._proof = (f"Authorization: Bearer {token.token}", *self._headers)
            self._token = token
        return *self._proof, *lines


class Google(Dialect):
    """Google's dialect, for HMAC keys or for bearer tokens."""

    prefix = "x-goog-"
    codes = GOOGLE_CODES
    # Version: the generation, because conditions do not take the ETags in XML. Size: the stored one, because
    # Content-Length is missing if the service decompresses.
    verification = Verification(
        version="x-goog-generation", size="x-goog-stored-content-length", digests={HEADER: stored_sum}
    )
    version_element = "Generation"
    pin = _IF
    copy_pin = "x-goog-copy-source-if-generation-match"
    version_field = "generation"
    version_header = "x-goog-generation"
    create = (_IF, "0")
    replace = _IF
    quotes = False
    # Otherwise objects stored as gzip are sent decompressed, whole, and without a length.
    read_headers: Mapping[str, str] = {"accept-encoding": "gzip"}

    def __init__(self, *, keys: bool, user_project: str = "") -> None:
        """Sign with HMAC ``keys``, or send bearer tokens; ``user_project`` pays, unless it is empty."""
        super().__init__(own=f"https://{_HOST}")
        self._keys = keys
        self._project = user_project
        self._headers = {_PROJECT: user_project} if user_project else {}

    def signer(self, bucket: BucketAddress, host: str, region: str, credentials: Callable[[], Any]) -> Sign:  # noqa: ARG002
        if not self._keys:
            return Bearer(credentials, self._headers).sign
        scheme = replace(
            _SCHEME,
            headers=self._headers,
            # Google's front end rewrites this header before it checks the signature.
            unsigned=frozenset({"accept-encoding"}),
            # x-goog-hash, which is signed, holds the body's checksum.
            signs_body=False,
        )
        return S3Signer(host, region, credentials, time.time, scheme).sign

    def signed_query(self, address: Address, credentials: Any) -> str:  # noqa: ANN401  as in ``Dialect``
        # As a query field, which Google accepts in place of the header: users of the URL send no headers.
        payer = {"userProject": self._project} if self._project else {}
        if isinstance(credentials, Credentials):
            return keyed_query(address, credentials, _SCHEME, payer)
        sign = credentials.sign if isinstance(credentials, ServiceToken) else None
        if not isinstance(credentials, ServiceToken) or sign is None:
            raise Unsupported(
                "cannot presign with an access token: use an HMAC key (access_key, secret_key), or a service "
                "account's file, which holds a private key (credentials_file)"
            )
        fields = {"Credential": credentials.account, **payer}
        return signed_query(address, _SCHEME, "GOOG4-RSA-SHA256", fields, lambda text: sign(text.encode()).hex())

    def body_headers(self, digest: str) -> Mapping[str, str]:
        return {HEADER: f"crc32c={b64encode(bytes.fromhex(digest)).decode()}"}

    def domain(self, region: str) -> str:  # noqa: ARG002  the same for all
        return _HOST
