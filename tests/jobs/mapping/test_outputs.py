"""Shards of maps: whole or not there, and compared with those that are there."""

import tarfile
from functools import partial

import numpy as np
import pytest

from penstock.errors import Changed, Unusable
from penstock.jobs.mapping.outputs import ShardFile, write_archive, write_lines, write_tokens
from penstock.jobs.mapping.pieces import SourceSample
from penstock.source import open_source

SAMPLE = SourceSample(lambda: None, 1, lambda: ("line 1", "x"))


@pytest.fixture
def open_file(tmp_path):
    source, key = open_source(tmp_path)
    return partial(ShardFile, source, f"{key}/", 7)


def pairs(*outputs):
    return iter([(SAMPLE, each) for each in outputs])


def test_a_shard_appears_when_it_is_complete_and_not_after_an_error(tmp_path, open_file):
    with open_file(".bin") as file:
        file.write(b"a" * (3 << 20))
        assert [*tmp_path.glob("shard-*")] == []
    assert (tmp_path / "shard-000007.bin").stat().st_size == file.described[0] == 3 << 20
    with pytest.raises(ZeroDivisionError), open_file(".idx") as file:
        file.write(b"a" * (3 << 20))
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shard-000007.bin"]


def test_a_shard_that_is_there_must_have_the_same_bytes(tmp_path, open_file):
    for _ in range(2):
        with open_file(".bin") as file:
            file.write(b"abc")
    for other in (b"abd", b"ab", b""):
        with pytest.raises(Changed, match="part 7 gave other bytes than an earlier attempt"), open_file(".bin") as file:
            file.write(other)
    assert (tmp_path / "shard-000007.bin").read_bytes() == b"abc"


def test_an_empty_document_is_a_document(tmp_path, open_file):
    found = write_tokens(pairs(np.array([]), (1, 2), np.array([], np.int8)), open_file, "uint16")
    assert (found["tokens"], sorted(found["files"])) == (2, [".bin", ".idx"])
    assert (tmp_path / "shard-000007.bin").read_bytes() == b"\1\0\2\0"


def test_values_of_numpy_are_written_as_json_and_others_refused(tmp_path, open_file):
    found = write_lines(pairs({"a": np.arange(3), "b": np.float32(0.5), "c": "火"}), open_file)
    assert (tmp_path / "shard-000007.jsonl").read_text() == '{"a": [0, 1, 2], "b": 0.5, "c": "火"}\n'
    assert (found["offsets"], found["sizes"]) == ([0], [39])
    for value in (b"bytes", float("nan"), {1, 2}, "\ud800"):
        with pytest.raises(Unusable, match="cannot write the output for line 1 as JSON"):
            write_lines(pairs({"a": value}), open_file)


@pytest.mark.parametrize("name", ["../../etc/x", "/abs", "a/../b"])
def test_names_that_leave_the_folder_are_refused(tmp_path, open_file, name):
    with pytest.raises(Unusable):
        write_archive(pairs({"__key__": name, "txt": "a"}), open_file, "tar", 7)
    assert [*tmp_path.iterdir()] == []


def test_a_shard_of_mds_has_the_fields_of_its_first_sample(tmp_path, open_file):
    with pytest.raises(Unusable, match="has the field 'b', which the first sample of its part lacks"):
        write_archive(pairs({"a": 1}, {"a": 1, "b": 2}), open_file, "mds", 7)
    assert [*tmp_path.iterdir()] == []


def test_fields_may_have_any_name_but_the_key(tmp_path, open_file):
    found = write_archive(pairs({"key": "a", "bytes": b"b", "__key__": "c"}), open_file, "tar", 7)
    assert len(found["offsets"]) == 1
    with tarfile.open(tmp_path / "shard-000007.tar") as file:
        assert file.getnames() == ["c.key", "c.bytes"]
