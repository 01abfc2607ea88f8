"""The public name of Penstock's storage for torch's Distributed Checkpoint."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as torchs

from penstock.checkpoint import dcp
from penstock.checkpoint.dcp import reader, writer


def test_the_public_names_are_the_storage_s_and_no_others():
    assert sorted(dcp.__all__) == ["StorageReader", "StorageWriter"]
    assert dcp.StorageReader is reader.StorageReader
    assert dcp.StorageWriter is writer.StorageWriter


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_accepts_both_storage_classes_for_save_and_load(tmp_path):
    assert issubclass(dcp.StorageReader, torchs.StorageReader)
    assert issubclass(dcp.StorageWriter, torchs.StorageWriter)
    torchs.save({"a": torch.arange(3)}, storage_writer=dcp.StorageWriter(tmp_path), no_dist=True)
    state = {"a": torch.zeros(3, dtype=torch.int64)}
    torchs.load(state, storage_reader=dcp.StorageReader(tmp_path), no_dist=True)
    assert state["a"].tolist() == [0, 1, 2]
