"""Builder of a table, row by row: arrays and bytes, never one Python object per row."""

from __future__ import annotations

import itertools
import json
from array import array
from typing import TYPE_CHECKING

import numpy as np

from penstock.data.catalog.storage.column import Strings, decode
from penstock.data.catalog.storage.table import RANGED_KEY_BYTES, Table, ranges_of
from penstock.data.catalog.storage.vectors import gathered
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["TableBuilder"]

_LIMIT = 1 << 63  # bytes: where int64 ends


class _StringsBuilder:
    """Builder of a column of strings."""

    __slots__ = ("data", "ends")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("Q", (0,))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def add(self, piece: bytes) -> None:
        self.data += piece
        self.ends.append(len(self.data))

    def add_all(self, data: bytes, lengths: NDArray[np.uint64]) -> None:
        self.ends.frombytes((lengths.cumsum(dtype=np.uint64) + np.uint64(len(self.data))).tobytes())
        self.data += data

    def since(self, row: int) -> list[bytes]:
        ends = self.ends[row:]
        return [bytes(self.data[start:stop]) for start, stop in itertools.pairwise(ends)]

    def extend(self, other: _StringsBuilder) -> None:
        ends = np.frombuffer(other.ends, np.uint64)[1:] + np.uint64(len(self.data))
        self.data += other.data
        self.ends.frombytes(ends.tobytes())


class TableBuilder:
    """Builder of a table: about 8 bytes per field plus the strings themselves, never one Python object per row."""

    __slots__ = ("_last", "_objects", "_offsets", "_sizes", "_strings")

    def __init__(self) -> None:
        """Start empty."""
        self._sizes = array("q")
        self._strings = (_StringsBuilder(), _StringsBuilder(), _StringsBuilder())
        # The object of each row, and the first byte of its range; None and empty until a row is a range.
        self._objects: array[int] | None = None
        self._offsets = array("q")
        self._last: tuple[bytes, str] | None = None

    def __len__(self) -> int:
        """Return the number of rows so far."""
        return len(self._sizes)

    def add(self, key: bytes, size: int, etag: str = "", label: object = None, offset: int = -1) -> None:
        """Append one row; consecutive ranges of the same object share its key and ETag.

        Raises:
            Unusable: The label is not a JSON value, or a range (``offset`` 0 or more) has no size.

        """
        try:
            text = b"" if label is None else json.dumps(label).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(f"the label of {decode(key)!r} is no JSON value ({error}): use plain ones") from error
        if offset < -1:
            raise Unusable(
                f"offset {offset} of {decode(key)!r}: a range begins at byte 0 or later; -1 is the whole object"
            )
        if offset >= 0 or self._objects is not None:
            self._range(key, size, etag, offset)
        else:
            self._object(key, etag)
        self._strings[2].add(text)
        self._sizes.append(size)

    def add_all(self, keys: list[bytes], sizes: list[int], etags: list[str]) -> None:
        """Append a page of a listing: whole objects without labels; the table must have no ranges."""
        texts = "".join(etags)
        versions = [*map(str.encode, etags)] if not texts.isascii() else None
        self._strings[0].add_all(b"".join(keys), _lengths(keys))
        self._strings[1].add_all(texts.encode(), _lengths(versions or etags))
        self._strings[2].add_all(b"", np.zeros(len(keys), np.uint64))
        self._sizes.extend(sizes)

    def since(self, row: int) -> tuple[list[bytes], list[int], list[str]]:
        """Return the keys, sizes and ETags of the rows from ``row`` on; the table must have no ranges."""
        keys, etags = (each.since(row) for each in self._strings[:2])
        return keys, self._sizes[row:].tolist(), [*map(bytes.decode, etags)]

    def _object(self, key: bytes, etag: str) -> None:
        self._strings[0].add(key)
        self._strings[1].add(etag.encode())

    def _range(self, key: bytes, size: int, etag: str, offset: int) -> None:
        if offset >= 0 and not 0 <= size < _LIMIT - offset:
            raise Unusable(f"a range of {decode(key)!r} from byte {offset} has size {size}: a range needs its length")
        if len(key) > RANGED_KEY_BYTES:
            raise Unusable(f"a key of {len(key)} bytes: in a catalog with ranges they have {RANGED_KEY_BYTES} at most")
        if self._objects is None:
            self._objects = array("Q", range(len(self)))
            self._offsets = array("q", [-1]) * len(self)
        if offset < 0 or (key, etag) != self._last:
            self._object(key, etag)
        self._last = (key, etag) if offset >= 0 else None
        self._objects.append(len(self._strings[0]) - 1)
        self._offsets.append(offset)

    def extend(self, other: TableBuilder) -> None:
        """Append all rows of ``other``; neither has ranges, since listings contain whole objects."""
        self._sizes.extend(other._sizes)
        for mine, theirs in zip(self._strings, other._strings, strict=True):
            mine.extend(theirs)

    def freeze(self) -> Table:
        """Return the table, copied into memory that workers map; the builder is not needed any more."""
        ranges = None
        if self._objects is not None:
            ranges = ranges_of(np.frombuffer(self._objects, np.uint64), np.frombuffer(self._offsets, np.int64))
        keys, etags, labels = (Strings(memoryview(each.data), memoryview(each.ends)) for each in self._strings)
        return gathered(Table.of(np.frombuffer(self._sizes, np.int64), keys, etags, labels, ranges))


def _lengths(pieces: Sequence[bytes | str]) -> NDArray[np.uint64]:
    return np.fromiter(map(len, pieces), np.uint64, len(pieces))
