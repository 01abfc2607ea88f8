"""``zarrdataset`` over Penstock: change the import to ``penstock.compat.zarrdataset``, and nothing else.

Names and arguments are those of zarr-torch-dataset 0.0.9. Differences:

- Chunks are read ahead during the epoch, in bounded memory. The library loads all chunks of a process before its first
  batch, and keeps them.
- All ranks have the same number of batches, and different samples. All samples are delivered, even if the number of
  chunks is not a multiple of the ranks. The library leaves out up to a tenth of them, and raises an error beyond that.
- The samples of a batch do not depend on ``num_workers``, and the order differs in each epoch. A
  ``buffer_shuffle_seed`` of None is derived from the chunks' seed, so that every epoch can be resumed.
- With ``shuffle_chunks`` and ``shuffle_buffer`` the samples of a window of chunks are mixed, not those of all chunks of
  a process: see ``ps.ZarrDataset(window_bytes=…)``. With only one of the two, the chunks, or the samples within each
  chunk, are permuted.
- Arrays with any chunking or sharding can be read by any number of ranks and workers. Worker processes do not share
  chunks; ``num_workers=0`` decodes in threads.
- Samples and targets may be groups, as the library's README promises: a sample is then a dict of tensors by name. Chunk
  indexes refer to the array with the most dimensions (the first of these by name). URLs are accepted, too.
- ``targets`` as a NumPy array are written to a temporary directory, which is deleted with the dataset.
- The loader is a ``ps.DataLoader``, so it has ``state_dict`` and ``load_state_dict``.
- Errors are Penstock's (``Unusable`` where the library raises ``ValueError``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import Unusable, kind_of, require_extras
from penstock.values import switch, whole

with require_extras("penstock.compat.zarrdataset needs torch", torch="torch"):
    from penstock.data.loading.loader import DataLoader
    from penstock.data.zarr.arrays.opening import Manner, open_inputs
    from penstock.data.zarr.dataset import ZarrDataset
    from penstock.data.zarr.samples.arrangement import dims_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import zarr
    from numpy.typing import NDArray

    from penstock.data.order.protocol import Lookup, Order

    _Stored: TypeAlias = zarr.Array[Any] | zarr.Group | str | os.PathLike[str]
    _Indexes: TypeAlias = int | Sequence[int] | NDArray[np.integer[Any]] | None

__all__ = ["ZarrDataLoader", "ZarrIterableDataset"]

_TAKES = "samples and targets are arrays or groups that zarr has opened, or their URLs"
_AHEAD = 2  # batches per worker: torch's default


class ZarrIterableDataset(ZarrDataset):
    """Samples along the first dimension of arrays, with targets: ``ps.ZarrDataset`` with the library's arguments.

    Args:
        samples: An open zarr array or group, or its URL.
        targets: The same, or a NumPy array; None for samples alone.
        selected_chunk_indexes: Use only the samples of these chunks along the first dimension; None: of all chunks.
        shuffle_chunks: Permute the chunks.
        chunks_shuffle_seed: Seed of ``shuffle_chunks``; the same on all ranks.
        shuffle_buffer: Permute samples.
        buffer_shuffle_seed: Seed of ``shuffle_buffer``.

    Raises:
        Unusable: A chunk does not exist, ``shuffle_chunks`` has no seed, or the targets do not fit the samples.
        PenstockError: As in ``ps.ZarrDataset``.
    """

    def __init__(
        self,
        *,
        samples: _Stored,
        targets: _Stored | NDArray[Any] | None,
        selected_chunk_indexes: _Indexes = None,
        shuffle_chunks: bool = True,
        chunks_shuffle_seed: int | None = None,
        shuffle_buffer: bool = True,
        buffer_shuffle_seed: int | None = None,
    ) -> None:
        for name, given in (("shuffle_chunks", shuffle_chunks), ("shuffle_buffer", shuffle_buffer)):
            switch(given, name)
        if shuffle_chunks and chunks_shuffle_seed is None:
            raise Unusable("shuffle_chunks needs chunks_shuffle_seed, the same number on all ranks")
        chunks_seed = whole(chunks_shuffle_seed or 0, "chunks_shuffle_seed")
        buffer_seed = whole(buffer_shuffle_seed or 0, "buffer_shuffle_seed")
        opened_samples = _open_zarr(samples)
        # The library's attribute; a dataset's method of this name reads by index, and is not for users.
        self.samples = opened_samples  # type: ignore[method-assign]
        self.targets = targets if targets is None or isinstance(targets, np.ndarray) else _open_zarr(targets)
        self.shuffle_chunks, self.chunks_shuffle_seed = shuffle_chunks, chunks_shuffle_seed
        self.shuffle_buffer, self.buffer_shuffle_seed = shuffle_buffer, buffer_shuffle_seed
        size, chunk, dim = _first_dim(opened_samples, "samples")
        self.selected_chunk_indexes = _select_chunks(selected_chunk_indexes, -(-size // chunk))
        places = (self.selected_chunk_indexes % -(-size // chunk)).tolist()
        runs = [range(at * chunk, min((at + 1) * chunk, size)) for at in places]
        shuffle: bool | Order = shuffle_chunks and shuffle_buffer
        if shuffle_chunks != shuffle_buffer:
            shuffle = _ChunkOrder([len(each) for each in runs], chunks=shuffle_chunks)
        super().__init__(
            opened_samples,
            self._targets(size, chunk, dim),
            dims=dim,
            select=None if selected_chunk_indexes is None else {dim: [at for each in runs for at in each]},
            shuffle=shuffle,
            seed=chunks_seed + (buffer_seed << 64),
            align="index",
            decode_cf=False,
        )

    @staticmethod
    def refine_chunk_indexes(nb_chunks_max: int, selected_chunk_indexes: _Indexes) -> NDArray[np.int64]:
        """Return the indexes of the selected chunks, of ``nb_chunks_max``, as an array; None selects all.

        Negative ones count from the end, and stay negative.
        """
        return _select_chunks(selected_chunk_indexes, nb_chunks_max)

    @staticmethod
    def check_distribution_ability(
        array: zarr.Array[Any],
        selected_chunk_indexes: _Indexes,
        world_size: int,
        num_workers: int,
        array_name: str = "",
    ) -> None:
        """Raise ``Unusable`` for invalid numbers of ranks or workers, or missing chunks; accept everything else."""
        whole(world_size, "world_size", 1)
        whole(num_workers, "num_workers", 0)
        _select_chunks(selected_chunk_indexes, array.nchunks)

    def _targets(self, size: int, chunk: int, dim: str) -> Any:
        targets = self.targets
        if targets is None:
            return None
        if isinstance(targets, np.ndarray) and (not targets.ndim or targets.dtype.hasobject):
            raise Unusable(f"targets must be numbers along the first dimension of samples, got {targets!r}")
        count, name = (len(targets), dim) if isinstance(targets, np.ndarray) else _first_dim(targets, "targets")[::2]
        if count != size:
            raise Unusable(f"{size} samples and {count} targets differ: they must have the same number")
        if name != dim:
            message = f"the first dimension of samples is called {dim!r}, and that of targets {name!r}"
            raise Unusable(f"{message}: ps.ZarrDataset aligns arrays by the names of dimensions; give them one name")
        return self._written(targets, chunk, dim) if isinstance(targets, np.ndarray) else targets

    def _written(self, targets: NDArray[Any], chunk: int, dim: str) -> str:
        """Write a NumPy array to a directory that is deleted with this dataset; return the array's path."""
        zarr = _zarr()
        folder = tempfile.mkdtemp(prefix="penstock-targets-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        names = [dim, *(f"target_{axis}" for axis in range(1, targets.ndim))]
        made = zarr.create_array(
            f"{folder}/targets",
            shape=targets.shape,
            chunks=(chunk, *targets.shape[1:]),
            dtype=targets.dtype,
            dimension_names=names,
        )
        made[...] = targets
        return f"{folder}/targets"


class ZarrDataLoader(DataLoader):
    """``ps.DataLoader`` with the arguments of the library's loader; ``drop_last`` drops the incomplete last batch."""

    def __init__(
        self,
        *,
        dataset: ZarrIterableDataset,
        num_workers: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        pin_memory: bool = False,
        multiprocessing_context: str | None = None,
        prefetch_factor: int | None = None,
    ) -> None:
        workers: dict[str, Any] = {"persistent_workers": True} if num_workers else {}
        if multiprocessing_context is not None:
            workers["multiprocessing_context"] = multiprocessing_context
        super().__init__(
            dataset,
            batch_size,
            num_workers=num_workers,
            drop_last=drop_last,
            pin_memory=pin_memory,
            prefetch=_AHEAD if prefetch_factor is None else prefetch_factor,
            **workers,
        )


class _ChunkOrder:
    """Order that permutes the chunks, or the samples within each chunk. Uses 8 bytes per sample."""

    def __init__(self, sizes: Sequence[int], *, chunks: bool) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._chunks = chunks

    @property
    def identity(self) -> str:
        return f"zarrdataset-{'chunks' if self._chunks else 'samples'}-{len(self._sizes)}"

    def positions(self, samples: int) -> int:
        return samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        draw = np.random.default_rng([seed, epoch])
        starts = np.cumsum(self._sizes) - self._sizes
        order = draw.permutation(len(starts)) if self._chunks else np.arange(len(starts))
        within = np.arange if self._chunks else draw.permutation
        table = np.concatenate([starts[each] + within(int(self._sizes[each])) for each in order])
        return lambda positions: table[positions]


def _zarr() -> Any:
    with require_extras("zarr arrays need zarr", zarr="zarr"):
        import zarr
    return zarr


def _open_zarr(given: Any) -> Any:
    """Open a URL; return an open array or group unchanged."""
    if hasattr(given, "store_path"):
        return given
    if not isinstance(given, str | os.PathLike):
        raise Unusable(f"{_TAKES}, not {kind_of(given)}; targets may be an array of numpy")
    from penstock.interop.zarr.store import Store

    return _zarr().open(Store(given, read_only=True), mode="r")


def _first_dim(array: zarr.Array[Any] | zarr.Group, what: str) -> tuple[int, int, str]:
    """Return length, chunk length and name of the first dimension; in a group, of the array with most dimensions."""
    layouts = [each.layout for each in open_inputs(array, what, Manner(None, decode_cf=False)).values()]
    layout = max(layouts, key=lambda each: len(each.shape))
    if not layout.shape:
        raise Unusable(f"{what} has no dimension: samples are numbered along the first one")
    return layout.shape[0], layout.chunks[0], dims_of(layout)[0]


def _select_chunks(given: Any, chunks: int) -> NDArray[np.int64]:
    if given is None:
        return np.arange(chunks)
    found = np.atleast_1d(np.asarray(given))
    if not found.size or found.ndim != 1 or found.dtype.kind not in "iu":
        raise Unusable(f"selected_chunk_indexes must be a number or a non-empty sequence of numbers, got {given!r}")
    if found.min() < -chunks or found.max() >= chunks:
        raise Unusable(f"selected_chunk_indexes goes beyond the {chunks} chunks: {given!r}")
    return found.astype(np.int64)
