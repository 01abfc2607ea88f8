from __future__ import annotations

import io

import pytest
import torch

from penstock.compat.s3torchconnector import S3Checkpoint, S3ClientConfig, S3Exception, S3Reader, S3Writer
from penstock.errors import NotFound

STATE = {"weight": torch.arange(10_000.0).reshape(100, 100), "epoch": 3}


@pytest.fixture
def checkpoint(s3):  # noqa: ARG001  its environment
    return S3Checkpoint(region="us-east-1")


def test_a_state_is_saved_and_loaded(checkpoint, s3):
    url = s3.url + "epoch 0/c+1.pt"
    with checkpoint.writer(url) as writer:
        assert isinstance(writer, S3Writer)
        assert isinstance(writer, io.BufferedIOBase)
        torch.save(STATE, writer)
        assert writer.tell() > 40_000
    with checkpoint.reader(url) as reader:
        assert isinstance(reader, S3Reader)
        assert (reader.bucket, reader.key) == (s3.name, "epoch 0/c+1.pt")
        loaded = torch.load(reader)
    assert torch.equal(loaded["weight"], STATE["weight"])
    assert loaded["epoch"] == 3


def test_a_block_that_fails_publishes_nothing(checkpoint, s3):
    s3.client.put_object(Bucket=s3.name, Key="c.pt", Body=b"old")
    with pytest.raises(ZeroDivisionError), checkpoint.writer(s3.url + "c.pt") as writer:
        writer.write(b"half")
        raise ZeroDivisionError
    assert checkpoint.reader(s3.url + "c.pt").read() == b"old"


def test_region_endpoint_and_configuration_are_the_stores(s3, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    config = S3ClientConfig(force_path_style=True)
    checkpoint = S3Checkpoint("us-east-1", s3.server.endpoint, config)
    assert (checkpoint.region, checkpoint.endpoint) == ("us-east-1", s3.server.endpoint)
    with checkpoint.writer(s3.url + "x") as writer:
        writer.write(memoryview(b"bytes"))
    assert checkpoint.reader(s3.url + "x").read() == b"bytes"


def test_errors_have_both_names(checkpoint, s3):
    with pytest.raises(S3Exception) as caught:
        torch.load(checkpoint.reader(s3.url + "none"))
    assert isinstance(caught.value, NotFound)
    for use in (checkpoint.reader, checkpoint.writer):
        with pytest.raises(ValueError, match="Only s3://"):
            use("/tmp/c.pt")  # noqa: S108  nothing is written
        with pytest.raises(ValueError, match="bucket"):
            use("s3://bucket")
