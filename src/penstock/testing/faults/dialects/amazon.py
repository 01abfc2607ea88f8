"""The dialect of Amazon S3."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

from penstock.stores.s3.options import S3Options
from penstock.testing.faults.dialects.words import Access, Words
from penstock.testing.faults.message import Refused, Request
from penstock.testing.faults.signature import check_body, check_query, check_signature

if TYPE_CHECKING:
    from penstock.options import StoreOptions
    from penstock.testing.faults.script import Settings
    from penstock.testing.faults.shelf import Bucket, Stored

__all__ = ["WORDS", "check_version"]


def _check(request: Request, access: Access, now: float) -> None:
    if not check_query(request, access.keys, access.regions, now):
        check_signature(request, access.keys, access.regions, now)
        token = request.headers.get("x-amz-security-token")
        if token is not None and token not in access.tokens:
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
        check_body(request)


def _hold(bucket: Bucket, request: Request, how: str) -> None:
    new, old = request.headers.get("if-none-match", ""), request.headers.get("if-match", "")
    if request.verb not in ("put", "complete"):
        return
    if how == "refused" and (new or old):
        raise Refused(501, "NotImplemented", "a header you provided implies functionality that is not implemented")
    if how in ("ignored", "refused") or (how == "bare" and request.verb == "complete"):
        return
    if new == "*" and request.key in bucket.objects:
        raise Refused(412, "PreconditionFailed")
    if old:
        check_version(bucket.find(request.key), old, bare=how == "bare")


def check_version(found: Stored, wanted: str, *, bare: bool = False) -> None:
    """Raise ``Refused`` unless the object's ETag is ``wanted``, with or (``bare``) without quotes."""
    if wanted != "*" and (wanted if bare else wanted.strip('"')) != found.etag:
        raise Refused(412, "PreconditionFailed")


def _pin(found: Stored, request: Request) -> None:
    check_version(found, request.headers.get("if-match", "*"))


def _pin_source(found: Stored, request: Request) -> None:
    check_version(found, request.headers.get("x-amz-copy-source-if-match", "*"))


def _etag(found: Stored) -> dict[str, str]:
    return {"ETag": f'"{found.etag}"'}


def _digests(found: Stored, request: Request) -> dict[str, str]:
    if request.headers.get("x-amz-checksum-mode", "").upper() != "ENABLED":
        return {}
    return {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(found.data).to_bytes(4, "big")).decode()}


def _store(settings: Settings, endpoint: str) -> StoreOptions:
    return S3Options(
        endpoint=endpoint, region=settings.region, access_key=settings.access_key, secret_key=settings.secret_key
    )


def _environment(settings: Settings, endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": settings.access_key,
        "AWS_SECRET_ACCESS_KEY": settings.secret_key,
        "AWS_REGION": settings.region,
    }


WORDS = Words(
    scheme="s3",
    prefix="x-amz-",
    version="ETag",
    check=_check,
    hold=_hold,
    pin=_pin,
    pin_source=_pin_source,
    described=_etag,
    digests=_digests,
    written=_etag,
    listed=_etag,
    store=_store,
    environment=_environment,
)
