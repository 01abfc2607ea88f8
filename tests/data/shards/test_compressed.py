"""Samples of compressed files are those of the plain file; damage and bombs are refused by name."""

import gzip
import json
import random

import pyarrow as pa
import pytest

import penstock as ps
from penstock.data.shards.compressed import CompressedJsonlFormat, CompressedTarFormat, CompressedTFRecordFormat
from penstock.data.shards.format import UnitPiece
from penstock.data.shards.tar import TarFormat
from penstock.errors import ChecksumMismatch, Damaged, PenstockError, Unsupported, Unusable
from tests.data.shards.archives import plain, samples, tar, tfrecord, walked
from tests.refusals import refused


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESS = {"gz": gzip.compress, "zst": zstd}


def lines(form, data):
    found, asks = walked(form, data)
    assert len(asks) <= 1
    if not len(found.offsets):
        return []
    unit = form.decode([UnitPiece(0, memoryview(data))], 0)
    assert found.units.decoded[0] == len(unit.data)
    return [plain(form.row(unit, number)) for number in range(len(found.offsets))]


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n \n", []),
        (b'{"a": 1}\r\n\n{"a": 2}', [b'{"a": 1}', b'{"a": 2}']),
        (b"\xef\xbb\xbfx\ny\n", [b"x", b"y"]),
        (b"x" * (9 << 20) + b"\ny", [b"x" * (9 << 20), b"y"]),
    ],
    ids=["empty", "blank", "mixed-breaks", "mark", "long"],
)
def test_lines_are_those_of_the_plain_text(kind, text, expected):
    form = CompressedJsonlFormat()
    assert lines(form, COMPRESS[kind](text)) == expected
    halves = COMPRESS[kind](text[: len(text) // 2]) + COMPRESS[kind](text[len(text) // 2 :])
    assert lines(form, halves) == expected


@pytest.mark.parametrize("kind", COMPRESS)
def test_datasets_read_each_file_once(tmp_path, kind):
    for file in range(4):
        rows = [json.dumps({"n": file * 50 + at, "t": "x" * at}) for at in range(50)]
        (tmp_path / f"{file}.jsonl.{kind}").write_bytes(COMPRESS[kind]("\n".join(rows).encode()))
    dataset = ps.MapDataset.from_shards(tmp_path, fields=("n", "t"), transform=lambda sample: sample["n"])
    assert dataset[120] == 120
    for order in (False, ps.order.Lanes(), ps.order.BlockShuffle(block_bytes=1, window_blocks=2)):
        loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list, num_workers=0)
        assert sorted(each for batch in loader for each in batch) == [*range(200)]
        assert loader.stats().total.requests == 4
    refused(Unusable, r"ps\.order\.Lanes", ps.DataLoader, dataset, 16, shuffle=True)
    dataset.catalog.save(tmp_path / "catalog")
    assert ps.MapDataset.from_catalog(tmp_path / "catalog")[7]["t"] == "x" * 7


@pytest.mark.parametrize("kind", COMPRESS)
def test_files_that_are_cut_off_are_refused(kind):
    data = COMPRESS[kind](random.Random(0).randbytes(1000).hex().encode())
    for stop in (4, 12, len(data) // 2, len(data) - 1):
        refused(Damaged, "truncated", walked, CompressedJsonlFormat(), data[:stop])


@pytest.mark.parametrize("kind", COMPRESS)
def test_damage_is_an_error_of_ours_or_other_lines(kind, seed):
    draw = random.Random(seed)
    data = COMPRESS[kind](b"".join(b"%d\n" % at for at in range(300)))
    for _ in range(300):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            lines(CompressedJsonlFormat(), bytes(damaged))
        except PenstockError as error:
            assert error.message  # noqa: PT017  any error of ours will do


def test_other_files_are_refused():
    refused(Unsupported, "neither with gzip nor with zstd", walked, CompressedJsonlFormat(), b'{"a": 1}\n')
    refused(Unsupported, "store it decompressed", next, CompressedJsonlFormat().walk(3 << 30))


MEMBERS = [(f"{at:02}.{field}", f"{field}{at}".encode() * at) for at in range(12) for field in ("jpg", "cls")]


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fields": ("cls",)},
        {"fields": "jpg"},
        {"fields": ("jpg", "txt"), "missing": "none"},
        {"key": r"(?P<key>\d)(?P<field>.*)", "skip": "0[1-9].*"},
    ],
)
def test_members_are_those_of_the_plain_tar_file(kind, options):
    data = tar([*MEMBERS, ("12.jpg", b""), ("12.cls", b"x" * 700_000)])
    if "key" in options:
        data = tar([("1.jpg", b"x"), ("02.jpg", b"y"), ("2.cls", b"z")])
    expected = samples(TarFormat(**options), data)
    assert lines(CompressedTarFormat(**options), COMPRESS[kind](data)) == expected
    assert expected


