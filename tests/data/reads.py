"""The byte ranges that a dataset, its batches or a loader will read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.values import Span

__all__ = ["spans_of"]


def spans_of(readable: Any, batches: list[list[int]] | None = None) -> list[Span]:
    """Return the spans of all stores, in order; of a dataset, those of the samples of ``batches``."""
    found = readable.reads() if batches is None else readable.reads(lambda: batches)
    return [span for _, spans in found for span in spans]
