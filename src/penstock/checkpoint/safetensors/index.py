"""Sharded safetensors in Hugging Face's layout: which file holds which tensor, and the index. Pure."""

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
    """Split names into files of at most ``most_bytes``, in order; a larger tensor gets its own file.

    There is always at least one file, even without names.
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
    """Return ``count`` file names; with ``save``, an id, they are unique to that save."""
    stem = f"model-{save}" if save else "model"
    return [f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@dataclass(frozen=True, slots=True)
class Index:
    """The index of a sharded save: which file holds which tensor.

    Attributes:
        files: File name, in the index's own folder, by tensor name.
        digests: Digest stored in each file's header, by file name; empty if Penstock did not write the index.
        size: Bytes of all tensors together; 0 in a decoded index.

    """

    files: dict[str, str]
    digests: dict[str, str]
    size: int = 0

    def encode(self) -> bytes:
        """Return the index as JSON, with its own digest."""
        metadata = {"total_size": self.size, _SHARDS: self.digests, _MARK: BLANK}
        described = {"metadata": metadata, "weight_map": self.files}
        return with_digest(json.dumps(described, indent=2, ensure_ascii=False).encode() + b"\n", _MARK)[0]

    @classmethod
    def decode(cls, raw: bytes, url: str) -> Index:
        """Return the index that JSON holds; another program may have written it.

        Raises:
            CheckpointError: ``raw`` is not an index, it names a file outside its folder, or Penstock wrote it and it
                was changed since.

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
    """Return whether a name is a plain file name, not a path to another folder."""
    return name.endswith(".safetensors") and not set(name) & {"/", "\\", "\0"}
