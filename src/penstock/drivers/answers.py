"""What S3 says in its answers: XML documents, dates and tags, as values."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from penstock.errors import Damaged
from penstock.values import ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["bare", "page", "seconds", "text_of", "uploads"]


def bare(etag: str) -> str:
    """Strip the quotes of a strong tag; a weak one keeps its mark."""
    return etag.strip().replace('"', "")


def seconds(date: str) -> float | None:
    """Read an HTTP date; None where there is none, or nonsense."""
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None


def text_of(body: object, name: str, url: str) -> str:
    """Return the text of the document's child ``name``, empty where there is none; ``Damaged`` if it is no XML."""
    return _texts(_document(body, url)).get(name, "")


def page(body: object, url: str) -> Page:
    """Read a ListObjectsV2 answer."""
    root = _document(body, url)
    texts = _texts(root)
    decode = _decoder(texts)
    entries, prefixes = [], []
    for child in root:
        name = _local(child)
        if name == "Contents":
            entry = _texts(child)
            size, etag = int(entry.get("Size", "0")), bare(entry.get("ETag", ""))
            entries.append(ObjectMeta(decode(entry["Key"]), size, etag, _iso_seconds(entry.get("LastModified", ""))))
        elif name == "CommonPrefixes":
            prefixes.append(decode(_texts(child)["Prefix"]))
    return Page(tuple(entries), tuple(prefixes), _token(texts, ("NextContinuationToken",), url))


def uploads(body: object, url: str) -> Uploads:
    """Read a ListMultipartUploads answer."""
    root = _document(body, url)
    texts = _texts(root)
    decode = _decoder(texts)
    found = [_texts(child) for child in root if _local(child) == "Upload"]
    entries = [Upload(decode(each["Key"]), each["UploadId"], _iso_seconds(each.get("Initiated", ""))) for each in found]
    return Uploads(tuple(entries), decode(_token(texts, ("NextKeyMarker", "NextUploadIdMarker"), url)))


def _document(body: object, url: str) -> ET.Element:
    try:
        return ET.fromstring(body.strip() if isinstance(body, bytes) else b"")  # noqa: S314  expat >= 2.4.1 bounds entity expansion
    except ET.ParseError as error:
        raise Damaged(f"the server's answer is no XML ({error})", url=url) from None


def _local(element: ET.Element) -> str:
    """Return an element's name without its namespace, which differs from server to server."""
    return element.tag.rpartition("}")[2]


def _texts(element: ET.Element) -> dict[str, str]:
    return {_local(child): child.text or "" for child in element}


def _decoder(texts: dict[str, str]) -> Callable[[str], str]:
    return unquote_plus if texts.get("EncodingType") == "url" else str


def _token(texts: dict[str, str], names: tuple[str, ...], url: str) -> str:
    """Return what continues a truncated listing; of several markers, joined by a NUL, which no key holds."""
    if texts.get("IsTruncated") != "true":
        return ""
    token = "\0".join(texts.get(name, "") for name in names)
    if not token.strip("\0"):
        raise Damaged("a truncated listing does not say how it goes on", url=url)
    return token


def _iso_seconds(date: str) -> float | None:
    try:
        return datetime.fromisoformat(date).timestamp() if date else None
    except ValueError:
        return None
