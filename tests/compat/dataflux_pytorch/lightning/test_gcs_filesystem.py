from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from penstock.compat import arguments
from penstock.compat.dataflux_pytorch.lightning import GCSDistributedReader, GCSDistributedWriter, GCSFileSystem

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_checkpoint_is_saved_replaced_and_loaded(gcs, kind):
    path = kind(f"gs://{gcs.name}/run")
    writer = GCSDistributedWriter(path, "project")
    for number in (1.0, 2.0):
        dcp.save({"w": torch.full((5,), number)}, storage_writer=writer, checkpoint_id=path)
    found = {"w": torch.zeros(5)}
    dcp.load(found, storage_reader=GCSDistributedReader(path, "project"))
    assert found["w"].tolist() == [2] * 5
    assert len(gcs.objects) == 2


def test_client_argument_supplies_the_endpoint_and_credentials(gcs, client):
    path = f"gcs://{gcs.name}/run"
    dcp.save({"w": torch.ones(5)}, storage_writer=GCSDistributedWriter(path, "project", client))
    found = {"w": torch.zeros(5)}
    dcp.load(found, storage_reader=GCSDistributedReader(path, "project", client))
    assert found["w"].tolist() == [1] * 5


def test_a_file_system_has_objects_as_files(gcs):
    files = GCSFileSystem("project", debug=False)
    one, other = f"gs://{gcs.name}/dir/a", files.concat_path(Path(f"gs://{gcs.name}/dir"), "b")
    with files.create_stream(one, "wb") as stream:
        stream.write(b"bytes")
    files.rename(one, other)
    assert gcs.objects == {"dir/b": b"bytes"}
    with files.create_stream(Path(other), "rb") as stream:
        assert stream.read() == b"bytes"
    assert (files.exists(one), files.exists(other)) == (False, True)
    files.rm_file(other)
    assert gcs.objects == {}


def test_arguments_are_honoured_named_or_refused(gcs, monkeypatch):
    monkeypatch.setattr(arguments, "_named", set())
    with pytest.warns(UserWarning, match="debug=True is not honoured"):
        GCSFileSystem("project", debug=True)
    with pytest.warns(UserWarning, match=r"GCSDistributedWriter\(thread_count=…\) is not honoured"):
        GCSDistributedWriter(f"gs://{gcs.name}/x", "project", thread_count=8)
    for kind in (GCSDistributedReader, GCSDistributedWriter, GCSFileSystem):
        assert kind.validate_checkpoint_id(Path(f"gs://{gcs.name}/x"))
        assert kind.validate_checkpoint_id(f"gs://{gcs.name}/x")
        with pytest.raises(ValueError, match="gs://"):
            kind.validate_checkpoint_id("s3://bucket/x")
    with pytest.raises(ValueError, match="mode"), GCSFileSystem("project").create_stream(f"gs://{gcs.name}/x", "ab"):
        pass
    with pytest.raises(NotImplementedError, match="more"):
        GCSDistributedReader(f"gs://{gcs.name}/x", "project", more=1)
    with pytest.raises(ValueError, match="gs://"):
        GCSDistributedWriter("/tmp/x", "project")  # noqa: S108  nothing is written
