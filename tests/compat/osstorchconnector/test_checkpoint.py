"""Checkpoints and safetensors by the connector's names; a failed write leaves the old object."""

from __future__ import annotations

import pytest
import torch

from penstock.compat.osstorchconnector import OssCheckpoint, OssSafetensor
from penstock.errors import ConfigError, NotFound

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "step": 7}


def test_torch_saves_and_loads(arguments):
    checkpoint = OssCheckpoint(**arguments)
    with checkpoint.writer("oss://bucket/checkpoint/epoch.1") as writer:
        torch.save(STATE, writer)
    with checkpoint.reader("/bucket/checkpoint/epoch.1") as reader:
        found = torch.load(reader)
    assert torch.equal(found["weight"], STATE["weight"])
    assert found["step"] == 7


def test_a_failed_write_leaves_the_old_object(server, arguments):
    server.put("bucket", "kept", b"old")
    with pytest.raises(ValueError, match="mine"), OssCheckpoint(**arguments).writer("oss://bucket/kept") as writer:
        writer.write(b"half")
        raise ValueError("mine")
    assert server.objects("bucket")["kept"] == b"old"


def test_a_checkpoint_that_is_not_there_is_not_found(arguments):
    with pytest.raises(NotFound, match="oss://bucket/none"):
        OssCheckpoint(**arguments).reader("oss://bucket/none")


def test_safetensors_are_saved_replaced_and_loaded(arguments):
    tensors = {"x": torch.ones(2, 2), "y": torch.zeros(3)}
    files = OssSafetensor(**arguments)
    for _ in range(2):
        files.save_file(tensors, "oss://bucket/st/model.safetensors", {"by": "us"})
    loaded = files.load_file("oss://bucket/st/model.safetensors")
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    with files.safe_open("oss://bucket/st/model.safetensors") as opened:
        assert sorted(opened.keys()) == sorted(opened.offset_keys()) == ["x", "y"]
        assert opened.metadata()["by"] == "us"
        assert opened.get_tensor("x").sum() == 4
        assert opened.get_slice("x")[0].shape == (2,)


@pytest.mark.parametrize("kind", [OssCheckpoint, OssSafetensor])
def test_an_empty_endpoint_is_refused(kind):
    with pytest.raises(ConfigError, match="the endpoint is empty"):
        kind("")
