"""Reading names of mosaicml-streaming 0.13 over Penstock: ``from penstock.compat.streaming import StreamingDataset``.

``StreamingDataset(remote=url, batch_size=32, shuffle=True)`` yields the samples that Mosaic's yields: dicts of its
values, images of Pillow. Differences:

- Nothing is copied to ``local``: shards are read by ranges, compressed ones as a whole.
- The order is another: ``ps.order.Lanes()`` with ``shuffle``, by ``shuffle_seed`` and epoch; the order of the shards
  without. It is the same for any number of nodes, ranks and workers.
- Each sample comes once per epoch, and all ranks have as many batches. Pass ``batch_size``, that of the loader and the
  rank, as Mosaic asks for: then the loader's batches do not depend on its workers either.
- A state resumes exactly, on any number of ranks; ``StreamingDataLoader`` counts the samples. States of Mosaic are
  refused.
- ``remote`` may be a ``ps.Catalog``, saved once, which spares the reading of the shards' headers.
- Left out, with an explicit error: ``streams``, weights and other sampling; other shuffles; ``replication``; pickles;
  ``validate_hash``. Shards are written by ``ps.pack(…, format="mds")``, or Mosaic's ``MDSWriter``.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from penstock.compat.arguments import WrongArgument, refuse_name
from penstock.data.catalog.catalog import Catalog
from penstock.data.shards.mds import CompressedMdsFormat, MdsFormat
from penstock.data.shards.mds_columns import MDSColumn, list_parts, pillow_parts, refusal, value_of
from penstock.errors import StateMismatch, Unsupported, require_extras

with require_extras("penstock.compat.streaming needs torch", torch="torch"):
    from torch.utils.data import DataLoader
    from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.map import MapDataset
from penstock.data.order.lanes import Lanes
from penstock.data.order.sampling import batch_indices
from penstock.data.reading.iteration import resolve

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from PIL.Image import Image

    from penstock.data.reading.sample import Sample
    from penstock.options import StoreOptions

__all__ = ["StreamingDataLoader", "StreamingDataset"]

_ELSEWHERE = {
    "Stream": "join datasets with ps.concat, or mix them with ps.Mix",
    "LocalDataset": "StreamingDataset(local=…) reads a directory in place",
    "MDSWriter": 'use mosaicml-streaming\'s own, or ps.pack(…, format="mds")',
    **dict.fromkeys(
        ("CSVWriter", "JSONWriter", "TSVWriter", "XSVWriter"),
        "write JSON lines, and read them with ps.MapDataset.from_shards",
    ),
}
_ONCE = "every sample comes once per epoch: see ps.Mix for weights"
_ORDER = "the order is that of ps.order.Lanes(), for any number of nodes: leave it out"
_OPTIONS = "pass store=ps.StoreOptions(retry=…), or the options of the store"
# Values of arguments that have no other here, and what to use instead.
_ONLY: dict[str, tuple[object, str]] = {
    "streams": (None, _ELSEWHERE["Stream"]),
    "download_retry": (2, _OPTIONS),
    "download_timeout": (60, _OPTIONS),
    "validate_hash": (None, "ranges have no hash; those of compressed shards are compared when they are indexed"),
    "sampling_method": ("balanced", _ONCE),
    "sampling_granularity": (1, _ONCE),
    "partition_algo": ("relaxed", _ORDER),
    "num_canonical_nodes": (None, _ORDER),
    "shuffle_algo": ("py1e", _ORDER),
    "shuffle_block_size": (None, _ORDER),
    "batching_method": ("random", _ELSEWHERE["Stream"]),
    "allow_unsafe_types": (False, "pickles can run any code: write the column as json"),
    "replication": (None, "pass a device mesh, ps.IterableDataset(place=…)"),
    "stream_name": ("stream", _ELSEWHERE["Stream"]),
    "stream_config": (None, _ELSEWHERE["Stream"]),
}
_IMAGES = ("jpeg", "png", "pil")
_LISTS = {"jpeg_array": 0, "jpegarray": 0, "list[jpeg]": 4, "list[png]": 4, "list[pil]": 4}


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, _ELSEWHERE)


def _refuse(wrong: bool, name: str, instead: str) -> None:
    if wrong:
        raise Unsupported(f"{name} is not a part of penstock.compat.streaming: {instead}")


def _open_image(data: memoryview, *, raw: bool) -> Image:
    with require_extras("images need Pillow", PIL="images"):
        from PIL import Image
    return Image.frombytes(*pillow_parts(data)) if raw else Image.open(io.BytesIO(data))


@dataclass(frozen=True, slots=True)
class _AsDict:
    """Transform from a sample to the dict of Mosaic's values."""

    columns: tuple[MDSColumn, ...]

    def __call__(self, sample: Sample) -> dict[str, Any]:
        return {column.name: self._value(column, sample[column.name].data) for column in self.columns}

    @staticmethod
    def _value(column: MDSColumn, data: memoryview) -> Any:
        kind = column.encoding
        if kind == "bytes":
            return bytes(data)
        if kind in _IMAGES:
            return _open_image(data, raw=kind == "pil")
        if kind in _LISTS:
            return [_open_image(each, raw=kind == "list[pil]") for each in list_parts(data, _LISTS[kind])]
        return value_of(column, data)


