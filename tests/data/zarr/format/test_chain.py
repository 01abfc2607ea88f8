"""Chains are made of what both versions say of codecs; what they cannot decode is left to zarr."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.data.zarr.format.codecs import chain_of
from penstock.data.zarr.format.layout import layout_of
from penstock.errors import Damaged
from tests.data.zarr.format.test_documents import V2, V3

BYTES = V3["codecs"][0]


def chain(document):
    layout = layout_of(document)
    return chain_of(layout, layout.document)


@pytest.mark.parametrize(
    ("change", "direct"),
    [
        ({"compressor": {"id": "zstd", "level": 3}}, True),
        ({"compressor": {"id": "zstd"}, "order": "F"}, False),
        ({"compressor": {"id": "zstd"}, "dtype": ">f4"}, False),
        ({"compressor": {"id": "zlib"}}, False),
        ({"compressor": {"id": "zstd"}, "filters": [{"id": "shuffle"}]}, False),
        ({"compressor": {"id": "zstd"}, "dtype": "|b1"}, True),
        ({}, False),
    ],
)
def test_only_a_compressor_alone_writes_into_the_chunk(change, direct):
    assert chain({**V2, "fill_value": 0, **change}).direct == direct


def test_steps_are_those_of_encoding_in_reverse_and_each_has_its_size():
    filters = [{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f4"}, {"id": "crc32"}]
    steps = chain({**V2, "filters": filters, "compressor": {"id": "zlib"}}).steps
    assert [(step.name, *room) for step, room in steps] == [("zlib", 100, 100), ("crc32", 96, 96), ("astype", 48, 48)]


def test_between_two_compressors_there_is_a_bound():
    steps = chain({**V3, "codecs": [BYTES, {"name": "gzip"}, {"name": "zstd"}]}).steps
    assert [(step.name, *room) for step, room in steps] == [("zstd", 0, 16 * 48 + (1 << 20)), ("gzip", 48, 48)]


def test_several_transpositions_are_one():
    turns = [{"name": "transpose", "configuration": {"order": order}} for order in ([2, 0, 1], [1, 0, 2])]
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 3, 4]}}
    found = chain({**V3, "shape": [2, 3, 4], "chunk_grid": grid, "codecs": [*turns, BYTES]})
    values = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    stored = values.transpose(2, 0, 1).transpose(1, 0, 2)
    assert found.shape == stored.shape
    assert (found.decode(stored.tobytes(), None) == values).all()


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "numcodecs.delta", "configuration": {"dtype": "<f4"}}, BYTES],
        [BYTES, {"name": "numcodecs.zfpy"}],
        [BYTES, {"name": "zlib"}],
        [{"name": "numcodecs.pcodec"}],
    ],
)
def test_codecs_that_are_not_known_here_make_no_chain(codecs):
    assert chain({**V3, "codecs": codecs}) is None
    assert chain({**V2, "filters": [{"id": "pickle"}]}) is None


def test_a_chunk_of_another_size_is_damaged():
    for size in (0, 47, 49, 96):
        with pytest.raises(Damaged, match=f"{size} bytes, not 48"):
            chain(V2).decode(bytes(size), None)
