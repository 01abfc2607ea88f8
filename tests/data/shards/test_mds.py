"""Samples of MDS shards are those that mosaicml-streaming has written; hostile shards are refused by name, bounded."""

import copy
import gzip
import hashlib
import json
import random
from struct import pack

import numpy as np
import pytest
import xxhash
from PIL import Image

import penstock as ps
from penstock.data.shards.format import UnitPiece
from penstock.data.shards.mds import CompressedMdsFormat, MdsFormat, StatedFile, check_hashes, columns_of, stated_shards
from penstock.data.shards.mds_columns import MDSColumn
from penstock.errors import ChecksumMismatch, Damaged, MissingExtra, PenstockError, Unsupported, Unusable
from tests.data.shards.archives import plain, walked
from tests.data.shards.mosaic import (
    COLUMNS,
    FLOATS,
    GOLDEN,
    INTEGERS,
    MODES,
    SAMPLES,
    SMALL,
    encoded,
    raw,
    sample,
    shard,
    small,
)
from tests.data.shards.test_compressed import zstd
from tests.refusals import refused

SAFE = sorted(COLUMNS.keys() - {"pkl"})
ONE = {"x": ("bytes", None), "n": ("int", 8)}
COMPRESS = {"gz": gzip.compress, "zstd": zstd}


def rows(*values):
    return [{"x": each, "n": pack("<q", len(each))} for each in values]


def samples(form, data):
    """Return the samples of a shard that is not compressed."""
    found, _ = walked(form, data)
    form = form.having(found.schema)
    places = zip(found.offsets.tolist(), found.sizes.tolist(), strict=True)
    return [plain(form.sample(memoryview(data)[start : start + size]))[1] for start, size in places]


def unpacked(form, data):
    """Return the samples of a compressed shard."""
    found, asks = walked(form, data)
    assert len(asks) <= 1
    form = form.having(found.schema)
    unit = form.decode([UnitPiece(0, memoryview(data))], 0)
    return [plain(form.row(unit, number))[1] for number in range(len(found.offsets))]


def test_every_safe_encoding_is_read_as_mosaic_wrote_it():
    dataset = ps.MapDataset.from_shards(GOLDEN / "every", format="mds", fields=SAFE)
    assert len(dataset) == SAMPLES
    for number in range(SAMPLES):
        given, found = sample(number), dataset[number]
        assert found.fields == (*SAFE,)
        for name in ("str", "int", "json", "str_int", "str_float", "str_decimal", "jpegarray", "jpeg_array"):
            assert found[name] == given[name]
            assert type(found[name]) is type(given[name])
        for name in INTEGERS + FLOATS:
            assert found[name] == given[name]
            assert found[name].dtype == name
        for name in ("array", "array_typed", "array_shaped"):
            assert found[name].dtype == given[name].dtype
            np.testing.assert_array_equal(found[name], given[name], strict=True)
        assert found["bytes"].read() == given["bytes"]
        np.testing.assert_array_equal(found["pil"], np.asarray(given["pil"]), strict=True)
        np.testing.assert_array_equal(np.asarray(Image.open(found["png"])), np.asarray(given["png"]))
        assert Image.open(found["jpeg"]).size == given["jpeg"].size
        assert found["list_png"] == [encoded("PNG", each) for each in given["list_png"]]
        assert len(found["list_jpeg"]) == len(given["list_jpeg"])
        for one, other in zip(found["list_pil"], given["list_pil"], strict=True):
            np.testing.assert_array_equal(one, np.asarray(other), strict=True)
    assert {each.mode for each in (sample(number)["pil"] for number in range(SAMPLES))} == {*MODES}


def test_pickles_are_refused_unless_left_out():
    with pytest.raises(Unsupported, match=r"'pkl' is a pickle, which can run any code.*leave it out, fields="):
        ps.MapDataset.from_shards(GOLDEN / "every")
    refused(Unsupported, "pickle", ps.MapDataset.from_shards, GOLDEN / "every", fields="pkl")
    assert ps.MapDataset.from_shards(GOLDEN / "every", fields=("int",))[1]["int"] == -64


@pytest.mark.parametrize("kind", ["every", "zstd"])
def test_stored_bytes_are_taken_as_they_are(kind):
    dataset = ps.MapDataset.from_shards(GOLDEN / kind, format=MdsFormat(stored=True))
    assert dataset.catalog.format.stored
    found = dataset[2]
    if kind == "zstd":
        assert found["label"].read() == pack("<q", -2)
    else:
        assert {name: found[name].read() for name in found.fields} == raw(2)
    refused(Unusable, "stored must be True or False", MdsFormat, stored="no")


