"""``ZarrContents``: the arrays of a dataset, its samples, and the state that one process keeps of them."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.zarr.arrays import numbered
from penstock.data.zarr.chunks import Chunks
from penstock.data.zarr.indexes import IndexCache
from penstock.data.zarr.objects.coordinates import whole_array
from penstock.data.zarr.objects.joined import joined
from penstock.data.zarr.pool import MemoryPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.data.zarr.arrays import Missing, StoredArray
    from penstock.data.zarr.samples.arrangement import Arrangement
    from penstock.data.zarr.samples.extraction import Part
    from penstock.source import Source

    Located = tuple[list[int], list[tuple[int | slice, ...]]]  # chunks by sample, and the elements in each

__all__ = ["ZarrContents"]

_lock = Lock()  # held only briefly
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class _Kept:
    """Values of kept arrays: read once per process, by the first thread that needs them."""

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), Lock()
        self.values: dict[int, NDArray[Any]] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the values."""
        return _Kept, ()


class ZarrContents:
    """Arrays and the samples cut from them. Picklable; each process decodes and keeps arrays separately.

    Attributes:
        arrays: The arrays to read.
        names: Names of the arrays.
        arrangement: Arrangement of the samples.
        ahead_parts: Read-ahead takes at most 1 / ``ahead_parts`` of the store's own limit.

    """

    def __init__(
        self, arrays: Sequence[StoredArray], names: Sequence[str], arrangement: Arrangement, missing: Missing
    ) -> None:
        """Number the arrays; nothing is read yet."""
        self.arrays, self._stores = numbered(arrays)
        self.names = tuple(names)
        self.arrangement = arrangement
        self._missing = missing
        self._chunks: Chunks | None = None
        self._pool: MemoryPool | None = None
        self._kept = _Kept()
        self.indexes = IndexCache()
        self.ahead_parts = 1

    @property
    def source(self) -> Source:
        """Store of all arrays, or a source that reads from several stores."""
        return joined(self._stores)

    @property
    def root(self) -> str:
        """Root URL of the store of the first array."""
        return self.arrays[0].source.root

    @property
    def base(self) -> str:
        """Key of the first array in its store."""
        return self.arrays[0].layout.key

    # Cached: every state contains the digest, and a dimension may have millions of elements.
    @cached_property
    def digest(self) -> str:
        """Digest of all that determines the samples and their order: not of values, nor of locations."""
        layouts = [array.layout for array in self.arrays]
        space = self.arrangement.space
        shown = [
            [name, layout.shape, layout.dtype.str, layout.dims, repr(extraction.cuts)]
            for name, layout, extraction in zip(self.names, layouts, self.arrangement.extractions, strict=True)
        ]
        axes = [[axis.name, repr(axis.positions)] for axis in space.axes]
        text = json.dumps([1, shown, axes, space.samples, space.digest], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.arrangement.space.samples

    @property
    def chunks(self) -> Chunks:
        """The chunks, by number."""
        if self._chunks is None:
            self._chunks = Chunks(self.arrays, self._missing)
        return self._chunks

    def pool(self, most_bytes: int) -> MemoryPool:
        """Return the memory pool of decoded chunks, ``most_bytes`` at most; the next epoch reuses the memory."""
        if self._pool is None or self._pool.most_bytes != most_bytes:
            self._pool = MemoryPool(most_bytes)
        return self._pool

    def verify(self) -> None:
        """Check that arrays with absent objects still exist; see ``OwnObjects``.

        Raises:
            DatasetChanged: An array does not exist any more.

        """
        for array in self.arrays:
            array.objects.verify()

    def name_of(self, position: Sequence[int]) -> str:
        """Return the URL of the first array with the position of a sample, for reports."""
        axes = self.arrangement.space.axes
        place = ", ".join(f"{axis.name}={at}" for axis, at in zip(axes, position, strict=True))
        return f"{self.arrays[0].url} at {place}"

    def uses(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions need, without those of kept arrays."""
        pairs = zip(self.arrangement.extractions, self.arrangement.kept, strict=True)
        found = [extraction.chunks(positions) for extraction, keeps in pairs if not keeps]
        return np.concatenate(found, axis=1) if found else np.empty((len(positions), 0), dtype=np.int64)

    def parts(self, position: Sequence[int]) -> list[list[Part]]:
        """Return the parts of each array that the sample at a position takes."""
        return [extraction.parts(position) for extraction in self.arrangement.extractions]

    def located(self, positions: NDArray[np.int64]) -> list[Located] | None:
        """Return the one chunk that each sample takes of each array; None if a sample may need several."""
        found = [extraction.located(positions) for extraction in self.arrangement.extractions]
        return None if None in found else found  # type: ignore[return-value]  # without None

    def views(self, found: Sequence[Located], values: Mapping[int, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Return, for each array, the view of a chunk that each sample takes."""
        kept, columns = self.kept, []
        for number, (chunks, insides) in enumerate(found):
            held = {chunk: kept[number] if chunk < 0 else values[chunk] for chunk in {*chunks}}
            views = [held[chunk][inside] for chunk, inside in zip(chunks, insides, strict=True)]
            scalars = not self.arrangement.extractions[number].shape
            columns.append([np.asarray(view, self.chunks.dtypes[number]) for view in views] if scalars else views)
        return columns

    def assembled(
        self, parts: Sequence[Sequence[Part]], values: Mapping[int, NDArray[Any]], *, own: bool
    ) -> list[NDArray[Any]]:
        """Return the arrays of a sample: views of chunks where possible, copies with ``own``."""
        kept, dtypes, found = self.kept, self.chunks.dtypes, []
        for number, (some, extraction) in enumerate(zip(parts, self.arrangement.extractions, strict=True)):
            if len(some) == 1:
                chunk, inside, _ = some[0]
                view = np.asarray((kept[number] if chunk < 0 else values[chunk])[inside], dtypes[number])
                found.append(view.copy() if own else view)
                continue
            out = np.empty(extraction.shape, dtypes[number])
            for chunk, inside, place in some:
                out[place] = (kept[number] if chunk < 0 else values[chunk])[inside]
            found.append(out)
        return found

    @property
    def kept(self) -> dict[int, NDArray[Any]]:
        """Values of kept arrays, by number: read at the first access, once per process."""
        values = self._kept.values
        if values is not None:
            return values
        with _lock:
            # After a fork: another thread of the parent may have held the lock.
            if self._kept.process != os.getpid():
                self._kept = _Kept()
            kept = self._kept
        with kept.lock:
            if kept.values is None:
                kept.values = {
                    number: whole_array(self.arrays, number, self.chunks, self.source, self.indexes, self.ahead_parts)
                    for number, keeps in enumerate(self.arrangement.kept)
                    if keeps
                }
            return kept.values

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without what this process has read and decoded."""
        return self.__dict__ | {"_chunks": None, "_pool": None, "indexes": IndexCache()}
