"""Warning about a prefix that holds several splits, such as training and test: users mostly want one of them."""

from __future__ import annotations

from bisect import bisect_left
from logging import getLogger
from typing import TYPE_CHECKING

from penstock.data.catalog.columns.column import decode, encode
from penstock.engine.listing.names import split_of, splits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.data.catalog.columns.affixes import Keys
    from penstock.data.catalog.discovery.scan import Listable

__all__ = ["first_names", "warn_of_splits"]

_LOG = getLogger("penstock")
_MOST_NAMES = 1000


def warn_of_splits(source: Listable, base: str, names: Sequence[str]) -> None:
    """Name the splits of ``names``, objects and folders below ``base``, in the log, if there are several."""
    found = splits_of(names)
    if len(found) < 2:  # noqa: PLR2004  several
        return
    held = ", ".join(f"{split} ({count:,})" for split, (count, _) in found.items())
    first = next(iter(found.values()))[1]
    one = source.url(base + first) + ("/" if any(name.startswith(f"{first}/") for name in names) else "*")
    _LOG.warning("several splits are read as one below %s: %s; for one of them pass %s", source.url(base), held, one)


def first_names(keys: Keys, base: str) -> list[str]:
    """Return names below ``base`` that show its splits: folders, and files; keys are in order.

    What follows a folder or the word of a split is skipped by a search, and at most 1,000 names are looked at.
    """
    names: list[str] = []
    at, start = 0, encode(base)
    while at < len(keys) and len(names) < _MOST_NAMES:
        name = decode(keys[at][len(start) :])
        folder, slash, _ = name.partition("/")
        names.append(folder + slash)
        end = split_of(name)[1]
        if slash:
            # The character after a slash.
            at = bisect_left(keys, start + encode(f"{folder}0"), at)
        else:
            at = bisect_left(keys, start + encode(name[:end]) + b"\xff", at) if end else at + 1
    if len(names) == 1 and names[0].endswith("/") and not split_of(names[0])[0]:
        return [names[0] + each for each in first_names(keys, base + names[0])]
    return names
