"""Values of MDS columns are those that were written; damaged ones are refused by name."""

from decimal import Decimal
from struct import pack

import numpy as np
import pytest

from penstock.data.shards.mds_columns import MDSColumn, as_text, as_view, decode_columns, decoder, fixed_size, refusal
from penstock.errors import Damaged, PenstockError, Unsupported
from tests.data.shards.mosaic import FLOATS, INTEGERS
from tests.refusals import refused


def value(encoding, data):
    """Return the value of a single column of variable size."""
    return decode_columns(memoryview(pack("<I", len(data)) + data), (MDSColumn("x", encoding, None),), ())["x"]


def listed(*parts):
    return pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)) + b"".join(parts)


@pytest.mark.parametrize("name", INTEGERS + FLOATS)
def test_numbers_have_the_type_of_their_column(name):
    kind = np.dtype(name)
    column = MDSColumn("x", name, kind.itemsize)
    assert fixed_size(name) == kind.itemsize
    limits = np.iinfo(name) if name in INTEGERS else np.finfo(name)
    for number in (limits.min, limits.max, 0, 1):
        found = decode_columns(memoryview(kind.type(number).tobytes()), (column,), ())["x"]
        assert found == number
        assert type(found) is kind.type


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        ("str", "ä".encode(), "ä"),
        ("str_int", b"-" + b"9" * 40, -int("9" * 40)),
        ("str_float", b"-1e-3", -0.001),
        ("str_decimal", b"0.10", Decimal("0.10")),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("jpeg_array", listed(b"ab", b"", b"c"), [b"ab", b"", b"c"]),
        ("jpegarray", listed(), []),
        ("list[png]", bytes(4) + listed(b"ab"), [b"ab"]),
    ],
)
def test_values_are_those_of_python(encoding, data, expected):
    assert value(encoding, data) == expected
    assert fixed_size(encoding) is None


@pytest.mark.parametrize("kind", INTEGERS + FLOATS)
@pytest.mark.parametrize("shape", [(1,), (2, 3), (300, 1), (1, 1, 70_000)])
def test_arrays_have_type_and_shape(kind, shape):
    size = int(np.prod(shape))
    array = (np.arange(size) % 100).astype(kind).reshape(shape)
    number = {"uint": 0, "int": 1, "float": 2}[kind.rstrip("0123456789")] + array.itemsize * 8
    width = 0 if max(shape) < 1 << 8 else 1 if max(shape) < 1 << 16 else 2
    axes = bytes([len(shape) << 2 | width]) + np.array(shape, f"<u{1 << width}").tobytes()
    raw, dims = array.tobytes(), ",".join(map(str, shape))
    for encoding, data in [
        ("ndarray", bytes([number]) + axes + raw),
        (f"ndarray:{kind}", axes + raw),
    ]:
        found = value(encoding, data)
        assert (found.dtype, found.shape) == (array.dtype, shape)
        assert (found == array).all()
        assert found.flags.writeable
        assert found.flags.aligned
    fixed = f"ndarray:{kind}:{dims}"
    assert fixed_size(fixed) == len(raw)
    assert (decode_columns(memoryview(raw), (MDSColumn("x", fixed, len(raw)),), ())["x"] == array).all()
    assert value(f"ndarray:{kind}", b"\x08\0\0").shape == (0, 0)


@pytest.mark.parametrize(
    ("encoding", "data", "why"),
    [
        ("str", b"\xff", "UnicodeDecodeError"),
        ("str_int", b"x", "ValueError"),
        ("str_int", b"9" * 5000, "ValueError"),
        ("str_decimal", b"x", "InvalidOperation"),
        ("json", b"{", "JSONDecodeError"),
        ("json", b"[" * 100_000, "RecursionError"),
        ("jpeg_array", b"\xff\xff\xff\xff", "declares 4294967295 elements in 4 bytes"),
        ("jpeg_array", pack("<II", 1, 5) + b"abcd", "not those of its 12 bytes"),
        ("jpeg_array", pack("<III", 2, 0xFFFFFFFF, 6) + b"abcd", "not those of its 16 bytes"),
        ("list[pil]", b"abc", "error"),
        ("pil", pack("<III", 9, 9, 3) + b"RGB", "declares 243 elements, but it has 0"),
        ("pil", pack("<III", 0xFFFFFFFF, 0xFFFFFFFF, 1) + b"1", "elements, but it has 0"),
        ("pil", pack("<III", 1, 1, 0xFFFFFFFF) + b"RGB" * 3, "leave its column out"),
        ("ndarray", b"", "IndexError"),
        ("ndarray", b"\x07\x04\x01", "KeyError"),
        ("ndarray", b"\x08\xff\x01", "63 axes in 3 bytes"),
        ("ndarray", b"\x08\x07" + b"\xff" * 8, "elements, but it has 0"),
        ("ndarray:float32", b"\x04\x01abc", "ValueError"),
    ],
)
def test_damage_is_refused_by_name(encoding, data, why):
    refused((Damaged, Unsupported), why, value, encoding, data)


def test_sizes_must_be_those_of_the_sample():
    columns = (MDSColumn("a", "bytes", None), MDSColumn("b", "int", 8), MDSColumn("c", "bytes", None))
    whole = pack("<II", 2, 3) + b"ab" + pack("<q", -5) + b"xyz"
    assert decode_columns(memoryview(whole), columns, ("c", "b")) == {"c": b"xyz", "b": -5}
    for data in (b"", whole[:7]):
        refused(Damaged, "fewer than the sizes", decode_columns, memoryview(data), columns, ())
    with pytest.raises(Damaged, match=r"the column 'c' ends at byte 21 of a sample of 20"):
        decode_columns(memoryview(whole[:-1]), columns, ())
    for data in (whole + b"x", whole[:-1]):
        refused(Damaged, r"ends? at byte 21", decode_columns, memoryview(data), columns, ("a",))


def test_unknown_encodings_and_pickles_are_refused():
    assert "any code" in refusal("pkl")
    for encoding in (
        "pkl2",
        "ndarray:object",
        "ndarray:int8:0",
        "ndarray:int8:-1",
        "ndarray:int8:" + "9" * 30,
        "str:x",
    ):
        assert refusal(encoding)
        with pytest.raises(Unsupported):
            fixed_size(encoding)
    assert not refusal("ndarray")
    assert (decoder("jpeg"), decoder("str")) == (as_view, as_text)


def test_damaged_samples_are_errors_of_ours(seed):
    draw = np.random.default_rng(seed)
    columns = tuple(MDSColumn(name, name, None) for name in ("ndarray", "json", "pil", "list[pil]", "jpegarray", "str"))
    pil = pack("<III", 2, 1, 1) + b"Lab"
    parts = [b"\x08\x08\x02\x02abcd", b"[1]", pil, bytes(4) + listed(pil, pil), listed(b"ab"), b"text"]
    whole = pack(f"<{len(parts)}I", *map(len, parts)) + b"".join(parts)
    assert len(decode_columns(memoryview(whole), columns, ())) == len(parts)
    for _ in range(2000):
        data = bytearray(whole)
        data[draw.integers(len(data))] ^= 1 << draw.integers(8)
        try:
            decode_columns(memoryview(data), columns, ())
        except PenstockError as error:
            assert error.message  # noqa: PT017  any error of ours will do
