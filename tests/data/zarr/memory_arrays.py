"""Arrays that zarr writes into memory, in every way that Penstock says it reads; and Penstock's reading of them."""

from __future__ import annotations

import json
import warnings
from itertools import product
from math import prod
from typing import NamedTuple

import numcodecs
import numpy as np
import zarr
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from penstock.data.zarr.format.codecs import decoder_of
from penstock.data.zarr.format.layout import chunk_span, index_span, layout_of, read_index

DTYPES = [*("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")]
FILLS = {
    "b": [True, False],
    "i": [0, -1, 9],
    "u": [0, 9],
    "f": [0.0, 1.5, "NaN", "Infinity", "-Infinity"],
    "c": [0, 1 + 2j],
}


class Written(NamedTuple):
    array: zarr.Array
    layout: object
    objects: dict[str, bytes]


def put(shape, *, dtype="f4", **how):
    """Write random values into two thirds of an array that is made ``how`` zarr is told."""
    store = MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that others may not know a codec
        array = zarr.create(shape, store=store, dtype=dtype, config={"write_empty_chunks": True}, **how)
        values = values_of(shape, array.dtype)
        if shape:
            array[: max(1, 2 * shape[0] // 3)] = values[: max(1, 2 * shape[0] // 3)]
        else:
            array[...] = values
        # Opened again: an array that is made with another byte order than the machine's keeps it in memory alone.
        array = zarr.open_array(store, mode="r", zarr_format=array.metadata.zarr_format)
    objects = {key: value.to_bytes() for key, value in store._store_dict.items()}
    document = objects.pop("zarr.json" if array.metadata.zarr_format == 3 else ".zarray")
    objects.pop(".zattrs", None)
    return Written(array, layout_of(json.loads(document), url="memory://b/a"), objects)


def values_of(shape, dtype):
    generator, dtype = np.random.default_rng(prod(shape)), np.dtype(dtype)
    if dtype.kind in "fc":
        return (np.around(generator.normal(size=shape) * 50) / 4).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.integers(0, 100, shape).astype(dtype)


def read(written, start, stop):
    """Return a selection of all chunks, decoded by Penstock."""
    layout, decoder = written.layout, decoder_of(written.layout)
    whole = np.empty([count * size for count, size in zip(layout.grid, layout.chunks, strict=True)], layout.dtype)
    for chunk in product(*map(range, layout.grid)):
        data = encoded(layout, written.objects, chunk)
        box = tuple(slice(at * size, (at + 1) * size) for at, size in zip(chunk, layout.chunks, strict=True))
        whole[box] = decoder.filled() if data is None else decoder.decode(data)
    return whole[tuple(map(slice, start, stop))]


def encoded(layout, objects, chunk):
    """Return the encoded bytes of a chunk; None where it is absent."""
    whole = objects.get(layout.object_key(chunk))
    if whole is None or layout.shards is None:
        return whole
    span = index_span(layout, layout.object_key(chunk))
    span = chunk_span(layout, chunk, read_index(layout, whole[span.start : span.stop]))
    return None if span is None else whole[span.start : span.stop]


def chunks_of(written):
    """Return the encoded chunks that are there."""
    found = ((at, encoded(written.layout, written.objects, at)) for at in product(*map(range, written.layout.grid)))
    return {at: data for at, data in found if data is not None}


def same(ours, theirs):
    """Compare values bit by bit: NaN equals itself, and 0.0 is not -0.0."""
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype.newbyteorder("=")
    assert ours.shape == theirs.shape
    assert ours.tobytes() == theirs.astype(ours.dtype).tobytes()


def blosc(**how):
    return st.builds(
        lambda name, level, shuffle: ("blosc", {"cname": name, "clevel": level, "shuffle": shuffle, **how}),
        *(st.sampled_from(["lz4", "zstd", "zlib", "lz4hc", "blosclz"]), st.integers(0, 6), st.integers(0, 2)),
    )


def v2_codecs(dtype):
    """Return compressors and filters that fit a data type, as numcodecs' JSON."""
    compressors = st.sampled_from([None, *("zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "blosc")]).map(
        lambda name: name and numcodecs.get_codec({"id": name})
    ) | blosc().map(lambda each: numcodecs.get_codec({"id": each[0], **each[1]}))
    filters = [["crc32"], ["fletcher32"], ["adler32", "zstd"], ["jenkins_lookup3"], ["zlib", "crc32c"]]
    made = [[numcodecs.get_codec({"id": name}) for name in names] for names in filters]
    made.append([numcodecs.Shuffle(dtype.itemsize)])
    plain = np.dtype(dtype).newbyteorder("<").str
    if dtype.kind in "iuf":
        made.append([numcodecs.Delta(plain)])
        made.append([numcodecs.AsType(encode_dtype="<f8", decode_dtype=dtype.str)])
        made.append(
            [numcodecs.FixedScaleOffset(offset=3, scale=4, dtype=dtype.str, astype="<i4"), numcodecs.Delta("<i4")]
        )
    if dtype.kind == "f":
        made += [[numcodecs.BitRound(5), numcodecs.CRC32()], [numcodecs.Quantize(2, dtype.str)]]
    if dtype.kind == "b":
        made.append([numcodecs.PackBits()])
    return compressors, st.none() | st.sampled_from(made)


@st.composite
def arrays(draw):
    """Draw an array of either version."""
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    chunks = tuple(draw(st.integers(max(1, size // 3), size + 1)) for size in shape)
    dtype = np.dtype(draw(st.sampled_from(DTYPES))).newbyteorder(draw(st.sampled_from("<>")))
    how = {"fill_value": draw(st.sampled_from(FILLS[dtype.kind])), "dtype": dtype}
    return put(shape, **how, **(v2(draw, chunks, dtype) if draw(st.booleans()) else v3(draw, chunks, dtype)))


def v2(draw, chunks, dtype):
    compressors, filters = v2_codecs(dtype)
    how = {"zarr_format": 2, "chunks": chunks, "order": draw(st.sampled_from("CF"))}
    separator = draw(st.sampled_from("./"))
    return how | {"compressor": draw(compressors), "filters": draw(filters), "dimension_separator": separator}


def v3(draw, chunks, dtype):
    codecs = [named("bytes", endian=draw(st.sampled_from(["little", "big"])))]
    if chunks and draw(st.booleans()):
        codecs.insert(0, named("transpose", order=draw(st.permutations(range(len(chunks))))))
    lz = {"typesize": dtype.itemsize, "cname": "lz4", "clevel": 3, "shuffle": "shuffle", "blocksize": 0}
    to_bytes = [named("zstd", level=1, checksum=each) for each in (True, False)]
    to_bytes += [named("gzip", level=1), named("crc32c"), named("blosc", **lz)]
    names = ("lz4", "zlib", "bz2", "lzma", "zstd", "blosc", "crc32", "adler32", "fletcher32", "jenkins_lookup3")
    to_bytes += [named(f"numcodecs.{each}") for each in names]
    if dtype.kind in "iu" and draw(st.booleans()):
        codecs.insert(-1, named("numcodecs.delta", dtype=dtype.newbyteorder("=").str))  # which only zarr decodes
    codecs += [named("numcodecs.shuffle", elementsize=dtype.itemsize)] * draw(st.booleans())
    codecs += draw(st.lists(st.sampled_from(to_bytes), max_size=2))
    encoding = draw(st.sampled_from([("default", "/"), ("default", "."), ("v2", "."), ("v2", "/")]))
    how = {"zarr_format": 3, "chunks": chunks, "codecs": codecs, "chunk_key_encoding": encoding}
    if chunks and draw(st.booleans()):
        end = draw(st.sampled_from(["start", "end"]))
        index = [named("bytes", endian="little"), *([named("crc32c")] * draw(st.booleans()))]
        sharding = {"chunk_shape": chunks, "codecs": codecs, "index_codecs": index, "index_location": end}
        shards = tuple(size * draw(st.integers(1, 3)) for size in chunks)
        how |= {"chunks": shards, "codecs": [named("sharding_indexed", **sharding)]}
    return how


def named(name, **configuration):
    return {"name": name, "configuration": configuration}
