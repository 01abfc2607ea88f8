"""What S3 says in its answers: XML documents, dates and tags, as values."""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from penstock.errors import Damaged
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["bare", "document", "name_of", "page", "seconds", "size_of", "texts", "uploads"]

_SIZE = re.compile(r"[0-9]{1,19}").fullmatch
_MOST_BYTES = (1 << 63) - 1  # sizes are signed 64-bit integers in every server and in catalogs
_QUOTED = 40  # characters of what is no size
# What no S3 server sends, and what a parser can be hurt with: entities, and encodings to hide them in.
_DTD = b"<!DOCTYPE"
_ENCODED = re.compile(rb"<\?xml[^>]*\bencoding\s*=\s*[\"'](?!(?:utf-?8|us-ascii)\b)", re.IGNORECASE)


def bare(etag: str) -> str:
    """Strip the quotes of a strong tag; a weak one keeps its mark."""
    return etag.strip().replace('"', "")


def seconds(date: str) -> float | None:
    """Read an HTTP date; None where there is none, or nonsense."""
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


def size_of(text: str) -> int | None:
    """Read a number of bytes; None where there is none, or nonsense."""
    size = int(text) if _SIZE(text) else None
    return None if size is None or size > _MOST_BYTES else size


def document(body: object) -> ET.Element:
    """Read an answer's XML. ``Damaged`` where it is none, or has what no S3 server sends: a DTD, another encoding."""
    data = body.strip() if isinstance(body, bytes) else b""
    if _DTD in data or b"\0" in data or _ENCODED.match(data):
        raise Damaged("the answer is no XML that an S3 server sends: check endpoint=")
    try:
        return ET.fromstring(data)  # noqa: S314  no DTD, so no entities
    except (ET.ParseError, ValueError, LookupError) as error:
        what = f"the answer is no XML ({error})" if data else "the answer is empty, where XML should be"
        raise Damaged(f"{what}: no S3 server sends that, check endpoint=") from None


def name_of(element: ET.Element) -> str:
    """Return an element's name without its namespace, which differs from server to server."""
    return element.tag.rpartition("}")[2]


def texts(element: ET.Element) -> dict[str, str]:
    """Return the texts of an element's children by their names."""
    return {name_of(child): child.text or "" for child in element}


def page(root: ET.Element) -> Page:
    """Read a ListObjectsV2 answer. ``Damaged`` where something is missing or is nonsense, dates excepted."""
    said = texts(root)
    decode = _decoder(said)
    entries, prefixes = [], []
    for child in root:
        name = name_of(child)
        if name == "Contents":
            entry = texts(child)
            size, etag = _size(_needed(entry, "Size")), bare(entry.get("ETag", ""))
            key, modified = decode(_needed(entry, "Key")), _iso_seconds(entry.get("LastModified", ""))
            entries.append(ObjectMeta(key, size, etag, modified))
        elif name == "CommonPrefixes":
            prefixes.append(decode(_needed(texts(child), "Prefix")))
    return Page(tuple(entries), tuple(prefixes), _token(said, ("NextContinuationToken",)))


def uploads(root: ET.Element) -> Uploads:
    """Read a ListMultipartUploads answer. ``Damaged`` as ``page``."""
    said = texts(root)
    decode = _decoder(said)
    entries = []
    for child in root:
        if name_of(child) == "Upload":
            each = texts(child)
            begun = _iso_seconds(each.get("Initiated", ""))
            entries.append(Upload(decode(_needed(each, "Key")), _needed(each, "UploadId"), begun))
    said.setdefault("IsTruncated", "false")  # gofakes3 leaves it out where it is
    return Uploads(tuple(entries), decode(_token(said, ("NextKeyMarker", "NextUploadIdMarker"))))


def _needed(said: dict[str, str], name: str) -> str:
    text = said.get(name, "")
    if not text:
        raise Damaged(f"the listing has an entry without a {name}")
    return text


def _size(text: str) -> int:
    size = size_of(text)
    if size is None:
        raise Damaged(f"the listing has an entry of {text[:_QUOTED]!r} bytes")
    return size


def _decoder(said: dict[str, str]) -> Callable[[str], str]:
    return _unescaped if said.get("EncodingType") == "url" else str


def _unescaped(text: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise Damaged(f"the listing holds {text!r}, which is no key: it is not UTF-8") from None


def _token(said: dict[str, str], names: tuple[str, ...]) -> str:
    """Return what continues a truncated listing; of several markers, joined by a NUL, which no upload's id holds."""
    truncated = said.get("IsTruncated", "").strip().lower()
    if truncated == "false":
        return ""
    token = "\0".join(said.get(name, "") for name in names)
    if truncated != "true" or not token.strip("\0"):
        raise Damaged("a listing does not say whether it is whole, or how it goes on")
    return token


def _iso_seconds(date: str) -> float | None:
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None
