"""The dialects that the fault server speaks, by name: what each calls things, and what it makes of requests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.faults.dialects.words import Words

__all__ = ["DIALECTS", "spoken"]

# Name -> module of this folder that holds WORDS; imported when a server first speaks it.
DIALECTS = {"s3": "amazon", "gcs": "google", "oss": "alibaba", "azure": "azure", "azure-hns": "hierarchical"}


def spoken(dialect: str) -> Words:
    """Return what a dialect calls things; ``dialect`` is a name in ``DIALECTS``, or a module's full name, with dots."""
    found: Words = import_module(dialect if "." in dialect else f"{__package__}.{DIALECTS[dialect]}").WORDS
    return found
