"""Whatever the layout, the shape of samples, the ranks and a stop: what arrives is what zarr reads, exactly once."""

import tempfile
from collections import Counter
from itertools import product
from math import prod

import numpy as np
import pytest
import zarr
import zarr.codecs as v3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import Blosc, Zstd

import penstock as ps
from tests.amounts import examples
from tests.data.zarr.stores import run_interrupted, write

DIMS = ("t", "y", "x")
CODECS = {
    2: [None, Zstd(), Blosc("lz4")],
    3: [None, v3.ZstdCodec(checksum=True), v3.GzipCodec(), v3.BloscCodec(), v3.Crc32cCodec()],
}
DTYPES = ["f4", ">f8", "i2", "u1"]


@pytest.fixture(autouse=True, scope="module")
def pooled():
    """Use memory again whatever its size: these arrays are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.data.reading.pool._LEAST_BYTES", 1)
        yield


@st.composite
def layouts(draw, dims):
    version = draw(st.sampled_from((2, 3)))
    shape = tuple(draw(st.integers(12, 30)) if dim == 0 else draw(st.integers(1, 7)) for dim in range(dims))
    chunks = tuple(draw(st.integers(1, min(size, 7))) for size in shape)
    layout = {"chunks": chunks, "zarr_format": version, "fill_value": 0, "compressors": draw(codecs(version))}
    if version == 3 and draw(st.booleans()):
        layout["shards"] = tuple(each * draw(st.integers(1, 3)) for each in chunks)
    if version == 2:
        layout["order"] = draw(st.sampled_from("CF"))
    return shape, layout


def codecs(version):
    return st.sampled_from(CODECS[version])


@st.composite
def samples(draw, shape):
    """Draw what makes a sample of an array, few enough elements that there are samples."""
    dims = DIMS[: len(shape)]
    first = draw(st.integers(-2, 2))
    offsets = draw(st.sampled_from([0, first, range(first, first + 3), (first, first + 2)]))
    along = draw(st.sampled_from([dims[:1], dims[:2]]))
    patch = {dim: draw(st.integers(1, shape[dims.index(dim)])) for dim in dims if dim not in along}
    patch = {dim: size for dim, size in patch.items() if draw(st.booleans())}
    return {"dims": along, "offsets": offsets, "stride": {along[0]: draw(st.integers(1, 2))}, "patch": patch}


@st.composite
def runs(draw):
    """Draw ranks, lanes and batches that fit together, and the ranks that go on after a stop."""
    lanes = draw(st.sampled_from((1, 2, 4)))
    worlds = [each for each in (1, 2, 4) if lanes % each == 0]
    return {
        "lanes": lanes,
        "every": lanes * draw(st.integers(1, 3)),
        "worlds": (draw(st.sampled_from(worlds)), draw(st.sampled_from(worlds))),
        "stop": draw(st.integers(0, 6)),
        "threads": draw(st.integers(1, 3)),
    }


def expected(values, shape):
    """Return the samples of an array, as plain indexing has them: their bytes, counted."""
    dims = DIMS[: values.ndim]
    offsets = shape["offsets"]
    window = [offsets] if isinstance(offsets, int) else [*offsets]
    moves, boxes = [], []
    for dim, length in zip(dims, values.shape, strict=True):
        reach = window if dim == shape["dims"][0] else range(shape["patch"].get(dim, 1))
        step = shape["stride"].get(dim, shape["patch"].get(dim, 1))
        free = dim in shape["dims"] or dim in shape["patch"]
        moves.append(range(max(0, -min(reach)), min(length, length - max(reach)), step) if free else [0])
        boxes.append([*reach] if free else [*range(length)])
    return Counter(
        np.ascontiguousarray(
            values[np.ix_(*([at + each for each in box] for at, box in zip(place, boxes, strict=True)))]
        )
        .astype(values.dtype.newbyteorder("="))
        .tobytes()
        for place in product(*moves)
    )


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_samples_match_the_array_and_arrive_once_after_resuming_on_any_ranks(data):
    shape, layout = data.draw(layouts(data.draw(st.integers(1, 3))))
    sample, run = data.draw(samples(shape)), data.draw(runs())
    shuffle, window_bytes = data.draw(st.booleans()), data.draw(st.sampled_from((1, 500, 1 << 20)))
    values = np.arange(1, prod(shape) + 1).reshape(shape).astype(data.draw(st.sampled_from(DTYPES)))
    values[: data.draw(st.integers(0, 12))] = 0  # chunks of fill values are not stored
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.data.zarr.samples.arrangement._KEPT_CHUNKS", data.draw(st.sampled_from((0, 64))))
        write(f"{folder}/a", values, DIMS[: len(shape)], **layout)
        assert np.array_equal(zarr.open_array(f"{folder}/a")[...], values)
        wanted = expected(values, sample)
        order = {"shuffle": shuffle, "window_bytes": window_bytes, "lanes": run["lanes"]}
        order |= {"output": "numpy", "decode_cf": False}

        def load(rank, world):
            dataset = ps.ZarrDataset(f"{folder}/a", **sample, **order, place=ps.Place(rank, world))
            return ps.DataLoader(dataset, run["every"] // world, decode_threads=run["threads"])

        parts = run_interrupted(load, run["worlds"], run["stop"], run["every"], sum(wanted.values()))
        for some in (parts[: run["worlds"][0]], parts[run["worlds"][0] :]):
            assert len({len(part) for part in some}) <= 1
        found = Counter(np.ascontiguousarray(each).tobytes() for part in parts for batch in part for each in batch)
    assert not wanted - found
    assert (found - wanted).total() < max(run["worlds"])  # the last batch has one for each rank at least
