"""What a web server's answer says of a file: its version, its size, and whether its bytes are the file's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.drivers.http.headers import is_strong, parse_date, parse_size, unquoted
from penstock.drivers.http.verify import Verification
from penstock.errors import ConfigError, Unusable
from penstock.protocols.driver import MOVED
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.errors import PenstockError
    from penstock.protocols.exchange import Response

__all__ = ["BY_DATE", "BY_ETAG", "check_encoding", "described", "moved", "verification", "version_of"]

BY_ETAG = Verification()
BY_DATE = Verification(version="last-modified")
_RANGE = re.compile(r"bytes (?:[0-9]+-[0-9]+|\*)/([0-9]{1,19})").fullmatch
# By the end of a name that says so itself: the bytes that are stored are the compressed ones, and are what is meant.
_COMPRESSED = (".gz", ".tgz", ".gzip", ".z", ".bz2", ".xz", ".zst", ".br", ".svgz", ".warc", ".vcf", ".bgz", ".deflate")


def version_of(headers: Mapping[str, str]) -> str:
    """Return the version of a file: its strong ETag, else its date, else a weak ETag; empty where there is none.

    A date has spaces in it, which no ETag has (RFC 9110, 8.8.3).
    """
    etag = unquoted(headers.get("etag", ""))
    if etag and is_strong(etag):
        return etag
    return headers.get("last-modified", "").strip() or etag


def verification(headers: Mapping[str, str]) -> Verification:
    """Return how answers with these headers show their version."""
    return BY_DATE if " " in version_of(headers) else BY_ETAG


def described(key: str, response: Response, *, by_get: bool = False) -> ObjectMeta | None:
    """Return what an answer to HEAD, or (``by_get``) to GET of the first byte, says of a file; None without a size.

    Raises:
        Unusable: It is sent compressed, though it was asked for as it is.

    """
    headers = response.headers
    check_encoding(response, key)
    if response.status in (206, 416):
        total = _RANGE(headers.get("content-range", ""))
        size = parse_size(total[1]) if total else None
        if response.status == 416 and size:  # noqa: PLR2004  only of an empty file is the first byte too far
            size = None
    else:
        size = parse_size(headers.get("content-length", ""))
    version = version_of(headers)
    if size is None or (not size and not version and response.status == 200 and not by_get):  # noqa: PLR2004
        return None  # programs that answer HEAD without thinking say 0; lighttpd says no version of empty files
    modified, kind = parse_date(headers.get("last-modified", "")), headers.get("content-type", "")
    return ObjectMeta(key, size, version, modified, content_type=kind)


def check_encoding(response: Response, key: str) -> None:
    """Raise ``Unusable`` where the bytes are those of a compressed form that was not asked for.

    A file whose name says that it is compressed is meant as it is: servers name its encoding too.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity") or key.partition("?")[0].lower().endswith(_COMPRESSED):
        return
    message = (
        f"the server sends this compressed ({encoding[:40]!r}) though it was asked not to: these are not the file's "
        "bytes; switch that off at the server for these files"
    )
    raise Unusable(message)


def moved(why: str, url: str) -> PenstockError:
    """Return the error by which the same verb is asked again at once, now that the driver knows better."""
    error = ConfigError(why, url=url)
    error.code, error.retries = MOVED, 1
    return error
