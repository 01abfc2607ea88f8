"""Verbs of Azure Blob Storage: each becomes an authorised request, each response a result or an error."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import md5
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from penstock.engine.contracts.driver import Abilities, Payload
from penstock.engine.contracts.exchange import Exchange, Request
from penstock.errors import (
    AlreadyExists,
    Bug,
    ChecksumMismatch,
    ConfigError,
    Conflict,
    Forbidden,
    InvalidURL,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Throttled,
    TimedOut,
    Transient,
    Truncated,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.stores.azure.listing import Walk, is_folder, page_of, read_blobs, read_uncommitted
from penstock.stores.azure.options import WHERE
from penstock.stores.azure.signing import AccountKey, AzureSigner
from penstock.stores.direct import direct
from penstock.stores.http.answers import STATUSES, Answers, Codes, Meaning, Reads
from penstock.stores.http.headers import escape, is_strong, lifetime, read_metadata, trim_headers, write_metadata
from penstock.stores.http.listing import ListingWalks
from penstock.stores.http.verify import RunningHash, Verification
from penstock.values import ObjectMeta, Page, Presigned, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.credentials import Identity
    from penstock.engine.contracts.driver import Attributes, UploadPart
    from penstock.engine.contracts.exchange import Response
    from penstock.stores.azure.signing import Authorization, Container
    from penstock.values import Uploads

# A page: 5,000 names of 1,024 characters with all properties, and metadata.
_LISTING_BYTES = 64 << 20
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # keys that need no escaping: nearly all
_MOST_ABORTED = 1024
_WALK = "\0"  # first character of walks' tokens; markers do not contain it
_NOTHING = Page((), advanced=True)
# Lifetime of a signed URL: Azure has no bound, but a key does not last longer.
_MOST_S = 10 * 365 * 86_400
_PRESIGNED: dict[str, tuple[str, dict[str, str]]] = {
    "GET": ("r", {}),
    "PUT": ("cw", {"x-ms-blob-type": "BlockBlob"}),  # create and overwrite
}


# The service refuses a body that does not match its Content-MD5, and stores nothing.
ABILITIES = Abilities(digest=partial(md5, usedforsecurity=False), seeks=False, ranges=None, sums=True)
_SUMMED = Verification(digests={"content-md5": lambda stored: RunningHash(md5(usedforsecurity=False), stored)})
_UNSUMMED = Verification()


class AzureDriver(Reads):
    """Container as a store; see ``contracts.driver`` for the verbs' contract.

    Each verb is one request, except ``create`` and ``abort``, which make none: blocks belong to the object's name, not
    to an upload, and the service discards uncommitted blocks after a week. An upload's id is therefore a random name,
    used in the ids of its blocks, with the attributes of its object, which are sent at completion.
    """

    page_keys = 5000

    def __init__(self, container: Container, identity: Identity[Authorization], *, checksums: bool = True) -> None:
        """Address ``container`` as ``identity``; ``checksums`` compares whole objects with their stored MD5."""
        self.abilities = ABILITIES if checksums else replace(ABILITIES, sums=False)
        self._root = container.root
        path = urlsplit(container.endpoint).path
        self._origin = container.endpoint.removesuffix(path)
        self._base = f"{path}/{escape(container.name)}/"
        self.identity = identity
        self._sign = AzureSigner(container, identity.current)
        self._answers = Answers(AZURE_CODES, identity, self)
        self._verify = verify = _SUMMED if checksums else _UNSUMMED
        self._wants = verify.range_headers, verify.whole_headers
        self._sized = verify.sized_headers
        self._aborted: dict[str, None] = {}
        self._hierarchical = False  # as far as is known
        self._walks = ListingWalks(Walk.begin)

    def url(self, key: str) -> str:
        return f"{self._root}{key}"

    def prepare(self) -> None:
        self.identity.refresh_if_due()

    def follow_region(self, region: str) -> bool:  # noqa: ARG002  interface of ``http.answers.Addresses``
        return False

    def follow_redirect(self, key: str, location: str) -> bool:  # noqa: ARG002  as above
        """Return False: the service never redirects."""
        return False

    def head(self, key: str, *, sums: bool = False) -> Exchange[ObjectMeta]:  # noqa: ARG002  each answer has it
        """Describe one object; a folder marker raises ``NotFound``."""

        def parse(response: Response) -> ObjectMeta:
            headers = self._answers.headers(response, "look up", key)
            metadata = read_metadata(headers, METADATA)
            if is_folder(metadata, headers.get("x-ms-resource-type", "")):
                raise NotFound("no such object (this is a folder)", url=self.url(key))
            return self._describe(key, headers, metadata)

        return Exchange(self._request("HEAD", key), parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List a page of at most ``page_keys`` keys; keys up to ``start_after`` are requested, too, and dropped.

        The first names show whether the account has a hierarchical namespace, which is listed folder by folder.
        """
        flat = bool(delimiter)
        walk: Walk | None = None
        if token.startswith(_WALK):
            walk = self._walks.find(token[1:], prefix, flat=flat)
        elif self._hierarchical:
            walk = Walk.begin(prefix, start_after, flat=flat)
        marker, _, after = token.partition("\0") if token else ("", "", start_after)
        query = walk.query if walk else {"prefix": prefix, "delimiter": delimiter, "marker": marker}

        def parse(response: Response) -> Page:
            with self._answers.locating(prefix):
                found = read_blobs(self._answers.document(response, "list", prefix, "EnumerationResults"))
                if walk is None and not found.hierarchical:
                    return page_of(found, after)
                if delimiter not in ("", "/"):
                    raise Unsupported("the delimiter must be '/' in an account with a hierarchical namespace")
                self._hierarchical = True
                here = walk or Walk.begin(prefix, after, flat=flat)
                page, following = here.enter(found) if walk or not marker else (_NOTHING, here)
            return replace(page, token=_WALK + self._walks.keep(following, following.after) if following else "")

        return Exchange(self._listing({"include": "metadata", **query}), parse)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; send no range for a whole object, and a HEAD for an empty span."""
        key, start, _, etag, whole, _, _ = span
        method, headers = "GET", {}
        if is_strong(etag):
            headers["if-match"] = f'"{etag}"'
        if not whole:
            if target.size:
                headers["x-ms-range"] = f"bytes={start}-{start + target.size - 1}"
            else:
                method = "HEAD"  # no range means "nothing"
        path = self._base + (key if _PLAIN(key) else escape(key))
        search, lines = self._sign.sign(method, path, _NO_QUERY, headers)
        request = Request(method, self._origin + path + search, lines, self._wants[whole], target)
        return Exchange(request, partial(self._verified, span, target))

    def _whole(self, key: str, etag: str) -> Request:
        return self._request("GET", key, headers=make_match_header("if-match", etag))

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        headers = {"x-ms-blob-type": "BlockBlob", **encode_attributes(attributes)}
        headers |= conditions(create_only=attributes.create_only, replaces=attributes.replaces)
        request = self._request("PUT", key, headers=headers, body=body)
        return Exchange(request, self._versioned("replace" if attributes.replaces else "write", key))

    def delete(self, key: str) -> Exchange[None]:
        """Delete one object; a missing object or a folder is not an error, a missing container is."""
        deleted = self._answers.deletion("delete", key)

        def parse(response: Response) -> None:
            try:
                deleted(response)
            except NotFound as error:
                if error.code != FULL_FOLDER:
                    raise

        return Exchange(self._request("DELETE", key), parse)

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy within the container, server side; objects up to 256 MiB."""
        headers = {"x-ms-requires-sync": "true", **self._source(source, etag)}
        return Exchange(self._request("PUT", key, headers=headers), self._copied(source, key))

    def _source(self, source: str, etag: str) -> dict[str, str]:
        url = f"{self._origin}{self._base}{escape(source)}"
        return {**self._sign.source(source, url), **make_match_header("x-ms-source-if-match", etag)}

    def _copied(self, source: str, key: str) -> Callable[[Response], str]:
        def parse(response: Response) -> str:
            name = source if response.status in (404, 412) else key
            return self._answers.version(response, "etag", "copy", name)

        return parse

    def make_bucket(self) -> Exchange[None]:
        """Create the container."""
        return self._on_container("PUT", "create")

    def remove_bucket(self) -> Exchange[None]:
        """Delete the container, with all that is in it."""
        return self._on_container("DELETE", "delete")

    def _on_container(self, method: str, action: str) -> Exchange[None]:
        def parse(response: Response) -> None:
            self._answers.headers(response, action, "")

        return Exchange(self._request(method, "", query={"restype": "container"}), parse)

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        upload = new_upload(attributes)
        self._require(key)
        return direct(lambda: upload, blocks=False)

    def part(self, key: str, upload: str, part: UploadPart, body: Payload) -> Exchange[str]:
        """Send one block; return its id, which replaces other stores' ETag."""
        block = block_id(upload, part)
        parse = self._versioned("write a part of", key)
        request = self._request("PUT", key, query={"comp": "block", "blockid": block}, body=body)
        return Exchange(request, lambda response: (parse(response), block)[1])

    def copy_part(self, key: str, upload: str, part: UploadPart, span: Span) -> Exchange[str]:
        block = block_id(upload, part)
        headers = self._source(span.key, span.etag)
        headers["x-ms-source-range"] = f"bytes={span.start}-{(span.stop or 0) - 1}"
        parse = self._copied(span.key, key)
        request = self._request("PUT", key, query={"comp": "block", "blockid": block}, headers=headers)
        return Exchange(request, lambda response: (parse(response), block)[1])

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        if upload in self._aborted:
            return direct(partial(_raise, NotFound("this upload was aborted", url=self.url(key))), blocks=False)
        body = block_list(etags)
        headers = {**described_in(upload), **conditions(create_only=create_only, replaces=replaces)}
        payload = Payload(body, md5(body, usedforsecurity=False).hexdigest())
        request = self._request("PUT", key, query={"comp": "blocklist"}, headers=headers, body=payload)
        return Exchange(request, self._versioned("replace" if replaces else "write", key))

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Forget the upload, without a request: the service discards its blocks a week after the last one."""
        del key

        def run() -> None:
            while len(self._aborted) >= _MOST_ABORTED:
                self._aborted.pop(next(iter(self._aborted)), None)
            self._aborted[upload] = None

        return direct(run, blocks=False)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List a page of objects that only have blocks; all other objects are requested, too, and dropped."""
        query = {"include": "uncommittedblobs", "prefix": prefix, "marker": token}

        def parse(response: Response) -> Uploads:
            with self._answers.locating(prefix):
                action = "list the uploads to"
                return read_uncommitted(self._answers.document(response, action, prefix, "EnumerationResults"))

        return Exchange(self._listing(query), parse)

    def presign(self, key: str, method: Literal["GET", "PUT"], expires_s: float | None, now: float) -> Presigned:
        """Return a URL with a shared access signature by the account's key, for this object and method only."""
        self._require(key)
        permissions, headers = _PRESIGNED[method]
        with self._answers.locating(key):
            # Only account keys sign, and they do not expire.
            seconds, note = lifetime(expires_s, _MOST_S, AccountKey(""), now)
            url, until = f"{self._origin}{self._base}{escape(key)}", int(now) + seconds
            query = self._sign.granted(key, url, permissions, until)
        return Presigned(f"{url}?{query}", method, until, headers, note)

    def _versioned(self, action: str, key: str) -> Callable[[Response], str]:
        return lambda response: self._answers.version(response, "etag", action, key)

    def _listing(self, query: Mapping[str, str]) -> Request:
        asked = {"restype": "container", "comp": "list", "maxresults": str(self.page_keys)}
        asked |= {name: value for name, value in query.items() if value}
        request = self._request("GET", "", query=asked)
        request.most_bytes, request.deferred = _LISTING_BYTES, True
        return request

    def _request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Payload | None = None,
    ) -> Request:
        if "restype" not in (query or {}):
            self._require(key)
        path = self._base + escape(key) if key else self._base[:-1]
        sent = trim_headers(headers or {})
        if body is not None and body.digest:
            sent["content-md5"] = b64encode(bytes.fromhex(body.digest)).decode()
        length = 0 if body is None else memoryview(body.data).nbytes
        search, lines = self._sign.sign(method, path, query or _NO_QUERY, sent, length)
        # Otherwise libcurl would send its own type, which is not signed, and wait for a 100 Continue before a body.
        lines = (*lines, "Content-Type:", "Expect:")
        return Request(method, self._origin + path + search, lines, body=body.data if body is not None else None)

    def _require(self, key: str) -> None:
        if not key:
            raise InvalidURL("this names a container, not an object in it", url=self.url(key))


