"""Decoders of chunks, built from an array's metadata: by numcodecs if it has all codecs, else by zarr."""

from __future__ import annotations

import json
import warnings
from asyncio import to_thread
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.data.zarr.format.layout import DocumentFields, sharding
from penstock.data.zarr.format.steps import BYTES, COMPRESSORS, CRC_STEP, SPECIFIED, DecodingStep, Room, step_of
from penstock.errors import ChecksumMismatch, Damaged, MissingExtra, NoSpace, PenstockError, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.data.zarr.format.layout import Layout
    from penstock.data.zarr.format.steps import Encoded


class Decoder:
    """Decoder of the chunks of one array. Thread-safe, also in forked children; pickled as its layout.

    Zstandard, Blosc, LZ4, zlib, gzip, bz2, LZMA, delta and copies release the GIL, so that threads decode in parallel;
    shuffle, Fletcher-32 and CRC-32C hold it. ``foreign``: zarr decodes. ``direct``: a chunk is decoded straight into
    ``out``; otherwise it is copied there.
    """

    def __init__(self, layout: Layout, decoding: CodecChain | ForeignDecoder) -> None:
        self.layout = layout
        self.foreign = isinstance(decoding, ForeignDecoder)
        self.direct = not isinstance(decoding, ForeignDecoder) and decoding.direct
        self._shape, self._dtype = layout.chunks, layout.dtype
        self._decode = decoding.decode

    def decode(
        self, data: bytes | bytearray | memoryview, out: np.ndarray[Any, Any] | None = None, *, url: str = ""
    ) -> np.ndarray[Any, Any]:
        """Return a chunk of shape ``layout.chunks``: ``out``, or an array that may be a read-only view of ``data``.

        ``out`` is C-contiguous, of the layout's ``dtype`` and ``chunks``; undefined after an error.
        """
        if out is not None and (out.shape != self._shape or out.dtype != self._dtype or not out.flags.c_contiguous):
            raise Unusable(f"a chunk is decoded into a C-contiguous array of {self._dtype} of shape {self._shape}")
        try:
            found = self._decode(data, out)
            if found is out:
                return found
            if out is None:
                return found.astype(self._dtype, copy=False)
            out[...] = found
        except PenstockError as error:
            error.url = error.url or url
            raise
        except MemoryError as error:
            raise NoSpace("too little memory to decode the chunk", url=url) from error
        except Exception as error:
            raise Damaged(f"cannot decode the chunk: {str(error) or type(error).__name__}", url=url) from error
        return out

    def filled(self) -> np.ndarray[Any, Any]:
        """Return a read-only chunk of fill values, which takes the memory of a single value."""
        return np.broadcast_to(np.asarray(self.layout.fill, self._dtype), self._shape)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the layout alone."""
        return decoder_of, (self.layout,)


def decoder_of(layout: Layout, url: str = "") -> Decoder:
    """Return the decoder of an array's chunks (inner chunks of a sharded array)."""
    document = layout.document
    if layout.shards is not None:
        document = {**document, "codecs": sharding(layout)["codecs"]}
    chain = chain_of(layout, document, url)
    return Decoder(layout, ForeignDecoder(layout, document, url) if chain is None else chain)


