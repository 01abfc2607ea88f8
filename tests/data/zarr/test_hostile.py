"""Whatever metadata documents and references say, an error of ours comes of it, in bounded time and memory."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from time import process_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from tests.amounts import examples
from tests.data.zarr.format import test_documents
from tests.data.zarr.memory_arrays import named

MOST_BYTES, MOST_S = 1 << 30, 5.0


BYTES = named("bytes", endian="little")
V2 = {**test_documents.V2, "shape": [6, 4], "fill_value": 0, "dimension_separator": "."}
V3 = {
    **test_documents.V3,
    "shape": [6, 4],
    "chunk_key_encoding": named("default", separator="/"),
    "fill_value": 0,
    "attributes": {"scale_factor": 0.5, "units": "days since 2000-01-01"},
    "dimension_names": ["time", "x"],
}
SHARDS = named("sharding_indexed", chunk_shape=[3, 2], codecs=[BYTES], index_codecs=[BYTES, {"name": "crc32c"}])
TIMES = {**V3, "shape": [6], "chunk_grid": named("regular", chunk_shape=[3]), "dimension_names": ["time"]}
FILTERS = [{"id": "delta", "dtype": "<f4"}, {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}]
ATTRIBUTES = {"_ARRAY_DIMENSIONS": ["time", "x"], "multiscales": [{"axes": ["t", "x"], "datasets": [{"path": "a"}]}]}
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
REFERENCES = {
    "version": 1,
    "refs": {"a/.zarray": V2, "a/.zattrs": ATTRIBUTES, "a/0.0": ["c", 0, 48], "a/1.0": "base64:"},
}
# Documents by file name, as JSON; a mutation changes one of them anywhere.
STORES = [
    {".zarray": {**V2, "filters": FILTERS, "compressor": {"id": "zlib", "level": 1}}, ".zattrs": ATTRIBUTES},
    {".zarray": {**V2, "filters": [{"id": "base64"}], "compressor": {"id": "zstd", "level": 1}}},
    {"zarr.json": {**V3, "codecs": [named("transpose", order=[1, 0]), BYTES, named("zstd"), named("crc32c")]}},
    {"zarr.json": {**V3, "codecs": [SHARDS]}},
    {"zarr.json": {**V3, "codecs": [named("numcodecs.delta", dtype="<f4"), BYTES, named("gzip", level=1)]}},
    {".zgroup": {"zarr_format": 2}, ".zmetadata": {"metadata": {"a/.zarray": V2, "a/.zattrs": ATTRIBUTES}}},
    {"zarr.json": {**GROUP, "consolidated_metadata": {"kind": "inline", "metadata": {"a": V3, "time": TIMES}}}},
    {
        "zarr.json": GROUP,
        "a/zarr.json": V3,
        "time/zarr.json": {**TIMES, "data_type": named("numpy.datetime64", unit="s")},
    },
    {"r.json": REFERENCES},
]
NUMBERS = st.sampled_from([0, 1, -1, 2, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, 1 << 80, 0.5, 1e308])
_NAMES = ["", "x", "time", "a", "a/0.0", "..", "NaN", "NaT", "0x7fc00000", "array", "group", "\ud800", "a\0b"]
_TYPES = ["<f8", ">i2", "|V0", "|S3", "<M8[0s]", "|O", "string"]
_CODECS = ["bytes", "zstd", "gzip", "blosc", "vlen-utf8", "pickle", "sharding_indexed"]
WORDS = st.sampled_from([*_NAMES, *_TYPES, *_CODECS])
LEAVES = st.none() | st.booleans() | NUMBERS | WORDS | st.floats(allow_nan=True) | st.integers(-9, 9)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)
_CUTS = [{"offsets": (0, 1)}, {"patch": {"x": 2}}, {"select": {"x": 0}}, {"dims": "x", "stride": 3}, {"dims": "time"}]
_MANNERS = [{"shuffle": True}, {"decode_cf": True}, {"align": "coordinates"}, {"missing": "error"}]
ARGUMENTS = st.sampled_from([{}, *_CUTS, *_MANNERS])


def _places(document, place=()):
    yield place
    if isinstance(document, dict | list):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from _places(value, (*place, key))


def _with(document, place, value):
    if not place:
        return value
    found = document.copy()
    found[place[0]] = _with(document[place[0]], place[1:], value)
    return found


@st.composite
def mutations(draw, files):
    """Draw a store like ``files`` whose documents have other values in up to three places."""
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(files)))
        place = draw(st.sampled_from([*_places(files[name])]))
        files = {**files, name: _with(files[name], place, draw(VALUES))}
    return files


@pytest.fixture(scope="module")
def folder():
    path = Path(mkdtemp(prefix="penstock-hostile-"))
    for files in STORES:  # what is imported on the way is not counted
        _read(path, files, {})
    yield path
    shutil.rmtree(path)


def _read(folder, files, arguments):
    """Write a store, open it and read what there is of it; return what went wrong, if that is an error of ours."""
    shutil.rmtree(folder)
    for name, document in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, ensure_ascii=True))
    for name in ("c/0/0", "0.0", "a/c/0/0", "a/0.0", "c"):
        with suppress(OSError):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(bytes(96))
    url = folder / "r.json" if "r.json" in files else folder
    with suppress(PenstockError):
        samples = ps.ZarrDataset(url, output="numpy", **arguments).as_map()
        for number in range(min(2, len(samples))):
            with suppress(PenstockError):
                samples[number]


def _array(**fields):
    return {"zarr.json": {**V3, **fields}}


def _referenced(**refs):
    return {"r.json": {"version": 1, "refs": {"a/.zarray": V2, **{f"a/{at}.0": ref for at, ref in refs.items()}}}}


KNOWN = {
    "node type": ({"zarr.json": {**GROUP, "node_type": ["array"]}}, {}),
    "no bytes": ({".zarray": {**V2, "filters": [{"id": "delta", "dtype": "|V0"}]}}, {}),
    "wide": (_array(shape=[64, 1 << 40]), {}),
    "blocks": (_array(shape=[1 << 22, 4], chunk_grid=named("regular", chunk_shape=[1, 4])), {}),
    "tall": (_array(shape=[1 << 50, 4]), {"offsets": (0, 1), "shuffle": True}),
    "no samples": (_array(shape=[0, 4]), {}),
    "empty samples": (_array(shape=[6, 0]), {}),
    "scalar": (_array(shape=[], chunk_grid=named("regular", chunk_shape=[]), dimension_names=[]), {}),
    "diagonal": (_array(dimension_names=["time", "time"]), {"dims": "time"}),
    "NaN": (_array(fill_value="NaN", data_type="int8"), {}),
    "negative": (_referenced(**{"0": ["c", -1, 48], "1": ["c", 0, -1]}), {}),
    "beyond": (_referenced(**{"0": ["c", 90, 48], "1": ["c", 0, 1 << 61]}), {}),
    "overflow": (_referenced(**{"0": ["c", 1 << 61, 1 << 61], "1": ["c"]}), {}),
}


def _check(folder, files, arguments):
    tracemalloc.start()
    began = process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy and zarr warn of what hostile values become
            _read(folder, files, arguments)
        assert process_time() - began < MOST_S
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", KNOWN)
def test_known_hostile_metadata_ends_within_bounds(folder, name):
    _check(folder, *KNOWN[name])


@pytest.mark.parametrize("number", range(len(STORES)))
@settings(max_examples=examples(16), suppress_health_check=[*HealthCheck])
@given(st.data(), ARGUMENTS)
def test_any_metadata_ends_in_samples_or_an_error_of_ours_within_bounds(folder, number, data, arguments):
    _check(folder, data.draw(mutations(STORES[number])), arguments)