_NO_QUERY: Mapping[str, str] = {}


def _raise(error: PenstockError) -> str:
    raise error


METADATA = "x-ms-meta-"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch  # C# identifiers, as far as headers allow them
_TOKEN = 24  # characters of an upload's random name, before its attributes


def new_upload(attributes: Attributes) -> str:
    """Return the id of a new upload: a random name, and the attributes, which are sent at completion."""
    return token_hex(_TOKEN // 2) + json.dumps(encode_attributes(attributes))


def described_in(upload: str) -> dict[str, str]:
    headers: dict[str, Any] = json.loads(upload[_TOKEN:])
    return headers


def block_id(upload: str, part: UploadPart) -> str:
    """Return a part's block id, of a fixed length, as in Azure's SDK for Python: all ids of one object need it."""
    return b64encode(f"{upload[:_TOKEN]}{part.number:08}".encode()).decode()


def block_list(blocks: Sequence[str]) -> bytes:
    lines = "".join(f"<Latest>{block}</Latest>" for block in blocks)
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{lines}</BlockList>'.encode()


def encode_attributes(attributes: Attributes) -> dict[str, str]:
    """Return the headers for content type and user metadata; raise ``Unusable`` for invalid metadata names."""
    names: Iterable[object] = attributes.metadata
    for name in names:
        if not (isinstance(name, str) and _NAME(name)):
            raise Unusable(
                f"metadata names on Azure must be letters, digits and '_', and not begin with a digit: {name!r}"
            )
    headers = write_metadata(attributes, METADATA)
    return {"x-ms-blob-content-type": headers.pop("content-type"), **headers}


def conditions(*, create_only: bool, replaces: str) -> dict[str, str]:
    return {"if-none-match": "*"} if create_only else make_match_header("if-match", replaces)


def make_match_header(header: str, etag: str) -> dict[str, str]:
    """Return the header that binds a request to a version; empty if the version cannot be sent."""
    return {header: f'"{etag}"'} if is_strong(etag) else {}


# Code of a hierarchical namespace for the deletion of a folder that is not empty.
FULL_FOLDER = "DirectoryIsNotEmpty"

_WAYS = "account_key= or AZURE_STORAGE_ACCOUNT_KEY, sas_token= or AZURE_STORAGE_SAS_TOKEN"
_WHO = f"; check the account's key or SAS, which may have expired ({_WAYS}), {{where}}, and this machine's clock"
_STALE = "; the token has expired or is another service's: renew it (token=, credential=, `az login`, AZURE_CLIENT_ID)"
_PRIVATE = f"; this container is not public: pass credentials ({_WAYS})"
_ROLE = "; these credentials lack a role or permission for this, such as Storage Blob Data Contributor"
_FIREWALL = "; the account's network rules or the SAS refuse this machine or protocol"
_LEASED = "; another client holds a lease on it"
_BLOCKS = "; blocks of this upload are gone: another writer has written this object meanwhile, or a week has passed"
_FROZEN = "; it is kept unchanged by a policy or a legal hold"
_NO_NAME = "; no such name can be: check the container's and the object's"
_OURS = "; Penstock and the service disagree about the protocol"
_NOT_OFFERED = "; the account does not offer this"
_DAMAGED = "; the body was damaged on its way and was not stored"

# "Common REST API error codes" and "Blob service error codes" of Microsoft's reference. Codes that requests for objects
# and listings never get (queues, tables, files, pages, snapshots, leases' own requests) are left out.
# CannotVerifyCopySource is left out, too: its status says what is wrong with the source.
_CODES: Mapping[str, Meaning] = {
    "AccountIsDisabled": Meaning(Forbidden, "; the storage account is disabled"),
    "AuthenticationFailed": Meaning(Unauthenticated, _WHO),
    "AuthorizationFailure": Meaning(Forbidden, f"{_FIREWALL}, or check {{where}}, and the key or SAS ({_WAYS})"),
    "AuthorizationPermissionMismatch": Meaning(Forbidden, _ROLE),
    "AuthorizationProtocolMismatch": Meaning(Forbidden, _FIREWALL),
    "AuthorizationResourceTypeMismatch": Meaning(Forbidden, "; the SAS is not for objects and containers (srt=co)"),
    "AuthorizationServiceMismatch": Meaning(Forbidden, "; the SAS is not for blobs (ss=b)"),
    "AuthorizationSourceIPMismatch": Meaning(Forbidden, _FIREWALL),
    "BlobAlreadyExists": Meaning(AlreadyExists),
    "BlobArchived": Meaning(Forbidden, "; the object is archived: rehydrate it first"),
    "BlobBeingRehydrated": Meaning(Forbidden, "; the object is being rehydrated from the archive: wait for it"),
    "BlobImmutableDueToLegalHold": Meaning(Forbidden, _FROZEN),
    "BlobImmutableDueToPolicy": Meaning(Forbidden, _FROZEN),
    "BlobNotFound": Meaning(NotFound, missing="object"),
    "BlobOperationNotSupported": Meaning(
        Unsupported, "; the object was made by the Data Lake API, or is of another kind: delete it first"
    ),
    **dict.fromkeys(("BlobOverwritten", "LeaseNotPresentWithBlobOperation", "PathConflict"), Meaning(Conflict)),
    "SystemInUse": Meaning(Conflict),
    "BlobTierInadequateForContentLength": Meaning(Unusable, "; larger than the tier allows"),
    "BlobUsesCustomerSpecifiedEncryption": Meaning(Unsupported, "; it is encrypted with a key that the caller gives"),
    "BlockCountExceedsLimit": Meaning(Unusable, "; an object has at most 50,000 blocks: pass larger part_bytes"),
    "BlockListTooLong": Meaning(Unusable, "; an object has at most 50,000 blocks: pass larger part_bytes"),
    **dict.fromkeys(("ConditionHeadersNotSupported", "InvalidBlockId", "InvalidHttpVerb"), Meaning(Bug, _OURS)),
    **dict.fromkeys(("InvalidXmlDocument", "InvalidXmlNodeValue", "MissingContentLengthHeader"), Meaning(Bug, _OURS)),
    **dict.fromkeys(("MissingRequiredHeader", "MissingRequiredQueryParameter"), Meaning(Bug, _OURS)),
    **dict.fromkeys(("MissingRequiredXmlNode", "MultipleConditionHeadersNotSupported"), Meaning(Bug, _OURS)),
    "UnsupportedXmlNode": Meaning(Bug, _OURS),
    **dict.fromkeys(("ConditionNotMet", "SourceConditionNotMet"), Meaning(PreconditionFailed)),
    "TargetConditionNotMet": Meaning(PreconditionFailed),
    "ContainerAlreadyExists": Meaning(AlreadyExists),
    "ContainerBeingDeleted": Meaning(NotFound, "; the container is being deleted", missing="bucket"),
    "ContainerDisabled": Meaning(Forbidden, "; the container is disabled"),
    "ContainerNotFound": Meaning(NotFound, "; check the container's name, and {where}", missing="bucket"),
    "ContentLengthLargerThanTierLimit": Meaning(Unusable, "; larger than the tier allows"),
    **dict.fromkeys(("CopyAcrossAccountsNotSupported", "FeatureVersionMismatch"), Meaning(Unsupported, _NOT_OFFERED)),
    **dict.fromkeys(("UnsupportedHeader", "UnsupportedHttpVerb"), Meaning(Unsupported, _NOT_OFFERED)),
    "UnsupportedQueryParameter": Meaning(Unsupported, _NOT_OFFERED),
    "Crc64Mismatch": Meaning(ChecksumMismatch, _DAMAGED),
    FULL_FOLDER: Meaning(NotFound, "; there is a folder of this name, and no object", missing="object"),
    **dict.fromkeys(("EmptyMetadataKey", "InvalidHeaderValue", "InvalidInput", "InvalidOperation"), Meaning(Unusable)),
    **dict.fromkeys(("InvalidQueryParameterValue", "OutOfRangeInput"), Meaning(Unusable)),
    "OutOfRangeQueryParameterValue": Meaning(Unusable),
    "InsufficientAccountPermissions": Meaning(Forbidden, "; the account takes no such request at present"),
    "InternalError": Meaning(Transient),
    "InvalidAuthenticationInfo": Meaning(Unauthenticated, _STALE, renews=True),
    "InvalidBlobOrBlock": Meaning(
        Conflict,
        "; another tool has begun an upload to this object, with block ids of another length: commit or delete it, or "
        "wait the week after which the service forgets it",
    ),
    "InvalidBlobType": Meaning(Unusable, "; the object is an append or page blob: delete it, or write another"),
    "InvalidBlockList": Meaning(Conflict, _BLOCKS),
    "InvalidMd5": Meaning(ChecksumMismatch),
    "InvalidMetadata": Meaning(Unusable, "; names of metadata are letters, digits and '_', and begin with no digit"),
    "InvalidRange": Meaning(Truncated, "; the object ends before the range begins"),
    **dict.fromkeys(("InvalidResourceName", "InvalidUri", "RequestUrlFailedToParse"), Meaning(InvalidURL, _NO_NAME)),
    "InvalidSourceBlobType": Meaning(Unsupported, "; only block blobs are copied"),
    "InvalidSourceBlobUrl": Meaning(Unsupported, "; the service cannot read the source"),
    "KeyBasedAuthenticationNotPermitted": Meaning(
        Forbidden, "; the account takes no account keys: use Microsoft Entra ID (pip install penstock[azure])"
    ),
    **dict.fromkeys(("LeaseAlreadyPresent", "LeaseIdMismatchWithBlobOperation"), Meaning(Conflict, _LEASED)),
    **dict.fromkeys(("LeaseIdMissing", "LeaseLost"), Meaning(Conflict, _LEASED)),
    "Md5Mismatch": Meaning(ChecksumMismatch, _DAMAGED),
    "MetadataTooLarge": Meaning(Unusable, "; metadata have at most 8 KiB"),
    "NoAuthenticationInformation": Meaning(Unauthenticated, _PRIVATE),
    "OperationTimedOut": Meaning(TimedOut),
    "PathNotFound": Meaning(NotFound, missing="object"),
    "PendingCopyOperation": Meaning(Conflict, "; another tool copies something to it at this moment"),
    "PublicAccessNotPermitted": Meaning(
        Forbidden,
        f"; the account permits no anonymous reads: pass credentials ({_WAYS}), without anonymous=True or "
        "AZURE_STORAGE_ANON",
    ),
    "RequestBodyTooLarge": Meaning(Unusable, "; larger than the service allows"),
    "ResourceNotFound": Meaning(NotFound, f"; or it is not public: pass credentials ({_WAYS})"),
    "ResourceTypeMismatch": Meaning(Unusable, "; this is not a blob: check the container's name, and {where}"),
    "ServerBusy": Meaning(Throttled),
    "SnapshotsPresent": Meaning(Conflict, "; it has snapshots, which go first"),
    "UnauthorizedBlobOverwrite": Meaning(AlreadyExists, "; and the SAS permits no overwriting"),
}

_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, _WHO, renews=True),
    403: Meaning(Forbidden, _ROLE, renews=True),
    404: Meaning(NotFound, "; no such object, or no such container: check both, and {where}"),
    421: Meaning(ConfigError, "; this host does not serve the account: check {where}"),
    505: Meaning(Unsupported, _NOT_OFFERED),
}

AZURE_CODES = Codes(
    service="Azure Blob Storage", codes=_CODES, statuses=_STATUSES, header="x-ms-error-code", where=WHERE
)
