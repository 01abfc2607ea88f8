"""Parts of sources: each line is read once, however a file is cut; no row group is in two parts."""

import gzip
import random
import secrets

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock as ps
from penstock.data.catalog.discovery.shards import Shard
from penstock.errors import Changed, Damaged, NotFound, Unsupported, Unusable
from penstock.jobs.mapping import pieces
from penstock.jobs.mapping.pieces import TextFiles, cut_catalog, cut_files, find_source, read_lines, source_folder
from penstock.options import StoreOptions
from penstock.source import open_source

STORE = StoreOptions()


def lines_of(url, part_bytes, fields=()):
    """Return the samples of each part of a source."""
    source, files, _ = find_source(str(url), fields, STORE)
    return [[each.load() for each in read_lines(source, part, fields)] for part in cut_files(files, part_bytes)]


def joined(parts):
    return [each for part in parts for each in part]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_line_is_in_one_part_wherever_a_file_is_cut(tmp_path, end, monkeypatch):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 7)
    monkeypatch.setattr(pieces, "_TAIL_BYTES", 3)
    expected = []
    for number in range(3):
        lines = [dice.choice(["", "a", "é火", "  ", "x" * dice.randrange(60)]) for _ in range(dice.randrange(40))]
        last = dice.choice(["", "no break at the end"])
        (tmp_path / f"{number}.txt").write_bytes((end.join([*lines, last])).encode())
        expected += [line for line in (*lines, last) if line.strip()]
    for part_bytes in (1, 2, 3, 5, 8, 13, 100, 1 << 20):
        assert joined(lines_of(tmp_path / "*.txt", part_bytes)) == expected


def test_lines_are_located_by_number_or_by_byte(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    source, files, _ = find_source(str(tmp_path / "a.txt"), (), STORE)
    first, second = cut_files(files, 8)
    assert [each.locate()[0] for each in read_lines(source, first, ())] == ["line 1", "line 2"]
    assert [each.locate() for each in read_lines(source, second, ())] == [
        ("the line at byte 8", f"file://{tmp_path}/a.txt#bytes=8-12")
    ]


def test_json_lines_give_values_or_some_of_their_fields(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1, "b": [2]}\n\n3\n')
    assert joined(lines_of(tmp_path, 100)) == [{"a": 1, "b": [2]}, 3]
    with pytest.raises(Damaged, match="must be a JSON object"):
        lines_of(tmp_path, 100, ("b",))
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": [2]}\n')
    assert joined(lines_of(tmp_path, 100, ("b",))) == [{"b": [2]}]


def test_a_compressed_file_is_one_range_and_others_are_refused_by_their_first_bytes(tmp_path):
    text = "".join(f'{{"n": {number}}}\n' for number in range(999))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.jsonl.zst").write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    parts = lines_of(tmp_path, 10)
    assert [len(part) for part in parts] == [999, 999]
    assert [each["n"] for each in parts[1]] == [*range(999)]
    (tmp_path / "a.jsonl.gz").rename(tmp_path / "c.jsonl")
    with pytest.raises(Unsupported, match="is compressed with gzip"):
        lines_of(tmp_path / "c.jsonl", 1 << 20)


def test_a_file_that_was_replaced_since_the_plan_is_noticed(tmp_path):
    (tmp_path / "a.txt").write_text("one\n" * 100)
    source, files, _ = find_source(str(tmp_path / "*.txt"), (), STORE)
    (part,) = cut_files(files, 1 << 20)
    (tmp_path / "a.txt").write_text("two\n" * 101)
    with pytest.raises(Changed):
        [*read_lines(source, part, ())]


def test_small_files_are_joined_and_large_ones_cut_equally():
    files = [Shard("a", 10, "e"), Shard("b", 5, "e"), Shard("c", 0, "e"), Shard("d", 25, "e"), Shard("e.gz", 90, "e")]
    found = [[(key, start, stop) for key, _, _, start, stop in part] for part in cut_files(files, 20)]
    assert found == [[("a", 0, 10), ("b", 0, 5)], [("d", 0, 12)], [("d", 12, 25)], [("e.gz", 0, 90)]]
    assert [*cut_files([], 20)] == []
    many = [*cut_files([Shard(str(number), 1, "") for number in range(10_000)], 1 << 30)]
    assert [*map(len, many)] == [4096, 4096, 1808]


def test_row_groups_and_compressed_shards_are_not_cut(tmp_path):
    for number, rows in enumerate((100, 30)):
        table = pa.table({"n": np.arange(rows)})
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=20)
    _, _, catalog = find_source(str(tmp_path), (), STORE)
    size = int(catalog.sizes[:20].sum())
    assert cut_catalog(catalog, size) == [(0, 20), (20, 40), (40, 60), (60, 80), (80, 100), (100, 120), (120, 130)]
    assert cut_catalog(catalog, 1 << 30) == [(0, 130)]
    assert {start % 20 for start, _ in cut_catalog(catalog, size // 3)} == {0}


@pytest.mark.parametrize(
    ("key", "folder"),
    [("a/b*.x", "a/"), ("a/{0..9}/x", "a/"), ("*", ""), ("a/b/", "a/b/"), ("a/b.x", "a/b.x"), ("a/?/b[c]", "a/")],
)
def test_the_folder_of_a_source_has_no_wildcards(key, folder):
    assert source_folder(key) == folder


def test_objects_are_samples_only_below_a_prefix_and_have_no_fields(tmp_path):
    for name in ("a.png", "b.png", "README.txt"):
        (tmp_path / name).write_bytes(b"x")
    _, files, catalog = find_source(str(tmp_path), (), STORE)
    assert (files, len(catalog)) == ([], 3)
    with pytest.raises(Unusable, match="fields= chooses among the fields of samples, and objects have none"):
        find_source(str(tmp_path), ("a",), STORE)
    with pytest.raises(Unusable, match="lines of text have none"):
        find_source(str(tmp_path / "*.txt"), ("a",), STORE)
    with pytest.raises(NotFound):
        find_source(str(tmp_path / "*.png"), (), STORE)
    assert TextFiles().sample(memoryview(b"a")) == b"a"


def test_a_line_without_an_end_is_refused_before_memory_is_full(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_UNPACKED_SIZE", "1MiB")
    (tmp_path / "a.txt").write_bytes(b"x" * (40 << 20))
    source, _ = open_source(tmp_path / "a.txt")
    _, files, _ = find_source(str(tmp_path / "a.txt"), (), STORE)
    with pytest.raises(Damaged, match="a line must take at most"):
        [*read_lines(source, next(cut_files(files, 1 << 20)), ())]


def test_samples_of_catalogs_have_their_url(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")
    catalog = ps.Catalog.scan(tmp_path)
    (sample,) = pieces.read_samples(catalog, 0, 1, STORE)
    assert sample.locate() == ("sample 0", f"file://{tmp_path}/a.bin")
    assert bytes(sample.load().data) == b"x"
