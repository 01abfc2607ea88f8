"""``ps.load(url, lazy=True)``: the objects of a ``torch.save`` file at once, their tensors when they are asked for."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from penstock.checkpoint.torchfile.archive import Use, archive
from penstock.checkpoint.torchfile.storages import storages
from penstock.errors import Unusable
from penstock.tree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from penstock.checkpoint.torchfile.archive import Record
    from penstock.checkpoint.transfer.plan import Object
    from penstock.source import Source

__all__ = ["LazyTensor", "load_lazily"]

_STRIDED = re.compile(r"_rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state)")
_REBUILDING = "torch._utils "


@dataclass(frozen=True, slots=True, eq=False)
class LazyTensor:
    """A tensor of a file that was not read yet: held to the version that was opened.

    It goes to worker processes, and is copied as itself, but is not saved: ``load`` it before.

    Attributes:
        shape: As the tensor's.
        dtype: The same.
        requires_grad: The same.
        parameter: Whether it is a ``torch.nn.Parameter``.

    """

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    parameter: bool
    _lies: _Lies = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.shape.numel() * self.dtype.itemsize

    def load(self, device: str | torch.device | None = None) -> torch.Tensor:
        """Read the tensor, onto ``device`` (default: the CPU): a request for each 8 MiB; nothing is kept for the next.

        All of its storage is read and compared, also where the tensor shows only a part of that; each tensor gets
        memory of its own.

        Raises:
            ChecksumMismatch: The bytes are not what was written.
            Changed: The file is another by now.

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
        """Return itself: it cannot change."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        """Return itself."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse: a file that holds it would hold no tensor, and the way to one."""
        raise Unusable("a LazyTensor is no tensor but where one lies: load() it to save it", url=self._lies.of.url)

    def _graded(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.requires_grad_() if self.requires_grad else tensor


def _for_worker(lazy: LazyTensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return LazyTensor, (lazy.shape, lazy.dtype, lazy.requires_grad, lazy.parameter, lazy._lies)  # noqa: SLF001  its own


ForkingPickler.register(LazyTensor, _for_worker)


@dataclass(frozen=True, slots=True, eq=False)
class _Lies:
    """Where a tensor's elements lie: in which record, and how in there."""

    source: Source
    of: Object
    record: Record
    offset: int
    stride: tuple[int, ...]
    conjugate: bool
    negative: bool

    def read(self, device: torch.device) -> torch.Tensor:
        """Return the record's bytes on ``device``."""
        gpu = device if device.type == "cuda" else None
        with closing(storages(self.source, self.of, [Use(self.record, "")], lambda _: gpu)) as filled:
            whole = next(filled)
        if gpu is None:
            return whole.to(device)
        import torch

        torch.cuda.current_stream(gpu).synchronize()
        return whole


def load_lazily(source: Source, of: Object, *, weights_only: bool) -> Any:  # noqa: ANN401  whatever was saved
    """Return what ``torch.load`` does, each tensor a ``LazyTensor``: reads the file's ends and no storage.

    Raises:
        Unusable: Something in it can only be loaded whole: another format, sparse or quantized tensors, objects that
            hold tensors in their attributes.
        CheckpointError: The file's directory is damaged, or the file was cut.

    """
    import torch

    opened = archive(source, of)
    if opened is None or opened.uses is None or not opened.plain:
        raise Unusable(
            "this file can only be loaded whole: it has another format, or objects of other code", url=of.url
        )
    odd = [name for name in opened.names if name.startswith(_REBUILDING) and not _STRIDED.fullmatch(name.split()[1])]
    if odd:
        raise Unusable(f"this file can only be loaded whole: its tensors are made by {odd[0]!r}", url=of.url)
    hand, records = _noting(opened.uses)
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


def _noting(uses: list[Use]) -> tuple[Callable[[Any, str], Any], dict[int, tuple[Any, Record]]]:
    """Return a ``map_location`` that hands out storages without memory, and which record each stands for, by id."""
    import torch

    upcoming, records = iter(uses), dict[int, tuple[Any, Any]]()

    def hand(empty: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        storage: torch.UntypedStorage = torch.UntypedStorage(empty.nbytes(), device="meta")  # type: ignore[no-untyped-call]
        records[id(storage)] = storage, next(upcoming).record  # torch asks again for what has no memory: for each use
        return storage

    return hand, records


def _lazy(tensor: torch.Tensor, source: Source, of: Object, record: Record) -> LazyTensor:
    import torch

    lies = _Lies(
        source, of, record, int(tensor.storage_offset()), tuple(tensor.stride()), tensor.is_conj(), tensor.is_neg()
    )
    parameter = isinstance(tensor, torch.nn.Parameter)
    return LazyTensor(tensor.shape, tensor.dtype, tensor.requires_grad, parameter, lies)
