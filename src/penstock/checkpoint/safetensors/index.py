"""A state in several safetensors files, as Hugging Face lays them out: which tensor goes where, and the index. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.integrity.selfdigest import BLANK, document, stored_digest, with_digest
from penstock.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INDEX", "WHOLE", "Index", "file_names", "split"]

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MARK = "penstock.index"
_SHARDS = "penstock.shards"


def split(sizes: Mapping[str, int], most_bytes: int) -> list[list[str]]:
    """Deal names into files of at most ``most_bytes``, in order; what is larger gets a file of its own.

    There is always a file, also for no names.
    """
    files: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if files[-1] and filled + size > most_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    return files


def file_names(count: int, save: str = "") -> list[str]:
    """Name ``count`` files; with ``save``, an id, so that no other save uses them."""
    stem = f"model-{save}" if save else "model"
    return [f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@dataclass(frozen=True, slots=True)
class Index:
    """Which file holds which tensor.

    Attributes:
        files: The file's name, in the index's own folder, by the tensor's.
        digests: What each file's header says of itself, by the file's name; empty where Penstock did not write it.
        size: Bytes of all tensors together; 0 in what is read.

    """

    files: dict[str, str]
    digests: dict[str, str]
    size: int = 0

    def encode(self) -> bytes:
        """Return the document, with a digest of its own."""
        metadata = {"total_size": self.size, _SHARDS: self.digests, _MARK: BLANK}
        described = {"metadata": metadata, "weight_map": self.files}
        return with_digest(json.dumps(described, indent=2, ensure_ascii=False).encode() + b"\n", _MARK)[0]

    @classmethod
    def decode(cls, raw: bytes, url: str) -> Index:
        """Read an index that another program may have written.

        Raises:
            CheckpointError: It is none, it names a file outside its folder, or Penstock wrote it and it is not what
                was written.

        """
        try:
            ours = stored_digest(raw, _MARK, b'"penstock.shards": {')
            read = document(raw)
            files = _texts(read["weight_map"])
            digests = _texts(read["metadata"][_SHARDS]) if ours else {}
            if odd := [name for name in files.values() if not _plain(name)]:
                raise ValueError(f"{odd[0]!r:.80} is no file beside it")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"this index of safetensors files is damaged: {error}", url=url) from None
        return cls(files, digests)


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("it is not text by text")
    return value


def _plain(name: str) -> bool:
    """Say whether a name is a file's, and no way to somewhere else."""
    return name.endswith(".safetensors") and not set(name) & {"/", "\\", "\0"}
