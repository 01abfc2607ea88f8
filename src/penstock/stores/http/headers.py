"""Header values: numbers and times, percent-encoding, user metadata, lifetimes of signed URLs. Invalid text: None.

User metadata are printable ASCII as it is, RFC 2047's encoded words for all else. AWS decodes encoded words and answers
with them; other stores keep them as they are. Plain UTF-8 would be damaged on the way: many servers treat 0x85 and 0xA0
as white space or line breaks. Outer spaces, repeated spaces and empty values are lost, too.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.engine.contracts.credentials import Renewable
    from penstock.engine.contracts.driver import Attributes

# Sizes are signed 64-bit integers in every server and in catalogs.
SIZE_LIMIT = (1 << 63) - 1  # bytes
_SIZE = re.compile(r"[0-9]{1,19}").fullmatch
_DAY_S = 86_400
# Whether a version may be sent as a condition. A weak ETag never matches If-Match, and a line break could add a header:
# such versions are compared with the answer only.
is_strong = re.compile(r"(?!W/)[!#-~]+").fullmatch


def strip_quotes(etag: str) -> str:
    """Return a strong ETag without its quotes; a weak one keeps its prefix ``W/``."""
    return etag.strip().replace('"', "")


def parse_size(text: str) -> int | None:
    size = int(text) if _SIZE(text) else None
    return None if size is None or size > SIZE_LIMIT else size


def parse_date(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


def parse_retry_after(value: str) -> float | None:
    """Return the seconds of ``Retry-After``, a number or a date (RFC 9110, 10.2.3); None beyond a day."""
    if value.isascii() and value.isdigit():
        after_s = float(value)
    else:
        date_s = parse_date(value)
        if date_s is None:
            return None
        after_s = max(0.0, date_s - time())
    return after_s if after_s <= _DAY_S else None


def escape(key: str) -> str:
    """Percent-encode a key for a path: everything but unreserved characters and ``/``, once, in UTF-8."""
    return quote(key, safe="/-_.~")


def query_string(parameters: Mapping[str, str]) -> str:
    """Return the canonical query: sorted by name, everything but unreserved characters encoded, ``=`` always there."""
    pairs = [(quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parameters.items()]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def trim_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as signatures compare them: values without outer spaces, repeated spaces merged.

    Only spaces are removed: values are bytes in Latin-1, and ``str.split`` treats 0x85 and 0xA0, which end the UTF-8
    of many letters, as white space.
    """
    return {name: " ".join(filter(None, value.split(" "))) for name, value in headers.items()}


_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+").fullmatch  # RFC 9110's token, in lower case
_PLAIN = re.compile(r"(?!.*=\?)[!-~]+( [!-~]+)*").fullmatch
_TYPE = re.compile(r" *[!-~][ -~]*").fullmatch
_REFUSED = "\0\r\n"
_WORD_BYTES = 45  # an encoded word has at most 75 characters


def write_metadata(attributes: Attributes, prefix: str) -> dict[str, str]:
    """Return the headers for content type and user metadata; ``prefix`` is the dialect's, such as ``x-amz-meta-``."""
    if not _TYPE(attributes.content_type):
        raise Unusable(f"content_type must be printable ASCII, such as text/plain, got {attributes.content_type!r}")
    headers = {"content-type": attributes.content_type}
    items: Iterable[tuple[object, object]] = attributes.metadata.items()
    for name, value in items:
        if not isinstance(name, str) or not _NAME(name.lower()):
            raise Unusable(f"names of metadata must be letters, digits and '-' or '_', all ASCII, got {name!r}")
        header = f"{prefix}{name.lower()}"
        if header in headers:
            raise Unusable(f"two metadata names are equal in lower case: {name.lower()!r}")
        headers[header] = _encode_metadata(name, value)
    return headers


def _encode_metadata(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise Unusable(f"metadata must be strings: {name!r} is {type(value).__name__}, pass str(…)")
    if any(char in value for char in _REFUSED):
        raise Unusable(f"metadata must not contain NUL or line breaks: encode {name!r}, for example as JSON")
    if _PLAIN(value):
        return value
    try:
        return " ".join(f"=?UTF-8?B?{b64encode(piece).decode()}?=" for piece in _split_utf8(value.encode()))
    except UnicodeEncodeError:
        raise Unusable(f"metadata must be valid text: {name!r} contains a lone surrogate") from None


def _split_utf8(text: bytes) -> Iterator[bytes]:
    """Yield pieces of UTF-8 text, cut where a character begins; there is at least one piece."""
    at = 0
    while len(text) - at > _WORD_BYTES:
        stop = next(stop for stop in range(at + _WORD_BYTES, at, -1) if text[stop] & 0xC0 != 0x80)  # noqa: PLR2004  its form
        yield text[at:stop]
        at = stop
    yield text[at:]


def read_metadata(headers: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the user metadata in an answer's headers, decoded from encoded words or UTF-8, else unchanged."""
    found = {name[len(prefix) :]: value for name, value in headers.items() if name.startswith(prefix)}
    for name, value in found.items():
        with suppress(HeaderParseError, LookupError, ValueError):
            if value.startswith("=?"):
                words = decode_header(value)
                text = "".join(
                    word if isinstance(word, str) else word.decode(form or "latin-1") for word, form in words
                )
                text.encode()  # UTF-7 may hold half a surrogate pair
                found[name] = value if any(char in text for char in _REFUSED) else text
            elif not value.isascii():
                found[name] = value.encode("latin-1").decode()
    return found


# Maximum lifetime of version 4 signatures: of AWS, of Google, and of OSS.
WEEK_S = 7 * 86_400
_USUAL_S = 3600


def lifetime(asked_s: float | None, most_s: int, credentials: Renewable, now: float) -> tuple[int, str]:
    """Return the lifetime of a URL that is signed at ``now``, in seconds, and a note on a possible earlier end.

    ``asked_s=None`` means an hour, or less if the store or the credentials allow less; an explicit lifetime must not
    outlive the credentials.
    """
    left_s = math.inf if credentials.expires_at is None else credentials.expires_at - now
    seconds = int(min(_USUAL_S, most_s, left_s)) if asked_s is None else _check_expiry(asked_s)
    if seconds > most_s:
        raise Unusable(f"expires_s must be at most {most_s:,} seconds here, got {seconds:,}")
    if seconds > left_s or seconds < 1:
        raise Unusable(
            f"the credentials expire in {max(0, left_s):,.0f} seconds, before the URL: pass a smaller expires_s, or "
            "use keys that last"
        )
    unknown = bool(credentials.token) and credentials.expires_at is None
    note = "signed with a session token: the URL expires with the token, at an unknown time" if unknown else ""
    return seconds, note


def _check_expiry(asked: Any) -> int:  # noqa: ANN401  any value of the caller's
    usable = isinstance(asked, int | float) and not isinstance(asked, bool) and math.isfinite(asked)
    if not usable or asked < 1:
        raise Unusable(f"expires_s must be a number of seconds, at least 1, got {asked!r}")
    return int(asked)
