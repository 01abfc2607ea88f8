"""Columns of LitData's samples: its serializers, from bytes to values, and its rows in Arrow. Pure.

Format: ``litdata/streaming/serializers.py`` of LitData 0.2.76. Serializers that can run code are refused. Dicts of
bytes, texts, numbers, lists and dicts are rows in Arrow (``append_arrow_row_footer`` of ``item_loader.py``): behind the
offsets of a chunk, which are all equal, are an Arrow file (or stream), its size, a uint32, and a magic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from json import loads
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.parquet import libraries
from penstock.data.shards.mds_columns import as_image, as_text, as_view, check_count, list_parts
from penstock.data.unpacking import check_unpacked
from penstock.errors import Damaged, PenstockError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.shards.mds_columns import Decode

# LitData's numbers of element types. Those of torch have synonyms, and bfloat16, 10, which NumPy lacks.
_NUMPY = dict(enumerate(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?")))
_TORCH = {number: kind for kind, numbers in {
    "f4": (0, 1), "f8": (2, 3), "c8": (4, 5), "c16": (6, 7), "f2": (8, 9), "u1": (11,), "i1": (12,),
    "i2": (13, 14), "i4": (15, 16), "i8": (17, 18), "?": (19,), "u2": (20,),
}.items() for number in numbers}  # fmt: skip


def _find_dtype(number: int, kinds: dict[int, str]) -> np.dtype[Any]:
    if number not in kinds:
        raise Unsupported(f"has elements of LitData's type {number}, which NumPy lacks")
    return np.dtype(f"<{kinds[number]}")


def _array(kinds: dict[int, str], order: str, data: memoryview) -> NDArray[Any]:
    """Return the array after its element type, number of axes and shape: uint32 each, in byte order ``order``."""
    number, axes = struct.unpack_from(f"{order}II", data)
    shape = struct.unpack_from(f"{order}{axes}I", data, 8)
    found = np.frombuffer(data[8 + 4 * axes :], _find_dtype(number, kinds))
    check_count(prod(shape), found.size)
    # A copy may be written to, is aligned, and does not keep the block that was read.
    return found.reshape(shape).copy()


def _flat(kind: np.dtype[Any], data: memoryview) -> NDArray[Any]:
    return np.frombuffer(data, kind).copy()


def _scalar(form: str, data: memoryview) -> Any:  # noqa: ANN401  a number
    (found,) = struct.unpack(form, data)
    return found


class _Nested:
    """Lists and dicts as LitData writes them: a type byte, then numbers of 32 bits.

    The numbers are not trusted: each element takes at least a byte, of which there are as many as the sample has.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:  # noqa: ANN401  any value of JSON
        tag = self.number("<B")
        if tag in _SCALARS:
            return _SCALARS[tag](self)
        count = self.number("<I")
        if tag == 0:
            return loads(as_text(self._bytes(count)))
        if tag in (2, 3, 4):
            kind = np.dtype(("<i8", "<f8", "?")[tag - 2])
            return np.frombuffer(self._bytes(count * kind.itemsize), kind).tolist()
        if tag == 1:
            return [self.text() for _ in range(count)]
        if tag == 5:  # noqa: PLR2004  a dict
            return {self.text(): self.value() for _ in range(count)}
        if tag == 6:  # noqa: PLR2004  dicts with the same keys
            keys = [self.text() for _ in range(self.number("<I"))]
            if not keys:
                raise Damaged("its records have no keys")
            return [{key: _RECORDS[self.number("<B")](self) for key in keys} for _ in range(count)]
        raise Damaged(f"it has the tag {tag}, which is unknown")

    def text(self) -> str:
        return as_text(self._bytes(self.number("<I")))

    def end(self) -> None:
        if self._at != len(self._data):
            raise Damaged(f"it ends at byte {self._at} of {len(self._data)}")

    def number(self, form: str) -> Any:  # noqa: ANN401  as ``form`` has it
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def _bytes(self, count: int) -> memoryview:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise Damaged(f"it declares {count} bytes at byte {self._at}, but has {len(self._data)}")
        self._at += count
        return found


