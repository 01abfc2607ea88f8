"""An index.json of MDS is read as its writer meant it, and nothing in it is trusted."""

import copy
import hashlib
import json

import pytest
import xxhash

from penstock.data.shards.mds import StatedFile, check_hashes, columns_of, stated_shards
from penstock.errors import ChecksumMismatch, Damaged, Unsupported
from tests.data.shards.mosaic import GOLDEN, SMALL
from tests.refusals import refused

PLAIN = json.loads((GOLDEN / "plain" / "index.json").read_bytes())


def changed(**changes):
    """Return an index whose first shard has other values."""
    index = copy.deepcopy(PLAIN)
    index["shards"][0] |= changes
    return json.dumps(index).encode()


def named(name, **changes):
    return changed(raw_data=PLAIN["shards"][0]["raw_data"] | {"basename": name} | changes)


@pytest.mark.parametrize("kind", ["plain", "zstd", "merged", "gz"])
def test_shards_are_those_that_mosaic_wrote(kind):
    found = stated_shards((GOLDEN / kind / "index.json").read_bytes())
    for each in found:
        assert [(column.name, column.encoding) for column in each.columns] == sorted(SMALL.items())
        file = each.packed or each.raw
        data = (GOLDEN / kind / file.name).read_bytes()
        assert len(data) == file.size
        check_hashes(memoryview(data), file)
    assert sum(each.samples for each in found) == (2 if kind == "gz" else 20)
    assert {each.packed is None for each in found} == {kind in ("plain", "merged")}


@pytest.mark.parametrize(
    "name", ["../x.mds", "a/../../x.mds", "/etc/passwd", "a//b", "./x", "", "x\0", "x" * 5000, "..", "a/."]
)
def test_names_cannot_leave_the_folder(name):
    refused(Damaged, "cannot be a file below its folder", stated_shards, named(name))


@pytest.mark.parametrize(
    ("error", "data", "why"),
    [
        (Damaged, b"", "cannot read the index.json of MDS shards"),
        (Damaged, b"[]", "cannot read the index.json of MDS shards"),
        (Damaged, b"[" * 100_000, "cannot read the index.json of MDS shards"),
        (Damaged, b'{"shards": []}', "cannot read the index.json of MDS shards"),
        (Damaged, json.dumps({"version": 2, "shards": 5}).encode(), "cannot read the index.json of MDS shards"),
        (Damaged, json.dumps({"version": 2, "shards": [5]}).encode(), "cannot read the index.json of MDS shards"),
        (Damaged, changed(samples=-1), "must be a whole number from 0"),
        (Damaged, changed(samples=True), "must be a whole number from 0"),
        (Damaged, changed(samples=1.5), "must be a whole number from 0"),
        (Damaged, named(5), "must be a text"),
        (Damaged, named(None), "must be a text"),
        (Damaged, named("x", bytes=-1), "must be a whole number from 0"),
        (Damaged, named("x", hashes={"sha1": 5}), "must be a text"),
        (Damaged, named("x", hashes=["sha1"]), "must be an object or null"),
        (Damaged, changed(column_names=["a"]), "cannot read the index.json of MDS shards"),
        (Damaged, changed(column_names=["a", "a", "b"]), "names of their own"),
        (Damaged, changed(column_names=[], column_sizes=[], column_encodings=[]), "names of their own"),
        (Damaged, changed(column_names=["a", "b", 5]), "must be a text"),
        (Damaged, changed(column_sizes=[None, 4, None]), "stated to have 4 bytes, not 8"),
        (Damaged, changed(column_sizes=[5, 8, None]), "stated to have 5 bytes, not None"),
        (Damaged, changed(column_sizes=[None, 8, "x"]), "must be a whole number from 0"),
        (Damaged, named(PLAIN["shards"][1]["raw_data"]["basename"]), "twice"),
        (Unsupported, json.dumps({"version": 1, "shards": []}).encode(), "version 1, not 2"),
        (Unsupported, b'{"chunks": [], "config": {}}', 'format="litdata"'),
        (Unsupported, changed(format="json"), "'json' in version 2"),
        (Unsupported, changed(version=1), "'mds' in version 1"),
        (Unsupported, (GOLDEN / "br" / "index.json").read_bytes(), "compressed with br, which is not read"),
        (Unsupported, changed(compression="snappy", zip_data={"basename": "x", "bytes": 1, "hashes": {}}), "snappy"),
        (Unsupported, changed(compression=None, zip_data={"basename": "x", "bytes": 1, "hashes": {}}), "nothing known"),
    ],
)
def test_damage_and_other_formats_are_refused(error, data, why):
    refused(error, why, stated_shards, data)


def test_sizes_of_encodings_that_are_unknown_are_taken_as_stated():
    given = {
        "version": 2,
        "format": "mds",
        "column_names": ["a", "b", "c"],
        "column_encodings": ["new", "new2", "pkl"],
        "column_sizes": [12, None, 0],
    }
    assert [each.size for each in columns_of(given, "columns")] == [12, None, None]


def test_hashes_are_compared():
    data = b"some bytes"
    hashes = {"sha1": hashlib.sha1(data).hexdigest(), "blake2b": hashlib.blake2b(data).hexdigest().upper()}  # noqa: S324  Mosaic's
    hashes["xxh3_64"] = xxhash.xxh3_64_hexdigest(data)
    check_hashes(memoryview(data), StatedFile("x", 10, hashes))
    for name, value in hashes.items():
        with pytest.raises(ChecksumMismatch, match=f"states the {name}"):
            check_hashes(memoryview(b"other bytes"), StatedFile("x", 10, {name: value}))
    assert stated_shards(named("x", hashes=None))[0].raw.hashes == {}
    for name in ("shake_128", "own"):
        refused(Unsupported, "unknown", check_hashes, memoryview(data), StatedFile("x", 10, {name: ""}))
