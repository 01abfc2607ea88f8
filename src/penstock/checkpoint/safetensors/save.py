"""Writes tensors as a safetensors file, or as several with an index: digested first, then written atomically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from penstock.checkpoint.integrity.checksummed import Checksummer
from penstock.checkpoint.safetensors.dtypes import described
from penstock.checkpoint.safetensors.header import encode, layout
from penstock.checkpoint.safetensors.index import INDEX, WHOLE, Index, file_names, split
from penstock.checkpoint.safetensors.resolve import stored_index
from penstock.checkpoint.transfer.tensors import pieces
from penstock.errors import AlreadyExists, CheckpointError, Unusable
from penstock.progress import current
from penstock.protocols.driver import Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch

    from penstock.checkpoint.safetensors.header import TensorEntry
    from penstock.source import Source
    from penstock.values import ObjectMeta

__all__ = ["SafetensorsSave"]


@dataclass(frozen=True, slots=True)
class SafetensorsSave:
    """Tensors on their way to a store; ``checked`` makes one.

    Attributes:
        source: Where to.
        tensors: What, by name.
        metadata: What goes into each file's header.
        overwrite: Replace what stands there; else ``AlreadyExists``.

    """

    source: Source
    tensors: Mapping[str, torch.Tensor]
    metadata: Mapping[str, str]
    overwrite: bool

    @classmethod
    def checked(
        cls, source: Source, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], *, overwrite: bool
    ) -> Self:
        """Refuse what cannot be written, before anything is sent: ``Unusable``."""
        encode(layout(described(tensors)), metadata, b"")
        return cls(source, tensors, metadata, overwrite)

    def file(self, key: str) -> None:
        """Write all as one file."""
        self._vacant([key])
        self._write(key, self.tensors, create_only=not self.overwrite)

    def folder(self, folder: str, most_bytes: int) -> None:
        """Write all below ``folder``: as one file where they fit, else as several, and last the index.

        Where this replaces others, they stay until what is new is whole, and go then.
        """
        index, whole = self._vacant([folder + INDEX, folder + WHOLE])
        old = [] if index is None else _files(self.source, index)
        sizes = {name: tensor.nbytes for name, tensor in self.tensors.items()}
        shards = split(sizes, most_bytes)
        if len(shards) == 1:
            self._write(folder + WHOLE, self.tensors, create_only=not self.overwrite)
            names = [WHOLE]
            self.source.delete([folder + INDEX] if index else [])
        else:
            names = self._free(folder, len(shards))
            self._shards(folder, dict(zip(names, shards, strict=True)), sum(sizes.values()))
            self.source.delete([folder + WHOLE] if whole else [])
        self.source.delete([folder + name for name in old if name not in names])

    def _vacant(self, keys: list[str]) -> list[ObjectMeta | None]:
        """Look what is there, before anything is sent."""
        self.source.require(Put, keys[0])
        found = self.source.stat_existing(keys)
        taken = [meta.key for meta in found if meta is not None]
        if taken and not self.overwrite:
            message = "there is one already: pass overwrite=True to replace it"
            raise AlreadyExists(message, url=self.source.url(taken[0]))
        return found

    def _free(self, folder: str, count: int) -> list[str]:
        """Return names under which nothing lies: the usual ones, unless another save's files have them."""
        names = file_names(count)
        free = not any(self.source.stat_existing([folder + name for name in names]))
        return names if free else file_names(count, uuid4().hex[:8])

    def _shards(self, folder: str, shards: Mapping[str, list[str]], size: int) -> None:
        digests = {
            file: self._write(folder + file, {name: self.tensors[name] for name in names}, create_only=True)
            for file, names in shards.items()
        }
        files = {name: file for file, names in shards.items() for name in names}
        with self.source.open_write(folder + INDEX, create_only=not self.overwrite) as writer:
            writer.write(Index(files, digests, size).encode())

    def _write(self, key: str, tensors: Mapping[str, torch.Tensor], *, create_only: bool) -> str:
        """Write a file and return the digest in its header. Reads the tensors twice; holds no copy of them."""
        entries = layout(described(tensors))
        checksummer = Checksummer()
        for piece in _bytes(entries, tensors):
            checksummer.update(piece)
        header, digest = encode(entries, self.metadata, checksummer.checksums().digests)
        with self.source.open_write(key, create_only=create_only) as writer:
            writer.write(header)
            again, count = Checksummer(), current()
            for piece in _bytes(entries, tensors):
                writer.write(piece)
                count(0, len(piece))
                again.update(piece)
            if again.checksums() != checksummer.checksums():
                message = "the tensors were changed while they were saved, so nothing was written"
                raise Unusable(message, url=self.source.url(key))
        return digest


def _files(source: Source, index: ObjectMeta) -> list[str]:
    """Return what an index names, to be replaced with it; nothing where it is not readable."""
    try:
        return sorted(set(stored_index(source, index.key, index).files.values()))
    except CheckpointError:
        return []


def _bytes(entries: Iterable[TensorEntry], tensors: Mapping[str, torch.Tensor]) -> Iterator[memoryview]:
    for entry in entries:
        yield from pieces(tensors[entry.name])
