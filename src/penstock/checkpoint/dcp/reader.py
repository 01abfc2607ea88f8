"""torch's Distributed Checkpoint on an object store: the storage reader of its ``load``.

``Marker`` finds the checkpoint in a folder: Penstock's, torch's, or none. ``Located`` is the location that torch asks a
storage writer or reader for.
"""

from __future__ import annotations

import io
import os
import pickle
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import uuid4

import torch
from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.futures import Future

from penstock.checkpoint.commit import CommittedCheckpoint, read_current
from penstock.checkpoint.dcp import records, torchmeta
from penstock.checkpoint.dcp.chunks import check_chunks
from penstock.checkpoint.dcp.records import FoundItem, StoredItems
from penstock.checkpoint.dcp.torchmeta import load_item, verify_item
from penstock.checkpoint.gather import Object, Want, gather
from penstock.checkpoint.integrity import MANIFEST, METADATA, Manifest
from penstock.checkpoint.staging import STAGE_BYTES, allocate_stage, memory
from penstock.checkpoint.torchfile.load import is_refusal
from penstock.errors import Changed, CheckpointError, Damaged, NotFound, Truncated, Unusable
from penstock.progress import bar
from penstock.source import Source, open_source
from penstock.values import as_folder, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem

    from penstock.checkpoint.dcp.records import ItemLocation
    from penstock.options import StoreOptions

    Id = str | os.PathLike[str]


_TRIES = 9


class Marker(NamedTuple):
    """Object that marks a folder as a checkpoint: a manifest, or torch's metadata, in the version that was read."""

    key: str
    etag: str
    metadata: Metadata  # ``storage_data`` maps to ``ItemLocation``

    @classmethod
    def first(
        cls,
        source: Source,
        folder: str,
        names: list[str],
        current: tuple[str, bytes] | None = None,
        *,
        weights_only: bool,
    ) -> Self:
        """Return the first of ``names`` that exists: two requests, and one for each missing name.

        A manifest costs one more at least, for its index; with its ETag and bytes in ``current``, only that.
        """
        for name in names:
            try:
                if name == MANIFEST:
                    return cls(folder + name, *_read_manifest(source, folder, current))
                etag, data = read_current(source, folder + name)
            except NotFound:
                continue
            url = source.url(folder + name)
            metadata = torchmeta.decode(data, url, weights_only=weights_only)
            # A rank's own metadata contains only that rank's chunks.
            if name == METADATA:
                check_chunks(metadata, url)
            return cls(folder + name, etag, metadata)
        raise NotFound(f"no checkpoint found: no {' and no '.join(names)}", url=source.url(folder))

    def replaced(self, source: Source) -> bool:
        """Return whether the object was replaced or deleted since it was read: one request."""
        return _is_replaced(source, self.key, self.etag)


class ExistingCheckpoints(NamedTuple):
    """Contents of a folder when a save begins."""

    etags: dict[str, str]  # of each marker, by its key
    objects: set[str]  # keys that the markers name


def find_checkpoints(source: Source, folder: str, *, look: bool) -> ExistingCheckpoints:
    found = [meta for meta in source.stat_existing([folder + MANIFEST, folder + METADATA]) if meta is not None]
    objects = {folder + name for meta in found if look for name in _list_marker_objects(source, meta.key)}
    return ExistingCheckpoints({meta.key: meta.etag for meta in found}, objects)


def _read_manifest(source: Source, folder: str, current: tuple[str, bytes] | None) -> tuple[str, Metadata]:
    """Return the ETag of a manifest, and what its index describes; reads again if it is replaced meanwhile."""
    url = source.url(folder + MANIFEST)
    for left in reversed(range(_TRIES)):
        committed = CommittedCheckpoint(source, folder, current)
        if committed.manifest.kind != records.KIND:
            raise CheckpointError(f"the checkpoint must be a distributed one, got a {committed.manifest.kind}", url=url)
        try:
            metadata = records.decode(committed, url)
        except NotFound:
            # The index of a checkpoint that was replaced or deleted is deleted.
            if not left or not _is_replaced(source, folder + MANIFEST, committed.etag):
                raise
            current = None
        else:
            metadata.storage_meta = StorageMeta(url.removesuffix(MANIFEST), committed.manifest.save)
            return committed.etag, metadata
    raise AssertionError


