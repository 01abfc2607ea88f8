"""The dialect of Google Cloud Storage: its XML API, and the one call of its JSON API that moves an object."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from email.utils import formatdate
from hashlib import md5
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.stores.gcs.options import GCSOptions
from penstock.testing.faults.amazon import Scheme, check_query, check_signature
from penstock.testing.faults.dialect import Access, Bucket, Stored, Words, get
from penstock.testing.faults.message import Answer, Refused, Request
from penstock.testing.faults.script import FAULTS, WITHOUT_REGIONS

if TYPE_CHECKING:
    from penstock.options import StoreOptions
    from penstock.testing.faults.dialect import Dialect
    from penstock.testing.faults.script import Settings

_SCHEME = Scheme("GOOG4", "storage", "x-goog-")
_ANY = frozenset({"auto"})
_MOVE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/moveTo/o/([^/]+)")
_IF = "x-goog-if-generation-match"
_UPLOADS = ("create", "complete")


def crc32c(data: bytes) -> str:
    """Return the CRC-32C of data as Google writes it: big-endian, in base64. Needs ``pip install penstock[gcs]``."""
    from fastcrc.crc32 import iscsi

    value: int = iscsi(data)
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def _md5(data: bytes) -> str:
    return base64.b64encode(md5(data, usedforsecurity=False).digest()).decode()


def _check_body(request: Request) -> None:
    body = bytes(request.body)
    named = dict(each.strip().partition("=")[::2] for each in request.headers.get("x-goog-hash", "").split(",") if each)
    named |= {"md5": request.headers["content-md5"]} if "content-md5" in request.headers else {}
    for name, compute in (("crc32c", crc32c), ("md5", _md5)):
        if name in named and named[name] != compute(body):
            raise Refused(400, "BadDigest", f"the {name} that was sent is another's")


def _same(found: Stored, wanted: str | None) -> None:
    if wanted is not None and wanted != str(found.generation):
        raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")


def _get(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    """Return an object; decompressed, whole and without a length, if it is gzip and the client does not accept gzip."""
    found = bucket.find(request.key)
    if found.headers.get("content-encoding") != "gzip" or "gzip" in request.headers.get("accept-encoding", ""):
        return get(dialect, bucket, request)
    dialect.words.pin(found, request)
    headers = {
        name: value for name, value in {**found.headers, **dialect.words.described(found)}.items() if name != "ETag"
    }
    headers.pop("content-encoding")
    headers["Last-Modified"] = formatdate(found.modified, usegmt=True)
    return Answer(200, headers, gzip.decompress(found.data), unsized=True)


def _move(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    move = _MOVE.fullmatch(request.path)
    source = unquote(move[2]) if move else ""
    found = bucket.find(source)
    _same(found, request.parameters.get("ifSourceGenerationMatch"))
    moved = bucket.objects[request.key] = Stored(found.data, found.etag, found.headers)
    if source != request.key:
        del bucket.objects[source]
    resource = {"kind": "storage#object", "name": request.key, "generation": str(moved.generation)}
    return _json(200, resource | {"bucket": request.bucket, "size": str(len(moved.data)), "etag": moved.etag})


def _json(status: int, value: object) -> Answer:
    return Answer(status, {"Content-Type": "application/json; charset=UTF-8"}, json.dumps(value).encode())


def _no_part_copies(_dialect: Dialect, _bucket: Bucket, _request: Request) -> Answer:
    raise Refused(501, "NotImplemented", "parts cannot be copied")


class _Google(Words):
    """The words of Google Cloud Storage."""

    scheme = "gs"
    prefix = "x-goog-"
    version = "x-goog-generation"
    missing_deleted = False

    def check(self, request: Request, access: Access, now: float) -> None:
        headers = request.headers
        how, _, token = headers.get("authorization", "").partition(" ")
        if any(name.startswith("x-amz-") for name in headers):
            raise Refused(400, "ExcessHeaderValues", "x-amz- and x-goog- headers do not mix")
        if check_query(request, access.keys, _ANY, now, _SCHEME):
            pass
        elif how == "Bearer":
            if token not in access.tokens:
                raise Refused(401, "AuthenticationRequired", "Authentication required.")
        elif not how:
            raise Refused(401, "AuthenticationRequired", "Anonymous caller does not have access.")
        elif request.asked:
            raise Refused(401, "AuthenticationRequired", "the JSON API takes no HMAC keys")
        elif how == "AWS4-HMAC-SHA256":
            raise Refused(400, "MalformedSecurityHeader", "x-goog- headers want GOOG4-HMAC-SHA256")
        else:
            # The front end rewrites Accept-Encoding before the signature is checked.
            seen = replace(request, headers={**headers, "accept-encoding": "gzip(gfe)"})
            check_signature(seen, access.keys, _ANY, now, _SCHEME)
        _check_body(request)

    def locate(self, request: Request) -> None:
        if move := _MOVE.fullmatch(request.path):
            request.bucket, request.key = unquote(move[1]), unquote(move[3])
            request.asked = "move" if request.method == "POST" else "unknown"

    def hold(self, bucket: Bucket, request: Request, _how: str) -> None:
        wanted = request.headers.get(_IF)
        if request.verb == "move":
            wanted = request.parameters.get("ifGenerationMatch")
        if wanted is None or request.verb in ("get", "head"):
            return
        if request.verb in _UPLOADS:
            raise Refused(400, "NotImplemented", "Preconditions are not supported for multipart uploads.")
        found = bucket.objects.get(request.key)
        if wanted != str(found.generation if found else 0):
            raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")

    def pin(self, found: Stored, request: Request) -> None:
        _same(found, request.headers.get(_IF))

    def pin_source(self, found: Stored, request: Request) -> None:
        _same(found, request.headers.get("x-goog-copy-source-if-generation-match"))

    def described(self, found: Stored) -> dict[str, str]:
        # Two lines of one header, as the service sends them. An object of several parts has no MD5.
        whole = f"\r\nx-goog-hash: md5={_md5(found.data)}" if "-" not in found.etag else ""
        return {
            "ETag": f'"{found.etag}"',
            "x-goog-generation": str(found.generation),
            "x-goog-metageneration": "1",
            "x-goog-hash": f"crc32c={crc32c(found.data)}{whole}",
            "x-goog-stored-content-encoding": found.headers.get("content-encoding", "identity"),
            "x-goog-stored-content-length": str(len(found.data)),
        }

    def written(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"', "x-goog-generation": str(found.generation), "x-goog-metageneration": "1"}

    def listed(self, found: Stored) -> dict[str, str]:
        return {"ETag": f'"{found.etag}"', "Generation": str(found.generation), "MetaGeneration": "1"}

    def refused(self, error: Refused, request: Request) -> Answer:
        if not request.asked:
            return error.answer()
        reasons = {412: "conditionNotMet", 404: "notFound", 401: "authError"}
        reason = {"domain": "global", "reason": reasons.get(error.status, "invalid"), "message": error.message}
        return _json(error.status, {"error": {"code": error.status, "message": error.message, "errors": [reason]}})

    def named(self, found: Stored) -> str:
        return str(found.generation)

    def store(self, settings: Settings, endpoint: str) -> StoreOptions:
        if settings.tokens:
            return GCSOptions(endpoint=endpoint, token=settings.tokens[0])
        return GCSOptions(endpoint=endpoint, access_key=settings.access_key, secret_key=settings.secret_key)

    def environment(self, settings: Settings, endpoint: str) -> dict[str, str]:
        keys = {"GCS_KEY": settings.access_key, "GCS_SECRET": settings.secret_key}
        return {"STORAGE_EMULATOR_HOST": endpoint, **keys}


WORDS = _Google(
    verbs={"get": _get, "head": _get, "move": _move, "copy-part": _no_part_copies},
    faults={**WITHOUT_REGIONS, "expired": replace(FAULTS["expired"], status=401, code="AuthenticationRequired")},
)