class StreamingDataset(TorchIterableDataset[dict[str, Any]]):
    """Samples of MDS shards, with all arguments of Mosaic's ``StreamingDataset`` by name.

    ``streams``, ``download_retry``, ``download_timeout``, ``validate_hash``, ``sampling_method``,
    ``sampling_granularity``, ``partition_algo``, ``num_canonical_nodes``, ``shuffle_algo``, ``shuffle_block_size``,
    ``batching_method``, ``allow_unsafe_types``, ``replication``, ``stream_name`` and ``stream_config`` must have their
    defaults. ``keep_zip``, ``predownload`` and ``cache_limit`` have no effect: nothing is kept on a disk.

    Args:
        remote: URL of the folder with ``index.json``, or a directory; or a ``ps.Catalog`` of MDS shards.
        local: Directory of the shards without ``remote``; with it, not used: nothing is copied.
        split: Folder below ``remote``, or ``local``.
        epoch_size: The number of samples, or None.
        batch_size: Samples per batch and rank, as the loader has; default 1.
        shuffle: Shuffle by ``ps.order.Lanes()``.
        shuffle_seed: Seed of the order.
        store: Options of the store, or the name of a profile; default: environment and profile.

    Raises:
        Unsupported: An argument has an unsupported value, or a column cannot be read; the text says what to use.
        NotFound: There is no shard.
        Damaged: ``index.json`` and the shards do not belong together.
    """

    def __init__(
        self,
        *,
        streams: object = None,
        remote: str | os.PathLike[str] | Catalog | None = None,
        local: str | os.PathLike[str] | None = None,
        split: str | None = None,
        download_retry: int = 2,
        download_timeout: float = 60,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        epoch_size: int | str | None = None,
        predownload: int | None = None,
        cache_limit: int | str | None = None,
        sampling_method: str = "balanced",
        sampling_granularity: int = 1,
        partition_algo: str = "relaxed",
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "py1e",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        batching_method: str = "random",
        allow_unsafe_types: bool = False,
        replication: int | None = None,
        stream_name: str = "stream",
        stream_config: Mapping[str, Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        given = locals()
        for name, (here, instead) in _ONLY.items():
            _refuse(given[name] != here, f"{name}={given[name]!r:.80}", instead)
        if remote is None and local is None:
            raise WrongArgument("remote= or local= must be given: the folder with index.json")
        _refuse(
            isinstance(remote, Catalog) and split is not None, "split= of a catalog", "pass the catalog of the split"
        )
        self._catalog = remote if isinstance(remote, Catalog) else _open_split(remote or local, split, store)
        form = self._catalog.format
        columns = form.columns if isinstance(form, (MdsFormat, CompressedMdsFormat)) and form.stored else ()
        _refuse(not columns, "this catalog", "use StreamingDataset(…).catalog")
        for name, encoding, _ in columns:
            why = refusal(encoding)
            _refuse(bool(why), f"the column {name!r}, which {why},", "use ps.MapDataset with fields= without it")
        _refuse(epoch_size not in (None, len(self._catalog)), f"epoch_size={epoch_size!r}", _ONCE)
        self.batch_size = 1 if batch_size is None else batch_size
        self.shuffle, self.shuffle_seed = shuffle, shuffle_seed
        self._ready: tuple[int, dict[str, Any]] | None = None  # the sample that comes next, and its number
        order = Lanes() if shuffle else False
        make = _AsDict(columns)
        samples = IterableDataset(self._catalog, transform=make, shuffle=order, seed=shuffle_seed, store=store)
        self._batches = samples.batched(self.batch_size, list)
        self._by_index = MapDataset(self._catalog, transform=make, store=store)

    @property
    def catalog(self) -> Catalog:
        """The catalog of the samples: save it, and pass it as ``remote``."""
        return self._catalog

    @property
    def num_samples(self) -> int:
        """The number of samples of all ranks."""
        return len(self._catalog)

    size = num_samples

    @property
    def next_epoch(self) -> int:
        """Number of the epoch of the next iteration."""
        return self._batches.coming().epoch

    @next_epoch.setter
    def next_epoch(self, next_epoch: int) -> None:
        self._batches.set_epoch(next_epoch)

    def __len__(self) -> int:
        """Return the maximum number of samples of a rank in an epoch."""
        samples, world = len(self._catalog), resolve(None).world
        return (samples + world - 1) // world

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin the next epoch; reads begin with the first ``next``. A subclass may override ``__getitem__``."""
        batches = iter(self._batches)
        assert batches.progress is not None  # noqa: S101  it has begun
        numbers = batch_indices(self._batches.plan, batches.progress.cursor, batches.progress.place)
        return self._samples(batches, numbers)

    def _samples(self, batches: Iterator[Any], numbers: Iterable[list[int]]) -> Iterator[dict[str, Any]]:
        for batch, here in zip(batches, numbers, strict=False):
            for number, sample in zip(here, batch, strict=True):
                # What was read ahead is what get_item returns to a subclass.
                self._ready = (int(number), sample)
                yield self[int(number)]

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        if self._ready is not None and self._ready[0] == sample_id:
            (_, found), self._ready = self._ready, None
            return found
        return self._by_index[sample_id]

    def __getitem__(self, at: int | slice | list[int] | np.ndarray[Any, Any]) -> Any:
        if isinstance(at, (int, np.integer)):
            return self.get_item(int(at))
        numbers = range(len(self._catalog))[at] if isinstance(at, slice) else at
        return [self[each] for each in numbers]

    def state_dict(self, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        """Return the state after ``num_samples`` samples of all ranks.

        Args:
            num_samples: Samples of this epoch that the training loops of all ranks have received.
            from_beginning: Count from the start of the epoch, or from where its iteration has begun.
        """
        batches = -(-num_samples // (self.batch_size * resolve(None).world))
        epoch = self._batches.state_at(0)["epoch"] if from_beginning else None
        return self._batches.state_at(batches, epoch=epoch)

    def load_state_dict(self, obj: Mapping[str, Any]) -> None:
        """Make the next iteration resume where a state was taken, on any number of ranks, with any batch size."""
        if "sample_in_epoch" in obj:
            raise StateMismatch(
                "this state is from mosaicml-streaming, whose order differs: finish the epoch with it, or start over"
            )
        self._batches.load_state_dict(obj, allow_new_global_batch=True, allow_rereads=True)


def _open_split(url: object, split: str | None, store: StoreOptions | str | None) -> Catalog:
    place = str(url).rstrip("/") + "/" + (f"{split.strip('/')}/" if split else "")
    return Catalog.from_shards(place, format=MdsFormat(stored=True), progress=False, store=store)


class StreamingDataLoader(DataLoader[Any]):
    """Torch's ``DataLoader`` that counts the samples of a ``StreamingDataset``, for its state; takes its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.dataset, StreamingDataset):
            here, there = self.batch_size, self.dataset.batch_size
            _refuse(here != there, f"batch_size={here} over StreamingDataset(batch_size={there})", "pass both the same")
        self.num_samples_yielded = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator counts
        self.num_samples_yielded = 0
        for batch in super().__iter__():
            found = next(iter(batch.values())) if hasattr(batch, "values") else batch
            self.num_samples_yielded += len(found)
            yield batch

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state after the batches that were yielded; None for another dataset."""
        if not isinstance(self.dataset, StreamingDataset):
            return None
        return self.dataset.state_dict(self.num_samples_yielded * resolve(None).world, from_beginning=False)

    def load_state_dict(self, obj: Mapping[str, Any]) -> None:
        if isinstance(self.dataset, StreamingDataset):
            self.dataset.load_state_dict(obj)
