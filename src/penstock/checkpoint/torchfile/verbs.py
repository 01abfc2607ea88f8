"""``torch.save`` and ``torch.load`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from penstock.checkpoint.torchfile.checkpoint import Checkpoint
from penstock.checkpoint.torchfile.lazy import load_lazily
from penstock.checkpoint.torchfile.load import load_torchfile
from penstock.checkpoint.torchfile.save import save_torchfile
from penstock.checkpoint.transfer.plan import Object
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import PenstockError
from penstock.events import operation
from penstock.progress import bar
from penstock.source import object_at

if TYPE_CHECKING:
    import io
    import os
    from collections.abc import Callable
    from typing import BinaryIO

    from penstock.options import StoreOptions
    from penstock.source import Writer

__all__ = ["dump", "load", "save"]


def save(
    obj: object,
    url: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> None:
    """Save with ``torch.save``; the write is atomic and replaces the previous object.

    ``progress`` shows a line on standard error; by default where that is a terminal and rich is installed.
    """
    with Checkpoint(store).writer(url) as writer, bar(f"saving {writer.name}", 1, None, shown=progress) as count:
        dump(obj, cast("BinaryIO", _Counted(writer, count)))


def dump(obj: object, file: BinaryIO | io.BufferedIOBase) -> None:
    """Write with ``torch.save``; where the file fails, with the file's error and not with what torch makes of it."""
    try:
        save_torchfile(torch_module(), obj, file)
    except RuntimeError as error:  # torch ends the archive although it could not be written, and trips over that
        cause: BaseException | None = error
        while isinstance(cause, Exception) and not isinstance(cause, PenstockError):  # Ctrl-C is what happened, too
            cause = cause.__context__
        raise cause or error from None


def load(
    url: str | os.PathLike[str],
    *,
    map_location: object = None,
    weights_only: bool = True,
    lazy: bool = False,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Any:  # noqa: ANN401  whatever was saved
    """Load with ``torch.load``; each tensor's bytes go straight into its memory, in parallel ranges, compared.

    With ``lazy`` each tensor is a ``LazyTensor``, whose bytes are read when it is asked for them; ``map_location`` does
    nothing then. ``weights_only=False`` runs whatever code the file names: only for files you trust.
    ``progress`` is that of ``save``. Memory beyond the state: 192 MiB on their way, and a little. Costs a HEAD, one
    request for each 8 MiB, and up to four more.

    Raises:
        NotFound: There is no such object. ``Changed``: it was replaced while it was read.
        ChecksumMismatch: A record of the file is not what was written; it is named.
        CheckpointError: The file was cut, or its directory is damaged.
        Unusable: Lazily, a file that can only be loaded whole.

    """
    torch_module()
    source, key = object_at(url, store)
    with operation("load", source.url, key):
        meta = source.head(key)
        of = Object(key, meta.etag, meta.size, source.url(key), checksums=None)
        if lazy:
            return load_lazily(source, of, weights_only=weights_only)
        with bar(f"loading {of.url}", 1, meta.size, shown=progress):
            return load_torchfile(source, of, map_location=map_location, weights_only=weights_only)


class _Counted:
    """A file that is written, and counts its bytes."""

    def __init__(self, file: Writer, count: Callable[[int, int], None]) -> None:
        self._file, self._count = file, count

    def write(self, data: memoryview) -> int:
        written = self._file.write(data)
        self._count(0, written)
        return written

    def flush(self) -> None:
        self._file.flush()