def test_a_single_field_is_bytes_or_text():
    dataset = ps.MapDataset.from_shards(GOLDEN / "plain", fields="text")
    assert dataset[3].read() == b"text 3"
    assert ps.MapDataset.from_shards(GOLDEN / "plain", fields="image")[3].read() == b"\3\3\3"
    with pytest.raises(Unusable, match=r"'label' has the encoding int, neither bytes nor texts: pass fields="):
        ps.MapDataset.from_shards(GOLDEN / "plain", fields="label")
    with pytest.raises(Unusable, match="unknown column 'lable'; columns are image, label, text"):
        ps.MapDataset.from_shards(GOLDEN / "plain", fields=("lable",))
    with pytest.raises(Unusable, match="mds shards do not support key="):
        ps.MapDataset.from_shards(GOLDEN / "plain", format="mds", key="last-dot")


@pytest.mark.parametrize("kind", ["plain", "zstd", "merged"])
@pytest.mark.parametrize(
    "order", [True, False, ps.order.Lanes(), ps.order.BlockShuffle(block_bytes=100, window_blocks=2)]
)
def test_all_samples_come_once_in_every_order(kind, order):
    dataset = ps.MapDataset.from_shards(
        GOLDEN / kind, transform=lambda each: (each["text"], each["label"], each["image"].read())
    )
    expected = sorted(tuple(small(number).values()) for number in range(20))
    if kind == "zstd" and order is True:
        refused(Unusable, r"ps\.order\.Lanes", ps.DataLoader, dataset, 4, shuffle=order)
        return
    loader = ps.DataLoader(dataset, 4, shuffle=order, collate_fn=list, num_workers=0)
    assert sorted(each for batch in loader for each in batch) == expected
    if kind == "zstd":
        assert loader.stats().total.requests == 3  # a shard is read once


def test_catalogs_are_saved_and_opened(tmp_path):
    for kind in ("plain", "zstd"):
        catalog = ps.index(GOLDEN / kind, tmp_path / kind, format="mds", fields=("text", "label"))
        opened = ps.Catalog.open(tmp_path / kind)
        assert opened.digest == catalog.digest
        assert opened.format == catalog.format
        found = ps.MapDataset(opened)
        assert [found[at]["label"] for at in range(20)] == [-at for at in range(20)]


@pytest.mark.parametrize("count", [0, 1, 7, 5000])
def test_samples_are_those_written(count, seed):
    draw = random.Random(seed)
    given = [draw.randbytes(draw.randrange(30)) for _ in range(count)]
    data = shard(ONE, rows(*given))
    assert [each["x"] for each in samples(MdsFormat(), data)] == given
    found, asks = walked(MdsFormat(), data)
    assert sum(ask.stop - ask.start for ask in asks) <= max(16 << 10, 4 * count + (8 << 10))
    assert len(found.offsets) == count
    for pack_ in COMPRESS.values():
        if count:
            assert unpacked(CompressedMdsFormat(), pack_(data)) == samples(MdsFormat(), data)


def test_hostile_shards_are_refused():
    data = shard(ONE, rows(b"ab", b"c"))
    for short in (b"", data[:7]):
        refused(Damaged, "not an MDS shard", walked, MdsFormat(), short)
    refused(Damaged, "cannot have 4294967295 samples", walked, MdsFormat(), b"\xff" * 4 + data[4:])
    for other in (data[:-1], data + b"x", data[:8] + bytes(4) + data[12:], data[:4] + pack("<I", 9) + data[8:]):
        refused(Damaged, "do not ascend", walked, MdsFormat(), other)
    for config, why in [
        (shard(ONE, rows(b"a"), column_sizes=[8, 5]), "declares 5"),
        (shard(ONE, rows(b"a"), column_names=["a", "a"]), "have the same name"),
        (data.replace(b'{"', b"{{"), "cannot read the description of the columns"),
        (data.replace(b"column_names", b"\xff" * 12), "cannot read the description of the columns"),
    ]:
        refused(Damaged, why, walked, MdsFormat(), config)
    for key, value in (("format", "csv"), ("version", 3)):
        with pytest.raises(Unsupported, match="write them again with MDSWriter"):
            walked(MdsFormat(), shard(ONE, rows(b"a"), **{key: value}))
    with pytest.raises(Unsupported, match=r"no description of its columns: pass the URL of the folder"):
        walked(MdsFormat(), shard(ONE, rows(b"a"), config=None))
    huge = pack("<II", 0, (17 << 20) + 8) + bytes(17 << 20)
    refused(Damaged, "description of the columns would have", walked, MdsFormat(), huge)