_Read = Callable[[_Nested], Any]
_PLAIN: tuple[_Read, ...] = (
    _Nested.text,
    partial(_Nested.number, form="<q"),
    partial(_Nested.number, form="<d"),
    partial(_Nested.number, form="<?"),
)
# By the tags of values, and of values of records.
_SCALARS: dict[int, _Read] = dict(enumerate((*_PLAIN, lambda _: None), 7))
_RECORDS: dict[int, _Read] = dict(enumerate((lambda _: None, *_PLAIN), 16))


def _decode_nested(data: memoryview) -> Any:  # noqa: ANN401  any value of JSON
    # Older versions wrote JSON, which begins with none of the tags.
    if len(data) and data[0] > 0x20:  # noqa: PLR2004  the last byte that no text of JSON begins with
        return loads(as_text(data))
    nested = _Nested(data)
    found = nested.value()
    nested.end()
    return found


_DECODE: dict[str, Decode] = {
    **dict.fromkeys(("bytes", "jpeg", "image", "video", "audio", "file", "tiff", "tifffile"), as_view),
    **dict.fromkeys(("str", "text"), as_text),
    "bool": partial(_scalar, "<?"),
    "int": partial(_scalar, "<q"),
    "float": partial(_scalar, "<d"),
    "json": _decode_nested,
    "pil": as_image,
    "jpeg_array": lambda data: [bytes(each) for each in list_parts(data, 0)],
    "numpy": partial(_array, _NUMPY, "<"),
    "tensor": partial(_array, _TORCH, ">"),
}


@lru_cache(maxsize=256)
def decoder(encoding: str) -> Decode:
    """Return the function that decodes values of one of LitData's serializers: ``"jpeg"``, ``"no_header_numpy:9"``."""
    name, _, rest = encoding.partition(":")
    if name in ("no_header_numpy", "no_header_tensor") and rest.isdecimal() and len(rest) < 4:  # noqa: PLR2004  digits
        return partial(_flat, _find_dtype(int(rest), _NUMPY if name == "no_header_numpy" else _TORCH))
    if name in _DECODE:
        return _DECODE[name]
    if name in ("pickle", "graph"):
        raise Unsupported("is a pickle, or holds one, which can run any code when it is read")
    raise Unsupported(f"has the unsupported serializer {encoding!r}")


MAGIC = b"LDARW01\0"
_TAIL = 4 + len(MAGIC)
_FILE = b"ARROW1\0\0"  # what precedes a stream in an Arrow file


class Rows(NamedTuple):
    """The wanted values of a chunk as Arrow's arrays by name, None for a name that is missing, of each record batch.

    ``firsts`` are the numbers of their first rows.
    """

    firsts: list[int]
    columns: list[dict[str, Any]]

    def row(self, number: int) -> dict[str, Any]:
        """Return the values of row ``number`` by name: a memoryview for bytes, or any Python value."""
        at = max(at for at, first in enumerate(self.firsts) if first <= number)
        return {name: _value(column, number - self.firsts[at]) for name, column in self.columns[at].items()}


def read_rows(data: memoryview, places: Sequence[int], names: Sequence[str], wanted: Sequence[str]) -> Rows:
    """Return the wanted values in the rows of a chunk, of all that index.json ``names``.

    ``places`` has the end of the header once for each row that it states, and once more.
    """
    size = int.from_bytes(data[-_TAIL : -len(MAGIC)], "little")
    start, count = places[0], len(places) - 1
    if bytes(data[-len(MAGIC) :]) != MAGIC or start + size + _TAIL != len(data):
        raise Damaged(f"the rows in Arrow do not end where the chunk of {len(data)} bytes does")
    rows = data[start : start + size]
    try:
        batches = _batches(rows[len(_FILE) :] if rows[: len(_FILE)] == _FILE else rows)
        columns = [_columns(each.to_struct_array(), names, wanted) for each in batches]
    except PenstockError:
        raise
    except Exception as error:
        raise Damaged(f"cannot decode the rows in Arrow ({error})") from error
    firsts = [0]
    for each in batches:
        firsts.append(firsts[-1] + each.num_rows)
    if firsts[-1] != count:
        raise Damaged(f"the chunk has {firsts[-1]} rows in Arrow, but its header declares {count}")
    return Rows(firsts[:-1], columns)


