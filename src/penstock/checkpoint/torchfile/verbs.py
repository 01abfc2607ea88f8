"""``torch.save`` and ``torch.load`` by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.torchfile.checkpoint import Checkpoint
from penstock.checkpoint.torchfile.lazy import load_lazily
from penstock.checkpoint.torchfile.load import load_torchfile
from penstock.checkpoint.torchfile.save import save_torchfile
from penstock.checkpoint.transfer.plan import Object
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import PenstockError
from penstock.events import operation
from penstock.source import object_at

if TYPE_CHECKING:
    import io
    import os
    from typing import BinaryIO

    from penstock.options import StoreOptions

__all__ = ["dump", "load", "save"]


def save(obj: object, url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> None:
    """Save with ``torch.save``; the write is atomic and replaces the previous object."""
    with Checkpoint(store).writer(url) as writer:
        dump(obj, writer)


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
    store: StoreOptions | str | None = None,
) -> Any:  # noqa: ANN401  whatever was saved
    """Load with ``torch.load``; each tensor's bytes go straight into its memory, in parallel ranges, compared.

    With ``lazy`` each tensor is a ``LazyTensor``, whose bytes are read when it is asked for them; ``map_location`` does
    nothing then. ``weights_only=False`` runs whatever code the file names: only for files you trust. Memory beyond the
    state: 192 MiB on their way, and a little. Costs a HEAD, one request for each 8 MiB, and up to four more.

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
        return load_torchfile(source, of, map_location=map_location, weights_only=weights_only)
