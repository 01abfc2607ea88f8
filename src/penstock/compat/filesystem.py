"""Objects as files for torch's ``FileSystemWriter`` and ``FileSystemReader``."""

from __future__ import annotations

import os
import pathlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from torch.distributed.checkpoint.filesystem import FileSystemBase

from penstock.compat.arguments import WrongArgument
from penstock.copies import move_object
from penstock.errors import InvalidURL, NotFound
from penstock.source import object_at
from penstock.stores.urls import parse
from penstock.verbs import delete, stat
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import io
    from collections.abc import Generator

    from penstock.options import StoreOptions

    Path = str | os.PathLike[str]


class ObjectFileSystem(FileSystemBase):
    """Files by URL in one kind of store. Writes are atomic, and directories do not exist."""

    def __init__(self, store: StoreOptions) -> None:
        self._store = store

    @classmethod
    def url(cls, path: Path) -> str:
        """Return the URL of a path. Subclasses raise ``InvalidURL`` (a ``ValueError``) for a URL of another store."""
        return os.fspath(path)

    @contextmanager
    def create_stream(self, path: Path, mode: str) -> Generator[io.IOBase, None, None]:
        """Open an object to read ("rb") or write ("wb"); a written object appears if the ``with`` block succeeds."""
        if mode == "rb":
            with self._reader(self.url(path)) as reader:
                yield reader
            return
        if mode != "wb":
            raise WrongArgument(f"mode must be 'rb' or 'wb', got {mode!r}", url=self.url(path))
        with open_object(self.url(path), "wb", store=self._store) as writer:
            yield writer

    def concat_path(self, path: Path, suffix: str) -> Path:
        return f"{self.url(path).removesuffix('/')}/{suffix}"

    def init_path(self, path: Path) -> Path:
        return self.url(path)

    def rename(self, path: Path, new_path: Path) -> None:
        move_object(*object_at(self.url(path), self._store), *object_at(self.url(new_path), self._store))

    def mkdir(self, path: Path) -> None:
        """Do nothing."""

    def exists(self, path: Path) -> bool:
        """Return whether the object exists: one HEAD."""
        try:
            stat(self.url(path), store=self._store)
        except NotFound:
            return False
        return True

    def rm_file(self, path: Path) -> None:
        """Delete an object; a missing one is not an error."""
        delete(self.url(path), store=self._store)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether ``checkpoint_id`` is a URL of this store; any ``pathlib.Path`` counts, as in the originals."""
        if isinstance(checkpoint_id, pathlib.Path):
            return True
        try:
            parse(cls.url(checkpoint_id))
        except (InvalidURL, TypeError):
            return False
        return True

    def _reader(self, url: str) -> io.BufferedIOBase:
        return open_object(url, "rb", store=self._store)


class CheckpointsOf:
    """Mixin of readers and writers of checkpoints, whose locations are the paths of a file system."""

    _files: ClassVar[type[ObjectFileSystem]]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        return cls._files.validate_checkpoint_id(checkpoint_id)
