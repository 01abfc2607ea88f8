"""``torch.save`` and ``torch.load`` by URL."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import sys
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from penstock.checkpoint.gather import Object
from penstock.checkpoint.integrity import crc32, fast
from penstock.checkpoint.staging import torch_module
from penstock.checkpoint.torchfile.archive import ArchiveRecord, Checkpoint, Use, archive
from penstock.checkpoint.torchfile.encoding import name_unsaved
from penstock.checkpoint.torchfile.load import load_torchfile, storages
from penstock.errors import Bug, PenstockError, Unusable, kind_of
from penstock.events import operation
from penstock.progress import bar
from penstock.source import Source, Writer, object_at
from penstock.tree import tree_map
from penstock.values import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import torch

    from penstock.options import StoreOptions


def save(
    obj: object, url: str | os.PathLike[str], *, progress: bool | None = None, store: StoreOptions | str | None = None
) -> None:
    """Save with ``torch.save``; the write is atomic and replaces the previous object.

    Costs the requests of ``ps.open``.

    Args:
        obj: Anything that ``torch.save`` accepts.
        url: The object to write.
        progress: Show a line on standard error; default: if that is a terminal and rich is installed.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        Unsupported: The store is read-only.
        Unusable: A value cannot be pickled; the message names its path.

    Example:
        >>> ps.save({"weight": torch.zeros(2)}, "s3://bucket/model.pt")
        >>> ps.load("s3://bucket/model.pt")
        {'weight': tensor([0., 0.])}
    """
    if isinstance(obj, str | os.PathLike) and not isinstance(url, str | os.PathLike):
        raise Unusable(f"save takes the object first, ps.save(obj, url), got {kind_of(url)} as its URL")
    with Checkpoint(store).writer(url) as writer, bar(f"saving {writer.name}", 1, None, shown=progress) as count:
        dump(obj, cast("BinaryIO", _CountedFile(writer, count)))


def dump(obj: object, file: BinaryIO | io.BufferedIOBase) -> None:
    """Write with ``torch.save``; if a write fails, raise the file's error instead of torch's own error."""
    handled = sys.exception()
    try:
        save_torchfile(torch_module(), obj, file)
    except Exception as error:
        # torch finishes the archive even after a failed write, and fails at that. Ctrl-C can be the cause, too.
        cause: BaseException | None = error
        while isinstance(cause, Exception) and not isinstance(cause, PenstockError) and cause is not handled:
            cause = cause.__context__
        if cause is not None and cause is not handled:
            raise cause from None
        try:
            name_unsaved(obj, "state")
        except Unusable as named:
            raise named from error
        raise


def load(
    url: str | os.PathLike[str],
    *,
    map_location: object = None,
    weights_only: bool = True,
    lazy: bool = False,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> Any:  # noqa: ANN401  any saved value
    """Load with ``torch.load``; each tensor's bytes are read directly into its memory, in parallel and verified.

    Memory beyond the state: 192 MiB in flight, and a little more. Costs a HEAD, one request per 8 MiB, and up to four
    more.

    Args:
        url: A file that ``ps.save`` or ``torch.save`` wrote.
        map_location: As for ``torch.load``; not used with ``lazy``.
        weights_only: False runs any code that the file names: use it only for files you trust.
        lazy: Return each tensor as a ``LazyTensor``, whose bytes are read by its ``load``.
        progress: As for ``save``.
        store: As for ``save``.

    Returns:
        The saved value.

    Raises:
        NotFound: The object does not exist. ``Changed``: it was replaced during the load.
        ChecksumMismatch: A record of the file does not match its CRC-32; the message names it.
        CheckpointError: The file was cut, or its directory is damaged.
        Unusable: ``lazy`` was given for a file that can only be loaded whole.

    Example:
        >>> ps.save({"weight": torch.zeros(2), "step": 7}, "s3://bucket/model.pt")
        >>> ps.load("s3://bucket/model.pt", lazy=True)["weight"].load()
        tensor([0., 0.])
    """
    for name, value in (("weights_only", weights_only), ("lazy", lazy)):
        switch(value, name)
    torch_module()
    source, key = object_at(url, store)
    with operation("load", source.url, key):
        meta = source.head(key)
        of = Object(key, meta.etag, meta.size, source.url(key), checksums=None)
        if lazy:
            return load_lazily(source, of, weights_only=weights_only)
        with bar(f"loading {of.url}", 1, meta.size, shown=progress):
            return load_torchfile(source, of, map_location=map_location, weights_only=weights_only)


class _CountedFile:
    """File object that counts the bytes written to it."""

    def __init__(self, file: Writer, count: Callable[[int, int], None]) -> None:
        self._file, self._count = file, count

    def write(self, data: memoryview) -> int:
        written = self._file.write(data)
        self._count(0, written)
        return written

    def flush(self) -> None:
        self._file.flush()


_STRIDED = re.compile(r"_rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state)")
_REBUILDING = "torch._utils "


@dataclass(frozen=True, slots=True, eq=False)
class LazyTensor:
    """An unread tensor of a file; bound to the version that was opened.

    It can be sent to worker processes and copied as itself, but not saved: call ``load`` first.

    Attributes:
        shape: The tensor's shape.
        dtype: The tensor's dtype.
        requires_grad: Whether the tensor requires a gradient.
        parameter: Whether it is a ``torch.nn.Parameter``.
    """

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    parameter: bool
    _lies: _Lies = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's elements."""
        return self.shape.numel() * self.dtype.itemsize

    def load(self, device: str | torch.device | None = None) -> torch.Tensor:
        """Return the tensor on ``device`` (default: CPU): one request per 8 MiB. Nothing is cached.

        The whole storage is read and verified, even if the tensor uses only a part of it. Each tensor gets separate
        memory.

        Raises:
            ChecksumMismatch: The bytes do not match their CRC-32.
            Changed: The file was replaced.
        """
        import torch

        whole = self._lies.read(torch.device("cpu" if device is None else device))
        tensor = torch.empty(0, dtype=self.dtype, device=whole.device)
        tensor.set_(whole.untyped_storage(), self._lies.offset, self.shape, self._lies.stride)
        if self._lies.conjugate:
            tensor = tensor.conj()
        if self._lies.negative:
            tensor = -tensor
        elif self.nbytes < whole.nbytes:
            tensor = tensor.clone()
        return torch.nn.Parameter(tensor, self.requires_grad) if self.parameter else self._graded(tensor)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Raise ``Unusable``: a saved file would hold only a reference, not the tensor."""
        raise Unusable("cannot save a LazyTensor, which has no values: call load() first", url=self._lies.of.url)

    def _graded(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.requires_grad_() if self.requires_grad else tensor


def _for_worker(lazy: LazyTensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return LazyTensor, (lazy.shape, lazy.dtype, lazy.requires_grad, lazy.parameter, lazy._lies)  # noqa: SLF001  its own


ForkingPickler.register(LazyTensor, _for_worker)


@dataclass(frozen=True, slots=True, eq=False)
class _Lies:
    """Position of a tensor's elements: its record, and the layout in it."""

    source: Source
    of: Object
    record: ArchiveRecord
    offset: int
    stride: tuple[int, ...]
    conjugate: bool
    negative: bool

    def read(self, device: torch.device) -> torch.Tensor:
        gpu = device if device.type == "cuda" else None
        with closing(storages(self.source, self.of, [Use(self.record, "")], lambda _: gpu)) as filled:
            whole = next(filled)
        if gpu is None:
            return whole.to(device)
        import torch

        torch.cuda.current_stream(gpu).synchronize()
        return whole


