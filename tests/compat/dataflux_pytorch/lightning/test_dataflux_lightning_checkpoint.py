from __future__ import annotations

from pathlib import Path

import pytest
import torch

from penstock.compat.dataflux_pytorch.lightning import DatafluxLightningAsyncCheckpoint, DatafluxLightningCheckpoint
from penstock.errors import NotFound


@pytest.mark.parametrize("kind", [DatafluxLightningCheckpoint, DatafluxLightningAsyncCheckpoint])
@pytest.mark.parametrize("path", [str, Path])
def test_lightning_saves_loads_and_removes_by_path(gcs, kind, path):
    plugin, where = kind("project", disable_multipart=True), path(f"gcs://{gcs.name}/epoch=1.ckpt")
    plugin.save_checkpoint({"w": torch.ones(3), "epoch": 1}, where)
    assert plugin.load_checkpoint(where)["epoch"] == 1
    assert plugin.load_checkpoint(where, map_location="cpu", weights_only=False)["w"].tolist() == [1, 1, 1]
    plugin.remove_checkpoint(where)
    plugin.teardown()
    assert gcs.objects == {}
    with pytest.raises(NotFound):
        plugin.load_checkpoint(where)


def test_arguments_are_attributes(client):
    plugin = DatafluxLightningCheckpoint("project", client, disable_multipart=True)
    assert (plugin.project_name, plugin.storage_client, plugin.disable_multipart) == ("project", client, True)
    with pytest.raises(ValueError, match="gs://"):
        plugin.save_checkpoint({}, "/tmp/x")  # noqa: S108  nothing is written
