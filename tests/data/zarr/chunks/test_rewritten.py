"""Chunks of a shard that is written anew: located by an index of their own version, however either was read."""

import os
from itertools import product

import numpy as np
import pytest
import zarr

import penstock as ps
from penstock.testing.servers import Scripted
from tests.data.reads import spans_of
from tests.engine.fetch.store import Objects

ROWS = 24
pytestmark = pytest.mark.usefixtures("nothing_kept")
FIRST = np.repeat(np.arange(1, ROWS + 1, dtype="f4")[:, None], 4, axis=1)


def _stored(values, location):
    store = zarr.storage.MemoryStore()
    shards = {"shape": (ROWS // 2, 4), "index_location": location}
    array = zarr.create_array(
        store, shape=values.shape, chunks=(1, 4), shards=shards, dtype="f4", compressors=None, fill_value=0
    )
    array[:] = values
    return {f"a/{key}": value.to_bytes() for key, value in store._store_dict.items()}


class _Bucket(Objects):
    """A bucket whose objects all have one version."""

    def __init__(self, version):
        super().__init__({})
        self._version = version

    def write(self, values, location, number):
        self.data = _stored(values, location)
        self.etags = dict.fromkeys(self.data, self._version and self._version.format(number))


def _without(values, *rows):
    values = values.copy()
    values[list(rows)] = 0
    return values


# Rows that are absent before and after: each change moves the rows behind it, in a shard of twelve.
CHANGES = {"first": ((), (0,)), "more": ((0, 12), (11, 23))}
VERSIONS = {"etag": '"e{}"', "weak": 'W/"e{}"', "none": None}


@pytest.mark.parametrize(("location", "version", "change"), [*product(("start", "end"), VERSIONS, CHANGES)])
@pytest.mark.parametrize("mode", ["off", "immutable", "revalidate", "ttl"])
def test_samples_of_a_rewritten_shard_are_those_of_its_new_version(tmp_path, location, version, change, mode):
    before, after = (
        _without(values, *rows) for values, rows in zip((FIRST, FIRST + 1000), CHANGES[change], strict=True)
    )
    bucket = _Bucket(VERSIONS[version])
    with Scripted(bucket) as server:
        cache = ps.CacheOptions(path=os.fspath(tmp_path), mode=mode)
        store = ps.S3Options(endpoint=server.url, region="r", anonymous=True, cache=cache)
        bucket.write(before, location, 1)
        looked = ps.ZarrDataset("s3://bucket/a", output="numpy", store=store)
        # The indexes are known, and lie in a cache that keeps them; the chunks do not.
        assert len(spans_of(looked)) == ROWS - len(CHANGES[change][0])
        bucket.write(after, location, 2)
        for dataset in (ps.ZarrDataset("s3://bucket/a", output="numpy", store=store), looked):
            np.testing.assert_array_equal(np.stack([*dataset]), after)
        samples = looked.as_map()
        np.testing.assert_array_equal(np.stack([samples[number] for number in range(ROWS)]), after)


@pytest.mark.parametrize("mode", ["off", "immutable", "revalidate", "ttl"])
def test_each_epoch_over_a_shard_that_is_rewritten_each_time_has_chunks_of_its_versions(tmp_path, mode):
    bucket, rows = _Bucket(VERSIONS["etag"]), np.random.default_rng(1)
    with Scripted(bucket) as server:
        cache = ps.CacheOptions(path=os.fspath(tmp_path), mode=mode)
        store = ps.S3Options(endpoint=server.url, region="r", anonymous=True, cache=cache)
        written, dataset = [], None
        for epoch in range(8):
            written.append(_without(FIRST + 1000 * epoch, *rows.choice(ROWS, 5, replace=False)))
            bucket.write(written[-1], "end", epoch)
            dataset = dataset or ps.ZarrDataset("s3://bucket/a", output="numpy", store=store)
            found = np.stack([*dataset])
            if mode == "off":
                np.testing.assert_array_equal(found, written[-1])
            assert np.isclose(found, np.stack(written)).all(axis=2).any(axis=0).all()


def test_the_new_index_of_a_rewritten_shard_is_kept():
    bucket = _Bucket(VERSIONS["etag"])
    with Scripted(bucket) as server:
        store = ps.S3Options(endpoint=server.url, region="r", anonymous=True)
        bucket.write(FIRST, "end", 1)
        dataset = ps.ZarrDataset("s3://bucket/a", output="numpy", store=store)
        np.testing.assert_array_equal(np.stack([*dataset]), FIRST)
        bucket.write(FIRST + 1000, "end", 2)
        np.testing.assert_array_equal(np.stack([*dataset]), FIRST + 1000)
        asked = len(server.received)
        np.testing.assert_array_equal(np.stack([*dataset]), FIRST + 1000)
        assert len(server.received) - asked == ROWS


def test_the_index_of_an_earlier_epoch_is_compared_once_before_it_tells_of_absent_chunks():
    bucket = _Bucket(VERSIONS["etag"])
    with Scripted(bucket) as server:
        store = ps.S3Options(endpoint=server.url, region="r", anonymous=True)
        bucket.write(_without(FIRST, 3, 4, 5), "end", 1)
        dataset = ps.ZarrDataset("s3://bucket/a", output="numpy", store=store)
        for _ in range(3):
            asked = len(server.received)
            np.testing.assert_array_equal(np.stack([*dataset]), _without(FIRST, 3, 4, 5))
        assert len(server.received) - asked == ROWS - 3 + 1
