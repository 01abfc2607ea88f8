"""The dialect of Azure Blob Storage: blocks instead of uploads, its codes and its XML."""

from __future__ import annotations

import base64
import hmac
import time
from dataclasses import replace
from email.utils import formatdate, parsedate_to_datetime
from hashlib import md5
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET

from penstock.stores.azure.options import AzureOptions
from penstock.testing.faults.dialect import Bucket, Stored, Upload, Words, element, get
from penstock.testing.faults.message import Answer, Refused, Request, document
from penstock.testing.faults.script import FAULTS, WITHOUT_REGIONS, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.options import StoreOptions
    from penstock.testing.faults.dialect import Access, Dialect
    from penstock.testing.faults.script import Settings

_SKEW_S = 15 * 60
_STANDARD = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
# Sort order of the characters of a header's name, without its hyphens.
_ORDER = "_0123456789abcdefghijklmnopqrstuvwxyz"


def account_of(key: str) -> str:
    """Return the server's account name for an access key's name: without hyphens."""
    return key.replace("-", "")


def digest_body(data: bytes | bytearray) -> str:
    return base64.b64encode(md5(data, usedforsecurity=False).digest()).decode()


def _check_signature(request: Request, access: Access, proof: str, now: float) -> None:
    account, _, signature = proof.partition(":")
    secrets = {account_of(key): secret for key, secret in access.keys.items()}
    if account not in secrets or request.path.split("/")[1] != account:
        raise Refused(403, "AuthenticationFailed", "no such account")
    try:
        age_s = now - parsedate_to_datetime(request.headers.get("x-ms-date", "")).timestamp()
    except ValueError:
        raise Refused(403, "AuthenticationFailed", "no date") from None
    if abs(age_s) > _SKEW_S:
        raise Refused(403, "AuthenticationFailed", "Request date header too old")
    if not hmac.compare_digest(_signature(secrets[account], _to_sign(request, account)), signature):
        raise Refused(403, "AuthenticationFailed", "the signature is another one")


def _check_shared(request: Request, access: Access, now: float) -> None:
    """Raise ``Refused`` unless the URL's shared access signature is correct and permits the request."""
    account, bucket, key = (unquote(part) for part in request.path.removeprefix("/").split("/", 2))
    secrets = {account_of(name): secret for name, secret in access.keys.items()}
    given = request.parameters
    if not _is_shared(given, f"/blob/{account}/{bucket}/{key}", secrets.get(account, ""), now):
        raise Refused(403, "AuthenticationFailed", "Signature did not match, or has expired.")
    owed = {"GET": "r", "HEAD": "r", "PUT": "w"}.get(request.method, "?")
    if owed not in given["sp"]:
        raise Refused(403, "AuthorizationPermissionMismatch", "this is not permitted")


def _is_shared(given: Mapping[str, str], resource: str, secret: str, now: float) -> bool:
    text = (
        *(given.get("sp", ""), given.get("st", ""), given.get("se", ""), resource, "", ""),
        *(given.get("spr", ""), given.get("sv", ""), given.get("sr", ""), "", "", "", "", "", "", ""),
    )
    right = bool(secret) and hmac.compare_digest(_signature(secret, "\n".join(text)), given.get("sig", ""))
    return right and given["se"] >= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def _signature(secret: str, text: str) -> str:
    return base64.b64encode(hmac.digest(secret.encode(), text.encode(), "sha256")).decode()


def _to_sign(request: Request, account: str) -> str:
    """Return the string to sign for this request, by "Authorize with Shared Key" of the reference."""
    headers = dict(request.headers)
    if "x-ms-range" in headers:
        headers.pop("range", None)
    if headers.get("content-length") == "0":
        headers.pop("content-length")
    own = sorted((name for name in headers if name.startswith("x-ms-")), key=_make_collation_key)
    pairs = (pair.partition("=") for pair in request.query.split("&") if pair)
    asked = sorted((unquote(name).lower(), unquote(value)) for name, _, value in pairs)
    return "\n".join(
        (
            request.method,
            *(headers.get(name, "") for name in _STANDARD),
            *(f"{name}:{headers[name]}" for name in own),
            f"/{account}{request.path}",
            *(f"{name}:{value}" for name, value in asked),
        )
    )


def _make_collation_key(name: str) -> list[int]:
    return [_ORDER.index(letter) for letter in name if letter != "-"]


