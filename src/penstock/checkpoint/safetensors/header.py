"""Safetensors files: the header, parsed and checked or encoded with digests of the data, and loading of spans of data.

Data for a GPU passes through page-locked memory.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.checkpoint.gather import Object, Want, gather
from penstock.checkpoint.integrity import (
    BLANK,
    BLOCK_BYTES,
    DIGEST_BYTES,
    MOST_VALUES,
    BlockChecksums,
    check_value_count,
    document,
    elements,
    stored_digest,
    with_digest,
)
from penstock.checkpoint.staging import STAGE_BYTES, allocate_stage, cuts, flat, memory, memory_bounds, torch_module
from penstock.errors import CheckpointError, Unusable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    import torch
    from torch import Tensor, device

    from penstock.source import Source

_NAMED = 3  # tensors named in a message


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile(Object):
    """A safetensors file; its checksums cover the data section, from ``origin`` on."""

    header: Header = field(kw_only=True)

    def within(self, start: int, stop: int) -> str:
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


class _TensorRange(NamedTuple):
    """Bytes ``[start, stop)`` of a file, and the tensor bytes that receive them."""

    start: int
    stop: int
    to: torch.Tensor


@dataclass(slots=True, eq=False)
class _SharedBuffer:
    """Bytes ``[start, stop)`` of a file that share one buffer, and the tensors that receive them."""

    of: SafetensorsFile
    start: int
    stop: int
    parts: list[_TensorRange]


def load_tensors(
    source: Source, spans: Iterable[TensorSpan], device: torch.device, *, by_stages: bool
) -> list[torch.Tensor]:
    """Return a tensor on ``device`` for each span, in order; fastest if spans are in the order of their bytes.

    With ``by_stages`` the data passes through page-locked buffers of 16 MiB, at most 192 MiB of them plus one. Without,
    for the CPU, it is read directly into the tensors' memory.
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


def iterate_tensors(
    source: Source, spans: Iterable[TensorSpan], device: torch.device
) -> Generator[tuple[str, torch.Tensor]]:
    """Yield names and tensors in order; at most ``gather``'s window and one tensor are read ahead of the consumer."""
    begun: deque[tuple[str, torch.Tensor]] = deque()
    cpu = torch_module().device("cpu")

    def wants() -> Iterator[Want]:
        for span in spans:
            tensor = empty(span.entry, span.shape, cpu)
            begun.append((span.entry.name, tensor))
            yield Want(span.of, span.start, span.stop, memory(tensor))

    with closing(gather(source, wants())) as filled:
        for _ in filled:
            name, tensor = begun.popleft()
            yield name, tensor.to(device)


def _straight(made: Iterator[tuple[TensorSpan, torch.Tensor]]) -> Iterator[Want]:
    for span, tensor in made:
        yield Want(span.of, span.start, span.stop, memory(tensor))


def _steps(made: Iterator[tuple[TensorSpan, torch.Tensor]], *, pin: bool) -> Iterator[Want]:
    for stage in _stages(made):
        buffer = allocate_stage(stage.stop - stage.start, page_locked=pin)
        yield Want(stage.of, stage.start, stage.stop, memory(buffer), (stage, buffer))


def _stages(made: Iterator[tuple[TensorSpan, torch.Tensor]]) -> Iterator[_SharedBuffer]:
    """Join adjacent ranges, and cut them at each 16 MiB of the data section."""
    stage: _SharedBuffer | None = None
    for span, tensor in made:
        to, of = flat(tensor), span.of
        for at, stop in cuts(span.start, span.stop, of.origin):
            part = _TensorRange(at, stop, to[at - span.start : stop - span.start])
            if stage is not None and stage.of is of and stage.stop == at and (at - of.origin) % STAGE_BYTES:
                stage.stop = stop
                stage.parts.append(part)
            else:
                if stage is not None:
                    yield stage
                stage = _SharedBuffer(of, at, stop, [part])
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


