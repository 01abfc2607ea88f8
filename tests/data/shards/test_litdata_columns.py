"""Bytes of LitData's serializers are values, or damaged, or refused."""

import struct

import numpy as np
import pytest

from penstock.data.shards.litdata_columns import decoder
from penstock.data.shards.mds_columns import MDSColumn, decode_columns
from penstock.errors import Damaged, Unsupported


def value(encoding, data):
    """Return the only value of a sample."""
    body = memoryview(struct.pack("<I", len(data)) + data)
    return decode_columns(body, (MDSColumn("v", encoding, None),), (), decoder)["v"]


def test_element_types_of_numpy_and_torch_are_litdatas():
    for at, kind in enumerate(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?"]):
        found = value(f"no_header_numpy:{at}", np.ones(2, kind).tobytes())
        assert (found.dtype, found.tolist(), found.flags.writeable) == (np.dtype(kind), [1, 1], True)
    torch = {0: "f4", 3: "f8", 5: "c8", 7: "c16", 9: "f2", 11: "u1", 12: "i1", 14: "i2", 16: "i4", 18: "i8", 19: "?"}
    for at, kind in torch.items():
        assert value(f"no_header_tensor:{at}", np.ones(2, kind).tobytes()).dtype == np.dtype(kind)
        header = struct.pack(">IIII", at, 2, 2, 1)
        assert value("tensor", header + np.ones(2, kind).tobytes()).shape == (2, 1)
    assert value("no_header_numpy:9", b"").shape == (0,)
    assert value("numpy", struct.pack("<III", 9, 1, 0)).shape == (0,)


@pytest.mark.parametrize("encoding", ["pickle", "graph", "mesh", "no_header_numpy:14", "no_header_tensor:10"])
def test_serializers_that_run_code_or_are_unknown_are_refused(encoding):
    with pytest.raises(Unsupported):
        decoder(encoding)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("int", b"1234"),
        ("float", b""),
        ("bool", b""),
        ("str", b"\xff"),
        ("numpy", struct.pack("<II", 9, 1 << 31)),
        ("numpy", struct.pack("<III", 9, 1, 2) + bytes(4)),
        ("tensor", struct.pack(">II", 10, 0) + bytes(2)),
        ("json", b""),
        ("json", b"{"),
        ("json", b"\x0c\0\0\0\0"),
        ("json", b"\x01\xff\xff\xff\xff"),
        ("json", b"\x05\xff\xff\xff\xff"),
        ("json", b"\x06\xff\xff\xff\xff\0\0\0\0"),
        ("json", b"\x02\xff\xff\xff\xff"),
        ("json", b"\x0b\x0b"),
        ("json", b"\x06\1\0\0\0\1\0\0\0\1\0\0\0k\x19"),
        ("json", b"\x05\1\0\0\0\0\0\0\0" * 2000),
    ],
)
def test_bytes_of_no_value_are_damaged(encoding, data):
    with pytest.raises((Damaged, Unsupported)):
        value(encoding, data)


def test_json_of_older_versions_is_read():
    assert value("json", b'{"a": [1, null]}') == {"a": [1, None]}
    assert value("image:png", b"x") == b"x"
