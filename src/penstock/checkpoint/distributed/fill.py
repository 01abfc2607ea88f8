"""Brings items of a distributed checkpoint to where a planner wants them, in bounded memory, every byte verified."""

from __future__ import annotations

import io
import pickle
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType

from penstock.checkpoint.distributed.boxes import bounds, boxes, strides
from penstock.checkpoint.distributed.torchmeta import compared, load_item
from penstock.checkpoint.torchfile.load import refused
from penstock.checkpoint.transfer.gather import Object, Want, gather
from penstock.checkpoint.transfer.staging import STAGE_BYTES, staged
from penstock.checkpoint.transfer.tensors import memory
from penstock.errors import CheckpointError, Truncated, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem

    from penstock.checkpoint.distributed.boxes import Box
    from penstock.checkpoint.distributed.records import ItemLocation
    from penstock.source import Source

    _Chunk = tuple[torch.dtype | None, tuple[int, ...]]

__all__ = ["ItemLoader", "ItemRead", "reads"]

_WINDOW_BYTES = 192 << 20
_WHOLE_WINDOW_BYTES = 128 << 20  # beside an item that is read whole


class ItemRead(NamedTuple):
    """An item to be read.

    Attributes:
        item: What the planner asks for.
        of: The object it lies in.
        location: Where in it.
        dtype: The chunk's dtype; None for bytes.
        sizes: The chunk's shape.

    """

    item: ReadItem
    of: Object
    location: ItemLocation
    dtype: torch.dtype | None
    sizes: tuple[int, ...]


def reads(source: Source, folder: str, metadata: Metadata, items: Iterable[ReadItem]) -> list[ItemRead]:
    """Return what ``items`` are to be read from, in the order of their bytes: a HEAD for each object, in parallel.

    Raises:
        CheckpointError: The metadata does not say where an item lies.
        NotFound: An object is missing; it is named. ``Truncated``: it has another length.

    """
    chunks: dict[MetadataIndex, _Chunk] = {}
    for name in {item.storage_index.fqn for item in items}:
        stored = metadata.state_dict_metadata.get(name)
        if isinstance(stored, TensorStorageMetadata):
            for chunk in stored.chunks:
                chunks[MetadataIndex(name, chunk.offsets)] = stored.properties.dtype, tuple(chunk.sizes)
    try:
        wanted = [(metadata.storage_data[item.storage_index], item) for item in items]
        wanted.sort(key=lambda each: each[0][:2])
        found = _objects(source, folder, [location for location, _ in wanted])
        return [ItemRead(item, found[at.name], at, *_chunk(chunks, item)) for at, item in wanted]
    except KeyError as error:
        raise CheckpointError(f"the checkpoint does not say where {error} lies", url=source.url(folder)) from None


def _chunk(chunks: dict[MetadataIndex, _Chunk], item: ReadItem) -> _Chunk:
    return (None, ()) if item.type == LoadItemType.BYTE_IO else chunks[item.storage_index]


def _objects(source: Source, folder: str, locations: list[ItemLocation]) -> dict[str, Object]:
    """Look at each object that is needed."""
    checksums = {location.name: location.checksums for location in locations}
    ends: dict[str, int] = {}
    for location in locations:
        ends[location.name] = max(location.start + location.length, ends.get(location.name, 0))
    objects = {}
    for name, meta in zip(checksums, source.stat_many([folder + name for name in checksums]), strict=True):
        expected, url = checksums[name], source.url(meta.key)
        if meta.size < ends[name] or (expected is not None and meta.size != expected.size):
            written = f"at least {ends[name]}" if expected is None else expected.size
            raise Truncated(f"the object has {meta.size} bytes, {written} were written", url=url)
        objects[name] = Object(meta.key, meta.etag, meta.size, url, expected)
    return objects


