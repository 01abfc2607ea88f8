"""Files that ``StorageClient.open`` returns, and local copies of objects for libraries that take only a path.

The files are Penstock's, with Multi-Storage Client's additional methods.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from functools import lru_cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.compat.arguments import refuse_name
from penstock.errors import Changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType


def local_copy(download: Callable[[str, str], None], path: str) -> str:
    """Copy an object to a temporary file, kept until the process ends, and return its path."""
    suffix = path.rpartition("/")[2][-64:]
    handle, name = tempfile.mkstemp(dir=_make_temp_folder(os.getpid()), suffix=suffix)
    os.close(handle)
    download(path, name)
    return name


@lru_cache(maxsize=1)
def _make_temp_folder(process: int) -> str:
    """Return this process's folder, deleted when the process ends, also a worker; a forked child has a separate one."""
    name = tempfile.mkdtemp(prefix=f"penstock-{process}-")
    Finalize(None, shutil.rmtree, (name,), {"ignore_errors": True}, exitpriority=0)
    return name


_PIECE_BYTES = 8 << 20
_METHODS = (
    *("read", "read1", "readinto", "readline", "readlines", "peek"),
    *("seek", "tell", "write", "writelines", "flush"),
)


class ObjectFile(io.IOBase):
    """Penstock file with the names that programs of Multi-Storage Client use.

    A writer publishes its object on a successful close, and never otherwise. ``name`` is the path below the profile.
    """

    def __init__(self, path: str, mode: str, file: Any, local: Callable[[], str]) -> None:
        """Wrap an open file; ``local`` returns the path of a local file with the same content."""
        self._file, self._local = file, local
        self.name, self.mode = path, mode
        self._descriptor: Any = None
        # Bind the methods directly, without a wrapper: programs call them for each record.
        for each in _METHODS:
            if hasattr(file, each):
                setattr(self, each, getattr(file, each))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._file, name)

    def readable(self) -> bool:
        return bool(self._file.readable())

    def writable(self) -> bool:
        return bool(self._file.writable())

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def readall(self) -> Any:
        return self._file.read()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __next__(self) -> Any:
        if line := self._file.readline():
            return line
        raise StopIteration

    def fileno(self) -> int:
        """Return a descriptor of a file with the same content, for example for ``mmap``: a copy, created once.

        For a writer, return the descriptor of an empty read-only file, so that ``os.fsync`` works: the written data are
        stored when the file is closed.
        """
        if self._descriptor is None:
            self._descriptor = self._opened() if self.readable() else _placeholder()
        return int(self._descriptor.fileno())

    def _opened(self) -> Any:
        if "b" not in self.mode:
            return open(self._local(), "rb")  # noqa: PTH123  closed with this file
        copy, at = tempfile.TemporaryFile(), self._file.tell()  # noqa: SIM115  the same
        try:
            self._file.seek(0)
            shutil.copyfileobj(self._file, copy, _PIECE_BYTES)
            copy.flush()
            copy.seek(at)
        finally:
            self._file.seek(at)
        return copy

    def resolve_filesystem_path(self) -> str:
        """Return the path of a local copy, kept until the process ends. Raise ``ValueError`` for a writer."""
        if not self.readable():
            raise ValueError("resolve_filesystem_path is for reading: close this file first")
        return self._local()

    def fsync(self) -> None:
        """Do nothing: the written data are stored when the file is closed."""

    def discard(self) -> None:
        """Close a writer without publishing."""
        if self.writable() and not self.closed:
            self._file.abort()
            self._release()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            self._descriptor.close()

    def __enter__(self) -> ObjectFile:  # noqa: PYI034  as in the original
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.__exit__(kind, error, trace)
        finally:
            self._release()

    def __del__(self) -> None:
        """Do nothing: Penstock's file cleans up, and does not publish a writer that was not closed."""

    def __reduce__(self) -> Any:
        return self._file.__reduce__()


class PosixFile(ObjectFile):
    """Local file."""

    def _opened(self) -> Any:
        opened = open(self.resolve_filesystem_path(), "rb")  # noqa: PTH123, SIM115  closed with this file
        size = getattr(self._file, "size", None)
        if size is not None and os.fstat(opened.fileno()).st_size != size:
            opened.close()
            raise Changed("the file was replaced after it was opened", url=self.name)
        return opened

    def resolve_filesystem_path(self) -> str:
        return self._local()


def _placeholder() -> Any:
    handle, path = tempfile.mkstemp()
    os.close(handle)
    try:
        return open(path, "rb")  # noqa: PTH123  closed by its user
    finally:
        os.unlink(path)  # noqa: PTH108  a str


_ABSENT = {"RemoteFileReader": "use open(), whose files read ranges"}


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, _ABSENT)
