"""torch's own layout of a distributed checkpoint: ``.metadata``, a pickle that is read without running anything."""

from __future__ import annotations

import io
import pickle
import zipfile
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from penstock.checkpoint.records import Placed
from penstock.errors import CheckpointError, ChecksumMismatch, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["METADATA", "alone", "decode", "encode", "local_name", "object_name", "unpacked"]

METADATA = ".metadata"
_PIECE_BYTES = 1 << 20
_SIZES = "torch.distributed.checkpoint.metadata"
_KNOWN = {
    (_SIZES, "BytesStorageMetadata"),
    (_SIZES, "ChunkStorageMetadata"),
    (_SIZES, "Metadata"),
    (_SIZES, "MetadataIndex"),
    (_SIZES, "StorageMeta"),
    (_SIZES, "TensorProperties"),
    (_SIZES, "TensorStorageMetadata"),
    (_SIZES, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),  # a table of torch.strided and its like
    ("collections", "OrderedDict"),
    *(("builtins", name) for name in ("dict", "list", "tuple", "set", "frozenset", "str", "int", "float", "bytes")),
    *((module, "PosixPath") for module in ("pathlib", "pathlib._local")),
}


def object_name(rank: int) -> str:
    """Return what torch calls a rank's first file."""
    return f"__{rank}_0.distcp"


def local_name(rank: int) -> str:
    """Return the name of a rank's own metadata, as torch writes it with ``use_collectives=False``."""
    return f"__{rank}{METADATA}"


def encode(metadata: Metadata, placed: Mapping[MetadataIndex, Placed]) -> bytes:
    """Return ``.metadata``, as torch's ``FileSystemWriter`` writes it."""
    info = filesystem._StorageInfo  # noqa: SLF001  the format is made of it, by this name
    stored = {index: info(each.name, each.start, each.length) for index, each in placed.items()}
    version = getattr(filesystem, "CURRENT_DCP_VERSION", None)  # since torch 2.9, where Metadata has it too
    said = {"storage_data": stored} if version is None else {"storage_data": stored, "version": version}
    return pickle.dumps(replace(metadata, **said))


def decode(data: bytes, url: str, *, weights_only: bool) -> Metadata:
    """Read a ``.metadata``; ``storage_data`` maps to ``Placed``.

    With ``weights_only`` nothing but the classes that torch writes there is made; else it runs what the file names.

    Raises:
        CheckpointError: It is damaged, names another class, or a place outside of the checkpoint.
        Unusable: It was written with torch's stream extensions.

    """
    unpickler = (_Inert if weights_only else pickle.Unpickler)(io.BytesIO(data))
    try:
        metadata = unpickler.load()
        placed = {_index(index): _placed(info) for index, info in metadata.storage_data.items()}
        if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, dict):
            raise TypeError(f"this is a {type(metadata).__name__}")
    except Unusable as error:
        error.url = url
        raise
    except Exception as error:  # noqa: BLE001  a damaged pickle raises anything
        raise CheckpointError(f"this is no metadata of a checkpoint: {error!r}", url=url) from None
    return replace(metadata, storage_data=placed)


def alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU whose storage holds nothing else: ``torch.save`` writes storages whole."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def unpacked(file: io.BytesIO, url: str) -> torch.Tensor:
    """Return the tensor of a file of ``torch.save``'s, its records compared with their CRC-32s.

    Raises:
        ChecksumMismatch: A record is not what was written.
        CheckpointError: It is no tensor's file.

    """
    try:
        _verify(file)
        file.seek(0)
        tensor = torch.load(file, map_location="cpu", weights_only=True)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise ChecksumMismatch(f"an item is not what was written: {error}", url=url) from None
    except Exception as error:
        raise CheckpointError(f"an item is no tensor: {error}", url=url) from error
    if not isinstance(tensor, torch.Tensor):
        raise CheckpointError(f"an item is no tensor but a {type(tensor).__name__}", url=url)
    return tensor


class _Inert(pickle.Unpickler):
    """Makes what torch writes into ``.metadata``, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  a class
        dtype = getattr(torch, name, None) if module == "torch" else None
        if isinstance(dtype, torch.dtype) or (module, name) in _KNOWN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"it names {module}.{name}, which torch does not write there: for a checkpoint that you trust pass "
            "weights_only=False, which runs whatever it names"
        )


def _index(index: object) -> MetadataIndex:
    if not isinstance(index, MetadataIndex):
        raise TypeError(f"{index!r:.80} is no index")
    return index


def _placed(info: Any) -> Placed:  # noqa: ANN401  whatever the pickle made
    name, start, length = info.relative_path, info.offset, info.length
    if getattr(info, "transform_descriptors", None):
        raise Unusable(f"it was written with stream extensions: {info.transform_descriptors}")
    if not isinstance(name, str) or "://" in name or {"", ".", ".."} & set(name.split("/")):
        raise ValueError(f"{name!r:.80} is no object of this checkpoint")
    if not all(type(each) is int and each >= 0 for each in (start, length)):
        raise ValueError(f"bytes {start!r} and {length!r} more of {name}")
    return Placed(name, start, length)


def _verify(archived: io.BytesIO) -> None:
    """Read each record to its end, which compares it; those without a CRC (torch can be told so) are passed over."""
    with zipfile.ZipFile(archived) as archive:
        for record in archive.infolist():
            if record.CRC:
                with archive.open(record) as file:
                    while file.read(_PIECE_BYTES):
                        pass
