"""Chunks that LitData has written are read as LitData reads them; what does not fit is refused by name."""

import json
import shutil
import struct

import numpy as np
import pytest

import penstock as ps
from penstock.data.shards.litdata import CompressedLitDataFormat, LitDataFormat, described_chunks
from penstock.errors import Damaged, NotFound, Unsupported, Unusable
from tests.data.shards.lightning import GOLDEN, KINDS, SAMPLES, encoded, nested, sample


def read(url, **how):
    return ps.MapDataset.from_shards(url, format="litdata", **how)


def same(found, number):
    for key, value in sample(number).items():
        there = bytes(found[key].data) if key == "image" else found[key]
        if isinstance(value, np.ndarray):
            assert (there.dtype, there.tolist()) == (value.dtype, value.tolist()), key
        else:
            assert (type(there), there) == (type(value), value), key


@pytest.fixture
def copied(tmp_path):
    """Return a function that copies a golden folder, with changes of its index.json."""

    def copy(kind, **changes):
        folder = shutil.copytree(GOLDEN / kind, tmp_path / kind)
        file = folder / "index.json"
        index = json.loads(file.read_text())
        index["config"] |= {name: value for name, value in changes.items() if name in index["config"]}
        index["chunks"][0] |= {name: value for name, value in changes.items() if name in index["chunks"][0]}
        file.write_text(json.dumps(index))
        return folder

    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_that_litdata_was_given(kind, tmp_path):
    dataset = read(GOLDEN / kind)
    assert len(dataset) == SAMPLES
    assert dataset[0].fields == (*sample(0),)
    for number, found in enumerate(dataset):
        same(found, number)
    same(dataset[5], 5)
    dataset.catalog.save(f"{tmp_path}/saved")
    saved = ps.MapDataset.from_catalog(f"{tmp_path}/saved")
    loader = ps.DataLoader(saved, 2, shuffle=ps.Lanes(), collate_fn=list)
    found = {round(3 * each["x"]): each for batch in loader for each in batch}
    for number in range(SAMPLES):
        same(found[number], number)
    ps.index(f"{GOLDEN / kind}/", f"{tmp_path}/indexed", format="litdata", fields=("x",))
    assert [round(3 * each["x"]) for each in ps.MapDataset.from_catalog(f"{tmp_path}/indexed")] == [*range(SAMPLES)]


def test_trees_are_named_by_their_paths():
    dataset = read(f"{GOLDEN / 'nested'}/index.json")
    for number, found in enumerate(dataset):
        at, body, rest = nested(number)
        assert found.fields == ("0.at", "1", "2.tags", "2.d")
        assert (found["0.at"], found["1"].read()) == (at["at"], body)
        assert {"tags": found["2.tags"], "d": found["2.d"]} == rest
    assert [each.read() for each in read(GOLDEN / "bytes")] == [b"\0", b"\1", b"\2"]
    found = read(GOLDEN / "jpeg")[0]
    assert found["jpeg"].read(2) == found["many"][1][:2] == encoded()[:2]


def test_pickles_are_refused_and_the_values_beside_them_are_read():
    with pytest.raises(Unsupported, match=r"column 'a' is a pickle.*fields="):
        read(GOLDEN / "pickle")
    assert [each.read() for each in read(GOLDEN / "pickle", fields="b")] == [b"x"] * 3
    with pytest.raises(Unusable, match="no column 'c', only a, b"):
        read(GOLDEN / "pickle", fields=("c",))


def test_rows_in_arrow_are_refused_by_name():
    with pytest.raises(Unsupported, match="rows in Arrow"):
        read(GOLDEN / "rows")


def test_only_a_folder_with_an_index_is_taken(tmp_path):
    with pytest.raises(NotFound, match=r'format="litdata" needs the index\.json'):
        read(tmp_path)
    with pytest.raises(Unusable, match="takes the URL of one folder"):
        read([GOLDEN / "plain" / "chunk-0-0.bin"])
    with pytest.raises(Unsupported, match=r'chunks of LitData: pass format="litdata"'):
        ps.MapDataset.from_shards(GOLDEN / "plain" / "index.json")
    catalog = read(GOLDEN / "plain").catalog
    with pytest.raises(Unusable, match="cannot be refreshed: scan again"):
        catalog.refresh()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"filename": "../x.bin"}, Damaged, r"names '\.\./x\.bin', which cannot be a file"),
        ({"filename": "chunk-0-1.bin"}, Damaged, "names 'chunk-0-1.bin' twice"),
        ({"filename": "chunk-0-9.bin"}, NotFound, "chunk-0-9"),
        ({"chunk_bytes": 5}, Damaged, "states 5 bytes, and the chunk has"),
        ({"chunk_bytes": -5}, Damaged, "chunk_bytes must be a whole number from 0, got -5"),
        ({"chunk_size": 4}, Damaged, "says 4 samples, and the shard has 3"),
        ({"encryption": {"algorithm": "fernet"}}, Unsupported, "encrypted"),
        ({"item_loader": "TokensLoader"}, Unsupported, r"for LitData's TokensLoader.*TokenDataset"),
        ({"compression": "lz4"}, Unsupported, "compressed with 'lz4'"),
        ({"compression": "zstd", "compression_level": "row"}, Unsupported, "compressed by 'row'"),
        ({"compression": "zstd", "compression_level": "batch"}, Damaged, "does not begin as chunks of frames"),
        ({"data_spec": '[1, {"type": "x.Y", "context": "[]", "children_spec": []}]'}, Unsupported, "hold a x.Y"),
        ({"data_spec": "[1]"}, Damaged, "must be a list of 2 values"),
        ({"data_format": ["int"]}, Damaged, "data_spec and data_format do not fit"),
        ({"data_format": ["mesh"] * 10}, Unsupported, "column 'index' has the serializer 'mesh'"),
    ],
)
def test_indexes_that_do_not_fit_are_refused(copied, changes, error, message):
    with pytest.raises(error, match=message):
        read(copied("plain", **changes))


def test_damaged_chunks_are_refused(copied):
    folder = copied("plain")
    file = folder / "chunk-0-0.bin"
    body = file.read_bytes()
    for damaged in (
        struct.pack("<I", 1 << 30) + body[4:],
        body[:4] + struct.pack("<I", 24) + body[8:],
        body[:8] + body[4:8] + body[12:],
        b"LDFZ01\0\0" + body[8:],
    ):
        file.write_bytes(damaged)
        with pytest.raises(Damaged):
            read(folder)
    file.write_bytes(body[:20] + b"\xff" + body[21:])
    with pytest.raises(Damaged, match="column 'index'"):
        read(folder)[0]


def test_damaged_frames_are_refused(copied):
    folder = copied("batch")
    file = folder / "chunk-0-0.bin"
    body = file.read_bytes()
    for at in (8, 12, 20, 24, 40, 44, 48, 56, 60):
        file.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        with pytest.raises(Damaged):
            read(folder)
    file.write_bytes(body[:-9] + b"123456789")
    same(read(folder)[0], 0)
    with pytest.raises(Damaged):
        read(folder)[2]


def test_arguments_are_checked():
    with pytest.raises(Unusable, match="packed must be one of"):
        LitDataFormat(packed="chunk")
    with pytest.raises(Unusable, match="packed must be one of"):
        CompressedLitDataFormat(packed="")
    with pytest.raises(Damaged, match=r"cannot read the index\.json of LitData"):
        described_chunks(b"{", LitDataFormat())
