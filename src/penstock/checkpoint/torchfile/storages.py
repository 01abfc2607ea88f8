"""Reading of storages of ``torch.save`` files to their devices, each verified by its CRC-32."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.gather import Want, gather
from penstock.checkpoint.integrity.checksummed import crc32
from penstock.checkpoint.staging import cuts, staged
from penstock.checkpoint.torchfile.archive import Record, Use, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    import torch

    from penstock.checkpoint.gather import Object
    from penstock.checkpoint.torchfile.archive import Archive
    from penstock.source import Source

__all__ = ["COPIED_BYTES", "StoragePrefetch", "storages"]

# If torch reads into its own memory, longer storages are not prefetched.
COPIED_BYTES = 32 << 20


def nowhere(_location: str) -> None:
    """Return no GPU for any location."""


def storages(
    source: Source, of: Object, uses: Iterable[Use], gpu: Callable[[str], torch.device | None] = nowhere
) -> Generator[torch.Tensor]:
    """Yield the bytes of the records of ``uses``, in order, read up to 192 MiB ahead of the consumer.

    ``gpu`` returns the GPU of a location. Data for a GPU passes through page-locked memory, and is there once the GPU's
    current stream has reached that point. Other data is read directly to its place in CPU memory.

    Raises:
        ChecksumMismatch: A record does not match its CRC-32.

    """
    import torch

    def wants() -> Iterator[Want]:
        for use in uses:
            device = gpu(use.location)
            storage = torch.empty(use.record.size, dtype=torch.uint8, device=device or "cpu")
            if device is None:
                yield from _wants(of, use.record, storage.numpy().data, storage)
            else:
                yield from _staged(of, use.record, storage)

    return _verified(source, of, wants())


def _wants(of: Object, record: Record, memory: memoryview, storage: torch.Tensor | None = None) -> Iterator[Want]:
    """Yield the wants that read a record into ``memory``."""
    for start, stop in _pieces(record):
        yield Want(of, start, stop, memory[start - record.start : stop - record.start], (record, storage, None))


def _staged(of: Object, record: Record, storage: torch.Tensor) -> Iterator[Want]:
    """Yield the wants that read a record into page-locked memory."""
    for start, stop in _pieces(record):
        stage = staged(stop - start, page_locked=storage.is_cuda)
        yield Want(of, start, stop, stage.numpy().data, (record, storage, stage))


def _pieces(record: Record) -> list[tuple[int, int]]:
    """Return the ranges of a record that are verified while the next ones arrive; an empty record is one range."""
    return list(cuts(record.start, record.stop)) or [(record.start, record.stop)]


def _verified(source: Source, of: Object, wants: Iterable[Want]) -> Generator[Any]:
    """Fill ``wants``, verify each record, and yield the storage it was read into."""
    crc = 0
    with closing(gather(source, wants)) as filled:
        for want in filled:
            record, storage, stage = want.tag
            crc = crc32(want.memory, crc)
            if stage is not None:
                storage[want.start - record.start : want.stop - record.start].copy_(stage, non_blocking=True)
            if want.stop == record.stop:
                compare(of, record, crc)
                crc = 0
                yield storage


class StoragePrefetch:
    """The storages of one file, prefetched in the expected order of use. After ``close`` nothing is written.

    ``uses`` is the expected order; for ``gpu`` see ``storages``.
    """

    def __init__(
        self,
        source: Source,
        of: Archive,
        uses: Iterable[Use],
        gpu: Callable[[str], torch.device | None] = nowhere,
    ) -> None:
        """Start without a read; the first ``take`` begins to read."""
        self._source = source
        self._of = of
        firsts: dict[Record, Use] = {}
        for use in uses:
            firsts.setdefault(use.record, use)
        self._expected = deque(firsts)
        self._filled = storages(source, of.of, firsts.values(), gpu)
        self._gpus: set[torch.device] = set()
        self._last: tuple[Record, memoryview] | None = None

    def take(self, record: Record) -> torch.Tensor:
        """Return a storage's bytes; a storage that is not the expected next one is read now, into CPU memory."""
        if not self._expected or self._expected[0] != record:
            return next(storages(self._source, self._of.of, [Use(record, "")]))
        self._expected.popleft()
        storage = next(self._filled)
        if storage.is_cuda:
            self._gpus.add(storage.device)
        return storage

    def serve(self, at: int, view: memoryview) -> int:
        """Fill ``view`` with a storage's bytes if one begins at ``at`` or continues there; return the number of bytes.

        Return 0 for any other read: torch's search for the directory begins within a storage.
        """
        record = self._of.storage(at)
        last = None if self._last is None else self._last[0]
        if record is None or (record != last and at != record.start):
            return 0
        if at == record.start and len(view) >= record.size > COPIED_BYTES:
            for _ in _verified(self._source, self._of.of, _wants(self._of.of, record, view[: record.size])):
                pass
            return record.size
        if self._last is None or record != last:
            self._last = record, self.take(record).numpy().data
        piece = self._last[1][at - record.start :][: len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def settle(self) -> None:
        """Wait until every GPU has received its data."""
        import torch

        for gpu in self._gpus:
            torch.cuda.current_stream(gpu).synchronize()

    def close(self) -> None:
        """Cancel reads in flight."""
        self._filled.close()
