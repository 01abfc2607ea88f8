"""``zarrdataset`` over Penstock: change the import to ``penstock.compat.zarrdataset``, and nothing else.

Names and arguments are those of zarr-torch-dataset 0.0.9. What differs:

- Chunks are read ahead while the epoch runs, in bounded memory. The library loads all chunks of a process before its
  first batch, and keeps them.
- Every rank has equally many batches, of samples that no other rank has; all samples are delivered, also where the
  chunks are no multiple of the ranks. The library leaves out up to a tenth of them, and refuses beyond.
- Which sample comes in which batch does not depend on ``num_workers``, and the order is another one in each epoch. A
  ``buffer_shuffle_seed`` of None is derived from the chunks' seed, so that every epoch can be resumed.
- With ``shuffle_chunks`` and ``shuffle_buffer`` the samples of a window of chunks are mixed, not those of all chunks of
  a process: ``ps.ZarrDataset(window_bytes=…)``. With one of the two, chunks, or the samples within each, are permuted.
- Any chunking and shards are read, for any number of ranks and workers. Worker processes share no chunk:
  ``num_workers=0`` decodes in threads.
- Samples and targets may be groups, as the library's README promises: a sample is then a dict of tensors by name.
  Chunks are counted in the array of most dimensions (the first of these by name). URLs are taken too.
- ``targets`` as an array of numpy are written to a temporary directory, which goes with the dataset.
- The loader is a ``ps.DataLoader``: it has ``state_dict`` and ``load_state_dict``.
- Errors are Penstock's (``Unusable`` where the library has ``ValueError``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.zarr.dataset import ZarrDataset
from penstock.datasets.zarr.opening import opened
from penstock.datasets.zarr.samples.arrangement import dims_of
from penstock.errors import MissingExtra, Unusable
from penstock.loading.loader import DataLoader
from penstock.values import whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import zarr
    from numpy.typing import NDArray

    from penstock.options import StoreOptions
    from penstock.protocols.order import Lookup, Order

    _Stored: TypeAlias = zarr.Array[Any] | zarr.Group | str | os.PathLike[str]
    _Indexes: TypeAlias = int | Sequence[int] | NDArray[np.integer[Any]] | None

__all__ = ["ZarrDataLoader", "ZarrIterableDataset"]

_TAKES = "samples and targets are arrays or groups that zarr has opened, or their URLs"
_AHEAD = 2  # batches of each worker: torch's own default


class ZarrIterableDataset(ZarrDataset):
    """Samples along the first dimension of arrays, with targets: ``ps.ZarrDataset`` by the library's arguments.

    Args:
        samples: An open array or group of zarr's, or its URL.
        targets: The same, or an array of numpy; None for samples alone.
        selected_chunk_indexes: Chunks along the first dimension, of which alone there are samples.
        shuffle_chunks: Permute the chunks.
        chunks_shuffle_seed: Of that; the same on all ranks.
        shuffle_buffer: Permute samples.
        buffer_shuffle_seed: Of that.

    Raises:
        Unusable: Chunks that there are not, ``shuffle_chunks`` without a seed, targets that do not fit the samples.
        PenstockError: As ``ps.ZarrDataset``.

    """

    def __init__(  # noqa: PLR0913  the library's own signature
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
        """Read the metadata."""
        if shuffle_chunks and chunks_shuffle_seed is None:
            raise Unusable("shuffle_chunks needs chunks_shuffle_seed, the same number on all ranks")
        self.samples = _opened(samples)
        self.targets = targets if targets is None or isinstance(targets, np.ndarray) else _opened(targets)
        self.shuffle_chunks, self.chunks_shuffle_seed = shuffle_chunks, chunks_shuffle_seed
        self.shuffle_buffer, self.buffer_shuffle_seed = shuffle_buffer, buffer_shuffle_seed
        where, store = _place(self.samples)
        size, chunk, dim = _first_dim(self.samples, "samples", store)
        self.selected_chunk_indexes = _selected(selected_chunk_indexes, -(-size // chunk))
        runs = [range(at * chunk, min((at + 1) * chunk, size)) for at in self.selected_chunk_indexes.tolist()]
        shuffle: bool | Order = shuffle_chunks and shuffle_buffer
        if shuffle_chunks != shuffle_buffer:
            shuffle = _ChunkOrder([len(each) for each in runs], chunks=shuffle_chunks)
        wanted, other = self._targets(size, chunk, dim)
        super().__init__(
            where,
            wanted,
            dims=dim,
            select=None if selected_chunk_indexes is None else {dim: [at for each in runs for at in each]},
            shuffle=shuffle,
            seed=(chunks_shuffle_seed or 0) + ((buffer_shuffle_seed or 0) << 64),
            decode_cf=False,
            store=store if store is not None else other,
        )

    @staticmethod
    def refine_chunk_indexes(nb_chunks_max: int, selected_chunk_indexes: _Indexes) -> NDArray[np.int64]:
        """Return the numbers of the selected chunks as an array, of ``nb_chunks_max``; those of all for None."""
        return _selected(selected_chunk_indexes, nb_chunks_max)

    @staticmethod
    def check_distribution_ability(
        array: zarr.Array[Any],
        selected_chunk_indexes: _Indexes,
        world_size: int,
        num_workers: int,
        array_name: str = "",  # noqa: ARG004  the library's own signature
    ) -> None:
        """Refuse what is no number of ranks or workers, and chunks that there are not: all else can be distributed."""
        whole(world_size, "world_size", 1)
        whole(num_workers, "num_workers", 0)
        _selected(selected_chunk_indexes, array.nchunks)

    def _targets(self, size: int, chunk: int, dim: str) -> tuple[Any, StoreOptions | str | None]:
        targets = self.targets
        if targets is None:
            return None, None
        if isinstance(targets, np.ndarray):
            where, store, count, name = None, None, len(targets), dim
        else:
            where, store = _place(targets)
            count, _, name = _first_dim(targets, "targets", store)
        if count != size:
            raise Unusable(f"there are {size} samples and {count} targets: they share their first dimension")
        if name != dim:
            message = f"the first dimension of samples is called {dim!r}, and that of targets {name!r}"
            raise Unusable(f"{message}: ps.ZarrDataset aligns arrays by the names of dimensions; give them one name")
        return (self._written(targets, chunk, dim) if where is None else where), store

    def _written(self, targets: NDArray[Any], chunk: int, dim: str) -> str:
        """Write an array of numpy to a directory that goes with this dataset."""
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
    """``ps.DataLoader`` by the arguments of the library's loader; ``drop_last`` drops the last incomplete batch.

    Raises:
        Unusable: Arguments that do not fit together.

    """

    def __init__(  # noqa: PLR0913  the library's own signature
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
        """Open nothing yet."""
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
    """Chunks in a permuted order, each as it is; or chunks as they are, each permuted. 8 bytes for each sample."""

    def __init__(self, sizes: Sequence[int], *, chunks: bool) -> None:
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._chunks = chunks

    @property
    def identity(self) -> str:
        return f"zarrdataset-{'chunks' if self._chunks else 'samples'}-{len(self._sizes)}"

    def positions(self, samples: int) -> int:
        return samples

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:  # noqa: ARG002  of an order
        draw = np.random.default_rng([seed, epoch])
        starts = np.cumsum(self._sizes) - self._sizes
        order = draw.permutation(len(starts)) if self._chunks else np.arange(len(starts))
        within = np.arange if self._chunks else draw.permutation
        table = np.concatenate([starts[each] + within(int(self._sizes[each])) for each in order])
        return lambda positions: table[positions]


def _zarr() -> Any:  # noqa: ANN401  a module
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise MissingExtra("zarr arrays need zarr: pip install 'penstock[zarr]'") from error
    return zarr


def _opened(given: Any) -> Any:  # noqa: ANN401  what the library takes
    """Open what is given as a URL."""
    if hasattr(given, "store_path"):
        return given
    if not isinstance(given, str | os.PathLike):
        raise Unusable(f"{_TAKES}, not a {type(given).__name__}; targets may be an array of numpy")
    from penstock.interop.zarr.store import Store

    return _zarr().open(Store(given, read_only=True), mode="r")


def _place(array: zarr.Array[Any] | zarr.Group) -> tuple[Any, StoreOptions | str | None]:
    """Return where an open array or group lies, as ``ps.ZarrDataset`` takes it, and the options of its store."""
    from penstock.interop.zarr.store import Store

    store, path = array.store, array.path
    if isinstance(store, Store):
        return f"{store.url}/{path}".rstrip("/"), store.__reduce__()[0].keywords["store"]  # type: ignore[attr-defined]
    root = getattr(store, "root", None)
    if root is not None and type(store).__name__ == "LocalStore":
        return str(root / path), None
    return array, None


def _first_dim(
    array: zarr.Array[Any] | zarr.Group, what: str, store: StoreOptions | str | None
) -> tuple[int, int, str]:
    """Return length, length of a chunk and name of the first dimension: in a group, of the array of most dimensions."""
    layouts = [each.layout for each in opened(array, what, store, decode_cf=False).values()]
    layout = max(layouts, key=lambda each: len(each.shape))
    if not layout.shape:
        raise Unusable(f"{what} has no dimension: samples are numbered along the first one")
    return layout.shape[0], layout.chunks[0], dims_of(layout)[0]


def _selected(given: Any, chunks: int) -> NDArray[np.int64]:  # noqa: ANN401  what the library takes
    if given is None:
        return np.arange(chunks)
    found = np.atleast_1d(np.asarray(given))
    if not found.size or found.ndim != 1 or found.dtype.kind not in "iu":
        raise Unusable(f"selected_chunk_indexes is a number or a sequence of numbers, and not empty: {given!r}")
    if found.min() < -chunks or found.max() >= chunks:
        raise Unusable(f"selected_chunk_indexes goes beyond the {chunks} chunks: {given!r}")
    return found.astype(np.int64) % chunks
