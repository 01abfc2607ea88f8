"""Dialects of the fault server by name: names, headers and request handling of each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.faults.dialects.words import Words

__all__ = ["DIALECTS", "spoken"]

# Name -> module of this folder that defines WORDS; imported when a server first speaks the dialect.
DIALECTS = {"s3": "amazon", "gcs": "google", "oss": "alibaba", "azure": "azure", "azure-hns": "hierarchical"}


def spoken(dialect: str) -> Words:
    """Return the ``WORDS`` of a dialect, by its name in ``DIALECTS`` or by a module's full name, with dots."""
    found: Words = import_module(dialect if "." in dialect else f"{__package__}.{DIALECTS[dialect]}").WORDS
    return found
