"""How keys, sizes and times are printed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from penstock.errors import printable

__all__ = ["harmless", "moment", "readable"]


def moment(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None for none, and for one that no calendar has."""
    try:
        return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


def harmless(text: str) -> str:
    """Keep keys from steering a terminal; what goes to a file or a program stays as it is."""
    return printable(text) if sys.stdout.isatty() else text


def readable(size_bytes: int) -> str:
    """Return a number of bytes for people: ``1.5 GiB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:  # noqa: PLR2004  what the units are made of
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size_bytes} bytes"
        size /= 1024
    return f"{size:,.3g} PiB"
