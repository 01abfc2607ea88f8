"""The digest of a table: the names of its objects below their base, and their sizes, in order."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.catalog.storage.strings import blocks, taken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.data.catalog.storage.strings import Rows, Strings
    from penstock.data.catalog.storage.table import Table

__all__ = ["digest_of"]

_BLOCK = 4096  # rows at once; part of the format
_AT_ONCE = 1 << 20  # bytes of bases compared at once


def digest_of(table: Table, rows: Rows, base: bytes) -> str:
    """Return the SHA-256, in hex, of the rows' names below ``base`` and their sizes: 0.1 s for a million.

    If a row is a range, all offsets are included, too, and the digest is never that of a catalog of whole objects.

    Raises:
        ValueError: A key does not begin with ``base``.

    """
    offsets = None if table.ranges is None else table.ranges.offsets.values
    if offsets is not None and (taken(offsets, rows) < 0).all():
        offsets = None
    form = f"1, {len(rows)} objects" if offsets is None else f"2, {len(rows)} ranges"
    whole = hashlib.sha256(f"penstock catalog {form}\n".encode())
    sizes = table.sizes.values
    for block in blocks(rows, _BLOCK):
        find = _below if table.ranges is None else _repeated
        lengths, names = find(table.keys, table.objects(block), np.frombuffer(base, np.uint8))
        # Lengths before the names: otherwise ("ab", "c") and ("a", "bc") would have the same digest.
        whole.update(lengths.astype("<i8").tobytes())
        whole.update(taken(sizes, block).astype("<i8").tobytes())
        if offsets is not None:
            whole.update(taken(offsets, block).astype("<i8").tobytes())
        whole.update(names)
    return whole.hexdigest()


def _repeated(keys: Strings, rows: Rows, base: NDArray[np.uint8]) -> tuple[NDArray[np.int64], bytes]:
    """Return the same as ``_below`` for rows with many repeats: each name is processed once."""
    found, which = np.unique(rows, return_inverse=True)
    lengths, data = _below(keys, found, base)
    stops = np.cumsum(lengths).tolist()
    names = [data[start:stop] for start, stop in itertools.pairwise((0, *stops))]
    return lengths[which], b"".join(names[each] for each in which.tolist())


def _below(keys: Strings, rows: Rows, base: NDArray[np.uint8]) -> tuple[NDArray[np.int64], bytes]:
    """Return the lengths of the names below ``base``, and the names end to end."""
    ends, data = keys.joined(rows)
    starts, lengths = ends[:-1], np.diff(ends) - len(base)
    if len(base):
        if (lengths < 0).any():
            raise ValueError("a key that does not lie below its base")
        below = np.ones(len(data), bool)
        step = max(1, _AT_ONCE // len(base))
        for at in range(0, len(rows), step):
            index = starts[at : at + step, None] + np.arange(len(base))
            if (data[index] != base).any():
                raise ValueError("a key that does not lie below its base")
            below[index] = False
        data = data[below]
    return lengths, data.tobytes()
