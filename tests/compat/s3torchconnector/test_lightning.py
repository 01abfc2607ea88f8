from __future__ import annotations

from pathlib import Path

import pytest
import torch

from penstock.compat.s3torchconnector import S3ClientConfig, S3Exception
from penstock.compat.s3torchconnector.lightning import S3LightningCheckpoint


def test_lightning_saves_loads_and_removes_by_url(s3, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    plugin = S3LightningCheckpoint("us-east-1", S3ClientConfig(force_path_style=True), s3.server.endpoint)
    url = s3.url + "epoch=1-step=2.ckpt"
    plugin.save_checkpoint({"state_dict": {"w": torch.ones(3)}, "epoch": 1}, url)
    found = plugin.load_checkpoint(url)
    assert (plugin.region, found["epoch"], found["state_dict"]["w"].tolist()) == ("us-east-1", 1, [1, 1, 1])
    assert plugin.load_checkpoint(url, "cpu", weights_only=False)["epoch"] == 1
    plugin.remove_checkpoint(url)
    plugin.remove_checkpoint(url)
    plugin.teardown()
    with pytest.raises(S3Exception):
        plugin.load_checkpoint(url)


def test_paths_are_refused():
    plugin = S3LightningCheckpoint("us-east-1")
    for use in (plugin.load_checkpoint, plugin.remove_checkpoint, lambda path: plugin.save_checkpoint({}, path)):
        with pytest.raises(TypeError, match="PosixPath"):
            use(Path("s3://bucket/x"))
        with pytest.raises(ValueError, match="s3://"):
            use("/tmp/x")  # noqa: S108  nothing is written
