"""Percent-encoding of paths and queries, and header values in the form that signatures compare."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["escape", "query_string", "trimmed"]


def escape(key: str) -> str:
    """Percent-encode a key for a path: everything but unreserved characters and ``/``, once, in UTF-8."""
    return quote(key, safe="/-_.~")


def query_string(parameters: Mapping[str, str]) -> str:
    """Return the canonical query: sorted by name, everything but unreserved characters encoded, ``=`` always there."""
    pairs = [(quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parameters.items()]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def trimmed(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as signatures compare them: values without outer spaces, repeated spaces merged.

    Only spaces are removed: values are bytes in Latin-1, and ``str.split`` treats 0x85 and 0xA0, which end the UTF-8
    of many letters, as white space.
    """
    return {name: " ".join(filter(None, value.split(" "))) for name, value in headers.items()}
