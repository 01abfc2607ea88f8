"""Loading of ``torch.save`` files: torch makes the objects, Penstock reads the storages, in parallel and verified.

``storages`` reads records to their devices and compares each with its CRC-32.
"""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
import zlib
from collections import deque
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.gather import Object, Want, gather
from penstock.checkpoint.integrity import ChecksummedReader, crc32
from penstock.checkpoint.staging import allocate_stage, cuts, torch_module
from penstock.checkpoint.torchfile.archive import MAGIC, Archive, ArchiveRecord, Use, archive, compare
from penstock.errors import CheckpointError, ChecksumMismatch, PenstockError, Unsupported
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    import torch

    from penstock.source import Reader, Source

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
    """
    import torch

    def wants() -> Iterator[Want]:
        for use in uses:
            device = gpu(use.location)
            storage = torch.empty(use.record.size, dtype=torch.uint8, device=device or "cpu")
            if device is None:
                yield from _wants(of, use.record, storage.numpy().data, storage)
            else:
                yield from _stage_record(of, use.record, storage)

    return _verify_records(source, of, wants())


def _wants(
    of: Object, record: ArchiveRecord, memory: memoryview, storage: torch.Tensor | None = None
) -> Iterator[Want]:
    for start, stop in _split_record(record):
        yield Want(of, start, stop, memory[start - record.start : stop - record.start], (record, storage, None))


def _stage_record(of: Object, record: ArchiveRecord, storage: torch.Tensor) -> Iterator[Want]:
    for start, stop in _split_record(record):
        stage = allocate_stage(stop - start, page_locked=storage.is_cuda)
        yield Want(of, start, stop, stage.numpy().data, (record, storage, stage))


def _split_record(record: ArchiveRecord) -> list[tuple[int, int]]:
    """Return the ranges of a record that are verified while the next ones arrive; an empty record is one range."""
    return list(cuts(record.start, record.stop)) or [(record.start, record.stop)]


def _verify_records(source: Source, of: Object, wants: Iterable[Want]) -> Generator[Any]:
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
    """Storages of one file, prefetched in the expected order of use. After ``close`` nothing is written."""

    def __init__(
        self, source: Source, of: Archive, uses: Iterable[Use], gpu: Callable[[str], torch.device | None] = nowhere
    ) -> None:
        self._source = source
        self._of = of
        firsts: dict[ArchiveRecord, Use] = {}
        for use in uses:
            firsts.setdefault(use.record, use)
        self._expected = deque(firsts)
        self._filled = storages(source, of.of, firsts.values(), gpu)
        self._gpus: set[torch.device] = set()
        self._last: tuple[ArchiveRecord, memoryview] | None = None

    def take(self, record: ArchiveRecord) -> torch.Tensor:
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
            for _ in _verify_records(self._source, self._of.of, _wants(self._of.of, record, view[: record.size])):
                pass
            return record.size
        if self._last is None or record != last:
            self._last = record, self.take(record).numpy().data
        piece = self._last[1][at - record.start :][: len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def settle(self) -> None:
        for gpu in self._gpus:
            torch_module().cuda.current_stream(gpu).synchronize()

    def close(self) -> None:
        self._filled.close()


# Errors that torch raises for a cut or damaged file of its older format. The second group counts with weights only:
# then no foreign code runs that could raise it.
_BROKEN = (EOFError, pickle.UnpicklingError, struct.error, UnicodeDecodeError, RuntimeError)
_BROKEN_WEIGHTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_MACHINE = re.compile(r"CUDA|accelerator|device|backend|memory", re.IGNORECASE)  # the machine's fault, not the file's
_REFUSED = re.compile(r"Unsupported (global|class)|Attempting to deserialize|map_location|don't know how to restore")


def load_torchfile(source: Source, of: Object, *, map_location: Any, weights_only: bool) -> Any:  # noqa: ANN401  as torch.load
    """Return the result of ``torch.load``, with each record verified by its CRC-32 if the file has one.

    Storages are read in the order of use, up to 192 MiB ahead. A storage that stays in CPU memory is read directly to
    its place; one for a GPU passes through page-locked memory.
    """
    torch = torch_module()
    opened = archive(source, of)
    if opened is None:
        with _reader(source, of) as reader:
            if _verify_zip(reader, of):
                return torch.load(reader, map_location=map_location, weights_only=weights_only)
            with _without_sums(reader, of, weights_only=weights_only):
                return torch.load(reader, map_location=map_location, weights_only=weights_only)
    # Loading might allocate any amount of memory.
    if weights_only and opened.uses is None:
        raise CheckpointError("cannot tell what data.pkl would create: torch.save did not write it", url=of.url)
    # Foreign code may run then, and its errors are raised unchanged.
    theirs = not weights_only or _is_function(map_location)
    with nullcontext() if theirs else _understood(of):
        return _load_archive(source, opened, map_location=map_location, weights_only=weights_only)


def _load_archive(source: Source, opened: Archive, *, map_location: Any, weights_only: bool) -> Any:  # noqa: ANN401  as torch.load
    torch, of = torch_module(), opened.of
    if _no_bytes(map_location):
        with opened.file.telling():
            return torch.load(opened.file, map_location=map_location, weights_only=weights_only)
    if opened.plain and opened.uses is not None:
        with closing(StoragePrefetch(source, opened, opened.uses, _gpus(map_location))) as prefetch:
            hand = _make_handler(opened.uses, prefetch, map_location, of.url)
            with opened.file.telling(), torch.serialization.skip_data():
                found = torch.load(opened.file, map_location=hand, weights_only=weights_only)
            prefetch.settle()
            return found
    small = [use for use in opened.uses or () if use.record.size <= COPIED_BYTES]
    with closing(StoragePrefetch(source, opened, small)) as prefetch:
        opened.file.fill_storage = prefetch.serve
        with opened.file.telling():
            return torch.load(opened.file, map_location=map_location, weights_only=weights_only)


def _make_handler(
    uses: Iterable[Use],
    prefetch: StoragePrefetch,
    map_location: Any,  # noqa: ANN401  as torch.load
    url: str,
) -> Callable[[Any, str], Any]:
    """Return a ``map_location`` function that returns filled storages, in the order in which torch asks for them."""
    upcoming, known = deque(uses), set[ArchiveRecord]()

    def hand(empty: torch.UntypedStorage, location: str) -> Any:  # noqa: ANN401  what a caller's own returns
        # torch asks for a storage again only if it has no memory.
        while upcoming and upcoming[0].record in known:
            upcoming.popleft()
        if not upcoming or upcoming[0].location != location or empty.nbytes() != upcoming[0].record.size:
            raise CheckpointError(f"a storage of {empty.nbytes()} bytes is not among the file's records", url=url)
        record = upcoming.popleft().record
        storage = prefetch.take(record).untyped_storage()
        result = storage if storage.is_cuda else _restore_storage(storage, location, map_location)
        if result.data_ptr():
            known.add(record)
        return result

    return hand


def _restore_storage(storage: torch.UntypedStorage, location: str, map_location: Any) -> Any:  # noqa: ANN401  see _make_handler
    result = map_location(storage, location) if _is_function(map_location) else None
    if result is None:
        return torch_module().serialization.default_restore_location(storage, _where(map_location, location))
    return result


def _gpus(map_location: Any) -> Callable[[str], torch.device | None]:  # noqa: ANN401  as torch.load
    """Return a function from a location to its GPU, or to None: for no GPU, or if ``map_location`` is a function."""
    torch = torch_module()

    @cache
    def gpu(location: str) -> Any:  # noqa: ANN401  a device, or None
        nothing = torch.UntypedStorage(0, device="cpu")
        where = _where(map_location, location)
        device = torch.serialization.default_restore_location(nothing, where).device
        return device if device.type == "cuda" else None

    return nowhere if _is_function(map_location) else gpu


def _where(map_location: Any, location: str) -> Any:  # noqa: ANN401  as torch.load
    if isinstance(map_location, dict):
        return map_location.get(location, location)
    if isinstance(map_location, torch_module().device):
        return str(map_location)
    return map_location if isinstance(map_location, (str, bytes)) else location


def _is_function(map_location: Any) -> bool:  # noqa: ANN401  as torch.load
    return map_location is not None and not isinstance(map_location, (dict, str, bytes, torch_module().device))


def _no_bytes(map_location: Any) -> bool:  # noqa: ANN401  as torch.load
    """Return whether no bytes are wanted at all; torch too checks only these two forms."""
    return bool(map_location == ("meta" if isinstance(map_location, str) else torch_module().device("meta")))


def _verify_zip(reader: Reader | ChecksummedReader, of: Object) -> bool:
    """Read a zip of another kind (TorchScript, compressed) in advance to verify it; return False if it is not a zip."""
    magic = reader.read(len(MAGIC))
    reader.seek(0)
    if magic != MAGIC or of.checksums is not None:
        return magic == MAGIC
    try:
        with zipfile.ZipFile(reader) as whole:
            bad = whole.testzip()
    except Unsupported:
        # The store raised it; the file is not damaged.
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"the file is damaged: {error}", url=of.url) from None
    if bad is not None:
        raise ChecksumMismatch(f"record {bad!r} is not what was written", url=of.url)
    reader.seek(0)
    return True


def is_refusal(error: Exception) -> bool:
    """Return whether torch could read a file but refused, or was unable, to make an object in it."""
    return _REFUSED.search(str(error)) is not None


@contextmanager
def _understood(of: Object) -> Iterator[None]:
    """Raise ``CheckpointError`` if torch fails at a file with intact records; pass on its refusals and limits."""
    try:
        yield
    except (*_BROKEN, *_BROKEN_WEIGHTS) as error:
        mine = isinstance(error, RuntimeError) and _MACHINE.search(str(error))
        if isinstance(error, PenstockError | OSError) or mine or is_refusal(error):
            raise
        message = f"torch cannot make what its data.pkl describes ({type(error).__name__}): torch.save did not write it"
        raise CheckpointError(message, url=of.url) from error


@contextmanager
def _without_sums(reader: Reader | ChecksummedReader, of: Object, *, weights_only: bool) -> Iterator[None]:
    """Raise ``CheckpointError`` for damage in a file of the format before torch 1.6, as far as torch detects it.

    Errors for code that torch refuses to run are passed on. torch answers most damage with the advice to pass
    ``weights_only=False``, even for a name that is cut off at the end of the file.
    """
    broken = _BROKEN + _BROKEN_WEIGHTS if weights_only else _BROKEN
    try:
        yield
    except broken as error:
        if isinstance(error, PenstockError | OSError) or (is_refusal(error) and reader.tell() < of.size):
            raise
        message = f"the file is truncated or damaged, or torch.save did not write it ({type(error).__name__})"
        raise CheckpointError(message, url=of.url) from error


def _reader(source: Source, of: Object) -> Reader | ChecksummedReader:
    reader = source.open_read(of.key, ObjectMeta(of.key, of.size, of.etag))
    return reader if of.checksums is None else ChecksummedReader(reader, of.checksums, of.url)
