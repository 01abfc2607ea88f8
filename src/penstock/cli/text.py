"""Text forms of keys, sizes and times for output."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from penstock.errors import printable

__all__ = ["harmless", "moment", "readable"]


def moment(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None for None, and for a time that no calendar has."""
    try:
        return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def harmless(text: str) -> str:
    """Escape control characters if standard output is a terminal; output to a file or program stays unchanged."""
    return printable(text) if sys.stdout.isatty() else text


def readable(size_bytes: int) -> str:
    """Return a readable number of bytes: ``1.5 GiB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:  # noqa: PLR2004  factor between units
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size_bytes} bytes"
        size /= 1024
    return f"{size:,.3g} PiB"
