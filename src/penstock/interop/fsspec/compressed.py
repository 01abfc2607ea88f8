"""Files that are compressed as they are written, by fsspec's compressions: closing one publishes it."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from fsspec.compression import compr
from fsspec.core import get_compression

from penstock.buffer import flat
from penstock.errors import Unusable

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.interop.fsspec.files import Held
    from penstock.source import Writer

__all__ = ["Compressed", "compressor"]


def compressor(path: str, compression: str | None) -> str | None:
    """Return the name of a compression; ``"infer"`` takes it from the path's ending, which may mean none.

    Raises:
        Unusable: fsspec has no such compression, or its library is not installed.

    """
    try:
        name: str | None = get_compression(path, compression)
    except ValueError:
        known = ", ".join(repr(each) for each in compr if each)
        raise Unusable(f"compression={compression!r}: fsspec has {known} here, and 'infer'") from None
    return name


class Compressed(io.BufferedIOBase):
    """Compresses into a file, and closes it when it is closed: fsspec's compressors leave theirs open.

    Leaving a ``with`` block by an exception, or dropping the last reference, publishes nothing, as of ``Writer``.
    """

    def __init__(self, file: Writer | Held, compression: str) -> None:
        """Write to ``file``."""
        super().__init__()
        self._file = file
        self._into: IO[bytes] = compr[compression](file, mode="w")

    @property
    def name(self) -> str:
        """The object's URL."""
        return self._file.name

    @property
    def mode(self) -> str:
        """``wb`` or ``xb``."""
        return self._file.mode

    def writable(self) -> bool:
        """Return True."""
        return self._into.writable()

    def write(self, data: object, /) -> int:
        """Write; returns the number of bytes taken, before compression."""
        return self._into.write(flat(data))

    def tell(self) -> int:
        """Return the number of bytes written, before compression."""
        return self._into.tell()

    def close(self) -> None:
        """End the compressed data and publish the object. Raises as ``Writer.close``."""
        if not self.closed:
            try:
                self._into.close()
                self._file.close()
            finally:
                super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an exception publish nothing."""
        if kind is None:
            self.close()
            return
        self._file.__exit__(kind, error, trace)
        with suppress(Exception):  # its last bytes find a file that is closed
            self._into.close()
        super().close()

    def __del__(self) -> None:
        """Publish nothing: the file is dropped, too, and ends by itself."""

    def _dealloc_warn(self, wrapper: object) -> None:
        self._file._dealloc_warn(wrapper)  # noqa: SLF001  io's name for it
