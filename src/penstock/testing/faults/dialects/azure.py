"""Azure Blob Storage's words: blocks instead of uploads, its codes and its XML."""

from __future__ import annotations

import base64
from dataclasses import replace
from email.utils import formatdate
from hashlib import md5
from typing import TYPE_CHECKING
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from penstock.options import AzureOptions
from penstock.testing.faults.dialect import get
from penstock.testing.faults.dialects.sharedkey import account_of, check, check_source, digest
from penstock.testing.faults.dialects.words import Words
from penstock.testing.faults.kinds import FAULTS, Fault
from penstock.testing.faults.message import Answer, Refused, Request, document
from penstock.testing.faults.shelf import Bucket, Stored, Upload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.options import StoreOptions
    from penstock.testing.faults.dialects.words import Shelves
    from penstock.testing.faults.settings import Settings

__all__ = ["WORDS", "entry", "listing"]

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


# -- what is asked ---------------------------------------------------------------------------------------------------


def _locate(request: Request) -> None:
    """Read ``/account/container/key``, and the verb of method and query."""
    _, _, rest = request.path.removeprefix("/").partition("/")
    bucket, _, key = rest.partition("/")
    request.bucket, request.key = unquote(bucket), unquote(key)
    request.asked = _verb(request) or "unknown"
    if "x-ms-range" in request.headers:  # it overrides Range
        request.headers["range"] = request.headers["x-ms-range"]
    if "blockid" in request.parameters:
        request.parameters["partNumber"] = str(_number(request.parameters["blockid"]))


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


def _number(block: str) -> int:
    """Return the number at the end of a block's id, as Penstock makes them; 0 where there is none."""
    try:
        return int(base64.b64decode(block, validate=True)[-8:])
    except ValueError:
        return 0


# -- conditions and versions -----------------------------------------------------------------------------------------


def _hold(bucket: Bucket, request: Request, how: str) -> None:
    del how
    if request.verb not in ("put", "complete"):
        return
    found, wanted = bucket.objects.get(request.key), request.headers.get("if-match", "")
    if request.headers.get("if-none-match") == "*" and found:
        raise Refused(409, "BlobAlreadyExists", "The specified blob already exists.")
    if wanted and (found is None or wanted != f'"{found.etag}"'):
        raise Refused(412, "ConditionNotMet")


def _pin(found: Stored, request: Request) -> None:
    if request.headers.get("if-match", "*") not in ("*", f'"{found.etag}"'):
        raise Refused(412, "ConditionNotMet")


def _pin_source(found: Stored, request: Request) -> None:
    if request.headers.get("x-ms-source-if-match", "*") not in ("*", f'"{found.etag}"'):
        raise Refused(412, "SourceConditionNotMet")


def _etag(found: Stored) -> dict[str, str]:
    return {"ETag": f'"{found.etag}"', "x-ms-blob-type": "BlockBlob"}


def _digests(found: Stored, _request: Request) -> dict[str, str]:
    return {} if "-" in found.etag else {"Content-MD5": digest(found.data)}  # none of what was made of blocks


# -- verbs -----------------------------------------------------------------------------------------------------------


def _kept(request: Request) -> dict[str, str]:
    kind = request.headers.get("x-ms-blob-content-type", "application/octet-stream")
    own = {name: value for name, value in request.headers.items() if name.startswith("x-ms-meta-")}
    return {"content-type": kind, **own}


