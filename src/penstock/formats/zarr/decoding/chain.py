"""Decoding by numcodecs: an array's metadata to a chain of codecs, and bytes through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.errors import ChecksumMismatch, Damaged, PenstockError
from penstock.formats.zarr.decoding.steps import BYTES, Room, Step, crc_step, step_of
from penstock.formats.zarr.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.formats.zarr.decoding.steps import Encoded
    from penstock.formats.zarr.layout import Layout

__all__ = ["Chain", "chain_of"]

_V3 = {"zstd", "gzip", "blosc"}  # whose configurations matter to encoders alone
_MOST_GROWTH = 16  # between two compressors nothing is larger than this times the decoded chunk
_MARGIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Chain:
    """How bytes become values.

    Attributes:
        steps: In the order of decoding, with the room that each one's result has.
        dtype: Of the bytes, in the byte order that is stored.
        shape: Of the bytes, in ``order``.
        order: Row-major (``C``) or column-major (``F``).
        axes: How to transpose what has ``shape``; None where it is the chunk.

    """

    steps: tuple[tuple[Step, Room], ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"] = "C"
    axes: tuple[int, ...] | None = None

    @property
    def direct(self) -> bool:
        """Whether the last step's bytes are the chunk as it lies in memory, and it writes where it is told to."""
        plain = self.order == "C" and self.axes is None and self.dtype.isnative
        return plain and bool(self.steps) and self.steps[-1][0].into

    def decode(self, data: Encoded, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        """Return a chunk: ``out`` where the last step writes there, or an array that may be a view of ``data``.

        Raises:
            ChecksumMismatch: A checksum does not match.
            Damaged: A step fails, or returns too much or too little.

        """
        target = out.reshape(-1).view("u1") if out is not None and self.direct else None
        last = len(self.steps) - 1
        for number, (step, room) in enumerate(self.steps):
            try:
                data = step.decode(data, room, target if number == last else None)
                room.check(_size(data))
            except (PenstockError, MemoryError):
                raise
            except Exception as error:
                kind = ChecksumMismatch if step.verifies else Damaged
                raise kind(f"the chunk does not decode ({step.name}): {str(error) or type(error).__name__}") from error
        if out is not None and target is not None:
            return out
        return self._values(data)

    def _values(self, data: Encoded) -> np.ndarray[Any, Any]:
        """Return the values of decoded bytes."""
        wanted = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        if _size(data) != wanted:
            raise Damaged(f"the chunk has {_size(data)} bytes, not {wanted}")
        if isinstance(data, np.ndarray):  # of any type: NumPy's times have no buffer
            flat = np.ascontiguousarray(data).reshape(-1).view("u1").view(self.dtype)
        else:
            flat = np.frombuffer(data, self.dtype)
        found: np.ndarray[Any, Any] = flat.reshape(self.shape, order=self.order)
        return found if self.axes is None else found.transpose(self.axes)


def chain_of(layout: Layout, document: Mapping[str, Any], url: str = "") -> Chain | None:
    """Return the chain for an array's document; None where it has a codec that is not known here.

    Raises:
        Damaged: The codecs are not what the specification says.
        MissingExtra: There is no numcodecs.

    """
    fields = Fields(document, url)
    return _v2(fields, layout) if document["zarr_format"] == 2 else _v3(fields, layout)  # noqa: PLR2004  the version


def _v2(fields: Fields, layout: Layout) -> Chain | None:
    filters = fields.values.get("filters") or []
    if not isinstance(filters, list):
        raise fields.damaged("filters", "a list of codecs, or null")
    compressor = fields.values.get("compressor")
    steps: list[Step | None] = []
    for name, codec in [("filters", each) for each in filters] + [("compressor", compressor)] * (
        compressor is not None
    ):
        if not isinstance(codec, dict) or not isinstance(codec.get("id"), str):
            raise fields.damaged(name, "a codec with an id")
        steps.append(_step(fields, name, codec["id"], codec))
    order: Literal["C", "F"] = "F" if fields.values.get("order") == "F" else "C"
    return _chain(layout, steps, np.dtype(str(fields.values["dtype"])), layout.chunks, order)


def _v3(fields: Fields, layout: Layout) -> Chain | None:
    codecs = fields.extensions("codecs")
    axes = [*range(len(layout.chunks))]
    while codecs and codecs[0][0] == "transpose":
        order = codecs.pop(0)[1]
        if sorted(turn := order.sizes("order", 0)) != [*range(len(axes))]:
            raise order.damaged("order", f"the numbers from 0 to {len(axes) - 1}")
        axes = [axes[each] for each in turn]
    if not codecs or codecs[0][0] != "bytes":
        return None
    dtype = _stored(codecs.pop(0)[1], layout.dtype)
    steps = [_v3_step(fields, layout, name, configuration) for name, configuration in codecs]
    turned = tuple(layout.chunks[each] for each in axes)
    back = None if axes == sorted(axes) else tuple(int(each) for each in np.argsort(axes))
    return _chain(layout, steps, dtype, turned, axes=back)


def _v3_step(fields: Fields, layout: Layout, name: str, configuration: Fields) -> Step | None:
    """Return a codec from bytes to bytes: of the specification, or numcodecs' by its name with a prefix."""
    if name == "crc32c":
        return crc_step()
    if name in _V3:
        return _step(fields, "codecs", name, {})
    short = name.removeprefix("numcodecs.")
    if short == name or short not in BYTES:
        return None
    size = {"elementsize": layout.dtype.itemsize} if short == "shuffle" else {}
    return _step(fields, "codecs", short, size | {**configuration.values})


def _stored(configuration: Fields, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the data type in the byte order that the codec ``bytes`` says."""
    order = configuration.chosen("endian", ("little", "big"), "")
    if not order and dtype.itemsize > 1 and dtype.kind != "S":
        raise configuration.damaged("endian", "'little' or 'big', since values have several bytes")
    return dtype.newbyteorder(">" if order == "big" else "<")


def _step(fields: Fields, field: str, name: str, configuration: Mapping[str, Any]) -> Step | None:
    try:
        return step_of(name, configuration)
    except PenstockError:
        raise
    except Exception as error:
        raise fields.damaged(field, f"what numcodecs' {name} can be made of ({error})") from error


def _chain(
    layout: Layout,
    steps: Sequence[Step | None],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
    axes: tuple[int, ...] | None = None,
) -> Chain | None:
    """Return steps of encoding as steps of decoding, with the room for what each one decodes to."""
    size: int | None = layout.chunk_bytes
    most = _MOST_GROWTH * layout.chunk_bytes + _MARGIN_BYTES
    found = []
    for step in steps:
        if step is None:
            return None
        found.append((step, Room(0, most) if size is None else Room(size, size)))
        size = None if size is None else step.encoded_size(size)
    return Chain(tuple(reversed(found)), dtype, shape, order, axes)


def _size(data: Encoded) -> int:
    return data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)