# Bits per element by dtype, in the order of the reference implementation, which lays out the last dtypes first.
DTYPES = {
    dtype: bits
    for bits, dtypes in (
        (8, "BOOL"),
        (4, "F4"),
        (6, "F6_E2M3 F6_E3M2"),
        (8, "U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"),
        (16, "I16 U16 F16 BF16"),
        (32, "I32 U32 F32"),
        (64, "C64 F64 I64 U64"),
    )
    for dtype in dtypes.split()
}
_ORDER = {dtype: -number for number, dtype in enumerate(DTYPES)}
_LENGTH_BYTES = 8
_MOST_BYTES = 100_000_000  # of JSON: the limit of the reference implementation
# Alignment of the data section: whole cache lines, and whole elements of any dtype.
_ALIGNED_BYTES = 64
_METADATA = "__metadata__"
_OURS = "penstock."
_HEADER = "penstock.header"
_BLOCKS = "penstock.blocks"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Tensor in a file: bytes ``[start, stop)`` of its data section."""

    name: str
    dtype: str  # one of ``DTYPES``
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """Parsed header of a file."""

    entries: dict[str, TensorEntry]  # in the order of their bytes, which leave no gaps
    metadata: dict[str, str]  # without Penstock's own
    begin: int  # byte offset of the data section
    digest: str  # empty if Penstock did not write the file
    checksums: BlockChecksums | None  # of the data section; None likewise


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> list[TensorEntry]:
    """Lay out ``(name, dtype, shape)`` without gaps in the reference implementation's order: largest elements first."""
    entries: list[TensorEntry] = []
    at = 0
    for name, dtype, shape in sorted(tensors, key=lambda each: (_ORDER[each[1]], each[0])):
        entries.append(TensorEntry(name, dtype, shape, at, at + prod(shape) * DTYPES[dtype] // 8))
        at = entries[-1].stop
    return entries


def encode(entries: Iterable[TensorEntry], metadata: Mapping[str, str], digests: bytes) -> tuple[bytes, str]:
    """Return the header of a file, which is all bytes before its data, and the digest stored in it."""
    if _METADATA in (names := {entry.name for entry in entries}):
        raise Unusable(f"a tensor cannot be named {_METADATA!r} in a safetensors file")
    if not all(isinstance(text, str) for each in metadata.items() for text in each):
        raise Unusable(f"metadata must map str to str, got {metadata!r:.80}")
    if odd := [key for key in metadata if key.startswith(_OURS)]:
        raise Unusable(f"metadata keys that begin with {_OURS!r} are reserved for Penstock: {odd[0]!r}")
    described: dict[str, Any] = {
        _METADATA: {**metadata, _BLOCKS: base64.b64encode(digests).decode(), _HEADER: BLANK},
        **{
            each.name: {"dtype": each.dtype, "shape": each.shape, "data_offsets": (each.start, each.stop)}
            for each in entries
        },
    }
    try:
        text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Unusable(f"a name or metadata is not valid Unicode: {error.object[error.start :][:40]!r}") from None
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNED_BYTES)
    if len(text) > _MOST_BYTES:
        raise Unusable(f"the header of {len(names):,} tensors takes {len(text):,} bytes, more than 100 MB")
    try:
        check_value_count(text, MOST_VALUES)
    except ValueError as error:
        raise Unusable(f"cannot write a header of {len(names):,} tensors: {error}") from None
    return with_digest(len(text).to_bytes(_LENGTH_BYTES, "little") + text, _HEADER)


def stop_of(raw: bytes, size: int, url: str) -> int:
    """Return the offset at which a header ends, from a file's first bytes; raise ``CheckpointError`` if invalid."""
    if size < _LENGTH_BYTES:
        raise CheckpointError(f"not a safetensors file: it has {size} bytes", url=url)
    length = int.from_bytes(raw[:_LENGTH_BYTES], "little")
    if length > min(_MOST_BYTES, size - _LENGTH_BYTES):
        message = f"the safetensors file is incomplete: a header of {length:,} bytes in a file of {size:,}"
        raise CheckpointError(message, url=url)
    return _LENGTH_BYTES + length


def parse(raw: bytes, size: int, url: str) -> Header:
    """Return the checked header of a file of ``size`` bytes; ``raw`` holds its bytes up to ``stop_of``."""
    try:
        digest = stored_digest(raw, _HEADER, b'"penstock.blocks":"')
        if not raw.startswith(b"{", _LENGTH_BYTES):
            raise ValueError("'{' is missing at its beginning")
        described = document(raw[_LENGTH_BYTES:])
        metadata = as_texts(described.pop(_METADATA, {}))
        entries = sorted(map(_entry, described, described.values()), key=lambda each: (each.start, each.stop))
        _contiguous(entries, size - len(raw))
        checksums = _checksums(metadata, size - len(raw)) if digest else None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the header of this safetensors file is damaged: {error}", url=url) from None
    ours = {_HEADER, _BLOCKS} if digest else set()
    kept = {key: value for key, value in metadata.items() if key not in ours}
    return Header({each.name: each for each in entries}, kept, len(raw), digest, checksums)


def as_texts(value: object, name: str = "its metadata") -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError(f"{name} must map str to str")
    return value


def _entry(name: str, described: Any) -> TensorEntry:  # noqa: ANN401  any JSON
    described = described if isinstance(described, dict) else {}
    dtype, shape, offsets = (described.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"tensor {name!r} has an unknown dtype: {dtype!r:.40}")
    if not _naturals(shape) or (count := elements(shape)) is None:
        raise ValueError(f"tensor {name!r} has an impossible shape: {shape!r:.80}")
    bits = count * DTYPES[dtype]
    if not _naturals(offsets) or len(offsets) != 2 or (offsets[1] - offsets[0]) * 8 != bits:  # noqa: PLR2004  a pair
        raise ValueError(f"tensor {name!r} has {bits / 8:,.15g} bytes and is at {offsets!r:.80}")
    return TensorEntry(name, dtype, tuple(shape), *offsets)


def _naturals(value: Any) -> bool:  # noqa: ANN401  any JSON
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 1 << 63 for each in value)


