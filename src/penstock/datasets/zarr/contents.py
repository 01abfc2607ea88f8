"""What a dataset of arrays consists of: the arrays, the samples, and what one process holds of them."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.zarr.arrays import numbered
from penstock.datasets.zarr.chunks import Chunks
from penstock.datasets.zarr.indexes import IndexCache
from penstock.datasets.zarr.objects.joined import joined
from penstock.datasets.zarr.objects.whole import whole_array
from penstock.datasets.zarr.pool import MemoryPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.datasets.zarr.arrays import Missing, StoredArray
    from penstock.datasets.zarr.samples.arrangement import Arrangement
    from penstock.datasets.zarr.samples.extraction import Part
    from penstock.source import Source

    Located = tuple[list[int], list[tuple[int | slice, ...]]]  # chunks by sample, and its elements there

__all__ = ["ZarrContents"]

_lock = Lock()  # held for moments only
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class _Kept:
    """The values of arrays that one process reads once, whichever of its threads asks first."""

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), Lock()
        self.values: dict[int, NDArray[Any]] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Arrive in another process without any."""
        return _Kept, ()


class ZarrContents:
    """Arrays and the samples that are cut from them. Picklable; each process decodes and keeps arrays by itself.

    Attributes:
        arrays: What is read.
        names: Of the arrays.
        arrangement: Of the samples.
        ahead_parts: What is read ahead takes at most one of so many parts of the store's own limit.

    """

    def __init__(
        self, arrays: Sequence[StoredArray], names: Sequence[str], arrangement: Arrangement, missing: Missing
    ) -> None:
        """Read nothing yet."""
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
        """The store of all arrays, or what reads from several."""
        return joined(self._stores)

    @property
    def root(self) -> str:
        """The store of the first array."""
        return self.arrays[0].source.root

    @property
    def base(self) -> str:
        """Where the first array lies in it."""
        return self.arrays[0].layout.key

    @cached_property  # each state names it, and it may be one of millions of elements
    def digest(self) -> str:
        """Of everything that says which samples there are, in which order: not of the values, nor of where they lie."""
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
        """Return how many samples there are."""
        return self.arrangement.space.samples

    @property
    def chunks(self) -> Chunks:
        """The chunks, by number."""
        if self._chunks is None:
            self._chunks = Chunks(self.arrays, self._missing)
        return self._chunks

    def pool(self, most_bytes: int) -> MemoryPool:
        """Return the memory of decoded chunks, ``most_bytes`` at most: that of one epoch is used in the next."""
        if self._pool is None or self._pool.most_bytes != most_bytes:
            self._pool = MemoryPool(most_bytes)
        return self._pool

    def verify(self) -> None:
        """Look whether the arrays are still there, where some of their objects were absent; see ``OwnObjects``.

        Raises:
            DatasetChanged: One of them is not.

        """
        for array in self.arrays:
            array.objects.verify()

    def name_of(self, position: Sequence[int]) -> str:
        """Return the URL of the first array with the sample's place in it, for reports."""
        axes = self.arrangement.space.axes
        place = ", ".join(f"{axis.name}={at}" for axis, at in zip(axes, position, strict=True))
        return f"{self.arrays[0].url} at {place}"

    def uses(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunks that samples at these positions need, but for arrays that are kept."""
        pairs = zip(self.arrangement.extractions, self.arrangement.kept, strict=True)
        found = [extraction.chunks(positions) for extraction, keeps in pairs if not keeps]
        return np.concatenate(found, axis=1) if found else np.empty((len(positions), 0), dtype=np.int64)

    def parts(self, position: Sequence[int]) -> list[list[Part]]:
        """Return what the sample at a position takes of each array."""
        return [extraction.parts(position) for extraction in self.arrangement.extractions]

    def located(self, positions: NDArray[np.int64]) -> list[Located] | None:
        """Return the chunks that samples at these positions take of each array, where that is one chunk of each."""
        found = [extraction.located(positions) for extraction in self.arrangement.extractions]
        return None if None in found else found  # type: ignore[return-value]  # there is none among them

    def views(self, found: Sequence[Located], values: Mapping[int, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Return of each array what was found of it: for each sample, a view of a chunk."""
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
        """Return a sample's arrays; views of chunks where they can be, unless they are to be the sample's ``own``."""
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
        """The values of arrays that are kept, by number: read when they are first asked for, once a process."""
        values = self._kept.values
        if values is not None:
            return values
        with _lock:
            if self._kept.process != os.getpid():  # a forked one: another thread may have held the lock
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
        """Leave what this process has decoded and read behind."""
        return self.__dict__ | {"_chunks": None, "_pool": None, "indexes": IndexCache()}
