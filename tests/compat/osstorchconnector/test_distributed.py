"""Distributed checkpoints by the connector's names; those that torch's writer has made are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

import penstock as ps
from penstock.compat.osstorchconnector import OssDCPFileSystem, OssStorageReader, OssStorageWriter
from penstock.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_a_state_is_saved_replaced_and_loaded(arguments):
    files = OssDCPFileSystem(**arguments)
    for value in (1.0, 2.0):
        state = {"weight": torch.full((4, 2), value)}
        dcp.save(state, storage_writer=files.writer("oss://bucket/dcp/1"), no_dist=True)
    found = {"weight": torch.zeros(4, 2)}
    dcp.load(found, storage_reader=files.reader("oss://bucket/dcp/1"), no_dist=True)
    assert torch.equal(found["weight"], torch.full((4, 2), 2.0))


def test_a_checkpoint_in_torchs_format_is_read(server, arguments, tmp_path):
    dcp.save({"weight": torch.ones(3)}, storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    for each in tmp_path.iterdir():
        with ps.open(f"oss://bucket/torchs/{each.name}", "wb", store=server.store) as file:
            file.write(each.read_bytes())
    found = {"weight": torch.zeros(3)}
    reader = OssDCPFileSystem(**arguments).reader("oss://bucket/torchs")
    dcp.load(found, storage_reader=reader, no_dist=True)
    assert torch.equal(found["weight"], torch.ones(3))


def test_validate_checkpoint_id_accepts_oss_uris_and_refuses_s3_uris():
    named = OssDCPFileSystem.validate_checkpoint_id
    assert [named(each) for each in ("oss://b/k", "/b/k", "s3://b/k", "k", 3)] == [True, True, False, False, False]
    assert named(Path("k")), "as the connector has it"
    assert OssStorageReader.validate_checkpoint_id("oss://b/k")
    assert not OssStorageWriter.validate_checkpoint_id("s3://b/k")


def test_a_file_system_has_objects_as_files(server, arguments):
    files = OssDCPFileSystem(**arguments)
    base = files.init_path("oss://bucket/dir")
    one, other = files.concat_path(base, "a"), files.concat_path("/bucket/dir", "b")
    with files.create_stream(one, "wb") as stream:
        stream.write(b"bytes")
    files.mkdir(base)
    files.rename(old_path=one, new_path=other)
    assert (files.exists(one), files.exists(other)) == (False, True)
    with files.create_stream(other, "rb") as stream:
        assert stream.read() == b"bytes"
    files.rm_file(other)
    assert "dir/b" not in server.objects("bucket")
    with pytest.raises(ValueError, match="mode"), files.create_stream(one, "ab"):
        pass
    writer, reader = files.writer(base), files.reader(base)
    assert (writer.fs, writer.path, reader.fs, reader.path) == (files, base, files, base)


def test_empty_endpoint_and_unknown_writer_option_are_refused(arguments):
    for kind in (ConfigError, ValueError):
        with pytest.raises(kind, match="the endpoint is empty"):
            OssDCPFileSystem("")
    with pytest.raises(TypeError, match="speling"):
        OssDCPFileSystem(**arguments).writer("oss://bucket/x", speling=1)