def load_lazily(source: Source, of: Object, *, weights_only: bool) -> Any:  # noqa: ANN401  any saved value
    """Return the result of ``torch.load`` with each tensor as a ``LazyTensor``: reads the ends of the file."""
    import torch

    opened = archive(source, of)
    if opened is None or opened.uses is None or not opened.plain:
        raise Unusable(
            "this file can only be loaded whole: it has another format, or objects of other code", url=of.url
        )
    odd = [name for name in opened.names if name.startswith(_REBUILDING) and not _STRIDED.fullmatch(name.split()[1])]
    if odd:
        raise Unusable(f"this file can only be loaded whole: its tensors are made by {odd[0]!r}", url=of.url)
    hand, records = _note_storages(opened.uses)
    with opened.file.telling(), torch.serialization.skip_data():
        tree = torch.load(cast("BinaryIO", opened.file), map_location=hand, weights_only=weights_only)
    made: dict[int, LazyTensor] = {}

    def lazy(tensor: torch.Tensor) -> LazyTensor:
        if id(tensor) not in made:
            _, record = records[id(tensor.untyped_storage())]
            made[id(tensor)] = _lazy(tensor, source, of, record)
        return made[id(tensor)]

    result = tree_map(lazy, tree, torch.Tensor)
    if len(made) != len(opened.uses):
        raise Unusable("this file can only be loaded whole: objects in it hold tensors", url=of.url)
    return result


