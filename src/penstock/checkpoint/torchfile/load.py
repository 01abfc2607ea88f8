"""Loads ``torch.save`` files: torch makes the objects, and Penstock reads the storages, in parallel and verified."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
import zlib
from collections import deque
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.integrity.checksummed import ChecksummedReader
from penstock.checkpoint.torchfile.archive import MAGIC, Record, archive
from penstock.checkpoint.torchfile.storages import COPIED_BYTES, StoragePrefetch, nowhere
from penstock.errors import CheckpointError, ChecksumMismatch, PenstockError
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from penstock.checkpoint.torchfile.archive import Use
    from penstock.checkpoint.transfer.plan import Object
    from penstock.source import Reader, Source

__all__ = ["load_torchfile", "refused"]

# What torch raises for a file of its older format that is cut or damaged; with weights only no code of others runs.
_BROKEN = (EOFError, pickle.UnpicklingError, struct.error, UnicodeDecodeError, RuntimeError)
_BROKEN_WEIGHTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_REFUSED = re.compile(r"Unsupported (global|class)|Attempting to deserialize|map_location|don't know how to restore")


def load_torchfile(source: Source, of: Object, *, map_location: Any, weights_only: bool) -> Any:  # noqa: ANN401  as torch.load
    """Return what ``torch.load`` does, each record compared with its CRC-32 where the file has one.

    Storages are read in the order in which they are asked for, ahead of that by 192 MiB; those that stay in CPU memory
    go straight to where they stay, those that go to a GPU by way of page-locked memory.

    Raises:
        ChecksumMismatch: A record is not what was written; it is named.
        CheckpointError: The file's directory is damaged, or the file was cut; or, with weights only, its pickle is none
            of torch's.

    """
    torch = _torch()
    opened = archive(source, of)
    if opened is None:
        with _reader(source, of) as reader:
            if _tested(reader, of):
                return torch.load(reader, map_location=map_location, weights_only=weights_only)
            with _without_sums(reader, of, weights_only=weights_only):
                return torch.load(reader, map_location=map_location, weights_only=weights_only)
    if weights_only and opened.uses is None:  # it might fill memory of any size
        raise CheckpointError("what its data.pkl would make is not known: torch.save did not write it", url=of.url)
    if _no_bytes(map_location):
        with opened.file.telling():
            return torch.load(opened.file, map_location=map_location, weights_only=weights_only)
    if opened.plain and opened.uses is not None:
        with closing(StoragePrefetch(source, opened, opened.uses, _gpus(map_location))) as prefetch:
            hand = _handing(opened.uses, prefetch, map_location, of.url)
            with opened.file.telling(), torch.serialization.skip_data():
                found = torch.load(opened.file, map_location=hand, weights_only=weights_only)
            prefetch.settle()
            return found
    small = [use for use in opened.uses or () if use.record.size <= COPIED_BYTES]
    with closing(StoragePrefetch(source, opened, small)) as prefetch:
        opened.file.fill_storage = prefetch.serve
        with opened.file.telling():
            return torch.load(opened.file, map_location=map_location, weights_only=weights_only)


def _handing(
    uses: Iterable[Use],
    prefetch: StoragePrefetch,
    map_location: Any,  # noqa: ANN401  as torch.load
    url: str,
) -> Callable[[Any, str], Any]:
    """Return the ``map_location`` that hands out filled storages, in the order in which torch asks for them."""
    upcoming, known = deque(uses), set[Record]()

    def hand(empty: torch.UntypedStorage, location: str) -> Any:  # noqa: ANN401  what a caller's own returns
        while upcoming and upcoming[0].record in known:  # torch asks again only for what has no memory
            upcoming.popleft()
        if not upcoming or upcoming[0].location != location or empty.nbytes() != upcoming[0].record.size:
            raise CheckpointError(f"a storage of {empty.nbytes()} bytes is not among its records", url=url)
        record = upcoming.popleft().record
        storage = prefetch.take(record).untyped_storage()
        result = storage if storage.is_cuda else _restored(storage, location, map_location)
        if result.data_ptr():
            known.add(record)
        return result

    return hand


def _restored(storage: torch.UntypedStorage, location: str, map_location: Any) -> Any:  # noqa: ANN401  see _handing
    """Put a storage where torch would."""
    torch = _torch()
    result = map_location(storage, location) if _is_function(map_location) else None
    if result is None:
        return torch.serialization.default_restore_location(storage, _where(map_location, location))
    return result


def _gpus(map_location: Any) -> Callable[[str], torch.device | None]:  # noqa: ANN401  as torch.load
    """Return what says which GPU a location leads to; None: to none, or a caller's function alone knows."""
    torch = _torch()

    @cache
    def gpu(location: str) -> Any:  # noqa: ANN401  a device, or None
        nothing = torch.UntypedStorage(0, device="cpu")
        where = _where(map_location, location)
        device = torch.serialization.default_restore_location(nothing, where).device
        return device if device.type == "cuda" else None

    return nowhere if _is_function(map_location) else gpu


