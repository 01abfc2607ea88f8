"""Distributed checkpoints by the connector's names; those that torch's writer has made are read."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp

import penstock as ps
from penstock.compat.osstorchconnector import OssDCPFileSystem
from penstock.errors import ConfigError, Unusable

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_a_state_is_saved_replaced_and_loaded(arguments):
    files = OssDCPFileSystem(**arguments)
    for value in (1.0, 2.0):
        state = {"weight": torch.full((4, 2), value)}
        dcp.save(state, storage_writer=files.writer("oss://bucket/dcp/1", thread_count=2), no_dist=True)
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


def test_uris_are_told_from_other_names():
    named = OssDCPFileSystem.validate_checkpoint_id
    assert [named(each) for each in ("oss://b/k", "/b/k", "s3://b/k", "k")] == [True, True, False, False]


def test_what_cannot_be_meant_is_refused(arguments):
    with pytest.raises(ConfigError, match="the endpoint is empty"):
        OssDCPFileSystem("")
    with pytest.raises(Unusable, match="takes no speling"):
        OssDCPFileSystem(**arguments).writer("oss://bucket/x", speling=1)