def _note_storages(uses: list[Use]) -> tuple[Callable[[Any, str], Any], dict[int, tuple[Any, ArchiveRecord]]]:
    """Return a ``map_location`` function that returns storages without memory, and the record of each storage by id."""
    import torch

    upcoming, records = iter(uses), dict[int, tuple[Any, Any]]()

    def hand(empty: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        storage: torch.UntypedStorage = torch.UntypedStorage(empty.nbytes(), device="meta")  # type: ignore[no-untyped-call]
        # torch asks again for a storage without memory: once for each use.
        records[id(storage)] = storage, next(upcoming).record
        return storage

    return hand, records


def _lazy(tensor: torch.Tensor, source: Source, of: Object, record: ArchiveRecord) -> LazyTensor:
    import torch

    lies = _Lies(
        source, of, record, int(tensor.storage_offset()), tuple(tensor.stride()), tensor.is_conj(), tensor.is_neg()
    )
    parameter = isinstance(tensor, torch.nn.Parameter)
    return LazyTensor(tensor.shape, tensor.dtype, tensor.requires_grad, parameter, lies)


# The structures of a zip (APPNOTE 4.3.7, 4.3.9, 4.3.12) and the offsets used here.
_LOCAL, _LOCAL_BYTES = b"PK\3\4", 30
_DESCRIPTOR, _DESCRIPTOR_CRC = b"PK\7\10", 4
_CENTRAL, _CENTRAL_BYTES, _CENTRAL_CRC = b"PK\1\2", 46, 16
_FLAGS, _DESCRIBED = 6, 8  # CRC and descriptor follow the data
_EXTRA = 28  # offset of the extra field's length in a local header
_ID = b"/.data/serialization_id"  # 20 digits for the record names and 20 for their CRCs
_ID_DIGITS = 20
_MASK = (1 << 64) - 1
# Summed, written and digested piece by piece, while the processor's cache holds the piece.
_PIECE_BYTES = 256 << 10


def save_torchfile(torch: Any, obj: object, file: Any) -> None:  # noqa: ANN401  the module; any binary file
    """Write the bytes of ``torch.save``; torch computes the checksums if isal is missing, or its files differ."""
    if fast() is None or not torch.serialization.get_crc32_options() or not _as_tried(torch):
        torch.save(obj, file)
    else:
        _save(torch, obj, _CrcWriter(file))


@cache
def _as_tried(torch: Any) -> bool:  # noqa: ANN401  the module
    """Return whether a save here is identical to torch's own, byte by byte."""
    # Before 2.13 the setting may be shared by all threads; since then each thread has its own.
    if torch.__version__ < "2.13":
        return False
    state = {"many": torch.ones(3), "none": torch.ones(0)}
    ours, own = io.BytesIO(), io.BytesIO()
    torch.save(state, own)
    try:
        copy_context().run(_save, torch, state, _CrcWriter(ours))
    except (Bug, RuntimeError, TypeError, AttributeError):
        return False
    return ours.getvalue() == own.getvalue()


def _save(torch: Any, obj: object, file: _CrcWriter) -> None:  # noqa: ANN401  the module
    """Save without torch's checksums; affects only this file, even if ``obj`` saves other files while it is pickled."""
    again = torch.serialization.set_crc32_options
    again(False)  # noqa: FBT003  torch's own signature
    try:
        torch.save(obj, file, pickle_module=_Pickling(lambda: again(True)))  # noqa: FBT003  see above
    finally:
        again(True)  # noqa: FBT003  see above


class _Pickling:
    """Module ``pickle``, with a callback when torch has opened its file and starts to pickle."""

    __name__ = "pickle"

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun

    @property
    def Pickler(self) -> type[pickle.Pickler]:  # noqa: N802  the module's name for it
        self._begun()
        return pickle.Pickler


class _CrcWriter:
    """File that ``torch.save`` writes an archive without checksums to; passes it on with checksums."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401  any binary file
        self._file = file
        self._parts = _rewrite_archive()
        next(self._parts)
        self._failed = False

    def write(self, data: memoryview) -> int:
        # torch finishes its archive even after a failed write.
        if self._failed:
            return int(self._file.write(data))
        self._failed = True
        part = self._parts.send(data)
        if isinstance(part, memoryview):
            self._file.write(part)
        else:
            self._parts.send(self._with_sum(data))
        self._failed = False
        return len(data)

    def _with_sum(self, data: memoryview) -> int:
        crc = 0
        for at in range(0, len(data), _PIECE_BYTES):
            piece = data[at : at + _PIECE_BYTES]
            crc = crc32(piece, crc)
            self._file.write(piece)
        return crc

    def flush(self) -> None:
        self._file.flush()


def _rewrite_archive() -> Generator[memoryview | None, Any, None]:
    """Receive each write of torch, and yield the bytes to write; None: write it unchanged, and send its CRC."""
    sums: list[int] = []
    combined = 0
    data = yield memoryview(b"")
    while data[:4] == _LOCAL and len(data) == _LOCAL_BYTES:
        (flags,) = struct.unpack_from("<H", data, _FLAGS)
        (extra,) = struct.unpack_from("<H", data, _EXTRA)
        name = yield data
        data = yield name
        # Beyond 4 GiB there is a field before the padding, and each is a separate write.
        while extra > 0:
            extra -= len(data)
            data = yield data
        sums.append(0)
        if flags & _DESCRIBED:
            if name.tobytes().endswith(_ID):
                data = memoryview(data[:_ID_DIGITS].tobytes() + f"{combined:020}".encode())
                sums[-1] = crc32(data)
            else:
                sums[-1] = yield None
            combined ^= (sums[-1] + 0x9E3779B9 + (combined << 6) + (combined >> 2)) & _MASK
            data = _with_sum(_require_magic((yield data), _DESCRIPTOR), _DESCRIPTOR_CRC, sums[-1])
            data = yield data
    directory = bytearray(_require_magic(data, _CENTRAL))
    at = 0
    for crc in sums:
        struct.pack_into("<I", directory, at + _CENTRAL_CRC, crc)
        at += _CENTRAL_BYTES + sum(struct.unpack_from("<HHH", directory, at + 28))
    if at != len(directory):
        raise Bug("the directory of torch.save differs from the announced one")
    data = yield memoryview(directory)
    while True:
        data = yield data


def _require_magic(part: memoryview, magic: bytes) -> memoryview:
    if part[:4] != magic:
        raise Bug(f"torch.save wrote {part[:4].tobytes()!r} instead of {magic!r} was due")
    return part


def _with_sum(part: memoryview, at: int, crc: int) -> memoryview:
    return memoryview(part[:at].tobytes() + crc.to_bytes(4, "little") + part[at + 4 :].tobytes())