# Limit of data between two compressors, as a multiple of the decoded chunk.
_MOST_GROWTH = 16
_MARGIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CodecChain:
    """Chain of decoding steps, each with the size limit of its result, from bytes to values.

    ``dtype`` is in the stored byte order, ``shape`` in ``order``: row-major (``C``) or column-major (``F``). ``axes``
    transpose it to the shape of the chunk.
    """

    steps: tuple[tuple[DecodingStep, Room], ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"] = "C"
    axes: tuple[int, ...] | None = None

    @property
    def direct(self) -> bool:
        """Whether the last step writes into a given array, and its bytes are the chunk's values in memory order."""
        plain = self.order == "C" and self.axes is None and self.dtype.isnative
        return plain and bool(self.steps) and self.steps[-1][0].into

    def decode(self, data: Encoded, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        """Return a chunk: ``out`` if the last step writes there, or an array that may be a view of ``data``."""
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
                raise kind(f"cannot decode the chunk ({step.name}): {str(error) or type(error).__name__}") from error
        if out is not None and target is not None:
            return out
        return self._values(data)

    def _values(self, data: Encoded) -> np.ndarray[Any, Any]:
        wanted = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        if _size(data) != wanted:
            raise Damaged(f"the chunk has {_size(data)} bytes, not {wanted}")
        # An array of any type: NumPy's times do not support the buffer protocol.
        if isinstance(data, np.ndarray):
            flat = np.ascontiguousarray(data).reshape(-1).view("u1").view(self.dtype)
        else:
            flat = np.frombuffer(data, self.dtype)
        found: np.ndarray[Any, Any] = flat.reshape(self.shape, order=self.order)
        return found if self.axes is None else found.transpose(self.axes)


def chain_of(layout: Layout, document: Mapping[str, Any], url: str = "") -> CodecChain | None:
    """Return the chain for an array's document; None if it has a codec that is unknown here."""
    fields = DocumentFields(document, url)
    return _v2(fields, layout) if document["zarr_format"] == 2 else _v3(fields, layout)  # noqa: PLR2004  the version


def _v2(fields: DocumentFields, layout: Layout) -> CodecChain | None:
    filters = fields.values.get("filters") or []
    if not isinstance(filters, list):
        raise fields.damaged("filters", "a list of codecs, or null")
    compressor = fields.values.get("compressor")
    steps: list[DecodingStep | None] = []
    named = [("filters", each) for each in filters] + [("compressor", compressor)] * (compressor is not None)
    for name, codec in named:
        if not isinstance(codec, dict) or not isinstance(codec.get("id"), str):
            raise fields.damaged(name, "a codec with an id")
        steps.append(_step(fields, name, codec["id"], codec))
    order: Literal["C", "F"] = "F" if fields.values.get("order") == "F" else "C"
    return _chain(layout, steps, np.dtype(str(fields.values["dtype"])), layout.chunks, order)


def _v3(fields: DocumentFields, layout: Layout) -> CodecChain | None:
    codecs = fields.extensions("codecs")
    axes = [*range(len(layout.chunks))]
    while codecs and codecs[0][0] == "transpose":
        order = codecs.pop(0)[1]
        if sorted(turn := order.sizes("order", 0)) != [*range(len(axes))]:
            raise order.damaged("order", f"the numbers from 0 to {len(axes) - 1}")
        axes = [axes[each] for each in turn]
    if not codecs or codecs[0][0] != "bytes":
        return None
    dtype = _apply_byte_order(codecs.pop(0)[1], layout.dtype)
    steps = [_v3_step(fields, layout, name, configuration) for name, configuration in codecs]
    turned = tuple(layout.chunks[each] for each in axes)
    back = None if axes == sorted(axes) else tuple(int(each) for each in np.argsort(axes))
    return _chain(layout, steps, dtype, turned, axes=back)


def _v3_step(fields: DocumentFields, layout: Layout, name: str, configuration: DocumentFields) -> DecodingStep | None:
    """Return a bytes-to-bytes codec: of the specification, or of numcodecs by its prefixed name; None if unknown."""
    if name == "crc32c":
        return CRC_STEP
    if name in SPECIFIED:
        return _step(fields, "codecs", name, {})
    short = name.removeprefix("numcodecs.")
    if short == name or short not in BYTES:
        return None
    size = {"elementsize": layout.dtype.itemsize} if short == "shuffle" else {}
    return _step(fields, "codecs", short, size | {**configuration.values})


def _apply_byte_order(configuration: DocumentFields, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the data type in the byte order of the codec ``bytes``."""
    order = configuration.chosen("endian", ("little", "big"), "")
    if not order and dtype.itemsize > 1 and dtype.kind != "S":
        raise configuration.damaged("endian", "'little' or 'big', since values have several bytes")
    return dtype.newbyteorder(">" if order == "big" else "<")


def _step(fields: DocumentFields, field: str, name: str, configuration: Mapping[str, Any]) -> DecodingStep | None:
    try:
        return step_of(name, configuration)
    except PenstockError:
        raise
    except Exception as error:
        raise fields.damaged(field, f"what numcodecs' {name} can be made of ({error})") from error


def _chain(
    layout: Layout,
    steps: Sequence[DecodingStep | None],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
    axes: tuple[int, ...] | None = None,
) -> CodecChain | None:
    """Return the chain that reverses steps of encoding, with the size limit of each result."""
    size: int | None = layout.chunk_bytes
    most = _MOST_GROWTH * layout.chunk_bytes + _MARGIN_BYTES
    found = []
    for step in steps:
        if step is None:
            return None
        found.append((step, Room(0, most) if size is None else Room(size, size)))
        size = None if size is None else step.encoded_size(size)
    return CodecChain(tuple(reversed(found)), dtype, shape, order, axes)


def _size(data: Encoded) -> int:
    return data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)


# Chunks of the array in memory: more than are ever decoded concurrently.
_PLACES = 1 << 20
# Name of compressors with a bounded result, in the documents that zarr receives.
_BOUNDED = "penstock.bounded"
# Codecs that run code from the data, or that a document must not name.
_UNSAFE = {"pickle", _BOUNDED}

_MOST_DEPTH = 16  # shards within shards


class ForeignDecoder:
    """Decoder that uses zarr; takes 200 to 350 µs per chunk besides the codec. Thread-safe, also after a fork.

    zarr decodes on an event loop in a separate thread; the codec determines whether several chunks are decoded
    concurrently. Compressors that Penstock knows are replaced within zarr by Penstock's, at any depth of shards; these
    limit the size of their result. Codecs of other libraries have no limit; zarr compares the size afterwards.
    """

    def __init__(self, layout: Layout, document: Mapping[str, Any], url: str = "") -> None:
        """Open an array in memory with the codecs of ``document``; each chunk is stored there for its decoding."""
        names = sorted(_names(document))
        if unsafe := _UNSAFE & {name.removeprefix("numcodecs.") for name in names}:
            raise Unsupported(f"cannot decode the codec {min(unsafe)}: it runs code that the data contains", url=url)
        try:
            import zarr
            from zarr.core.buffer import default_buffer_prototype
            from zarr.storage import MemoryStore
        except ModuleNotFoundError as error:
            raise MissingExtra("these chunks need zarr to be decoded: pip install 'penstock[zarr]'") from error
        self._chunks, self._dtype = layout.chunks, layout.dtype
        self._bytes = default_buffer_prototype().buffer.from_bytes
        self._places: dict[str, Any] = {}
        self._numbers = count()
        # An array without dimensions has a single chunk, so decoding needs a lock.
        self._guard = nullcontext() if layout.chunks else Lock()
        _register()
        try:
            document = _bound_codecs(document, _MOST_GROWTH * layout.chunk_bytes + _MARGIN_BYTES)
            file, self._key, document = _one_after_another(document, layout.chunks)
            self._places[file] = self._bytes(json.dumps(document).encode())
            with warnings.catch_warnings():
                # For example, that other libraries may not know a codec.
                warnings.simplefilter("ignore")
                self._array = zarr.open_array(
                    store=MemoryStore(self._places), mode="r", zarr_format=document["zarr_format"]
                )
        except PenstockError:
            raise
        except Exception as error:
            message = f"zarr cannot decode these chunks, with the codecs {', '.join(names)}: {error}"
            # Its entry point registers the codec; the wheel of eccodes has ECMWF's library.
            message += "; pip install kerchunk eccodes" * ("grib" in names)
            raise Unsupported(message, url=url) from error

    def decode(self, data: Encoded, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
        """Return a chunk in a new array: zarr does not decode into ``out``. Any exception means damage."""
        del out
        with self._guard:
            number = next(self._numbers) % _PLACES
            key = self._key.format(number)
            self._places[key] = self._bytes(bytes(data))
            try:
                size = self._chunks[0] if self._chunks else 0
                found = self._array[number * size : (number + 1) * size] if size else self._array[...]
            finally:
                del self._places[key]
        return np.asarray(found, self._dtype)


def _one_after_another(document: Mapping[str, Any], chunks: tuple[int, ...]) -> tuple[str, str, dict[str, Any]]:
    """Return, for an array of many chunks: name of its document, key format of its chunks (``{}``), document."""
    shape = [chunks[0] * _PLACES, *chunks[1:]] if chunks else []
    zeros = ["0"] * (len(chunks) - 1)
    if document["zarr_format"] == 2:  # noqa: PLR2004  the format's version
        many = {**document, "shape": shape, "chunks": list(chunks), "dimension_separator": "."}
        return ".zarray", ".".join(["{}", *zeros]) if chunks else "0", many
    many = {
        **{name: document[name] for name in ("zarr_format", "node_type", "data_type", "fill_value", "codecs")},
        "shape": shape,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "attributes": {},
    }
    return "zarr.json", "/".join(["c", *(["{}", *zeros] if chunks else [])]), many


def _bound_codecs(document: Mapping[str, Any], most_bytes: int, depth: int = 0) -> dict[str, Any]:
    """Return a document, or a sharding configuration, whose compressors decode to at most ``most_bytes``."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"shards are nested deeper than {_MOST_DEPTH}")
    found = dict(document)
    for field in ("codecs", "index_codecs"):
        if isinstance(document.get(field), list | tuple):
            found[field] = [_bounded_v3(each, most_bytes, depth) for each in document[field]]
    for field in ("filters", "compressor"):
        if isinstance(codecs := document.get(field), list | tuple):
            found[field] = [_bounded_v2(each, most_bytes) for each in codecs]
        elif codecs is not None:
            found[field] = _bounded_v2(codecs, most_bytes)
    return found


def _bounded_v2(codec: Any, most_bytes: int) -> Any:  # noqa: ANN401  as JSON has it
    if hasattr(codec, "get") and codec.get("id") in COMPRESSORS:
        return {"id": _BOUNDED, "codec": {**codec}, "most_bytes": most_bytes}
    return codec


def _bounded_v3(codec: Any, most_bytes: int, depth: int) -> Any:  # noqa: ANN401  as JSON has it
    found: dict[str, Any] = {"name": codec} if isinstance(codec, str) else dict(codec)
    name, configuration = found["name"], found.get("configuration") or {}
    short = name.removeprefix("numcodecs.")
    if short in (COMPRESSORS if short != name else SPECIFIED):
        # Decoders ignore configurations of the specification; numcodecs needs those of its codecs.
        inner = {**(configuration if short != name else {}), "id": short}
        return {"name": _BOUNDED, "configuration": {"codec": inner, "most_bytes": most_bytes}}
    if name == "sharding_indexed":
        return found | {"configuration": _bound_codecs(configuration, most_bytes, depth + 1)}
    return codec


@cache
def _register() -> None:
    """Register compressors with bounded results with zarr, and with numcodecs for Zarr v2."""
    from numcodecs.abc import Codec
    from numcodecs.registry import register_codec as register_v2
    from zarr.abc.codec import BytesBytesCodec
    from zarr.registry import register_codec

    class BoundedV2(Codec):  # type: ignore[misc]  # untyped
        codec_id = _BOUNDED

        def __init__(self, codec: Mapping[str, Any], most_bytes: int) -> None:
            self.codec, self.most_bytes = codec, most_bytes
            self._step = _compressor(codec)

        def decode(self, buf: Encoded, out: object = None) -> Encoded:
            del out
            return np.frombuffer(self._step.decode(buf, Room(0, self.most_bytes), None), "u1")

        def encode(self, buf: object) -> object:
            raise NotImplementedError

    @dataclass(frozen=True)
    class Bounded(BytesBytesCodec):
        codec: Mapping[str, Any]
        most_bytes: int
        is_fixed_size = False

        @classmethod
        def from_dict(cls, data: Mapping[str, Any]) -> Bounded:
            return cls(**data["configuration"])

        def to_dict(self) -> dict[str, Any]:
            return {"name": _BOUNDED, "configuration": {"codec": self.codec, "most_bytes": self.most_bytes}}

        def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:  # noqa: ANN401  zarr's
            found = _compressor(self.codec).decode(chunk_bytes.as_numpy_array(), Room(0, self.most_bytes), None)
            return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(found, "u1"))

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:  # noqa: ANN401  zarr's
            return await to_thread(self._decode_sync, chunk_bytes, chunk_spec)

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: object) -> int:
            raise NotImplementedError

    register_v2(BoundedV2)
    register_codec(_BOUNDED, Bounded)


def _compressor(codec: Mapping[str, Any]) -> DecodingStep:
    step = step_of(codec["id"], {name: value for name, value in codec.items() if name != "id"})
    if step is None:
        raise ValueError(f"the codec {codec['id']!r} is not a compressor")
    return step


def _names(document: object) -> set[str]:
    """Return the names of all codecs of a document, including those within shards."""
    found: set[str] = set()
    waiting: list[Any] = [document]  # no recursion: JSON may be deeply nested
    while waiting:
        some = waiting.pop()
        if isinstance(some, list | tuple):
            found.update(each for each in some if isinstance(each, str))
            waiting += [each for each in some if not isinstance(each, str)]
        elif hasattr(some, "items"):
            for name, value in some.items():
                if name in {"id", "name"} and isinstance(value, str):
                    found.add(value)
                elif name in {"codecs", "index_codecs", "filters", "compressor", "configuration"}:
                    waiting.append(value)
    return found
