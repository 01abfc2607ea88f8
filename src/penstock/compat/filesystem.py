"""Objects as the files that torch's ``FileSystemWriter`` and ``FileSystemReader`` work on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.distributed.checkpoint.filesystem import FileSystemBase

from penstock.errors import InvalidURL, NotFound, Unusable
from penstock.source import object_at
from penstock.verbs import copy, delete, stat
from penstock.verbs import open as open_object

if TYPE_CHECKING:
    import io
    from collections.abc import Generator

    from penstock.options import StoreOptions

    Path = str | os.PathLike[str]

__all__ = ["ObjectFileSystem"]


class ObjectFileSystem(FileSystemBase):
    """Files by URL, in one kind of store. Writes are atomic, also here; nothing is a directory."""

    def __init__(self, store: StoreOptions) -> None:
        """Use ``store``'s options for every URL."""
        self._store = store

    @classmethod
    def url(cls, path: Path) -> str:
        """Return a path's URL. ``InvalidURL``, a ``ValueError``, for another store's."""
        return os.fspath(path)

    @contextmanager
    def create_stream(self, path: Path, mode: str) -> Generator[io.IOBase, None, None]:
        """Open an object to read ("rb") or to write ("wb"): it appears when the ``with`` block ends well."""
        if mode == "rb":
            with self._reader(self.url(path)) as reader:
                yield reader
            return
        if mode != "wb":
            raise Unusable(f"create_stream reads (rb) or writes (wb), not {mode!r}", url=self.url(path))
        with open_object(self.url(path), "wb", store=self._store) as writer:
            yield writer

    def concat_path(self, path: Path, suffix: str) -> str:
        """Return the URL of what is called ``suffix`` below ``path``."""
        return f"{self.url(path).removesuffix('/')}/{suffix}"

    def init_path(self, path: Path) -> str:
        """Return the path as a URL."""
        return self.url(path)

    def rename(self, path: Path, new_path: Path) -> None:
        """Copy an object and delete it under its old name."""
        copy(self.url(path), self.url(new_path), store=self._store)
        delete(self.url(path), store=self._store)

    def mkdir(self, path: Path) -> None:
        """Do nothing."""

    def exists(self, path: Path) -> bool:
        """Return whether there is an object: one HEAD."""
        try:
            stat(self.url(path), store=self._store)
        except NotFound:
            return False
        return True

    def rm_file(self, path: Path) -> None:
        """Delete an object; a missing one is no error."""
        delete(self.url(path), store=self._store)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether it is a URL of this store."""
        try:
            object_at(cls.url(checkpoint_id))
        except (InvalidURL, TypeError):
            return False
        return True

    def _reader(self, url: str) -> io.BufferedIOBase:
        return open_object(url, "rb", store=self._store)
