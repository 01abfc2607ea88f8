"""torch's own layout of a distributed checkpoint: ``.metadata``, a pickle that is read without running its code."""

from __future__ import annotations

import pickle
import struct
import sys
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sized
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta

from penstock.checkpoint.dcp.records import ItemLocation
from penstock.checkpoint.integrity import METADATA, MOST_BYTES
from penstock.checkpoint.torchfile.archive import ENDING, ENDING_BYTES, MAGIC
from penstock.checkpoint.torchfile.scanner import Call, Name, Pairs, PickleScan
from penstock.errors import CheckpointError, ChecksumMismatch, Unusable, kind_of

if TYPE_CHECKING:
    import io

_PIECE_BYTES = 1 << 20


def object_name(rank: int) -> str:
    return f"__{rank}_0.distcp"


def local_name(rank: int) -> str:
    """Return the name of a rank's own metadata, which torch writes with ``use_collectives=False``."""
    return f"__{rank}{METADATA}"


def encode(metadata: Metadata, locations: Mapping[MetadataIndex, ItemLocation]) -> bytes:
    info = filesystem._StorageInfo  # noqa: SLF001  the format is made of it, by this name
    stored = {index: info(each.name, each.start, each.length) for index, each in locations.items()}
    version = getattr(filesystem, "CURRENT_DCP_VERSION", None)  # since torch 2.9, where Metadata has it too
    fields = {"storage_data": stored} if version is None else {"storage_data": stored, "version": version}
    return pickle.dumps(replace(metadata, **fields))


def decode(data: bytes, url: str, *, weights_only: bool) -> Metadata:
    """Return the metadata in a ``.metadata``; its ``storage_data`` maps to ``ItemLocation``.

    With ``weights_only`` only the classes that torch writes there are made. Without, any code that the file names runs.
    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"the file has more than {MOST_BYTES:,} bytes")
        metadata = build(data) if weights_only else pickle.loads(data)  # noqa: S301  whose checkpoint is trusted
        locations = {_index(index): _location(info) for index, info in metadata.storage_data.items()}
        if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, dict):
            raise TypeError(f"the file must contain Metadata, got {kind_of(metadata)}")
    except Unusable as error:
        error.url = url
        raise
    except Exception as error:  # noqa: BLE001  a damaged pickle raises anything
        raise CheckpointError(f"cannot read the metadata of the checkpoint: {error!r:.200}", url=url) from None
    meta = getattr(metadata, "storage_meta", None)
    return replace(
        metadata, storage_data=locations, storage_meta=meta if isinstance(meta, StorageMeta) else StorageMeta()
    )


def alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor on the CPU, alone in its storage: ``torch.save`` writes whole storages."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def verify_item(file: io.BytesIO, url: str) -> bool:
    """Verify an item that is a zip, by its first or last bytes, and return True; return False if it is not a zip."""
    data = file.getbuffer()
    if data[: len(MAGIC)] != MAGIC and data[-ENDING_BYTES:][: len(ENDING)] != ENDING:
        return False
    try:
        _verify(file)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ChecksumMismatch(f"an item does not match what was written: {error}", url=url) from None
    except Exception as error:
        raise CheckpointError(f"an item is not a complete zip: {error}", url=url) from error
    return True


def load_item(file: io.BytesIO, url: str) -> torch.Tensor:
    """Return the tensor in a ``torch.save`` file, verified by its CRC-32s; it may share the file's memory."""
    held = _find_stored_bytes(file) if verify_item(file, url) else None
    try:
        file.seek(0)
        tensor = _loaded_in_place(file, held) if held else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"an item is not a tensor ({type(error).__name__})", url=url) from error
    if not isinstance(tensor, torch.Tensor):
        raise CheckpointError(f"an item must be a tensor, got {kind_of(tensor)}", url=url)
    return tensor


class _StoredBytes(NamedTuple):
    start: int
    size: int


def _find_stored_bytes(file: io.BytesIO) -> _StoredBytes | None:
    """Return the position of a file's only storage; None if its bytes are not stored unchanged."""
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
    return _StoredBytes(start, record.file_size) if plain else None


