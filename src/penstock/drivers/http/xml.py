"""XML in answers, read without trust: no DTD, no foreign encoding, no entity; the text is bounded by the request."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from penstock.errors import Damaged

__all__ = ["child_texts", "local_name", "parse_xml"]

# No object store sends these, and both can hurt a parser: entities, and an encoding that hides them.
_DTD = b"<!DOCTYPE"
_ENCODED = re.compile(rb"<\?xml[^>]*\bencoding\s*=\s*[\"'](?!(?:utf-?8|us-ascii)\b)", re.IGNORECASE)


def parse_xml(body: object) -> ET.Element:
    """Return the root element of an answer's body.

    Raises:
        Damaged: No XML, or XML with a DTD or in another encoding than UTF-8.

    """
    data = body.strip() if isinstance(body, bytes) else b""
    if _DTD in data or b"\0" in data or _ENCODED.match(data):
        raise Damaged("the answer is no XML that an object store sends: check endpoint=")
    try:
        return ET.fromstring(data)  # noqa: S314  no DTD, so no entities
    except (ET.ParseError, ValueError, LookupError) as error:
        problem = f"the answer is no XML ({error})" if data else "the answer is empty, where XML should be"
        raise Damaged(f"{problem}: no object store sends that, check endpoint=") from None


def local_name(element: ET.Element) -> str:
    """Return an element's name without its namespace, which differs from server to server."""
    return element.tag.rpartition("}")[2]


def child_texts(element: ET.Element) -> dict[str, str]:
    """Return the texts of an element's children by their names."""
    return {local_name(child): child.text or "" for child in element}
