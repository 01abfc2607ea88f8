"""The digest of a table: what its objects are called below their base, and how large they are, in order."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.catalog.table import Strings, Table

__all__ = ["digest_of"]

_BLOCK = 4096  # rows at once: part of the form
_AT_ONCE = 1 << 20  # bytes of bases compared at once


def digest_of(table: Table, rows: range, base: bytes) -> str:
    """Return the SHA-256, in hex, of the rows' names below ``base`` and their sizes: 0.1 s for a million.

    Raises:
        ValueError: A key does not begin with ``base``.

    """
    whole = hashlib.sha256(f"penstock catalog 1, {len(rows)} objects\n".encode())
    sizes = np.frombuffer(table.sizes, np.int64)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        lengths, names = _below(table.keys, block, np.frombuffer(base, np.uint8))
        # Lengths before the names, or ("ab", "c") would be ("a", "bc").
        whole.update(lengths.astype("<i8").tobytes())
        whole.update(sizes[np.arange(block.start, block.stop, block.step)].astype("<i8").tobytes())
        whole.update(names)
    return whole.hexdigest()


def _below(keys: Strings, rows: range, base: NDArray[np.uint8]) -> tuple[NDArray[np.int64], bytes]:
    """Return the lengths of the names below ``base``, and the names end to end."""
    ends = keys.ends(rows).astype(np.int64)
    if not len(ends):  # nothing but empty keys
        ends = np.zeros(len(rows) + 1, np.int64)
    data = np.empty(int(ends[-1]), np.uint8)
    keys.gather(rows, data.data)
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
