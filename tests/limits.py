"""Other limits for one scheme than its store has, as a store that takes less, or smaller parts, would have them."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.stores import urls

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["limited"]


@contextmanager
def limited(scheme: str = "s3", **limits: int) -> Iterator[None]:
    """Have sources that are made within the block held to these limits."""
    store = urls.find_store(scheme)
    limited = urls._loaded[scheme] = copy(store)
    limited.limits = replace(store.limits, **limits)
    try:
        yield
    finally:
        urls._loaded[scheme] = store
