"""Chunks that LitData has written are read as LitData reads them; what does not fit is refused by name."""

import json
import shutil
import struct

import numpy as np
import pytest

import penstock as ps
from penstock.data.shards.litdata import CompressedLitDataFormat, LitDataFormat, decoder, described_chunks
from penstock.data.shards.mds_columns import MDSColumn, decode_columns
from penstock.errors import Damaged, NotFound, Unsupported, Unusable
from tests.data.shards.lightning import GOLDEN, KINDS, SAMPLES, encoded, labelled, nested, sample, tagged
from tests.refusals import refused

NUMBERS = range(SAMPLES)


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
    loader = ps.DataLoader(saved, 2, shuffle=ps.order.Lanes(), collate_fn=list)
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
    refused(Unsupported, r"column 'a' is a pickle.*fields=", read, GOLDEN / "pickle")
    assert [each.read() for each in read(GOLDEN / "pickle", fields="b")] == [b"x"] * 3
    refused(Unusable, "unknown column 'c'; columns are a, b", read, GOLDEN / "pickle", fields=("c",))


def test_images_and_labels_that_litdata_wrote_as_rows_in_arrow_are_read(tmp_path):
    dataset = read(GOLDEN / "images")
    assert [(bytes(each["image"].data), each["label"]) for each in dataset] == [
        (*labelled(n).values(),) for n in NUMBERS
    ]
    assert [bytes(each.data) for each in read(GOLDEN / "images", fields="image")] == [bytes(range(n)) for n in NUMBERS]
    dataset.catalog.save(f"{tmp_path}/saved")
    loader = ps.DataLoader(
        ps.MapDataset.from_catalog(f"{tmp_path}/saved"), 2, shuffle=ps.order.Lanes(), collate_fn=lambda batch: batch
    )
    assert sorted(each["label"] for batch in loader for each in batch) == [*NUMBERS]


def test_rows_in_arrow_have_texts_numbers_and_nested_values():
    found = [dict(each) for each in read(GOLDEN / "texts")]
    for number, each in enumerate(found):
        given = tagged(number)
        inner = {f"meta.{name}": value for name, value in given.pop("meta").items()}
        assert each == given | inner
    assert [each["a.b"] for each in read(GOLDEN / "rows")] == [0, 1, 2]
    assert [each.read() for each in read(GOLDEN / "rows", fields="t")] == [b"x"] * 3


def test_a_row_without_the_only_field_is_damaged():
    with pytest.raises(Damaged, match=r"'meta\.name' has no value in row 1 of a chunk: pass fields="):
        read(GOLDEN / "texts", fields="meta.name")[1]


def test_a_chunk_without_rows_among_chunks_with_rows_is_read(copied):
    body = struct.pack("<2I", 1, 8) + b"\7" + struct.pack("<q", 7)
    chunk = struct.pack("<3I", 1, 12, 12 + len(body)) + body
    folder = copied("images")
    (folder / "chunk-0-2.bin").write_bytes(chunk)
    index = json.loads((folder / "index.json").read_text())
    index["chunks"][2]["chunk_bytes"] = len(chunk)
    (folder / "index.json").write_text(json.dumps(index))
    found = read(folder)
    assert (bytes(found[6]["image"].data), found[6]["label"]) == (b"\7", 7)
    assert found[5]["label"] == 5


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_damaged_rows_in_arrow_are_named(kind, copied):
    folder = copied(kind)
    whole = (folder / "chunk-0-0.bin").read_bytes()
    outcomes = set()
    for at in range(0, len(whole), 13):
        (folder / "chunk-0-0.bin").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            outcomes.add(len([dict(each) for each in read(folder)]))
        except ps.PenstockError as error:
            outcomes.add(type(error).__name__)
    assert outcomes <= {SAMPLES, "Damaged", "Unsupported"}
    assert {SAMPLES, "Damaged"} <= outcomes


def test_rows_in_arrow_of_another_name_are_damaged(copied):
    folder = copied("images")
    whole = (folder / "chunk-0-1.bin").read_bytes()
    (folder / "chunk-0-1.bin").write_bytes(whole.replace(b"image", b"imbge"))
    with pytest.raises(Damaged, match="the rows in Arrow have 'imbge' instead of 'image'"):
        read(folder)[3]


def test_rows_in_arrow_that_inflate_beyond_the_limit_are_refused(monkeypatch):
    monkeypatch.setenv("PENSTOCK_UNPACKED_SIZE", "100")
    with pytest.raises(Damaged, match="the rows of a chunk must take at most 100 bytes once unpacked"):
        read(GOLDEN / "texts")[0]


def test_only_a_folder_with_an_index_is_taken(tmp_path):
    refused(NotFound, r'format="litdata" needs the index\.json', read, tmp_path)
    refused(Unusable, "takes the URL of one folder", read, [GOLDEN / "plain" / "chunk-0-0.bin"])
    with pytest.raises(Unsupported, match=r'chunks of LitData: pass format="litdata"'):
        ps.MapDataset.from_shards(GOLDEN / "plain" / "index.json")
    catalog = read(GOLDEN / "plain").catalog
    refused(Unusable, "cannot be refreshed: scan again", catalog.refresh)


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
        ({"compression": "lz4"}, Unsupported, "unsupported compression, 'lz4'"),
        ({"compression": "zstd", "compression_level": "row"}, Unsupported, "unsupported compression: 'row'"),
        (
            {"compression": "zstd", "compression_level": "batch"},
            Damaged,
            "does not begin like a LitData chunk with frames",
        ),
        ({"data_spec": '[1, {"type": "x.Y", "context": "[]", "children_spec": []}]'}, Unsupported, "got a x.Y"),
        ({"data_spec": "[1]"}, Damaged, "must be a list of 2 values"),
        ({"data_format": ["int"]}, Damaged, "data_spec and data_format do not fit"),
        ({"data_format": ["mesh"] * 10}, Unsupported, "column 'index' has the unsupported serializer 'mesh'"),
    ],
)
def test_indexes_that_do_not_fit_are_refused(copied, changes, error, message):
    refused(error, message, read, copied("plain", **changes))


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
    refused(Unusable, "packed must be one of", LitDataFormat, packed="chunk")
    refused(Unusable, "packed must be one of", CompressedLitDataFormat, packed="")
    refused(Damaged, r"cannot read the index\.json of LitData", described_chunks, b"{", LitDataFormat())


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
