"""The checkpoint in a folder: Penstock's before torch's, and none where there is none."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

import penstock as ps
from penstock.checkpoint.dcp.reader import Marker, find_checkpoints, open_checkpoint
from penstock.errors import CheckpointError, NotFound
from tests.checkpoint.dcp.saves import load, save

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_a_damaged_manifest_is_not_passed_over_for_a_ranks_own(tmp_path):
    state = {"w": torch.ones(3)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path), use_collectives=False, no_dist=True)
    (tmp_path / "checkpoint.json").write_text("{}")
    with pytest.raises(CheckpointException, match="cannot read the manifest of the checkpoint"):
        load({"w": torch.zeros(3)}, tmp_path)


def test_existing_checkpoints_are_found_by_their_markers_with_named_objects(tmp_path):
    save({"w": torch.ones(3)}, tmp_path)
    dcp.save({"w": torch.ones(3)}, storage_writer=dcp.FileSystemWriter(tmp_path), no_dist=True)
    source, folder = open_checkpoint(tmp_path, None)
    found = find_checkpoints(source, folder, look=True)
    assert found.etags.keys() == {f"{folder}checkpoint.json", f"{folder}.metadata"}
    assert {key.rpartition("/")[2] for key in found.objects} == {"0.data", "__0_0.distcp"}
    assert find_checkpoints(source, folder, look=False).objects == set()


def test_damaged_markers_are_listed_without_any_objects(tmp_path):
    (tmp_path / "checkpoint.json").write_text("{}")
    (tmp_path / ".metadata").write_bytes(b"\x80")
    source, folder = open_checkpoint(tmp_path, None)
    found = find_checkpoints(source, folder, look=True)
    assert (len(found.etags), found.objects) == (2, set())


def test_a_marker_that_was_written_again_or_is_gone_is_replaced(tmp_path):
    source, folder = open_checkpoint(tmp_path, None)
    with pytest.raises(NotFound, match=r"no checkpoint.json and no .metadata"):
        Marker.first(source, folder, ["checkpoint.json", ".metadata"], weights_only=True)
    save({"w": torch.ones(3)}, tmp_path)
    marker = Marker.first(source, folder, ["checkpoint.json"], weights_only=True)
    assert not marker.replaced(source)
    save({"w": torch.ones(3)}, tmp_path, overwrite=True)
    assert marker.replaced(source)
    source.delete([marker.key])
    assert marker.replaced(source)


def test_another_kind_s_checkpoint_is_refused_by_its_name(tmp_path):
    ps.CheckpointManager(tmp_path).save(1, {"a": 1})
    source, folder = open_checkpoint(tmp_path / "000000000001", None)
    with pytest.raises(CheckpointError, match="must be a distributed one, got a state"):
        Marker.first(source, folder, ["checkpoint.json"], weights_only=True)