@pytest.mark.parametrize("kind", COMPRESS)
def test_records_are_those_of_the_plain_tfrecord_file(kind):
    payloads = [b"", b"a", b"b" * 3000]
    data = tfrecord(payloads)
    assert lines(CompressedTFRecordFormat(), COMPRESS[kind](data)) == payloads
    damaged = bytearray(data)
    damaged[-10] ^= 1
    refused(ChecksumMismatch, "CRC-32C", lines, CompressedTFRecordFormat(), COMPRESS[kind](bytes(damaged)))
    damaged = bytearray(data)
    damaged[3] ^= 1
    refused(Damaged, "no TFRecord header", lines, CompressedTFRecordFormat(), COMPRESS[kind](bytes(damaged)))


@pytest.mark.parametrize("form", [CompressedTarFormat(), CompressedTFRecordFormat()], ids=lambda form: form.name)
@pytest.mark.parametrize("kind", COMPRESS)
def test_damaged_archives_are_errors_of_ours_or_other_samples(form, kind, seed):
    draw = random.Random(seed)
    data = COMPRESS[kind](tar(MEMBERS) if form.name == "tar.gz" else tfrecord([b"x" * at for at in range(40)]))
    refused(Damaged, "truncated", walked, form, data[: len(data) // 2])
    for _ in range(200):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            lines(form, bytes(damaged))
        except PenstockError as error:
            assert error.message  # noqa: PT017  any error of ours will do


@pytest.mark.parametrize("form", [CompressedTarFormat(), CompressedTFRecordFormat()], ids=lambda form: form.name)
def test_files_of_more_bytes_than_may_be_held_or_none_are_refused(form):
    refused(Unsupported, "store it decompressed", next, form.walk(3 << 30))
    refused(Damaged, "has 0 bytes", walked, form, b"")


@pytest.mark.parametrize("end", ["tar.gz", "tgz", "tar.zst"])
def test_datasets_of_compressed_tar_files_are_those_of_plain_ones(tmp_path, end):
    for name in ("plain", "packed"):
        (tmp_path / name).mkdir()
    for shard in range(3):
        data = tar([(f"{shard}-{name}", body) for name, body in MEMBERS])
        (tmp_path / "plain" / f"{shard}.tar").write_bytes(data)
        (tmp_path / "packed" / f"{shard}.{end}").write_bytes(COMPRESS[end[-3:].strip(".").replace("tgz", "gz")](data))
    catalogs = [
        ps.Catalog.from_shards(tmp_path / name, fields=("jpg", "cls"), labels=r"(\w+)\.t")
        for name in ("plain", "packed")
    ]
    read = [
        [(each.key, each["jpg"].read(), each["cls"].read(), each.label) for each in ps.MapDataset(catalog)]
        for catalog in catalogs
    ]
    assert read[0] == read[1]
    assert len(read[0]) == 36
    loader = ps.DataLoader(ps.MapDataset(catalogs[1]), 8, shuffle=ps.order.Lanes(), collate_fn=list)
    assert sorted(each.key for batch in loader for each in batch) == sorted(row[0] for row in read[0])
    assert loader.stats().total.requests == 3
    catalogs[1].save(tmp_path / "catalog")
    assert ps.MapDataset.from_catalog(tmp_path / "catalog")[35]["jpg"].read() == read[0][35][1]


def test_compressed_files_with_names_of_plain_ones_are_read_by_a_named_format(tmp_path):
    (tmp_path / "a.tar").write_bytes(gzip.compress(tar([*MEMBERS, ("z.jpg", random.Random(0).randbytes(900))])))
    refused(Unsupported, r'format="tar\.gz"', ps.Catalog.from_shards, tmp_path / "a.tar")
    assert len(ps.Catalog.from_shards([tmp_path / "a.tar"], format="tar.gz")) == 13
    assert len(ps.Catalog.from_shards(tmp_path / "*.tar", format="tar.gz")) == 13
    (tmp_path / "a.tfrecord").write_bytes(gzip.compress(tfrecord([b"x"])))
    refused(Unsupported, r'format="tfrecord\.gz"', ps.Catalog.from_shards, tmp_path / "a.tfrecord")
    assert ps.MapDataset.from_shards(tmp_path / "*.tfrecord", format="tfrecord.gz")[0].read() == b"x"


def test_side_indexes_of_compressed_tar_files_are_refused(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar(MEMBERS)))
    refused(Unusable, "tar", ps.Catalog.from_shards, tmp_path, index="energon")