def _put(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    if request.headers.get("x-ms-blob-type") != "BlockBlob":
        raise Refused(400, "MissingRequiredHeader", "x-ms-blob-type")
    return _stored(shelves, bucket, request, Stored.of(bytes(request.body), _kept(request)))


def _stored(shelves: Shelves, bucket: Bucket, request: Request, stored: Stored) -> Answer:
    """Publish an object; blocks that were not committed are forgotten."""
    bucket.objects[request.key] = stored
    bucket.uploads.pop(request.key, None)
    bucket.committed.pop(request.key, None)
    return Answer(201, shelves.words.written(stored))


def _delete(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    bucket.find(request.key)
    del bucket.objects[request.key]
    bucket.committed.pop(request.key, None)
    return Answer(202)


def _origin(shelves: Shelves, request: Request) -> Stored:
    name, key = check_source(shelves, request)
    found = shelves.bucket(name).objects.get(key)
    if found is None:
        raise Refused(404, "CannotVerifyCopySource", "The specified blob does not exist.")
    shelves.words.pin_source(found, request)
    return found


def _copy(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    source = _origin(shelves, request)
    answer = _stored(shelves, bucket, request, Stored.of(source.data, source.headers))
    return replace(answer, status=202, headers={**answer.headers, "x-ms-copy-status": "success"})


def _part(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    return _block(bucket, request, bytes(request.body))


def _copy_part(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    data = _origin(shelves, request).data
    first, _, last = request.headers["x-ms-source-range"].removeprefix("bytes=").partition("-")
    return _block(bucket, request, data[int(first) : int(last) + 1])


def _block(bucket: Bucket, request: Request, data: bytes) -> Answer:
    name = request.parameters["blockid"]
    upload = bucket.uploads.setdefault(request.key, Upload(request.key, {}))
    if any(len(str(each)) != len(name) for each in upload.parts):
        raise Refused(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
    upload.parts[name] = Stored.of(data, {})
    return Answer(201, {"Content-MD5": digest(data)})


def _complete(shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
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
    stored = Stored(data, f"{md5(data, usedforsecurity=False).hexdigest()}-{len(named)}", _kept(request))
    answer = _stored(shelves, bucket, request, stored)
    bucket.committed[request.key] = blocks
    return answer


def _list(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    asked = request.parameters
    most = min(_MOST_KEYS, int(asked.get("maxresults", _MOST_KEYS)))
    after = base64.b64decode(asked.get("marker", "")).decode()
    page = bucket.page(asked.get("prefix", ""), asked.get("delimiter", ""), after, most)
    rows = [entry(key, stored, asked.get("include", "")) for key, stored in page.entries]
    rows += [_element("BlobPrefix", {"Name": each}) for each in page.prefixes]
    return listing(asked, "".join(rows), base64.b64encode(page.token.encode()).decode())


def entry(key: str, stored: Stored, include: str = "", more: Mapping[str, str] = _NO_TEXTS) -> str:
    """Return a listing's row of an object, with ``more`` properties."""
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
    inner = _element("Properties", properties) + (_element("Metadata", own) if own else "")
    return document("Blob", {"Name": key}, inner).decode().partition("\n")[2]


def _uploads(_shelves: Shelves, bucket: Bucket, request: Request) -> Answer:
    prefix = request.parameters.get("prefix", "")
    begun = [key for key in bucket.uploads if key not in bucket.objects and key.startswith(prefix)]
    properties = _element("Properties", {"Content-Length": "0", "BlobType": "BlockBlob"})
    rows = [document("Blob", {"Name": key}, properties).decode().partition("\n")[2] for key in sorted(begun)]
    rows += [entry(key, stored) for key, stored in bucket.objects.items() if key.startswith(prefix)]
    return listing(request.parameters, "".join(rows), "")


def listing(asked: Mapping[str, str], rows: str, marker: str) -> Answer:
    """Return an answer to List Blobs."""
    texts = {"Prefix": asked.get("prefix", "")}
    inner = f"<Blobs>{rows}</Blobs>{_element('NextMarker', {}) if not marker else f'<NextMarker>{marker}</NextMarker>'}"
    return Answer(200, {"Content-Type": "application/xml"}, document("EnumerationResults", texts, inner))


def _element(name: str, texts: dict[str, str]) -> str:
    return document(name, texts).decode().partition("\n")[2]


# -- answers and options ---------------------------------------------------------------------------------------------


def _refused(error: Refused, _request: Request) -> Answer:
    code = _CODES.get(error.code, error.code)
    answer = Refused(error.status, code, error.message).answer()
    answer.headers["x-ms-error-code"] = code
    return answer


def _store(settings: Settings, endpoint: str) -> StoreOptions:
    account = account_of(settings.access_key)
    where = f"{endpoint}/{account}"
    if settings.tokens:
        return AzureOptions(account=account, endpoint=where, token=settings.tokens[0])
    key = base64.b64encode(settings.secret_key.encode()).decode()
    return AzureOptions(account=account, endpoint=where, account_key=key)


def _environment(settings: Settings, endpoint: str) -> dict[str, str]:
    account, key = account_of(settings.access_key), base64.b64encode(settings.secret_key.encode()).decode()
    where = f"AccountName={account};AccountKey={key};BlobEndpoint={endpoint}/{account}"
    return {"AZURE_STORAGE_CONNECTION_STRING": where}


def _coded(name: str, status: int, code: str) -> Fault:
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
_NEVER = {name: replace(FAULTS[name], verbs=frozenset()) for name in ("301", "307", "malformed")}  # no regions
_VERSIONED = frozenset({"get", "put", "complete", "copy"})

WORDS = Words(
    scheme="az",
    prefix="x-ms-",
    version="ETag",
    check=check,
    locate=_locate,
    hold=_hold,
    pin=_pin,
    pin_source=_pin_source,
    described=_etag,
    digests=_digests,
    written=_etag,
    listed=_etag,
    refused=_refused,
    missing_deleted=False,
    verbs={
        "get": get,
        "head": get,
        "put": _put,
        "copy": _copy,
        "delete": _delete,
        "part": _part,
        "copy-part": _copy_part,
        "complete": _complete,
        "list": _list,
        "uploads": _uploads,
    },
    faults={
        **_NEVER,
        **{name: _coded(name, *refusal) for name, refusal in _REFUSALS.items()},
        "etag": replace(FAULTS["etag"], verbs=_VERSIONED),
    },
    store=_store,
    environment=_environment,
)
