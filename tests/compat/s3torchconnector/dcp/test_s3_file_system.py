from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from penstock.compat import arguments
from penstock.compat.s3torchconnector import S3ClientConfig, S3ReaderConstructor
from penstock.compat.s3torchconnector.dcp import (
    HexPrefixStrategy,
    S3FileSystem,
    S3StorageReader,
    S3StorageWriter,
)
from penstock.errors import AlreadyExists, NotFound, Unusable

REGION = "us-east-1"

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state(number):
    return {
        "weight": torch.arange(1000.0) + number,
        "nested": {"half": torch.full((3,), number).half()},
        "epoch": number,
    }


def loaded(reader):
    found = state(0)
    dcp.load(found, storage_reader=reader)
    return found["epoch"], float(found["weight"][1]), float(found["nested"]["half"][0])


class TorchsReader(FileSystemReader):
    """What the original's reader is: torch's own, on files of S3."""

    def __init__(self, path):
        super().__init__(path)
        self.fs = S3FileSystem(REGION)
        self.path = path


class TorchsWriter(FileSystemWriter):
    """What the original's writer is."""

    def __init__(self, path):
        super().__init__(path, sync_files=False)
        self.fs = S3FileSystem(REGION)
        self.path = path


@pytest.mark.parametrize("strategy", [None, HexPrefixStrategy(epoch_num=3)])
def test_a_save_replaces_the_one_before(s3, strategy):
    for number in (1, 2):
        dcp.save(state(number), storage_writer=S3StorageWriter(REGION, s3.url + "run", prefix_strategy=strategy))
    assert loaded(S3StorageReader(REGION, s3.url + "run")) == (2, 3.0, 2.0)
    keys = [each["Key"] for each in s3.client.list_objects_v2(Bucket=s3.name)["Contents"]]
    assert len(keys) == 2
    assert keys[0] == "run/.metadata"
    assert keys[1].startswith("run/0000000000/epoch_3/__0_" if strategy else "run/__0_")
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.save(state(3), storage_writer=S3StorageWriter(REGION, s3.url + "run", overwrite=False))
    assert isinstance(caught.value.failures[0][0], AlreadyExists)


def test_the_layout_is_torchs_own_both_ways(s3):
    dcp.save(state(4), storage_writer=S3StorageWriter(REGION, s3.url + "ours"))
    assert loaded(TorchsReader(s3.url + "ours")) == (4, 5.0, 4.0)
    dcp.save(state(5), storage_writer=TorchsWriter(s3.url + "torchs"))
    for kind in (None, S3ReaderConstructor.sequential(), S3ReaderConstructor.range_based()):
        assert loaded(S3StorageReader(REGION, s3.url + "torchs", reader_constructor=kind)) == (5, 6.0, 5.0)


def test_async_saves_go_through_it(s3):
    writer = S3StorageWriter(REGION, s3.url + "run", S3ClientConfig(max_attempts=3))
    dcp.async_save(state(6), storage_writer=writer).result()
    assert loaded(S3StorageReader(REGION, s3.url + "run")) == (6, 7.0, 6.0)


def test_torchs_arguments_are_honoured_or_named(s3, monkeypatch):
    monkeypatch.setattr(arguments, "_named", set())
    S3StorageWriter(REGION, s3.url, thread_count=1, single_file_per_rank=True, overwrite=True)
    with pytest.warns(UserWarning, match=r"S3StorageWriter\(thread_count=…\) is not honoured"):
        S3StorageWriter(REGION, s3.url, thread_count=8)
    with pytest.raises(TypeError, match="serialization_format"):
        S3StorageWriter(REGION, s3.url, serialization_format="safetensors")


def test_a_file_system_has_objects_as_files(s3):
    files = S3FileSystem(REGION)
    one, other = s3.url + "dir/a b+c", files.concat_path(s3.url + "dir/", "other")
    assert other == s3.url + "dir/other"
    assert (files.init_path(one), files.mkdir(one)) == (one, None)
    with files.create_stream(one, "wb") as stream:
        stream.write(b"bytes")
    assert files.exists(one)
    files.rename(old_path=one, new_path=other)
    assert (files.exists(one), files.exists(other)) == (False, True)
    with files.create_stream(other, "rb") as stream:
        assert (stream.key, stream.read()) == ("dir/other", b"bytes")
    files.rm_file(other)
    files.rm_file(other)
    assert not files.exists(other)
    with pytest.raises(ZeroDivisionError), files.create_stream(one, "wb") as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert not files.exists(one)
    with pytest.raises(NotFound), files.create_stream(one, "rb") as stream:
        stream.read()
    for kind in (Unusable, ValueError):
        with pytest.raises(kind, match="'ab'"), files.create_stream(one, "ab"):
            pass


def test_only_urls_of_s3_are_checkpoints(s3):
    for kind in (S3FileSystem, S3StorageReader, S3StorageWriter):
        assert kind.validate_checkpoint_id(s3.url + "run")
        assert not kind.validate_checkpoint_id("/tmp/run")  # noqa: S108  nothing is written
        assert not kind.validate_checkpoint_id("gs://bucket/run")
        assert kind.validate_checkpoint_id(s3.url.rstrip("/")), "a bucket"
        assert kind.validate_checkpoint_id(Path("run")), "as the original has it"
    for make in (S3StorageReader, S3StorageWriter):
        with pytest.raises(ValueError, match="s3://"):
            make(REGION, "/tmp/run")  # noqa: S108  nothing is written
    with pytest.raises(Unusable, match="s3_client"):
        S3FileSystem(REGION, object())