def _loaded_in_place(file: io.BytesIO, held: _StoredBytes) -> Any:  # noqa: ANN401  what torch makes
    """Return the object in a file; torch does not read its only storage, which is a view of the file's memory."""

    def hand(empty: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        if empty.nbytes() != held.size:
            raise ValueError(f"a storage of {empty.nbytes()} bytes has a record of {held.size} bytes")
        memory = file.getbuffer()[held.start : held.start + held.size]
        return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()

    with torch.serialization.skip_data():
        return torch.load(file, map_location=cast("Any", hand), weights_only=True)


def _index(index: object) -> MetadataIndex:
    if not isinstance(index, MetadataIndex):
        raise TypeError(f"an index must be a MetadataIndex, got {kind_of(index)}")
    return index


def _location(info: Any) -> ItemLocation:  # noqa: ANN401  whatever the pickle made
    name, start, length = info.relative_path, info.offset, info.length
    if getattr(info, "transform_descriptors", None):
        raise Unusable(
            f"the checkpoint was written with stream extensions: {_format_values(*info.transform_descriptors)}"
        )
    if not isinstance(name, str) or "://" in name or {"", ".", ".."} & set(name.split("/")):
        raise ValueError(f"{_format_values(name)} is not an object of this checkpoint")
    if not all(type(each) is int and each >= 0 for each in (start, length)):
        raise ValueError(f"start and length in {name} must be integers from 0, got {_format_values(start, length)}")
    return ItemLocation(name, start, length)


def _format_values(*values: object) -> str:
    """Return short texts of values from a file; the text of a nested value could exceed any memory."""
    return " and ".join(f"{each!r:.80}" if isinstance(each, str | int | float) else "?" for each in values)


def _verify(archived: io.BytesIO) -> None:
    """Read each record to its end, which verifies it; records without a CRC are skipped (torch can omit them)."""
    with zipfile.ZipFile(archived) as archive:
        for record in archive.infolist():
            if record.CRC:
                with archive.open(record) as file:
                    while file.read(_PIECE_BYTES):
                        pass


_METADATA = "torch.distributed.checkpoint.metadata"
_SHARDS = "torch.distributed._shard.sharded_tensor.metadata"  # of torch before 2.3
_KNOWN = {
    *((_METADATA, f"{name}StorageMetadata") for name in ("Bytes", "Chunk", "Tensor")),
    *((_METADATA, name) for name in ("Metadata", "MetadataIndex", "StorageMeta", "TensorProperties")),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    *((_SHARDS, name) for name in ("TensorProperties", "MEM_FORMAT_ENCODING")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),  # a table of torch.strided and its like
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    *((module, "PosixPath") for module in ("pathlib", "pathlib._local")),
}
_ATOMS = (type(None), bool, int, float, str, bytes)
_HASHING = (set, frozenset, OrderedDict)
_MOST_DEEP = 50  # torch's own metadata is seven levels deep
# Each element is at least one byte of the pickle, and may be in this many of the objects that are made.
_COPIES = 4


def build(data: bytes) -> Any:  # noqa: ANN401  any unpickled value
    """Return the object in a pickle, or raise any error; only classes that torch writes are called."""
    return _Builder(len(data)).built(PickleScan(data).result, 0)


class _Builder:
    """A builder that makes each object once. It limits copies: a few bytes of a pickle can copy all objects so far."""

    def __init__(self, size: int) -> None:
        self._left = _COPIES * size
        self._made: dict[int, Any] = {}

    def built(self, thing: Any, depth: int) -> Any:  # noqa: ANN401  see build
        if type(thing) in _ATOMS:
            return thing
        if isinstance(thing, Name):
            return _resolve_name(thing)
        if id(thing) not in self._made:
            if depth > _MOST_DEEP:
                raise pickle.UnpicklingError("the pickle is nested deeper than torch's")
            self._made[id(thing)] = self._new(thing, depth + 1)
        return self._made[id(thing)]

    def _new(self, thing: Any, depth: int) -> Any:  # noqa: ANN401  see build
        if isinstance(thing, Call):
            return self._object(thing, depth)
        self._count(thing)
        if isinstance(thing, Pairs):
            return {self._hashable(self.built(key, depth)): self.built(value, depth) for key, value in thing}
        return type(thing)(self.built(each, depth) for each in thing)

    def _object(self, made: Call, depth: int) -> Any:  # noqa: ANN401  see build
        if not isinstance(made.by, Name):
            raise pickle.UnpicklingError("the pickle calls an object without a name")
        kind, args = _resolve_name(made.by), self.built(made.args, depth)
        for each in args:
            self._count(each)
            if kind in _HASHING:
                list(map(self._hashable, each))
        thing = kind.__new__(kind, *args) if made.new else kind(*args)
        if made.content is not None:
            content = self.built(made.content, depth)
            thing.update(content if isinstance(content, dict) else map(self._hashable, content))
        if made.state is not None:
            state = self.built(made.state, depth)
            self._count(state)
            thing.__setstate__(state) if hasattr(thing, "__setstate__") else thing.__dict__.update(state)
        return thing

    def _hashable(self, key: Any) -> Any:  # noqa: ANN401  see build
        """Return a key; raise ``pickle.UnpicklingError`` for a key whose hash may cost more than its size."""
        if type(key) is MetadataIndex and type(key.fqn) is str and type(key.offset) in (torch.Size, type(None)):
            self._count(key.offset)
        elif type(key) not in _ATOMS:
            raise pickle.UnpicklingError(f"the pickle uses {kind_of(key)} as a key")
        return key

    def _count(self, thing: object) -> None:
        self._left -= len(thing) if isinstance(thing, Sized) else 1
        if self._left < 0:
            raise pickle.UnpicklingError("the pickle would create more elements than it contains")


def _resolve_name(name: Name) -> Any:  # noqa: ANN401  a class, a function or a dtype
    dtype = getattr(torch, name.name, None) if name.module == "torch" else None
    if isinstance(dtype, torch.dtype):
        return dtype
    if tuple(name) in _KNOWN:
        return getattr(import_module(name.module), name.name)
    raise pickle.UnpicklingError(
        f"the pickle names {'.'.join(name):.80}, which torch never writes in metadata: for a checkpoint that you trust "
        "pass weights_only=False, which runs any code that it names"
    )