def check_source(dialect: Dialect, request: Request) -> tuple[str, str]:
    """Return container and key of a copy's source; ``Refused`` unless its URL or the request authorises reading."""
    url = urlsplit(request.headers["x-ms-copy-source"])
    account, bucket, key = (unquote(part) for part in url.path.removeprefix("/").split("/", 2))
    token = request.headers.get("x-ms-copy-source-authorization", "").removeprefix("Bearer ")
    if token in dialect.access.tokens:
        return bucket, key
    given = {name: values[0] for name, values in parse_qs(url.query).items()}
    secrets = {account_of(name): secret for name, secret in dialect.access.keys.items()}
    right = _is_shared(given, f"/blob/{account}/{bucket}/{key}", secrets.get(account, ""), time.time())
    if not right or "r" not in given["sp"]:
        raise Refused(403, "CannotVerifyCopySource", "the source is not authorised")
    return bucket, key


_MOST_KEYS = 5000
_NO_TEXTS: Mapping[str, str] = {}
_CODES = {
    "InvalidRequest": "InvalidInput",
    "KeyTooLongError": "OutOfRangeInput",
    "MethodNotAllowed": "UnsupportedHttpVerb",
    "NoSuchBucket": "ContainerNotFound",
    "NoSuchKey": "BlobNotFound",
    "PreconditionFailed": "ConditionNotMet",
}


# -- requests --------------------------------------------------------------------------------------------------------


def _verb(request: Request) -> str:
    asked = request.parameters
    if not request.key:
        if asked.get("restype") != "container":
            return ""
        if request.method == "PUT":
            return "make-bucket"
        uncommitted = "uncommittedblobs" in asked.get("include", "")
        return ("uploads" if uncommitted else "list") if asked.get("comp") == "list" else ""
    copies = "x-ms-copy-source" in request.headers
    if request.method != "PUT":
        return {"GET": "get", "HEAD": "head", "DELETE": "delete"}.get(request.method, "")
    plain = "copy" if copies else "put"
    return {None: plain, "block": "copy-part" if copies else "part", "blocklist": "complete"}.get(asked.get("comp"), "")


def _parse_block_number(block: str) -> int:
    """Return the number at the end of a block's id, as Penstock makes them; 0 if it has none."""
    try:
        return int(base64.b64decode(block, validate=True)[-8:])
    except ValueError:
        return 0


# -- verbs -----------------------------------------------------------------------------------------------------------


def _collect_kept_headers(request: Request) -> dict[str, str]:
    kind = request.headers.get("x-ms-blob-content-type", "application/octet-stream")
    own = {name: value for name, value in request.headers.items() if name.startswith("x-ms-meta-")}
    return {"content-type": kind, **own}