def _batches(stream: memoryview) -> list[Any]:
    """Return the record batches of a stream, which are bounded before they are inflated."""
    pa, _ = libraries("the chunk")
    schema, found, unpacked = None, [], 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(stream))):
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
        elif message.type == "record batch":
            unpacked += _unpacked_bytes(message)
            check_unpacked(unpacked, "the rows of a chunk")
            batch = pa.ipc.read_record_batch(message, schema)
            # Offsets that lead elsewhere would be followed without a check.
            batch.validate(full=True)
            found.append(batch)
        else:
            raise Unsupported(f"the Arrow rows contain an unsupported message: {message.type}")
    return found


def _unpacked_bytes(message: Any) -> int:  # noqa: ANN401  pyarrow's
    """Return the decompressed bytes of a record batch as its buffers declare; pyarrow enforces them.

    Format: ``Message.fbs`` of Arrow: the third field of a message is its header, whose third field are the buffers, and
    whose fourth says that they are compressed.
    """
    data, body = memoryview(message.metadata), memoryview(message.body)
    batch = _follow_reference(data, _field(data, _follow_reference(data, 0), 2))
    if not _field(data, batch, 3):
        return len(body)
    buffers = _follow_reference(data, _field(data, batch, 2))
    count, total = struct.unpack_from("<I", data, buffers)[0], 0
    for start, size in struct.iter_unpack("<qq", data[buffers + 4 : buffers + 4 + 16 * count]):
        stated = struct.unpack_from("<q", body, start)[0] if size else 0
        total += size if stated < 0 else stated
    return total


def _follow_reference(data: memoryview, at: int) -> int:
    """Return the place of the table, or vector, to which a reference of FlatBuffers leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the place of a field of a table of FlatBuffers; 0 if the table lacks it."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, layout)[0]:
        return 0
    offset = struct.unpack_from("<H", data, layout + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _columns(array: Any, names: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401  pyarrow's
    """Return the arrays of the wanted paths in an array of structs.

    A chunk may lack a value that none of its rows has, and may have values that the first sample of all had not; a
    chunk of which both are true has other names.
    """
    found = {name: _column(array, name) for name in names}
    lost = next((name for name, column in found.items() if column is None), None)
    if lost is not None:
        known = [f"{name}." for name in names]
        strange = [path for path in _paths(array.type) if not any(_on_one_way(f"{path}.", each) for each in known)]
        if strange:
            raise Damaged(f"the rows in Arrow have {strange[0]!r} instead of {lost!r} in index.json")
    return {name: found[name] for name in wanted}


def _on_one_way(path: str, other: str) -> bool:
    return path.startswith(other) or other.startswith(path)


def _paths(kind: Any, above: str = "") -> Iterator[str]:  # noqa: ANN401  pyarrow's
    pa, _ = libraries("the chunk")
    for field in kind if pa.types.is_struct(kind) else ():
        yield above + field.name
        yield from _paths(field.type, f"{above}{field.name}.")


def _column(array: Any, name: str) -> Any:  # noqa: ANN401  pyarrow's
    """Return the array of a path such as ``meta.width`` in an array of structs; None without it."""
    pa, _ = libraries("the chunk")
    if not pa.types.is_struct(array.type):
        return None
    for field, inner in zip(array.type, array.flatten(), strict=True):
        if field.name == name:
            return inner
        rest = name.removeprefix(f"{field.name}.")
        if rest != name and (found := _column(inner, rest)) is not None:
            return found
    return None


def _value(column: Any, number: int) -> Any:  # noqa: ANN401  pyarrow's
    if column is None or not (found := column[number]).is_valid:
        return None
    is_bytes = "binary" in str(column.type) and hasattr(found, "as_buffer")
    return memoryview(found.as_buffer()) if is_bytes else found.as_py()
