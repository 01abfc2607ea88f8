"""User metadata as header values and back: printable ASCII as it is, RFC 2047's encoded words for all else.

AWS decodes encoded words and answers with them; other stores keep them as they are. Plain UTF-8 would be damaged on
the way: many servers treat 0x85 and 0xA0 as white space or line breaks. Outer spaces, repeated spaces and empty values
are lost, too.
"""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header
from typing import TYPE_CHECKING

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.engine.contracts.driver import Attributes

__all__ = ["read_metadata", "write_metadata"]

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+").fullmatch  # RFC 9110's token, in lower case
_PLAIN = re.compile(r"(?!.*=\?)[!-~]+( [!-~]+)*").fullmatch
_TYPE = re.compile(r" *[!-~][ -~]*").fullmatch
_REFUSED = "\0\r\n"
_WORD_BYTES = 45  # an encoded word has at most 75 characters


def write_metadata(attributes: Attributes, prefix: str) -> dict[str, str]:
    """Return the headers for content type and user metadata; ``prefix`` is the dialect's, such as ``x-amz-meta-``.

    Raises:
        Unusable: A name is not valid in a header, or two names are equal in lower case; a value is not a string, or
            holds a NUL or a line break; the content type is not printable ASCII.

    """
    if not _TYPE(attributes.content_type):
        raise Unusable(f"a content type is printable ASCII, such as text/plain, not {attributes.content_type!r}")
    headers = {"content-type": attributes.content_type}
    items: Iterable[tuple[object, object]] = attributes.metadata.items()
    for name, value in items:
        if not isinstance(name, str) or not _NAME(name.lower()):
            raise Unusable(f"names of metadata are letters, digits and '-' or '_', all ASCII, not {name!r}")
        header = f"{prefix}{name.lower()}"
        if header in headers:
            raise Unusable(f"names of metadata are lower case to a store: there are two that are {name.lower()!r}")
        headers[header] = _encoded(name, value)
    return headers


def _encoded(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise Unusable(f"metadata are strings: {name!r} is {type(value).__name__}, pass str(…)")
    if any(char in value for char in _REFUSED):
        raise Unusable(f"metadata hold no NUL and no line break: {name!r} does; encode it, as JSON for example")
    if _PLAIN(value):
        return value
    try:
        return " ".join(f"=?UTF-8?B?{b64encode(piece).decode()}?=" for piece in _pieces(value.encode()))
    except UnicodeEncodeError:
        raise Unusable(f"metadata are text: {name!r} holds half a surrogate pair") from None


def _pieces(text: bytes) -> Iterator[bytes]:
    """Yield pieces of UTF-8 text, cut where a character begins; there is at least one piece."""
    at = 0
    while len(text) - at > _WORD_BYTES:
        stop = next(stop for stop in range(at + _WORD_BYTES, at, -1) if text[stop] & 0xC0 != 0x80)  # noqa: PLR2004  its form
        yield text[at:stop]
        at = stop
    yield text[at:]


def read_metadata(headers: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the user metadata in an answer's headers, decoded from encoded words or from plain UTF-8.

    A value that is neither, or that could not be written again, is returned unchanged.
    """
    found = {name[len(prefix) :]: value for name, value in headers.items() if name.startswith(prefix)}
    for name, value in found.items():
        with suppress(HeaderParseError, LookupError, ValueError):
            if value.startswith("=?"):
                text = "".join(_decoded(*word) for word in decode_header(value))
                text.encode()  # UTF-7 may hold half a surrogate pair
                found[name] = value if any(char in text for char in _REFUSED) else text
            elif not value.isascii():
                found[name] = value.encode("latin-1").decode()
    return found


def _decoded(piece: str | bytes, charset: str | None) -> str:
    return piece.decode(charset or "latin-1") if isinstance(piece, bytes) else piece
