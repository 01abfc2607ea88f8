"""JSON documents that contain their own digest: any flipped bit is detected, any JSON reader can read them. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import xxhash

__all__ = ["BLANK", "MOST_VALUES", "document", "limited", "stored_digest", "with_digest"]

BLANK = "0" * 16
# Of a header or an index: 400,000 tensors, parsed in 0.4 GB of memory.
MOST_VALUES = 1 << 22
_BEFORE_VALUES = (b"{", b"[", b",")


def with_digest(raw: bytes, key: str) -> tuple[bytes, str]:
    """Replace the ``BLANK`` under ``key`` by the XXH3 of ``raw``; return the result and the digest."""
    digest = xxhash.xxh3_64_hexdigest(raw)
    return _filled(raw, key, digest), digest


def stored_digest(raw: bytes, key: str, beside: bytes) -> str:
    """Return the digest stored in ``raw`` under ``key``; empty if ``raw`` contains neither a digest nor ``beside``.

    Penstock writes both, so a single flipped bit cannot make its text look like one that never had a digest.

    Raises:
        ValueError: ``raw`` is not what ``with_digest`` returned.

    """
    found = _pattern(key).findall(raw)
    if not found and beside not in raw:
        return ""
    if len(found) != 1 or with_digest(_filled(raw, key, BLANK), key)[0] != raw:
        raise ValueError("it is not as Penstock wrote it (or another program copied its metadata to another file)")
    return str(found[0][1].decode())


def document(raw: bytes) -> Any:  # noqa: ANN401  any JSON
    """Parse JSON in UTF-8.

    Raise ``ValueError`` for invalid JSON, a repeated name or more than ``MOST_VALUES`` values. Raise
    ``RecursionError`` if it is nested too deep.
    """
    limited(raw, MOST_VALUES)
    return json.loads(raw.decode(), object_pairs_hook=_unique)


def limited(raw: bytes, most: int) -> None:
    """Raise ``ValueError`` if JSON may hold more than ``most`` values; each takes 60 bytes of memory or more."""
    if sum(map(raw.count, _BEFORE_VALUES)) > most:
        raise ValueError(f"it has more than {most:,} values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r:.80} comes twice")
        found[name] = value
    return found


def _filled(raw: bytes, key: str, digest: str) -> bytes:
    return _pattern(key).sub(rb"\g<1>%b\3" % digest.encode(), raw)


def _pattern(key: str) -> re.Pattern[bytes]:
    return re.compile(rb'("%b": ?")([0-9a-f]{16})(")' % re.escape(key).encode())