def _put_blob(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    if request.headers.get("x-ms-blob-type") != "BlockBlob":
        raise Refused(400, "MissingRequiredHeader", "x-ms-blob-type")
    return _publish_object(dialect, bucket, request, Stored.of(bytes(request.body), _collect_kept_headers(request)))


def _publish_object(dialect: Dialect, bucket: Bucket, request: Request, stored: Stored) -> Answer:
    """Publish an object; blocks that were not committed are discarded."""
    bucket.objects[request.key] = stored
    bucket.uploads.pop(request.key, None)
    bucket.committed.pop(request.key, None)
    return Answer(201, dialect.words.written(stored))


def _delete_blob(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    bucket.find(request.key)
    del bucket.objects[request.key]
    bucket.committed.pop(request.key, None)
    return Answer(202)


def _origin(dialect: Dialect, request: Request) -> Stored:
    name, key = check_source(dialect, request)
    found = dialect.bucket(name).objects.get(key)
    if found is None:
        raise Refused(404, "CannotVerifyCopySource", "The specified blob does not exist.")
    dialect.words.pin_source(found, request)
    return found


def _copy_blob(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    source = _origin(dialect, request)
    answer = _publish_object(dialect, bucket, request, Stored.of(source.data, source.headers))
    return replace(answer, status=202, headers={**answer.headers, "x-ms-copy-status": "success"})


def _part(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    return _block(bucket, request, bytes(request.body))


def _copy_part(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    data = _origin(dialect, request).data
    first, _, last = request.headers["x-ms-source-range"].removeprefix("bytes=").partition("-")
    return _block(bucket, request, data[int(first) : int(last) + 1])


def _block(bucket: Bucket, request: Request, data: bytes) -> Answer:
    name = request.parameters["blockid"]
    upload = bucket.uploads.setdefault(request.key, Upload(request.key, {}))
    if any(len(str(each)) != len(name) for each in upload.parts):
        raise Refused(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
    upload.parts[name] = Stored.of(data, {})
    return Answer(201, {"Content-MD5": digest_body(data)})


def _complete(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    try:
        named = [(each.tag, each.text or "") for each in ET.fromstring(request.body)]  # noqa: S314  a test server on loopback
    except ET.ParseError:
        raise Refused(400, "InvalidXmlDocument") from None
    new = bucket.uploads[request.key].parts if request.key in bucket.uploads else {}
    old = bucket.committed.get(request.key, {})
    known: dict[str, Mapping[int | str, Stored]] = {"Latest": {**old, **new}, "Uncommitted": new, "Committed": old}
    try:
        blocks: dict[int | str, Stored] = {name: known[kind][name] for kind, name in named}
    except KeyError:
        raise Refused(400, "InvalidBlockList", "The specified block list is invalid.") from None
    data = b"".join(blocks[name].data for _, name in named)
    stored = Stored(
        data, f"{md5(data, usedforsecurity=False).hexdigest()}-{len(named)}", _collect_kept_headers(request)
    )
    answer = _publish_object(dialect, bucket, request, stored)
    bucket.committed[request.key] = blocks
    return answer


def _list_blobs(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    asked = request.parameters
    most = min(_MOST_KEYS, int(asked.get("maxresults", _MOST_KEYS)))
    after = base64.b64decode(asked.get("marker", "")).decode()
    page = bucket.page(asked.get("prefix", ""), asked.get("delimiter", ""), after, most)
    rows = [entry(key, stored, asked.get("include", "")) for key, stored in page.entries]
    rows += [element("BlobPrefix", {"Name": each}) for each in page.prefixes]
    return listing(asked, "".join(rows), base64.b64encode(page.token.encode()).decode())


def entry(key: str, stored: Stored, include: str = "", more: Mapping[str, str] = _NO_TEXTS) -> str:
    """Return the entry of an object in a listing, with ``more`` properties."""
    properties = {
        **more,
        "Last-Modified": formatdate(stored.modified, usegmt=True),
        "Etag": stored.etag,
        "Content-Length": str(len(stored.data)),
        "Content-Type": stored.headers["content-type"],
        "BlobType": "BlockBlob",
    }
    own = {
        name.removeprefix("x-ms-meta-"): value
        for name, value in stored.headers.items()
        if "metadata" in include and name.startswith("x-ms-meta-")
    }
    inner = element("Properties", properties) + (element("Metadata", own) if own else "")
    return element("Blob", {"Name": key}, inner)


def _uploads(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    prefix = request.parameters.get("prefix", "")
    begun = [key for key in bucket.uploads if key not in bucket.objects and key.startswith(prefix)]
    properties = element("Properties", {"Content-Length": "0", "BlobType": "BlockBlob"})
    rows = [element("Blob", {"Name": key}, properties) for key in sorted(begun)]
    rows += [entry(key, stored) for key, stored in bucket.objects.items() if key.startswith(prefix)]
    return listing(request.parameters, "".join(rows), "")


def listing(asked: Mapping[str, str], rows: str, marker: str) -> Answer:
    texts = {"Prefix": asked.get("prefix", "")}
    inner = f"<Blobs>{rows}</Blobs>{element('NextMarker', {}) if not marker else f'<NextMarker>{marker}</NextMarker>'}"
    return Answer(200, {"Content-Type": "application/xml"}, document("EnumerationResults", texts, inner))


# -- words -----------------------------------------------------------------------------------------------------------


def _make_fault(name: str, status: int, code: str) -> Fault:
    fault = FAULTS[name]
    return replace(fault, status=status, code=code, headers=(*fault.headers, ("x-ms-error-code", code)))


_REFUSALS = {
    "500": (500, "InternalError"),
    "503": (503, "ServerBusy"),
    "503-after": (503, "ServerBusy"),
    "429": (429, "TooManyRequests"),
    "408": (408, "RequestTimeout"),
    "expired": (401, "InvalidAuthenticationInfo"),
    "skewed": (403, "AuthenticationFailed"),
    "denied": (403, "AuthorizationPermissionMismatch"),
}
_VERSIONED = frozenset({"get", "put", "complete", "copy"})


class _Azure(Words):
    """The words of Azure Blob Storage."""

    scheme = "az"
    prefix = "x-ms-"
    missing_deleted = False

    def check(self, request: Request, access: Access, now: float) -> None:
        headers = request.headers
        how, _, proof = headers.get("authorization", "").partition(" ")
        if not how and "sig" in request.parameters:
            _check_shared(request, access, now)
            return
        if not how:
            raise Refused(401, "NoAuthenticationInformation", "anonymous requests are not served")
        if "x-ms-version" not in headers:
            raise Refused(400, "MissingRequiredHeader", "x-ms-version")
        if how == "Bearer":
            if proof not in access.tokens:
                raise Refused(401, "InvalidAuthenticationInfo", "Lifetime validation failed. The token is expired.")
        else:
            _check_signature(request, access, proof, now)
        if "content-md5" in headers and headers["content-md5"] != digest_body(request.body):
            raise Refused(
                400, "Md5Mismatch", "The MD5 value specified in the request did not match the calculated one."
            )

    def locate(self, request: Request) -> None:
        """Parse ``/account/container/key``, and take the verb from method and query."""
        _, _, rest = request.path.removeprefix("/").partition("/")
        bucket, _, key = rest.partition("/")
        request.bucket, request.key = unquote(bucket), unquote(key)
        request.asked = _verb(request) or "unknown"
        if "x-ms-range" in request.headers:  # it overrides Range
            request.headers["range"] = request.headers["x-ms-range"]
        if "blockid" in request.parameters:
            request.parameters["partNumber"] = str(_parse_block_number(request.parameters["blockid"]))

    def hold(self, bucket: Bucket, request: Request, how: str) -> None:
        del how
        if request.verb not in ("put", "complete"):
            return
        found, wanted = bucket.objects.get(request.key), request.headers.get("if-match", "")
        if request.headers.get("if-none-match") == "*" and found:
            raise Refused(409, "BlobAlreadyExists", "The specified blob already exists.")
        if wanted and (found is None or wanted != f'"{found.etag}"'):
            raise Refused(412, "ConditionNotMet")

    def pin(self, found: Stored, request: Request) -> None:
        if request.headers.get("if-match", "*") not in ("*", f'"{found.etag}"'):
            raise Refused(412, "ConditionNotMet")

    def pin_source(self, found: Stored, request: Request) -> None:
        if request.headers.get("x-ms-source-if-match", "*") not in ("*", f'"{found.etag}"'):
            raise Refused(412, "SourceConditionNotMet")

    def described(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"', "x-ms-blob-type": "BlockBlob"}

    def digests(self, found: Stored, _request: Request) -> dict[str, str]:
        # An object that was made of blocks has no MD5.
        return {} if "-" in found.etag else {"Content-MD5": digest_body(found.data)}

    def refused(self, error: Refused, _request: Request) -> Answer:
        code = _CODES.get(error.code, error.code)
        answer = Refused(error.status, code, error.message).answer()
        answer.headers["x-ms-error-code"] = code
        return answer

    def store(self, settings: Settings, endpoint: str) -> StoreOptions:
        account = account_of(settings.access_key)
        where = f"{endpoint}/{account}"
        if settings.tokens:
            return AzureOptions(account=account, endpoint=where, token=settings.tokens[0])
        key = base64.b64encode(settings.secret_key.encode()).decode()
        return AzureOptions(account=account, endpoint=where, account_key=key)

    def environment(self, settings: Settings, endpoint: str) -> dict[str, str]:
        account, key = account_of(settings.access_key), base64.b64encode(settings.secret_key.encode()).decode()
        where = f"AccountName={account};AccountKey={key};BlobEndpoint={endpoint}/{account}"
        return {"AZURE_STORAGE_CONNECTION_STRING": where}

    written = described
    listed = described


WORDS = _Azure(
    verbs={
        "get": get,
        "head": get,
        "put": _put_blob,
        "copy": _copy_blob,
        "delete": _delete_blob,
        "part": _part,
        "copy-part": _copy_part,
        "complete": _complete,
        "list": _list_blobs,
        "uploads": _uploads,
    },
    faults={
        **WITHOUT_REGIONS,
        **{name: _make_fault(name, *refusal) for name, refusal in _REFUSALS.items()},
        "etag": replace(FAULTS["etag"], verbs=_VERSIONED),
    },
)
