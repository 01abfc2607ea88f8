"""Lines of compressed files are those of the plain file; damage and bombs are refused by name."""

import gzip
import json
import random

import pyarrow as pa
import pytest

import penstock as ps
from penstock.data.shards.compressed import CompressedJsonlFormat
from penstock.data.shards.format import Piece
from penstock.errors import Damaged, PenstockError, Unsupported, Unusable
from tests.data.shards.archives import plain, walked


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
    unit = form.decode([Piece(0, memoryview(data))], 0)
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
    for order in (False, ps.Lanes(), ps.BlockShuffle(block_bytes=1, window_blocks=2)):
        loader = ps.DataLoader(dataset, 16, shuffle=order, collate_fn=list, num_workers=0)
        assert sorted(each for batch in loader for each in batch) == [*range(200)]
        assert loader.stats().total.requests == 4
    with pytest.raises(Unusable, match=r"ps\.Lanes"):
        ps.DataLoader(dataset, 16, shuffle=True)
    dataset.catalog.save(tmp_path / "catalog")
    assert ps.MapDataset.from_catalog(tmp_path / "catalog")[7]["t"] == "x" * 7


@pytest.mark.parametrize("kind", COMPRESS)
def test_files_that_are_cut_off_are_refused(kind):
    data = COMPRESS[kind](random.Random(0).randbytes(1000).hex().encode())
    for stop in (4, 12, len(data) // 2, len(data) - 1):
        with pytest.raises(Damaged, match="cut off"):
            walked(CompressedJsonlFormat(), data[:stop])


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


@pytest.mark.parametrize("kind", COMPRESS)
def test_bombs_are_bounded(kind):
    data = COMPRESS[kind](b" " * (200 << 20))
    with pytest.raises(Damaged, match="inflate to more than"):
        walked(CompressedJsonlFormat(), data)


def test_other_files_are_refused():
    with pytest.raises(Unsupported, match="neither with gzip nor with zstd"):
        walked(CompressedJsonlFormat(), b'{"a": 1}\n')
    with pytest.raises(Unsupported, match="decompress it once"):
        next(CompressedJsonlFormat().walk(3 << 30))
