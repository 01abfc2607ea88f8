"""Keeps what is left of listings, so that a large folder is not read again for each page."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.values import ObjectMeta

    Items = Iterator[ObjectMeta | str]

__all__ = ["Walks"]

_MOST = 4  # listings that go on; each holds the names of the folders that it is in
_LONG_S = 60.0  # a page that is asked for later is of another listing


class Walks:
    """What the latest listings have left, by the token that their last page had.

    Each is taken by one page and kept again by it, so two threads never continue one. A token whose walk is gone is no
    error: the driver walks again. What a folder held is as old as the listing that goes on, and never older.
    """

    def __init__(self) -> None:
        """Keep none yet."""
        self._left: dict[tuple[str, str, str], tuple[float, Items]] = {}

    def left(self, prefix: str, delimiter: str, token: str) -> Items | None:
        """Return what follows a page, and keep it no more; None where that is not known.

        Without a token a listing begins, and what earlier ones of this prefix have left is dropped.
        """
        if not token:
            for key in [key for key in list(self._left) if key[:2] == (prefix, delimiter)]:
                self._left.pop(key, None)
        kept_s, items = self._left.pop((prefix, delimiter, token), (-_LONG_S, None))
        return items if monotonic() - kept_s < _LONG_S else None

    def keep(self, prefix: str, delimiter: str, token: str, items: Items) -> None:
        """Keep what follows the page whose token this is; nothing follows where there is none."""
        if token:
            self._left[prefix, delimiter, token] = monotonic(), items
            for oldest in list(self._left)[:-_MOST]:
                self._left.pop(oldest, None)
