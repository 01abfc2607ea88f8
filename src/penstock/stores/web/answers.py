"""Properties of a file in a web server's answer: its version, its size, and whether its bytes are as stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import MOVED
from penstock.errors import ConfigError, Unusable
from penstock.stores.http.headers import is_strong, parse_date, parse_size, unquoted
from penstock.stores.http.verify import Verification
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engine.contracts.exchange import Response
    from penstock.errors import PenstockError

__all__ = ["BY_DATE", "BY_ETAG", "check_encoding", "described", "moved", "verification", "version_of"]

BY_ETAG = Verification()
BY_DATE = Verification(version="last-modified")
_RANGE = re.compile(r"bytes (?:[0-9]+-[0-9]+|\*)/([0-9]{1,19})").fullmatch
# Suffixes of compressed files: the compressed bytes are the stored ones, and are the wanted ones.
_COMPRESSED = (".gz", ".tgz", ".gzip", ".z", ".bz2", ".xz", ".zst", ".br", ".svgz", ".warc", ".vcf", ".bgz", ".deflate")


def version_of(headers: Mapping[str, str]) -> str:
    """Return the version of a file: its strong ETag, else its date, else a weak ETag; empty without any.

    Dates contain spaces, ETags never do (RFC 9110, 8.8.3).
    """
    etag = unquoted(headers.get("etag", ""))
    if etag and is_strong(etag):
        return etag
    return headers.get("last-modified", "").strip() or etag


def verification(headers: Mapping[str, str]) -> Verification:
    """Return the verification that compares the version in answers with these headers."""
    return BY_DATE if " " in version_of(headers) else BY_ETAG


def described(key: str, response: Response, *, by_get: bool = False) -> ObjectMeta | None:
    """Return a file's metadata from an answer to HEAD or (``by_get``) to GET of its first byte; None without a size.

    Raises:
        Unusable: The file is sent compressed, although the request asked for the stored bytes.

    """
    headers = response.headers
    check_encoding(response, key)
    if response.status in (206, 416):
        total = _RANGE(headers.get("content-range", ""))
        size = parse_size(total[1]) if total else None
        if response.status == 416 and size:  # noqa: PLR2004  416 fits an empty file only
            size = None
    else:
        size = parse_size(headers.get("content-length", ""))
    version = version_of(headers)
    if size is None or (not size and not version and response.status == 200 and not by_get):  # noqa: PLR2004
        # Programs that answer HEAD carelessly say 0; lighttpd sends no version of empty files.
        return None
    modified, kind = parse_date(headers.get("last-modified", "")), headers.get("content-type", "")
    return ObjectMeta(key, size, version, modified, content_type=kind)


def check_encoding(response: Response, key: str) -> None:
    """Raise ``Unusable`` if the bytes are a compressed form that was not requested.

    A file whose name says that it is compressed is read as stored: servers name its encoding, too.
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
    """Return the error that makes the same verb run again at once, after the driver has learned something."""
    error = ConfigError(why, url=url)
    error.code, error.retries = MOVED, 1
    return error
