"""Parser for untrusted XML in answers: no DTD, no other encoding, no entities; elements, attributes and names bounded.

Within these bounds, time and memory are proportional to the text, whose size the request bounds.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET
from xml.parsers import expat

from penstock.errors import Damaged

__all__ = ["child_texts", "local_name", "parse_xml"]

# No object store sends these, and both can harm a parser: entities, and an encoding that hides them.
_DTD = b"<!DOCTYPE"
_ENCODED = re.compile(rb"<\?xml[^>]*\bencoding\s*=\s*[\"'](?!(?:utf-?8|us-ascii)\b)", re.IGNORECASE)
# Most elements, and most attributes, of a document: a page of 5,000 blobs has some 40 elements for each.
_ELEMENTS = 1 << 19
# Most bytes of a tag with the text behind it: keys, metadata and tokens are shorter.
_TOKEN_BYTES = 16 << 10
_SLICE_BYTES = 64 << 10  # other threads run between slices
# ElementTree writes the namespace into each name, so a long one makes a short document large.
_NAMESPACE = re.compile(rb"xmlns(?::[A-Za-z0-9]{1,16})?=(?:\"[^\"<]{0,200}\"|'[^'<]{0,200}')")
_XMLNS = b"xmlns"


def parse_xml(body: object) -> ET.Element:
    """Return the root element of an answer's body.

    Raises:
        Damaged: The body is not XML, has a DTD or an encoding besides UTF-8, or exceeds the bounds of this module.

    """
    data = body.strip() if isinstance(body, bytes) else b""
    if _DTD in data or b"\0" in data or _ENCODED.match(data):
        raise Damaged("the answer is no XML that an object store sends: check endpoint=")
    _check_bounds(data)
    try:
        if data.count(_XMLNS) != len(_NAMESPACE.findall(data)):
            return _without_namespaces(data)
        if len(data) <= _SLICE_BYTES:
            return ET.fromstring(data)  # noqa: S314  no DTD, so no entities
        return _in_slices(data)
    except (ET.ParseError, expat.ExpatError, ValueError, LookupError) as error:
        problem = f"the answer is no XML ({error})" if data else "the answer is empty, where XML should be"
        raise Damaged(f"{problem}: no object store sends that, check endpoint=") from None


def local_name(element: ET.Element) -> str:
    """Return an element's name without its namespace, which differs from server to server."""
    return element.tag.rpartition("}")[2]


def child_texts(element: ET.Element) -> dict[str, str]:
    """Return the texts of an element's children by their names."""
    return {local_name(child): child.text or "" for child in element}


def _check_bounds(data: bytes) -> None:
    if data.count(b"<") - data.count(b"</") > _ELEMENTS or data.count(b"=") > _ELEMENTS:
        raise Damaged(f"the answer is XML of more than {_ELEMENTS} elements or attributes: check endpoint=")
    at, last = 0, len(data) - _TOKEN_BYTES
    while at < last:
        mark = data.rfind(b"<", at + 1, at + _TOKEN_BYTES)
        if mark < 0:
            raise Damaged(f"the answer is XML with a name or a text of more than {_TOKEN_BYTES} bytes: check endpoint=")
        at = mark


def _in_slices(data: bytes) -> ET.Element:
    """Parse slice by slice, so that other threads can run in between.

    Expat before 2.6 parses a tag, comment or instruction again with every slice that does not end it. Tags are short
    here; a document with comments or instructions is parsed in one go.
    """
    declared = not data.startswith(b"<?") or data.find(b"?>", 0, _SLICE_BYTES) > 0
    whole = b"<!" in data or data.find(b"<?", 1) > 0 or not declared
    size = len(data) if whole else _SLICE_BYTES
    parser = ET.XMLParser()  # noqa: S314  as above
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
    return parser.close()


def _without_namespaces(data: bytes) -> ET.Element:
    """Parse XML with unusual namespace names, or with ``xmlns`` in a text, unchanged: half as fast as ElementTree."""
    builder, parser = ET.TreeBuilder(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: builder.start(tag.rpartition(":")[2], attributes)
    parser.EndElementHandler = lambda tag: builder.end(tag.rpartition(":")[2])
    parser.CharacterDataHandler = builder.data
    parser.Parse(data, True)  # noqa: FBT003  the end of the document
    return builder.close()