def _is_replaced(source: Source, key: str, etag: str) -> bool:
    """Return whether an object was replaced or deleted since it had ``etag``: one request."""
    (meta,) = source.stat_existing([key])
    return meta is None or meta.etag != etag


def _list_marker_objects(source: Source, key: str) -> Iterable[str]:
    """Return the objects that a marker names; none if it is unreadable, so these stay when it is replaced."""
    (_, data), url = read_current(source, key), source.url(key)
    try:
        if key.endswith(MANIFEST):
            return Manifest.decode(data, url).sizes
        locations = torchmeta.decode(data, url, weights_only=True).storage_data
        return {location.name for location in locations.values()}
    except (Damaged, Unusable):
        return ()


class Located:
    """The location of a checkpoint, with the methods that torch expects of a writer and a reader."""

    _store: StoreOptions | str | None

    @property
    def checkpoint_id(self) -> str:
        return self._url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        try:
            open_source(checkpoint_id)
        except Unusable:
            return False
        return True

    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Start over, at another location if one is given."""
        if checkpoint_id:
            self._url = os.fspath(checkpoint_id)
            self._source, prefix = open_source(self._url, self._store)
            self._folder = as_folder(prefix)


class StorageReader(Located, storage.StorageReader):
    """Storage reader for a checkpoint below ``url``, on every rank.

    Reads checkpoints of ``StorageWriter``, and verifies every byte by the digests, even if only a part of a tensor is
    loaded. Also reads torch's own layout, and verifies each item's CRC-32. A rank reads only what it loads, in parallel
    ranges: directly into tensors that are on the CPU, contiguous and of the same dtype, else in steps of 16 MiB. Memory
    beyond the state: 256 MiB; for items that are read whole (no tensors, and all of torch's layout) 128 MiB and the
    largest item. All ranks read the same version, or all raise.

    Args:
        url: The checkpoint's folder; a missing ``/`` at its end is added.
        weights_only: False runs any code that the checkpoint names: use it only for checkpoints you trust.
        store: Options, or the name of a profile; default: environment and profile.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from penstock.checkpoint.dcp import StorageReader, StorageWriter
        >>> saved = dcp.save({"a": torch.ones(2)}, storage_writer=StorageWriter("s3://bucket/dcp/"), no_dist=True)
        >>> state = {"a": torch.zeros(2)}
        >>> dcp.load(state, storage_reader=StorageReader("s3://bucket/dcp/"), no_dist=True)
        >>> state
        {'a': tensor([1., 1.])}
    """

    def __init__(self, url: Id, *, weights_only: bool = True, store: StoreOptions | str | None = None) -> None:
        self._store = store
        self._weights_only = switch(weights_only, "weights_only")
        self.reset(url)

    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Start over, at another location if one is given."""
        super().reset(checkpoint_id)
        self._marker: Marker | None = None
        self._failure: Exception | None = None
        # Metadata that was read before the load, which returns it once.
        self.known: Metadata | None = None
        # ETag and bytes of the manifest, which a rank has read for all.
        self.current: tuple[str, bytes] | None = None
        self._load_id = str(uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ANN401, ARG002  torch's; it looks for "kwargs"
        """Return the checkpoint's metadata: of Penstock's manifest, else of torch's; with ``rank`` that rank's own.

        Raises:
            NotFound: No checkpoint exists there.
            CheckpointError: The metadata is damaged.
        """
        rank = kwargs.get("rank")
        known, self.known = self.known, None
        if known is not None:
            return known
        if rank is None:
            self._failure = None
        if rank is not None and self._failure is not None:
            # The metadata for all ranks exists and is damaged: a rank's own cannot replace it.
            raise self._failure
        try:
            names = [MANIFEST, METADATA] if rank is None else [torchmeta.local_name(rank)]
            self._marker = Marker.first(
                self._source, self._folder, names, self.current, weights_only=self._weights_only
            )
        except NotFound:
            raise
        except Exception as error:
            self._failure = error
            raise
        metadata = self._marker.metadata
        metadata.storage_meta = replace(metadata.storage_meta or StorageMeta(), load_id=self._load_id)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001  torch's
        """Do nothing: ``metadata`` is the result of ``read_metadata``."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan with the version that this rank reads, unless each rank has its own metadata."""
        marker = self._read()
        return replace(plan, storage_data=marker.etag if marker.key.rpartition("/")[2] in (MANIFEST, METADATA) else "")

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans; raise ``Changed`` unless all ranks read the same version."""
        if len({plan.storage_data for plan in plans}) > 1:
            raise Changed("the checkpoint was replaced while the ranks began to read it: load again", url=self._url)
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's state.

        Returns:
            A future without a value, which is done.

        Raises:
            ChecksumMismatch: An object's bytes do not match its digests; the message names it, as for the next three.
            NotFound: An object is missing.
            Truncated: An object's size differs from the metadata.
            Changed: The checkpoint was replaced meanwhile.
            Unusable: An item is more than weights.
        """
        marker = self._read()
        try:
            wanted = reads(self._source, self._folder, marker.metadata, plan.items)
            with bar(f"loading {self._source.url(self._folder)}", 1, None):
                ItemLoader(self._source, planner, self._weights_only).fill(wanted)
        except (NotFound, Changed, Damaged) as error:
            if marker.replaced(self._source):
                raise Changed("the checkpoint was replaced while it was read: load again", url=self._url) from error
            raise
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read(self) -> Marker:
        if self._marker is None:
            raise Unusable("cannot read: call read_metadata first", url=self._url)
        return self._marker


def fetch_manifest(reader: StorageReader) -> tuple[str, bytes] | None:
    """Return the ETag and the bytes of the manifest, for ``current`` on all ranks; None if it does not exist."""
    try:
        return read_current(reader._source, reader._folder + MANIFEST)  # noqa: SLF001  of this file
    except NotFound:
        return None


_WINDOW_BYTES = 192 << 20
_WHOLE_WINDOW_BYTES = 128 << 20  # beside an item that is read whole


class ItemRead(NamedTuple):
    """Item to read: the planner's request, and a ``FoundItem``."""

    item: ReadItem
    of: Object
    location: ItemLocation
    dtype: torch.dtype | None  # None for bytes
    sizes: tuple[int, ...]


def reads(source: Source, folder: str, metadata: Metadata, items: Sequence[ReadItem]) -> list[ItemRead]:
    """Return the reads for ``items``, in the order of their bytes: one HEAD per object, in parallel."""
    indexes, stored = [item.storage_index for item in items], metadata.storage_data
    if isinstance(stored, StoredItems):
        found = stored.find(indexes)
    else:
        try:
            found = _find_in_metadata(source, folder, metadata, indexes)
        except KeyError as error:
            message = f"the checkpoint does not record the location of {error}"
            raise CheckpointError(message, url=source.url(folder)) from None
    wanted = [ItemRead(item, *place) for item, place in zip(items, found, strict=True)]
    return sorted(wanted, key=lambda read: read.location[:2])


def _find_in_metadata(
    source: Source, folder: str, metadata: Metadata, indexes: Sequence[MetadataIndex]
) -> list[FoundItem]:
    chunks: dict[MetadataIndex, tuple[torch.dtype | None, tuple[int, ...]]] = {}
    for name in {index.fqn for index in indexes}:
        stored = metadata.state_dict_metadata.get(name)
        if isinstance(stored, TensorStorageMetadata):
            for chunk in stored.chunks:
                chunks[MetadataIndex(name, chunk.offsets)] = stored.properties.dtype, tuple(chunk.sizes)
        else:
            chunks[MetadataIndex(name)] = None, ()
    places: list[ItemLocation] = [metadata.storage_data[index] for index in indexes]
    found = _objects(source, folder, places)
    return [FoundItem(found[at.name], at, *chunks[index]) for index, at in zip(indexes, places, strict=True)]


def _objects(source: Source, folder: str, locations: Sequence[ItemLocation]) -> dict[str, Object]:
    ends: dict[str, int] = {}
    for location in locations:
        ends[location.name] = max(location.start + location.length, ends.get(location.name, 0))
    objects = {}
    for name, meta in zip(ends, source.stat_many([folder + name for name in ends]), strict=True):
        url = source.url(meta.key)
        if meta.size < ends[name]:
            message = f"the object has {meta.size} bytes, but at least {ends[name]} were written"
            raise Truncated(message, url=url)
        objects[name] = Object(meta.key, meta.etag, meta.size, url, None)
    return objects


class ItemLoader(NamedTuple):
    """Loader of items into a planner's state; ``weights_only`` refuses bytes that would run code when unpickled."""

    source: Source
    planner: LoadPlanner
    weights_only: bool

    def fill(self, reads: Sequence[ItemRead]) -> None:
        """Load all of ``reads``, fastest in the order of their bytes; calls the planner in this thread.

        Memory beyond the state: 192 MiB; for items that are read whole (bytes, and all of torch's layout) 128 MiB and
        the largest item.
        """
        window_bytes = _WHOLE_WINDOW_BYTES if any(map(_is_whole, reads)) else _WINDOW_BYTES
        with closing(gather(self.source, self._wants(reads), window_bytes)) as filled:
            for want in filled:
                if want.tag is not None:
                    want.tag()

    def _wants(self, reads: Iterable[ItemRead]) -> Iterator[Want]:
        for read in reads:
            if _is_whole(read):
                yield _request_item(read, partial(self._bytes if read.dtype is None else self._unpack, read))
            else:
                yield from self._pieces(read)

    def _pieces(self, read: ItemRead) -> Iterator[Want]:
        """Yield the wants of a tensor: directly if its memory has the stored order, else through staging memory."""
        assert read.dtype is not None  # noqa: S101  tells the type checker what _wants has seen
        item, target = read.item, self.planner.resolve_tensor(read.item).detach()
        _fits(read, target.shape)
        box = read.sizes, item.storage_offsets, item.lengths, read.dtype.itemsize
        whole = bound_box(*box)
        cut = [whole] if whole.dense and _as_stored(target, read.dtype) else list(boxes(*box, STAGE_BYTES))
        for number, each in enumerate(cut, 1):
            last = partial(self.planner.commit_tensor, item, target) if number == len(cut) else None
            yield _piece(read, each, _narrow_tensor(target, each, item.storage_offsets), last)

    def _bytes(self, read: ItemRead, file: io.BytesIO) -> None:
        has_crc = read.of.checksums is None and verify_item(file, read.of.url)
        if self.weights_only:
            _harmless(file, read, has_crc=has_crc)
        file.seek(0)
        self.planner.load_bytes(read.item, file)

    def _unpack(self, read: ItemRead, file: io.BytesIO) -> None:
        tensor = load_item(file, read.of.url)
        item, target = read.item, self.planner.resolve_tensor(read.item).detach()
        if tuple(tensor.shape) != read.sizes:
            message = f"{item.storage_index.fqn!r} has the shape {tuple(tensor.shape)} and not {read.sizes}"
            raise CheckpointError(message, url=read.of.url)
        _fits(read, target.shape)
        for dimension, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            tensor = tensor.narrow(dimension, offset, length)
        target.copy_(tensor)
        self.planner.commit_tensor(item, target)


def _is_whole(read: ItemRead) -> bool:
    """Say whether an item is read whole, because it is a ``torch.save`` file."""
    return read.dtype is None or read.of.checksums is None


def _request_item(read: ItemRead, arrived: Callable[[io.BytesIO], None]) -> Want:
    start, length = read.location.start, read.location.length
    file = io.BytesIO(bytes(length))
    return Want(read.of, start, start + length, file.getbuffer(), partial(arrived, file))


def _piece(read: ItemRead, box: Box, to: torch.Tensor, last: Callable[[], None] | None) -> Want:
    start, stop = read.location.start + box.start, read.location.start + box.stop
    assert read.dtype is not None  # noqa: S101  see _pieces
    if box.dense and _as_stored(to, read.dtype):
        return Want(read.of, start, stop, memory(to), last)
    stage = allocate_stage(stop - start, page_locked=to.is_cuda)
    elements = stage.view(read.dtype).as_strided(box.lengths, strides(read.sizes, 1))

    def copy_items() -> None:
        to.copy_(elements)
        if last is not None:
            last()

    return Want(read.of, start, stop, memory(stage), copy_items)


def _as_stored(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether a tensor's memory holds its elements in order, so that bytes of ``dtype`` can be read into it."""
    lazy = tensor.is_conj() or tensor.is_neg()
    return tensor.is_cpu and tensor.dtype == dtype and tensor.is_contiguous() and not lazy


def _narrow_tensor(target: torch.Tensor, box: Box, origin: tuple[int, ...]) -> torch.Tensor:
    for dimension, (at, low, long) in enumerate(zip(box.offsets, origin, box.lengths, strict=True)):
        target = target.narrow(dimension, at - low, long)
    return target


def _fits(read: ItemRead, shape: torch.Size) -> None:
    item = read.item
    ends = (offset + length for offset, length in zip(item.storage_offsets, item.lengths, strict=True))
    if shape != item.lengths or any(end > size for end, size in zip(ends, read.sizes, strict=True)):
        what = f"{list(item.lengths)} at {list(item.storage_offsets)} of {list(read.sizes)} into {list(shape)}"
        raise Unusable(f"{item.dest_index.fqn!r} cannot be loaded as planned: {what}", url=read.of.url)


def _harmless(file: io.BytesIO, read: ItemRead, *, has_crc: bool) -> None:
    """Raise ``Unusable`` for bytes that would run code in torch's planner, which unpickles without weights only."""
    name = repr(read.item.storage_index.fqn)
    try:
        file.seek(0)
        # As torch's planner plans anything that is bytes.
        with torch.serialization.safe_globals([io.BytesIO]):
            torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        understood = isinstance(error, pickle.UnpicklingError) if has_crc else is_refusal(error)
        if read.of.checksums is None and not understood:
            message = f"{name} was damaged, or torch.save did not write it ({type(error).__name__})"
            raise CheckpointError(message, url=read.of.url) from error
        raise Unusable(
            f"{name} contains more than weights: pass weights_only=False, which runs any code that it names, if you "
            "trust this checkpoint",
            url=read.of.url,
        ) from error


# Unwanted bytes that are read to save a request: 30 ms at 10 MB/s.
_HOLE_BYTES = 256 << 10


class Box(NamedTuple):
    """Box of a tensor's elements by dimension, and the byte range, relative to the tensor's first, that contains it."""

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    start: int
    stop: int
    dense: bool  # the range contains only the box's elements, in their order


def strides(sizes: Sequence[int], step: int) -> tuple[int, ...]:
    """Return the distance of neighbours along each dimension, in row-major order; ``step`` along the last."""
    return tuple(step * prod(sizes[dimension + 1 :]) for dimension in range(len(sizes)))


def bound_box(sizes: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], item_bytes: int) -> Box:
    """Return the whole box of a row-major tensor of ``sizes``, with a byte range of any length."""
    apart = strides(sizes, item_bytes)
    start = sum(offset * stride for offset, stride in zip(offsets, apart, strict=True))
    count = prod(lengths)
    reach = sum((length - 1) * stride for length, stride in zip(lengths, apart, strict=True)) + item_bytes
    stop = start + (reach if count else 0)
    return Box(tuple(offsets), tuple(lengths), start, stop, stop - start == count * item_bytes)


def boxes(
    sizes: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], item_bytes: int, most_bytes: int
) -> Iterator[Box]:
    """Cut a box of a row-major tensor of ``sizes`` into boxes with byte ranges of at most ``most_bytes``.

    The boxes contain each element once, in ascending order. A box is cut along its first dimension that is longer than
    1, and between neighbours that are more than 256 KiB apart. An empty box is yielded unchanged. ``most_bytes`` must
    be at least ``item_bytes``.
    """
    whole = bound_box(sizes, offsets, lengths, item_bytes)
    first = next((dimension for dimension, length in enumerate(lengths) if length > 1), None)
    if first is None or whole.start == whole.stop:
        yield whole
        return
    stride = strides(sizes, item_bytes)[first]
    row = whole.stop - whole.start - (lengths[first] - 1) * stride  # byte range of one neighbour
    apart = stride - row > _HOLE_BYTES  # no inner gap is longer than this one
    if whole.stop - whole.start <= most_bytes and not apart:
        yield whole
        return
    count = 1 if apart else max(1, (most_bytes - row) // stride + 1)
    for at in range(0, lengths[first], count):
        low = (*offsets[:first], offsets[first] + at, *offsets[first + 1 :])
        long = (*lengths[:first], min(count, lengths[first] - at), *lengths[first + 1 :])
        yield from boxes(sizes, low, long, item_bytes, most_bytes)