def _where(map_location: Any, location: str) -> Any:  # noqa: ANN401  as torch.load
    torch = _torch()
    if isinstance(map_location, dict):
        return map_location.get(location, location)
    if isinstance(map_location, torch.device):
        return str(map_location)
    return map_location if isinstance(map_location, (str, bytes)) else location


def _is_function(map_location: Any) -> bool:  # noqa: ANN401  as torch.load
    torch = _torch()
    return map_location is not None and not isinstance(map_location, (dict, str, bytes, torch.device))


def _no_bytes(map_location: Any) -> bool:  # noqa: ANN401  as torch.load
    """Say whether no bytes are wanted at all; torch looks only at these two, too."""
    torch = _torch()
    return map_location == "meta" if isinstance(map_location, str) else map_location == torch.device("meta")


def _tested(reader: Reader | ChecksummedReader, of: Object) -> bool:
    """Read a zip of another kind once before, and compare what is in it; TorchScript is such, and compressed files.

    False: it is no zip, and has no sums.
    """
    magic = reader.read(len(MAGIC))
    reader.seek(0)
    if magic != MAGIC or of.checksums is not None:
        return magic == MAGIC
    try:
        with zipfile.ZipFile(reader) as whole:
            bad = whole.testzip()
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"it is damaged: {error}", url=of.url) from None
    if bad is not None:
        raise ChecksumMismatch(f"record {bad!r} is not what was written", url=of.url)
    reader.seek(0)
    return True


def refused(error: Exception) -> bool:
    """Say whether torch understood a file, and would not, or could not, make what is in it."""
    return _REFUSED.search(str(error)) is not None


@contextmanager
def _without_sums(reader: Reader | ChecksummedReader, of: Object, *, weights_only: bool) -> Iterator[None]:
    """Tell damage in a file of the format before torch 1.6, as far as it shows, from what torch refuses to run.

    torch answers most of it with the advice to pass ``weights_only=False``: also a name that the file's end cuts off.
    """
    broken = _BROKEN + _BROKEN_WEIGHTS if weights_only else _BROKEN
    try:
        yield
    except broken as error:
        if isinstance(error, PenstockError | OSError) or (refused(error) and reader.tell() < of.size):
            raise
        message = f"it was cut or damaged, or torch.save did not write it ({type(error).__name__})"
        raise CheckpointError(message, url=of.url) from error


def _reader(source: Source, of: Object) -> Reader | ChecksummedReader:
    """Open the file to be read from the beginning to the end."""
    reader = source.open_read(of.key, ObjectMeta(of.key, of.size, of.etag))
    return reader if of.checksums is None else ChecksummedReader(reader, of.checksums, of.url)


def _torch() -> Any:  # noqa: ANN401  half of what is used of it has no types
    import torch

    return torch