def _contiguous(entries: list[TensorEntry], size: int) -> None:
    """Raise ``ValueError`` for gaps and overlaps: the format requires each tensor to begin where the previous ends."""
    ends = [TensorEntry("", "", (), 0, 0), *entries]
    for before, entry in pairwise(ends):
        if entry.start != before.stop:
            what = "overlaps the data before it" if entry.start < before.stop else "leaves a gap before it"
            raise ValueError(f"tensor {entry.name!r} at {entry.start:,} to {entry.stop:,} {what}")
    if ends[-1].stop != size:
        last = f"the last tensor, {ends[-1].name!r}, ends" if entries else "no tensor, and the data ends"
        raise ValueError(f"{last} at byte {ends[-1].stop:,} of the data, which has {size:,}")


def _checksums(metadata: dict[str, str], size: int) -> BlockChecksums:
    digests = base64.b64decode(metadata.get(_BLOCKS, "?"), validate=True)
    if len(digests) != -(-size // BLOCK_BYTES) * DIGEST_BYTES:
        raise ValueError(f"{len(digests)} bytes of digests for {size:,} bytes of data")
    return BlockChecksums(size, digests)


_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F4": "float4_e2m1fn_x2",
}
# torch packs two F4 values into one element; the file counts each value.
_TWO_IN_ONE = "F4"


def described(tensors: Mapping[str, Tensor]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return name, file dtype and file shape of each tensor; refuse those that cannot be held, or share memory."""
    torch = torch_module()
    dtypes = {getattr(torch, name, None): dtype for dtype, name in _NAMES.items()}
    found = []
    for name, tensor in tensors.items():
        if reason := _refusal(name, tensor, dtypes):
            raise Unusable(f"tensor {name!r} cannot be saved: {reason}")
        dtype, shape = dtypes[tensor.dtype], tuple(tensor.shape)
        found.append((name, dtype, (*shape[:-1], shape[-1] * 2) if dtype == _TWO_IN_ONE else shape))
    _refuse_shared(tensors)
    return found


def _refusal(name: object, tensor: object, dtypes: Mapping[Any, str]) -> str:
    torch = torch_module()
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        return f"names must be text and values tensors, got {type(name).__name__} and {type(tensor).__name__}"
    if torch.nn.parameter.is_lazy(tensor):
        return "it has no values before the first batch"
    if hasattr(tensor, "full_tensor"):
        return "it is spread over several processes; save what its full_tensor() returns"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
        return f"it is not a plain array of elements ({tensor.layout}, {tensor.dtype}, on {tensor.device})"
    if tensor.dtype not in dtypes or (dtypes[tensor.dtype] == _TWO_IN_ONE and not tensor.dim()):
        return f"the format has no dtype for {tensor.dtype}"
    return ""


def _refuse_shared(tensors: Mapping[str, Tensor]) -> None:
    """Raise ``Unusable`` if tensors overlap in memory: once loaded, they would be independent copies."""
    places = sorted(
        (str(tensor.device), *memory_bounds(tensor), name) for name, tensor in tensors.items() if tensor.numel()
    )
    for (place, _, stop, one), (other_place, start, _, other) in pairwise(places):
        if place == other_place and start < stop:
            raise Unusable(
                f"tensors {one!r} and {other!r} share memory, but would not after loading: "
                f"leave one out, or save {other!r} as a clone()"
            )


def shape_of(entry: TensorEntry) -> tuple[int, ...]:
    return (*entry.shape[:-1], entry.shape[-1] // 2) if entry.dtype == _TWO_IN_ONE and entry.shape else entry.shape


def empty(entry: TensorEntry, shape: tuple[int, ...], on: device) -> Tensor:
    torch = torch_module()
    dtype = getattr(torch, _NAMES.get(entry.dtype, ""), None)
    if dtype is None or (entry.dtype == _TWO_IN_ONE and (not entry.shape or entry.shape[-1] % 2)):
        bits = DTYPES[entry.dtype]
        raise CheckpointError(
            f"tensor {entry.name!r} is {entry.dtype} ({bits} bits), for which this torch has no dtype"
        )
    made: Tensor = torch.empty(shape, dtype=dtype, device=on)
    return made
