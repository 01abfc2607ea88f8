"""Distributed checkpoints by real ranks: saved by four, loaded by as many or fewer, and by ranks that fail."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from tests.edges.launch import ranks, torchrun

SHARDED = Path(__file__).with_name("sharded.py")
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def _run(count, verb, url, last, **environment):
    ended = ranks(count, SHARDED, verb, url, last, **environment)
    assert ended.returncode == 0, ended.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save everything once, on disk."""
    folder = tmp_path_factory.mktemp("saved")
    _run(4, "save", f"{folder}/", folder)
    return folder


def test_four_ranks_save_and_two_load_every_state_on_every_server(bucket, tmp_path):
    environment = bucket.server.environment
    _run(4, "save", bucket.url, tmp_path, **environment)
    _run(2, "load", bucket.url, tmp_path, **environment)


def test_separate_processes_save_for_two_ranks(moto_server, tmp_path):
    """Each is an interpreter that imports everything, so one server is enough: ranks save to the others themselves."""
    bucket = f"test-{uuid.uuid4().hex}"
    moto_server.client().create_bucket(Bucket=bucket)
    _run(2, "apart", f"s3://{bucket}/", tmp_path, **moto_server.environment)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_checkpoint_of_four_ranks_loads_with_other_shardings(saved, count):
    _run(count, "load", f"{saved}/", saved)


def test_metadata_of_each_rank_s_own_is_loaded_as_torch_loads_it(tmp_path):
    _run(2, "local", tmp_path / "saved", tmp_path)
    assert sorted(path.name for path in (tmp_path / "saved").glob("*.metadata")) == ["__0.metadata", "__1.metadata"]


def test_replicated_tensors_are_saved_once(saved):
    for kind in ("ddp", "fsdp"):
        model, optimizer = torch.load(saved / f"{kind}.pt")
        state = [*model.values(), *(each for moments in optimizer["state"].values() for each in moments.values())]
        manifest = json.loads((saved / kind / "checkpoint.json").read_text("utf-8"))
        tensors = [each for each in manifest["content"]["state"] if "dtype" in each]
        bytes_each = {name: described["size"] for name, described in manifest["objects"].items()}
        others = sum(each["length"] for each in manifest["content"]["state"] if "dtype" not in each)
        assert len(bytes_each) == 4
        assert sum(bytes_each.values()) == sum(each.nbytes for each in state) + others
        assert len(tensors) == len(state)


def test_spread_puts_the_ranks_under_as_many_prefixes(saved):
    manifest = json.loads((saved / "tensors/checkpoint.json").read_text("utf-8"))
    assert sorted(name.partition("/")[2] for name in manifest["objects"]) == [
        "00/0.data",
        "00/2.data",
        "01/1.data",
        "01/3.data",
    ]


# One of the three under torchrun itself: in interpreters of their own, and it is torchrun that ends the other.
@pytest.mark.parametrize(
    ("how", "launched"), [("raised", ranks), ("killed writing", torchrun), ("killed finishing", ranks)]
)
def test_a_rank_that_fails_ends_all_and_leaves_the_older_checkpoint(saved, how, launched):
    before = sorted(path for path in (saved / "tensors").rglob("*") if path.is_file())
    ended = launched(2, SHARDED, "fail", f"{saved}/tensors", how)
    if how == "raised":
        assert ended.returncode == 0, ended.stdout
        for rank in (0, 1):
            assert ended.stdout.count(f"rank {rank} heard of RuntimeError('the GPU fell off')") == 2
            assert f"rank {rank} is refused: AlreadyExists" in ended.stdout
            assert f"rank {rank} is refused: use_collectives" in ended.stdout
    else:
        assert ended.returncode != 0
    assert set(before) <= set((saved / "tensors").rglob("*"))
    assert not (saved / "tensors-other").exists()
    state = {"tensors": {"rows": torch.zeros(10, 6)}, "list": [0, {"deep": torch.zeros(2)}]}
    dcp.load(state, storage_reader=StorageReader(saved / "tensors"), no_dist=True)
    assert state["list"][0] == 1
    assert state["list"][1]["deep"].tolist() == [1, 1]
    generator = torch.Generator().manual_seed(1 + sum(map(ord, "rows")))
    assert torch.equal(state["tensors"]["rows"], torch.rand(10, 6, generator=generator))


def test_ranks_with_different_urls_all_raise_and_commit_nothing(tmp_path):
    url = f"{tmp_path}/step"
    dcp.save({"old": torch.ones(2)}, storage_writer=StorageWriter(url), no_dist=True)
    ended = ranks(2, SHARDED, "astray", url, tmp_path)
    assert ended.returncode == 0, ended.stdout
    for rank in (0, 1):
        assert f"rank {rank} heard of Unusable(" in ended.stdout
    assert f"a rank saved to file://{url}-1/; all ranks must save to the same URL" in ended.stdout
    state = {"old": torch.zeros(2)}
    dcp.load(state, storage_reader=StorageReader(url), no_dist=True)
    assert state["old"].tolist() == [1, 1], "the older checkpoint is as it was"
