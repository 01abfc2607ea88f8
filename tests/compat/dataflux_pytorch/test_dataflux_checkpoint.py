from __future__ import annotations

import pytest
import torch

from penstock.compat.dataflux_pytorch.dataflux_checkpoint import DatafluxCheckpoint, DatafluxCheckpointBuffer
from penstock.errors import NotFound


def test_a_state_is_saved_and_loaded(gcs):
    checkpoint = DatafluxCheckpoint(project_name="project", bucket_name=gcs.name)
    with checkpoint.writer("dir/a b+c.ckpt") as writer:
        assert isinstance(writer, DatafluxCheckpointBuffer)
        torch.save({"w": torch.arange(1000)}, writer)
    with checkpoint.reader("dir/a b+c.ckpt") as reader:
        assert torch.load(reader)["w"].sum() == 499500
    assert list(gcs.objects) == ["dir/a b+c.ckpt"]
    with pytest.raises(NotFound):
        checkpoint.reader("none")


def test_a_block_that_fails_publishes_nothing(gcs):
    with pytest.raises(ZeroDivisionError), DatafluxCheckpoint("project", gcs.name).writer("x") as writer:
        writer.write(b"half")
        raise ZeroDivisionError
    assert gcs.objects == {}


def test_checkpoint_uses_the_endpoint_and_credentials_of_its_client(gcs, client):
    checkpoint = DatafluxCheckpoint("project", gcs.name, client)
    assert (checkpoint.project_name, checkpoint.bucket_name, checkpoint.storage_client) == ("project", gcs.name, client)
    with checkpoint.writer("x") as writer:
        writer.write(b"bytes")
    assert checkpoint.reader("x").read() == b"bytes"