class ItemLoader(NamedTuple):
    """What fills a planner's state.

    Attributes:
        source: Where the objects lie.
        planner: Whose state.
        weights_only: Refuse bytes that would run code when torch's planner unpickles them.

    """

    source: Source
    planner: LoadPlanner
    weights_only: bool

    def fill(self, reads: Sequence[ItemRead]) -> None:
        """Read all of ``reads``, best in the order of their bytes; the planner is called in this thread.

        Memory beyond the state: 192 MiB; where items are read whole (bytes, and all of torch's layout) 128 MiB and the
        largest of them.

        Raises:
            ChecksumMismatch: An object is not what was written; it is named. ``NotFound``, ``Changed``: likewise.
            Unusable: An item would run code.

        """
        window_bytes = _WHOLE_WINDOW_BYTES if any(map(_is_whole, reads)) else _WINDOW_BYTES
        with closing(gather(self.source, self._wants(reads), window_bytes)) as filled:
            for want in filled:
                if want.tag is not None:
                    want.tag()

    def _wants(self, reads: Iterable[ItemRead]) -> Iterator[Want]:
        for read in reads:
            if _is_whole(read):
                yield _whole(read, partial(self._bytes if read.dtype is None else self._unpack, read))
            else:
                yield from self._pieces(read)

    def _pieces(self, read: ItemRead) -> Iterator[Want]:
        """Yield what fills a tensor: straight where its elements lie as they are stored, else by way of a stage."""
        assert read.dtype is not None  # noqa: S101  tells the type checker what _wants has seen
        item, target = read.item, self.planner.resolve_tensor(read.item).detach()
        _fits(read, target.shape)
        box = read.sizes, item.storage_offsets, item.lengths, read.dtype.itemsize
        whole = bounds(*box)
        cut = [whole] if whole.dense and _as_stored(target, read.dtype) else list(boxes(*box, STAGE_BYTES))
        for number, each in enumerate(cut, 1):
            last = partial(self.planner.commit_tensor, item, target) if number == len(cut) else None
            yield _piece(read, each, _narrowed(target, each, item.storage_offsets), last)

    def _bytes(self, read: ItemRead, file: io.BytesIO) -> None:
        has_crc = read.location.checksums is None and compared(file, read.of.url)
        if self.weights_only:
            _harmless(file, read, has_crc=has_crc)
        file.seek(0)
        self.planner.load_bytes(read.item, file)

    def _unpack(self, read: ItemRead, file: io.BytesIO) -> None:
        """Copy from a file of ``torch.save``'s, as torch's layout has them."""
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
    """Say whether an item is read whole: it is a file of ``torch.save``'s."""
    return read.dtype is None or read.location.checksums is None


def _whole(read: ItemRead, arrived: Callable[[io.BytesIO], None]) -> Want:
    start, length = read.location.start, read.location.length
    file = io.BytesIO(bytes(length))
    return Want(read.of, start, start + length, file.getbuffer(), partial(arrived, file))


def _piece(read: ItemRead, box: Box, to: torch.Tensor, last: Callable[[], None] | None) -> Want:
    start, stop = read.location.start + box.start, read.location.start + box.stop
    assert read.dtype is not None  # noqa: S101  see _pieces
    if box.dense and _as_stored(to, read.dtype):
        return Want(read.of, start, stop, memory(to), last)
    stage = staged(stop - start, page_locked=to.is_cuda)
    elements = stage.view(read.dtype).as_strided(box.lengths, strides(read.sizes, 1))

    def copy_items() -> None:
        to.copy_(elements)
        if last is not None:
            last()

    return Want(read.of, start, stop, memory(stage), copy_items)


def _as_stored(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Say whether a tensor's memory is its elements in order, as bytes of ``dtype`` can be read into."""
    lazy = tensor.is_conj() or tensor.is_neg()
    return tensor.is_cpu and tensor.dtype == dtype and tensor.is_contiguous() and not lazy


def _narrowed(target: torch.Tensor, box: Box, origin: tuple[int, ...]) -> torch.Tensor:
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
    """Refuse what torch's planner, which unpickles with ``weights_only=False``, must not be handed from a file."""
    name = repr(read.item.storage_index.fqn)
    try:
        file.seek(0)
        with torch.serialization.safe_globals([io.BytesIO]):  # as torch's planner plans whatever is bytes
            torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        understood = isinstance(error, pickle.UnpicklingError) if has_crc else refused(error)
        if read.location.checksums is None and not understood:
            message = f"{name} was damaged, or torch.save did not write it ({type(error).__name__})"
            raise CheckpointError(message, url=read.of.url) from error
        raise Unusable(
            f"{name} is more than weights: pass weights_only=False, which runs whatever code it names, if you trust "
            "this checkpoint",
            url=read.of.url,
        ) from error