@pytest.mark.parametrize("kind", COMPRESS)
def test_bombs_and_other_compressed_shards_are_refused(kind, monkeypatch):
    compress = COMPRESS[kind]
    monkeypatch.setenv("PENSTOCK_UNPACKED_SIZE", "64MiB")
    refused(Damaged, "at most 67108864 bytes once unpacked", walked, CompressedMdsFormat(), compress(bytes(200 << 20)))
    data = compress(shard(ONE, rows(b"ab", b"c")))
    for stop in (5, len(data) // 2, len(data) - 1):
        refused(Damaged, "truncated", walked, CompressedMdsFormat(), data[:stop])
    refused(Damaged, "has 0 bytes", walked, CompressedMdsFormat(), b"")
    refused(Unsupported, "neither with gzip nor with zstd", walked, CompressedMdsFormat(), shard(ONE, rows(b"a")))
    refused(Unsupported, "store it decompressed", next, CompressedMdsFormat().walk(3 << 30))


def test_columns_that_differ_by_shard_are_refused_with_what_to_do(tmp_path):
    (tmp_path / "a.mds").write_bytes(shard(ONE, rows(b"a")))
    (tmp_path / "b.mds").write_bytes(shard({"x": ("bytes", None), "n": ("int32", 4)}, [{"x": b"", "n": bytes(4)}]))
    with pytest.raises(Unusable, match=r"n: int32, x: bytes differ.*n: int, x: bytes.*ps\.concat") as caught:
        ps.MapDataset.from_shards(tmp_path)
    assert caught.value.url.endswith("b.mds")
    both = ps.concat(*(ps.MapDataset.from_shards([tmp_path / name]) for name in ("a.mds", "b.mds")))
    assert [each["n"] for each in (both[0], both[1])] == [1, 0]


def test_damage_is_an_error_of_ours_or_other_samples(seed):
    draw = random.Random(seed)
    data = shard(ONE, rows(*(draw.randbytes(9) for _ in range(20))))
    for _ in range(500):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        for form, found in ((MdsFormat(), damaged), (CompressedMdsFormat(), gzip.compress(damaged))):
            try:
                (samples if form.name == "mds" else unpacked)(form, bytes(found))
            except PenstockError as error:
                assert error.message  # noqa: PT017  any error of ours will do


def test_arguments_from_a_file_are_checked():
    for columns in (5, [5], [["a", "int"]], [["a", 5, None]], [["a", "int", "x"]], [["a", "int", True]]):
        refused(Unusable, "columns must be triples", MdsFormat, columns=columns)
    form = MdsFormat(fields=("x",), columns=[["x", "int", 8]])
    assert form.columns == (MDSColumn("x", "int", 8),)
    assert json.dumps(form.described())


def test_zstd_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"penstock\[parquet\]"):
        walked(CompressedMdsFormat(), (GOLDEN / "zstd" / "shard.00000.mds.zstd").read_bytes())


# -- the index.json


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
        (Damaged, changed(column_names=["a", "a", "b"]), "have the same name"),
        (Damaged, changed(column_names=[], column_sizes=[], column_encodings=[]), "have the same name"),
        (Damaged, changed(column_names=["a", "b", 5]), "must be a text"),
        (Damaged, changed(column_sizes=[None, 4, None]), "declares 4 bytes, not 8"),
        (Damaged, changed(column_sizes=[5, 8, None]), "declares 5 bytes, not None"),
        (Damaged, changed(column_sizes=[None, 8, "x"]), "must be a whole number from 0"),
        (Damaged, named(PLAIN["shards"][1]["raw_data"]["basename"]), "twice"),
        (Unsupported, json.dumps({"version": 1, "shards": []}).encode(), "version 1, not 2"),
        (Unsupported, b'{"chunks": [], "config": {}}', 'format="litdata"'),
        (Unsupported, changed(format="json"), "'json' in version 2"),
        (Unsupported, changed(version=1), "'mds' in version 1"),
        (Unsupported, (GOLDEN / "br" / "index.json").read_bytes(), "the compression br"),
        (Unsupported, changed(compression="snappy", zip_data={"basename": "x", "bytes": 1, "hashes": {}}), "snappy"),
        (
            Unsupported,
            changed(compression=None, zip_data={"basename": "x", "bytes": 1, "hashes": {}}),
            "the compression unknown",
        ),
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
