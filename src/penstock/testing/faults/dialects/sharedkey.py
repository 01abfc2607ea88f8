"""Who may ask Azure Blob Storage: Shared Key, bearer tokens, and signatures in the URL of what is copied."""

from __future__ import annotations

import base64
import hmac
import time
from email.utils import parsedate_to_datetime
from hashlib import md5
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.testing.faults.message import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.testing.faults.dialects.words import Access, Shelves
    from penstock.testing.faults.message import Request

__all__ = ["account_of", "check", "check_source", "digest"]

_SKEW_S = 15 * 60
_STANDARD = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
_ORDER = "_0123456789abcdefghijklmnopqrstuvwxyz"  # of a header's name, without its hyphens


def account_of(key: str) -> str:
    """Return the account that the server makes of an access key's name: letters and digits only."""
    return key.replace("-", "")


def digest(data: bytes | bytearray) -> str:
    """Return the Content-MD5 of a body."""
    return base64.b64encode(md5(data, usedforsecurity=False).digest()).decode()


def check(request: Request, access: Access, now: float) -> None:
    """Raise ``Refused`` for a request without access, or with a body that its MD5 does not fit."""
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
    if "content-md5" in headers and headers["content-md5"] != digest(request.body):
        raise Refused(400, "Md5Mismatch", "The MD5 value specified in the request did not match the calculated one.")


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
    """Raise ``Refused`` unless the shared access signature of the request's URL is right, and for what it asks."""
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
    """Return the string to sign of "Authorize with Shared Key", of this request."""
    headers = dict(request.headers)
    if "x-ms-range" in headers:
        headers.pop("range", None)
    if headers.get("content-length") == "0":
        headers.pop("content-length")
    own = sorted((name for name in headers if name.startswith("x-ms-")), key=_collated)
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


def _collated(name: str) -> list[int]:
    return [_ORDER.index(letter) for letter in name if letter != "-"]


def check_source(shelves: Shelves, request: Request) -> tuple[str, str]:
    """Return container and key of what is copied; ``Refused`` unless its URL or the request authorises to read it."""
    url = urlsplit(request.headers["x-ms-copy-source"])
    account, bucket, key = (unquote(part) for part in url.path.removeprefix("/").split("/", 2))
    token = request.headers.get("x-ms-copy-source-authorization", "").removeprefix("Bearer ")
    if token in shelves.access.tokens:
        return bucket, key
    given = {name: values[0] for name, values in parse_qs(url.query).items()}
    secrets = {account_of(name): secret for name, secret in shelves.access.keys.items()}
    right = _is_shared(given, f"/blob/{account}/{bucket}/{key}", secrets.get(account, ""), time.time())
    if not right or "r" not in given["sp"]:
        raise Refused(403, "CannotVerifyCopySource", "the source is not authorised")
    return bucket, key
