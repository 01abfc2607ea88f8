"""torch's own layout of a distributed checkpoint: ``.metadata``, a pickle that is read without running anything."""

from __future__ import annotations

import pickle
import struct
import sys
import zipfile
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta

from penstock.checkpoint.distributed.builder import build
from penstock.checkpoint.distributed.records import ItemLocation
from penstock.checkpoint.integrity.manifest import METADATA, MOST_BYTES
from penstock.checkpoint.torchfile.archive import ENDING, ENDING_BYTES, MAGIC
from penstock.errors import CheckpointError, ChecksumMismatch, Unusable

if TYPE_CHECKING:
    import io
    from collections.abc import Mapping

__all__ = ["METADATA", "alone", "compared", "decode", "encode", "load_item", "local_name", "object_name"]

_PIECE_BYTES = 1 << 20


def object_name(rank: int) -> str:
    """Return what torch calls a rank's first file."""
    return f"__{rank}_0.distcp"


def local_name(rank: int) -> str:
    """Return the name of a rank's own metadata, as torch writes it with ``use_collectives=False``."""
    return f"__{rank}{METADATA}"


def encode(metadata: Metadata, locations: Mapping[MetadataIndex, ItemLocation]) -> bytes:
    """Return ``.metadata``, as torch's ``FileSystemWriter`` writes it."""
    info = filesystem._StorageInfo  # noqa: SLF001  the format is made of it, by this name
    stored = {index: info(each.name, each.start, each.length) for index, each in locations.items()}
    version = getattr(filesystem, "CURRENT_DCP_VERSION", None)  # since torch 2.9, where Metadata has it too
    fields = {"storage_data": stored} if version is None else {"storage_data": stored, "version": version}
    return pickle.dumps(replace(metadata, **fields))


def decode(data: bytes, url: str, *, weights_only: bool) -> Metadata:
    """Read a ``.metadata``; ``storage_data`` maps to ``ItemLocation``.

    With ``weights_only`` nothing but the classes that torch writes there is made; else it runs what the file names.

    Raises:
        CheckpointError: It is damaged, names another class, or a place outside of the checkpoint.
        Unusable: It was written with torch's stream extensions.

    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        metadata = build(data) if weights_only else pickle.loads(data)  # noqa: S301  whose checkpoint is trusted
        locations = {_index(index): _location(info) for index, info in metadata.storage_data.items()}
        if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, dict):
            raise TypeError(f"this is a {type(metadata).__name__}")
    except Unusable as error:
        error.url = url
        raise
    except Exception as error:  # noqa: BLE001  a damaged pickle raises anything
        raise CheckpointError(f"this is no metadata of a checkpoint: {error!r:.200}", url=url) from None
    meta = getattr(metadata, "storage_meta", None)
    return replace(
        metadata, storage_data=locations, storage_meta=meta if isinstance(meta, StorageMeta) else StorageMeta()
    )


def alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU whose storage holds nothing else: ``torch.save`` writes storages whole."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def compared(file: io.BytesIO, url: str) -> bool:
    """Compare an item that is a zip, by its beginning or its end, with its CRC-32s; False: it is none, and has none.

    Raises:
        ChecksumMismatch: A record is not what was written.
        CheckpointError: The zip is damaged.

    """
    data = file.getbuffer()
    if data[: len(MAGIC)] != MAGIC and data[-ENDING_BYTES:][: len(ENDING)] != ENDING:
        return False
    try:
        _verify(file)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ChecksumMismatch(f"an item is not what was written: {error}", url=url) from None
    except Exception as error:
        raise CheckpointError(f"an item is no whole zip: {error}", url=url) from error
    return True


def load_item(file: io.BytesIO, url: str) -> torch.Tensor:
    """Return the tensor of a file of ``torch.save``'s, its records compared with their CRC-32s.

    It shares the file's memory, unless its bytes are not simply there.

    Raises:
        ChecksumMismatch: A record is not what was written.
        CheckpointError: It is no tensor's file.

    """
    held = _held(file) if compared(file, url) else None
    try:
        file.seek(0)
        tensor = _loaded_in_place(file, held) if held else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"an item is no tensor ({type(error).__name__})", url=url) from error
    if not isinstance(tensor, torch.Tensor):
        raise CheckpointError(f"an item is no tensor but a {type(tensor).__name__}", url=url)
    return tensor


class _Held(NamedTuple):
    """Where the bytes of a file's storage lie in it."""

    start: int
    size: int


def _held(file: io.BytesIO) -> _Held | None:
    """Return where the bytes of a file's one storage lie; None where they are not simply there."""
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
        order = [archive.read(each) for each in records if each.filename.endswith("/byteorder")]
    storages = [each for each in records if "/data/" in each.filename]
    if len(storages) != 1 or order != [sys.byteorder.encode()]:
        return None
    (record,) = storages
    memory = file.getbuffer()
    name_bytes, extra_bytes = struct.unpack_from("<HH", memory, record.header_offset + 26)
    start = record.header_offset + 30 + name_bytes + extra_bytes
    plain = record.compress_type == zipfile.ZIP_STORED and 0 < record.file_size <= len(memory) - start
    return _Held(start, record.file_size) if plain else None


def _loaded_in_place(file: io.BytesIO, held: _Held) -> Any:  # noqa: ANN401  what torch makes
    """Have torch make what is in a file without reading its one storage, and give it the file's memory for that."""

    def hand(empty: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        if empty.nbytes() != held.size:
            raise ValueError(f"a storage of {empty.nbytes()} bytes has a record of {held.size}")
        memory = file.getbuffer()[held.start : held.start + held.size]
        return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()

    with torch.serialization.skip_data():
        return torch.load(file, map_location=cast("Any", hand), weights_only=True)


def _index(index: object) -> MetadataIndex:
    if not isinstance(index, MetadataIndex):
        raise TypeError(f"a {type(index).__name__} is no index")
    return index


def _location(info: Any) -> ItemLocation:  # noqa: ANN401  whatever the pickle made
    name, start, length = info.relative_path, info.offset, info.length
    if getattr(info, "transform_descriptors", None):
        raise Unusable(f"it was written with stream extensions: {_shown(*info.transform_descriptors)}")
    if not isinstance(name, str) or "://" in name or {"", ".", ".."} & set(name.split("/")):
        raise ValueError(f"{_shown(name)} is no object of this checkpoint")
    if not all(type(each) is int and each >= 0 for each in (start, length)):
        raise ValueError(f"bytes {_shown(start, length)} more of {name}")
    return ItemLocation(name, start, length)


def _shown(*values: object) -> str:
    """Return short texts of values from a file; that of a nested one may be longer than any memory."""
    return " and ".join(f"{each!r:.80}" if isinstance(each, str | int | float) else "?" for each in values)


def _verify(archived: io.BytesIO) -> None:
    """Read each record to its end, which compares it; those without a CRC (torch can be told so) are passed over."""
    with zipfile.ZipFile(archived) as archive:
        for record in archive.infolist():
            if record.CRC:
                with archive.open(record) as file:
                    while file.read(_PIECE_BYTES):
                        pass
