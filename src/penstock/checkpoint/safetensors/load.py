"""Loading of spans of safetensors files into tensors; data for a GPU passes through page-locked memory."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.checkpoint.gather import Object, Want, gather
from penstock.checkpoint.safetensors.header import empty
from penstock.checkpoint.staging import STAGE_BYTES, cuts, flat, memory, staged, torch_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from penstock.checkpoint.safetensors.header import Header, TensorEntry
    from penstock.source import Source

__all__ = ["SafetensorsFile", "TensorSpan", "load_tensors"]

_NAMED = 3  # tensors named in a message


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile(Object):
    """A safetensors file; its checksums cover the data section, from ``origin`` on."""

    header: Header = field(kw_only=True)

    def within(self, start: int, stop: int) -> str:
        """Return a message's name for bytes of the file, with the tensors that they belong to."""
        low, high = start - self.origin, stop - self.origin
        hit = [each.name for each in self.header.entries.values() if each.start < high and each.stop > low]
        more = f" and {len(hit) - _NAMED} more" if len(hit) > _NAMED else ""
        return f"bytes {start} to {stop}, of tensor {', '.join(map(repr, hit[:_NAMED]))}{more},"


class TensorSpan(NamedTuple):
    """Bytes ``[start, stop)`` of a file, which are elements of ``entry`` in the given shape."""

    of: SafetensorsFile
    start: int
    stop: int
    entry: TensorEntry
    shape: tuple[int, ...]


class _Part(NamedTuple):
    """Bytes ``[start, stop)`` of a file, and the tensor bytes that receive them."""

    start: int
    stop: int
    to: torch.Tensor


@dataclass(slots=True, eq=False)
class _Stage:
    """Bytes ``[start, stop)`` of a file that share one buffer, and the tensors that receive them."""

    of: SafetensorsFile
    start: int
    stop: int
    parts: list[_Part]


def load_tensors(
    source: Source, spans: Iterable[TensorSpan], device: torch.device, *, by_stages: bool
) -> list[torch.Tensor]:
    """Return a tensor on ``device`` for each span, in order; fastest if spans are in the order of their bytes.

    With ``by_stages`` the data passes through page-locked buffers of 16 MiB, at most 192 MiB of them plus one. Without,
    for the CPU, it is read directly into the tensors' memory. Bytes are verified if the file has digests.

    Raises:
        ChecksumMismatch: Bytes differ from their digest; the message names the file and the tensors.
        CheckpointError: This version of torch lacks a tensor's dtype.

    """
    tensors: list[torch.Tensor] = []

    def made() -> Iterator[tuple[TensorSpan, torch.Tensor]]:
        for span in spans:
            tensors.append(empty(span.entry, span.shape, device))
            yield span, tensors[-1]

    wants = _steps(made(), pin=device.type == "cuda") if by_stages else _straight(made())
    with closing(gather(source, wants)) as filled:
        for want in filled:
            _carry(want)
    if device.type == "cuda":
        torch_module().cuda.current_stream(device).synchronize()
    return tensors


def _straight(made: Iterator[tuple[TensorSpan, torch.Tensor]]) -> Iterator[Want]:
    for span, tensor in made:
        yield Want(span.of, span.start, span.stop, memory(tensor))


def _steps(made: Iterator[tuple[TensorSpan, torch.Tensor]], *, pin: bool) -> Iterator[Want]:
    for stage in _stages(made):
        buffer = staged(stage.stop - stage.start, page_locked=pin)
        yield Want(stage.of, stage.start, stage.stop, memory(buffer), (stage, buffer))


def _stages(made: Iterator[tuple[TensorSpan, torch.Tensor]]) -> Iterator[_Stage]:
    """Join adjacent ranges, and cut them at each 16 MiB of the data section."""
    stage: _Stage | None = None
    for span, tensor in made:
        to, of = flat(tensor), span.of
        for at, stop in cuts(span.start, span.stop, of.origin):
            part = _Part(at, stop, to[at - span.start : stop - span.start])
            if stage is not None and stage.of is of and stage.stop == at and (at - of.origin) % STAGE_BYTES:
                stage.stop = stop
                stage.parts.append(part)
            else:
                if stage is not None:
                    yield stage
                stage = _Stage(of, at, stop, [part])
    if stage is not None:
        yield stage


def _carry(want: Want) -> None:
    """Copy a staged buffer to its tensors; do nothing if the data was read in place."""
    if want.tag is not None:
        stage, buffer = want.tag
        for part in stage.parts:
            piece = buffer[part.start - stage.start : part.stop - stage.start]
            # Asynchronous for CUDA only: on other devices the buffer may be freed before the copy reads it.
            part.to.copy_(piece, non_blocking=part.to.is_cuda)
