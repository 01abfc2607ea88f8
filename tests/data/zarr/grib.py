"""GRIB messages of eccodes 2.50, references to them as kerchunk 0.2.10 writes them, and a codec that reads them."""

from __future__ import annotations

import base64
import json
import struct

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ndarray_copy

VALUES = 280 + np.arange(30).reshape(2, 3, 5) / 2
_FIRST = base64.b64decode(
    "R1JJQv//AAIAAAAAAAAA0QAAABUBAGIAAAQAAQfkAQEAAAAAAgAAAEgDAAAAAA8AAAAABv///////////////////wAAAAUAAAADAAAAAP////8D"
    "k4cAAAAAADACYloAAmJaAACYloAAmJaAAAAAACIEAAAAAAAAAP+AAAAAAQAAAABn/wAAAAL///////8AAAAVBQAAAA8AAEOMAACADQAAEAAAAAAG"
    "Bv8AAAAjBwAAEAAgADAAQABQAGAAcACAAJAAoACwAMAA0ADgADc3Nzc="
)
# The same six hours later, from 287.5 on.
MESSAGES = (_FIRST, _FIRST.replace(struct.pack(">f", 280), struct.pack(">f", 287.5)))


class Grib(Codec):
    """Stand-in for kerchunk's codec, which needs eccodes: simple packing alone."""

    codec_id = "grib"

    def __init__(self, var, dtype=None):
        self.var, self.dtype = var, dtype

    def encode(self, buf):
        return buf

    def decode(self, buf, out=None):
        message = bytes(buf)
        assert message[:4] + message[-4:] == b"GRIB7777"
        at, sections = 16, {}
        while message[at : at + 4] != b"7777":
            (size,) = struct.unpack_from(">I", message, at)
            sections[message[at + 4]] = message[at : at + size]
            at += size
        reference, scale = struct.unpack_from(">fH", sections[5], 11)
        scale = -(scale & 0x7FFF) if scale & 0x8000 else scale
        values = reference + np.frombuffer(sections[7], ">u2", offset=5) * 2.0**scale
        return ndarray_copy(values.astype(self.dtype), out)


def references(url):
    """Return references to the two messages, in a file at a URL."""

    def array(shape, dtype, dims, filters=None, **attributes):
        chunks = [1, *shape[1:]] if filters else shape
        document = {"shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": None, "order": "C"}
        document |= {"filters": filters, "dimension_separator": ".", "compressor": None, "zarr_format": 2}
        return json.dumps(document), json.dumps({**attributes, "_ARRAY_DIMENSIONS": dims})

    arrays = {
        "t": array(
            [2, 3, 5], "<f8", ["time", "latitude", "longitude"], [{"id": "grib", "var": "t", "dtype": "float64"}]
        ),
        "time": array([2], "<i8", ["time"], units="seconds since 1970-01-01T00:00:00", calendar="proleptic_gregorian"),
        "heightAboveGround": array([2], "<f8", ["time"], units="m", positive="up"),
    }
    refs = {".zgroup": '{"zarr_format":2}', ".zattrs": '{"coordinates": "heightAboveGround latitude step time"}'}
    for name, (document, attributes) in arrays.items():
        refs |= {f"{name}/.zarray": document, f"{name}/.zattrs": attributes}
    refs["time/0"] = "base64:AOELXgAAAABgNQxeAAAAAA=="
    refs["heightAboveGround/0"] = "base64:AAAAAAAAAEAAAAAAAAAAQA=="
    at = 0
    for number, each in enumerate(MESSAGES):
        refs[f"t/{number}.0.0"] = [url, at, len(each)]
        at += len(each)
    return {"version": 1, "refs": refs}
