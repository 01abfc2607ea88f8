"""Header values as numbers and times: ETags, sizes, HTTP dates, ``Retry-After``. Invalid text gives None, no error."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from time import time

__all__ = ["SIZE_LIMIT", "is_strong", "parse_date", "parse_retry_after", "parse_size", "unquoted"]

# Sizes are signed 64-bit integers in every server and in catalogs.
SIZE_LIMIT = (1 << 63) - 1  # bytes
_SIZE = re.compile(r"[0-9]{1,19}").fullmatch
_DAY_S = 86_400
# Whether a version may be sent as a condition. A weak ETag never matches If-Match, and a line break could add a header:
# such versions are compared with the answer only.
is_strong = re.compile(r"(?!W/)[!#-~]+").fullmatch


def unquoted(etag: str) -> str:
    """Return a strong ETag without its quotes; a weak one keeps its prefix ``W/``."""
    return etag.strip().replace('"', "")


def parse_size(text: str) -> int | None:
    """Return a number of bytes."""
    size = int(text) if _SIZE(text) else None
    return None if size is None or size > SIZE_LIMIT else size


def parse_date(date: str) -> float | None:
    """Return an HTTP date in seconds since the epoch."""
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None


def parse_retry_after(value: str) -> float | None:
    """Return the seconds that ``Retry-After`` asks for, given as seconds or as a date (RFC 9110, 10.2.3).

    None beyond a day: no server can know that far ahead.
    """
    if value.isascii() and value.isdigit():
        after_s = float(value)
    else:
        date_s = parse_date(value)
        if date_s is None:
            return None
        after_s = max(0.0, date_s - time())
    return after_s if after_s <= _DAY_S else None
