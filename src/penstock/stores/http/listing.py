"""Listings in XML as pages: objects and common prefixes, unfinished uploads, and the token that continues them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from penstock.engine.listing.listing import Entries
from penstock.errors import Damaged
from penstock.stores.http.headers import parse_size, unquoted
from penstock.stores.http.xml import child_texts, local_name
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from xml.etree.ElementTree import Element

    from penstock.stores.http.tabular import Columns

__all__ = ["parse_iso_date", "read_page", "read_uploads", "required", "required_size"]

_QUOTED = 40  # characters of a foreign text


def read_page(
    root: Element, version: str = "ETag", *, escaped_token: bool = False, entries: Columns | None = None
) -> Page:
    """Read a ListObjectsV2 answer; ``version`` is the element that holds an object's version.

    ``escaped_token``: the continuation token is escaped if the keys are. ``entries`` were already read, and are not in
    ``root``.

    Raises:
        Damaged: An entry lacks its key or size, or the answer does not say how it continues. Dates may be invalid.

    """
    fields = child_texts(root)
    decode = _decoder(fields)
    found: list[ObjectMeta] = []
    prefixes = []
    for child in root:
        name = local_name(child)
        if name == "Contents":
            entry = child_texts(child)
            size, etag = required_size(entry, "Size"), unquoted(entry.get(version, ""))
            key, modified = decode(required(entry, "Key")), parse_iso_date(entry.get("LastModified", ""))
            found.append(ObjectMeta(key, size, etag, modified))
        elif name == "CommonPrefixes":
            prefixes.append(decode(required(child_texts(child), "Prefix")))
    token = _token(fields, ("NextContinuationToken",))
    token = decode(token) if escaped_token else token
    if entries is None:
        return Page(tuple(found), tuple(prefixes), token)
    keys = entries.keys if decode is str else _unescaped_all(entries.keys)
    return Page(Entries(keys, entries.sizes, entries.etags, entries.dates, parse_iso_date), tuple(prefixes), token)


def read_uploads(root: Element) -> Uploads:
    """Read a ListMultipartUploads answer. Raises as ``read_page``."""
    fields = child_texts(root)
    decode = _decoder(fields)
    entries = []
    for child in root:
        if local_name(child) == "Upload":
            entry = child_texts(child)
            begun = parse_iso_date(entry.get("Initiated", ""))
            entries.append(Upload(decode(required(entry, "Key")), required(entry, "UploadId"), begun))
    fields.setdefault("IsTruncated", "false")  # gofakes3 omits it where it is false
    return Uploads(tuple(entries), decode(_token(fields, ("NextKeyMarker", "NextUploadIdMarker"))))


def required(entry: Mapping[str, str], name: str) -> str:
    """Return a required field of an entry; raise ``Damaged`` if it is missing or empty."""
    text = entry.get(name, "")
    if not text:
        raise Damaged(f"the listing has an entry without a {name}")
    return text


def required_size(entry: Mapping[str, str], name: str) -> int:
    """Return the size of an entry, in bytes; raise ``Damaged`` if it is missing or invalid."""
    text = required(entry, name)
    size = parse_size(text)
    if size is None:
        raise Damaged(f"the listing has an entry of {text[:_QUOTED]!r} bytes")
    return size


def parse_iso_date(date: str) -> float | None:
    """Return an ISO 8601 date in seconds since the epoch; None if the text is empty or invalid."""
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


def _decoder(fields: Mapping[str, str]) -> Callable[[str], str]:
    return _unescaped if fields.get("EncodingType") == "url" else str


def _unescaped(text: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise Damaged(f"the listing holds {text[:200]!r}, which is no key: it is not UTF-8") from None


def _unescaped_all(keys: list[str]) -> list[str]:
    text = "\n".join(keys)
    if "%" not in text and "+" not in text:
        return keys
    if "%0A" in text or "%0a" in text:
        return [*map(_unescaped, keys)]
    return _unescaped(text).split("\n")


def _token(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the token of a truncated listing; several markers are joined by a NUL, which no upload's id holds."""
    truncated = fields.get("IsTruncated", "").strip().lower()
    if truncated == "false":
        return ""
    token = "\0".join(fields.get(name, "") for name in names)
    if truncated != "true" or not token.strip("\0"):
        raise Damaged("a listing does not say whether it is whole, or how it goes on")
    return token
