"""Safetensors by URL: saved with digests, loaded straight into the tensors' memory, or read piece by piece."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from penstock.checkpoint.safetensors.dtypes import shape_of
from penstock.checkpoint.safetensors.load import SafetensorsFile, TensorSpan, load_tensors
from penstock.checkpoint.safetensors.resolve import absent, resolve
from penstock.checkpoint.safetensors.save import SafetensorsSave
from penstock.checkpoint.safetensors.slices import cut
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import InvalidURL, Unusable
from penstock.progress import bar
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import torch
    from torch import Tensor

    from penstock.options import StoreOptions
    from penstock.source import Source

__all__ = ["Safetensors", "Slice", "load_safetensors", "open_safetensors", "save_safetensors"]

_SHARD_BYTES = 5_000_000_000  # what Hugging Face's libraries cut at
_PLAIN = (int, slice, type(...), type(None))


def save_safetensors(  # noqa: PLR0913  see design/0049
    tensors: Mapping[str, Tensor],
    url: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> None:
    """Save tensors as one file (``url`` ends in ``.safetensors``) or in Hugging Face's layout (a folder).

    A folder's URL ends in ``/``, or ``max_shard_bytes`` is given. In it is ``model.safetensors``, or, beyond
    ``max_shard_bytes`` (default 5 GB) of tensors, several files and ``model.safetensors.index.json``, written last.
    Every safetensors reader reads them; Penstock's finds every damaged byte. The save is atomic; what was
    there stays until then, and is replaced only with ``overwrite``. The tensors are read twice; memory is what
    ``ps.open`` takes to write, and no copy of them. Requests: those of ``ps.open``, and HEADs of what may be there.
    ``progress`` shows a line on standard error; by default where that is a terminal and rich is installed.

    Raises:
        AlreadyExists: There is one, and ``overwrite`` is False.
        Unusable: A tensor is nothing that the format holds, two share memory, or one was changed meanwhile.

    """
    source, key = open_source(url, store)
    if max_shard_bytes is not None and max_shard_bytes <= 0:
        raise Unusable(f"max_shard_bytes must be positive, not {max_shard_bytes}")
    writing = SafetensorsSave.checked(
        source, dict(tensors), {"format": "pt"} | dict(metadata or {}), overwrite=overwrite
    )
    if key.endswith(".safetensors"):
        if max_shard_bytes is not None:
            raise InvalidURL("several files need a folder: a URL that ends in '/'", url=source.url(key))
        with _saving(writing, source.url(key), progress):
            writing.file(key)
    elif key and not key.endswith("/") and max_shard_bytes is None:
        raise InvalidURL("a safetensors file ends in '.safetensors', and a folder in '/'", url=source.url(key))
    else:
        with _saving(writing, source.url(as_folder(key)), progress):
            writing.folder(as_folder(key), _SHARD_BYTES if max_shard_bytes is None else max_shard_bytes)


def _saving(writing: SafetensorsSave, url: str, progress: bool | None) -> AbstractContextManager[object]:  # noqa: FBT001  as given
    return bar(f"saving {url}", 1, sum(each.nbytes for each in writing.tensors.values()), shown=progress)


def load_safetensors(
    url: str | os.PathLike[str],
    *,
    device: str | int | torch.device = "cpu",
    names: Iterable[str] | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> dict[str, Tensor]:
    """Load all tensors, or those of ``names``, of a file, an index or a folder, in parallel ranges.

    The bytes go straight into the tensors' memory; to a GPU by way of page-locked buffers, at most 192 MiB of them (and
    one more). Only the files and bytes that are asked for are read. Requests: two for each file, two more for an index,
    two for a folder; then one for each 8 MiB. Where Penstock saved them, every byte is verified.
    ``progress`` is that of ``save_safetensors``.

    Raises:
        NotFound: A file, or a tensor of ``names``, is not there.
        ChecksumMismatch: Bytes are not what was written; the file and the tensors are named.
        CheckpointError: A header or the index is damaged or lies, or a file is of another save than the index.
        Changed: A file was replaced meanwhile.

    """
    if isinstance(names, str):
        raise Unusable(f"names is several names, not the one {names!r}")
    source, key = open_source(url, store)
    wanted = None if names is None else list(names)
    found = Safetensors(source, resolve(source, key, wanted), source.url(key), device)
    with bar(f"loading {source.url(key)}", 1, found.size_bytes(wanted), shown=progress):
        return found.get_tensors(wanted)


def open_safetensors(
    url: str | os.PathLike[str], *, device: str | int | torch.device = "cpu", store: StoreOptions | str | None = None
) -> Safetensors:
    """Open a file, an index or a folder: its headers are read, tensors and slices when they are asked for.

    Raises ``NotFound`` and ``CheckpointError`` as ``load_safetensors`` does.
    """
    source, key = open_source(url, store)
    return Safetensors(source, resolve(source, key), source.url(key), device)


class Safetensors:
    """The tensors of one safetensors file, or of several with an index, by name; nothing of them is read yet.

    Thread-safe, and held to the version of each file that was opened. Where Penstock wrote them, every byte is verified
    before it is handed out. Nothing is held that must be closed; after the ``with`` block it reads no more.
    """

    def __init__(
        self, source: Source, files: Mapping[str, SafetensorsFile], url: str, device: str | int | torch.device
    ) -> None:
        """Hand out tensors of ``files``, by their names, on ``device``."""
        self._source = source
        self._files = files
        self._url = url
        self._device: torch.device = torch_module().device(device)
        self._closed = False

    def keys(self) -> list[str]:
        """Return the tensors' names: of a file in the order of their bytes, else in the index's."""
        return list(self._files)

    def metadata(self) -> dict[str, str]:
        """Return what was saved with them; of several files all of it together."""
        found: dict[str, str] = {}
        for file in dict.fromkeys(self._files.values()):
            found |= file.header.metadata
        return found

    def get_tensor(self, name: str) -> Tensor:
        """Read a tensor. Raises ``NotFound`` for a name that is not there, ``ChecksumMismatch``."""
        return self.get_tensors([name])[name]

    def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Read some tensors, or all, at once. Raises as ``get_tensor`` does, ``NotFound`` before anything is read."""
        wanted = [self._span(name) for name in dict.fromkeys(self._files if names is None else names)]
        in_order = sorted(wanted, key=attrgetter("of.key", "start"))
        read = dict(zip((each.entry.name for each in in_order), self.load_tensors(in_order), strict=True))
        return {each.entry.name: read[each.entry.name] for each in wanted}

    def size_bytes(self, names: Iterable[str] | None = None) -> int:
        """Return the bytes of some tensors, or of all. Raises ``NotFound`` for a name that is not there."""
        wanted = [self._span(name) for name in dict.fromkeys(self._files if names is None else names)]
        return sum(each.stop - each.start for each in wanted)

    def get_slice(self, name: str) -> Slice:
        """Return what reads parts of a tensor when it is indexed. Raises ``NotFound``."""
        return Slice(self, self._span(name))

    def load_tensors(self, spans: Sequence[TensorSpan]) -> list[Tensor]:
        """Read spans of the files as tensors; ``ValueError`` after the ``with`` block."""
        if self._closed:
            raise ValueError("read from closed safetensors")
        return load_tensors(self._source, spans, self._device, by_stages=self._device.type != "cpu")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read no more."""
        self._closed = True

    def _span(self, name: str) -> TensorSpan:
        if name not in self._files:
            raise absent(name, self._files, self._url)
        file = self._files[name]
        entry = file.header.entries[name]
        return TensorSpan(file, file.origin + entry.start, file.origin + entry.stop, entry, shape_of(entry))


class Slice:
    """A tensor that is not read before it is indexed, and then no more of it than lies between what is asked for."""

    def __init__(self, of: Safetensors, whole: TensorSpan) -> None:
        """Read from ``of``."""
        self._of = of
        self._whole = whole

    def get_shape(self) -> list[int]:
        """Return the whole tensor's shape."""
        return list(self._whole.shape)

    def get_dtype(self) -> str:
        """Return its dtype as the file names it: ``F32``."""
        return self._whole.entry.dtype

    def __getitem__(self, index: Any) -> Tensor:  # noqa: ANN401  whatever a tensor may be indexed by
        """Return what the tensor itself would return, contiguous and with memory of its own.

        Whole numbers in front and a slice after them read just those bytes; whatever comes then is chosen from them
        once they are here. Raises ``IndexError`` as torch does, before anything is read.
        """
        torch, whole = torch_module(), self._whole
        if all(isinstance(each, _PLAIN) for each in (index if isinstance(index, tuple) else (index,))):
            torch.empty(whole.shape, dtype=torch.uint8, device="meta")[index]
        start, stop, shape, rest = cut(whole.shape, index)
        element = (whole.stop - whole.start) // max(1, torch.Size(whole.shape).numel())
        first, last = whole.start + start * element, whole.start + stop * element
        (run,) = self._of.load_tensors([whole._replace(start=first, stop=last, shape=shape)])
        chosen: Tensor = run[rest]
        if chosen.numel() < run.numel() or not chosen.is_contiguous():
            chosen = chosen.clone(memory_format=torch.contiguous_format)
        return chosen
