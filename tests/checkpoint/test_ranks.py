"""A run's steps, saved by all ranks together: whole for any number of ranks, or an error on every one of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

import penstock as ps
from penstock.errors import CheckpointError, Unusable
from tests.edges.launch import ranks

TOGETHER = Path(__file__).with_name("together.py")
FULL = torch.arange(4000.0).reshape(100, 40)


def _told(count, verb, url, folder, **environment):
    ended = ranks(count, TOGETHER, verb, url, f"{folder}/data/", folder, **environment)
    assert ended.returncode == 0, ended.stdout
    return [json.loads((folder / f"{verb}-{rank}.json").read_text()) for rank in range(count)]


def _data(folder):
    (folder / "data").mkdir()
    for number in range(32):
        (folder / f"data/{number:02d}").write_text(str(number))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save on two ranks, once."""
    folder = tmp_path_factory.mktemp("together")
    _data(folder)
    return folder, _told(2, "save", folder / "run", folder)


def test_model_data_and_generators_come_back_on_every_rank_and_server(bucket, tmp_path):
    _data(tmp_path)
    where = bucket.server.environment
    before = _told(2, "save", f"{bucket.url}run", tmp_path, **where)
    assert _told(2, "load", f"{bucket.url}run", tmp_path, **where) == before
    assert ps.CheckpointManager(f"{bucket.url}run", store=bucket.store).steps() == [2, 3]


def test_other_ranks_go_on_with_the_same_samples(saved):
    folder, before = saved
    (alone,) = _told(1, "load", folder / "run", folder)
    assert alone["drawn"] == before[0]["drawn"]
    rest = sorted(sum((each["rest"] for each in before), []))
    assert sorted(alone["rest"]) == rest
    assert len(rest) == 32 - 3 * 4
    four = _told(4, "load", folder / "run", folder)
    assert [each["drawn"] for each in four[:2]] == [each["drawn"] for each in before]
    assert sorted(sum((each["rest"] for each in four), [])) == rest


def test_one_process_restores_what_ranks_saved_and_looks_after_it(saved):
    folder, _ = saved
    run = ps.CheckpointManager(folder / "run")
    assert run.describe(3).objects == 2
    assert len(list(run.verify(3))) == 2
    with pytest.raises(Unusable, match="into="):
        run.restore()
    random.seed(5)
    into = {"model": {"weight": torch.zeros(100, 40), "bias": torch.zeros(3)}}
    run.restore(into=into)
    assert torch.equal(into["model"]["weight"], FULL + 3)
    one = ps.CheckpointManager(folder / "one")
    one.save(1, {"a": torch.ones(2)})
    assert one.restore(into={"ignored": 1})["a"].tolist() == [1, 1]


def test_what_one_rank_cannot_save_all_ranks_are_told(saved, tmp_path):
    folder, _ = saved
    _data(tmp_path)
    assert [each["latest"] for each in _told(2, "fail", folder / "run", tmp_path)] == [3, 3]


def test_a_plain_distributed_checkpoint_in_a_steps_place_is_refused(tmp_path):
    from torch.distributed.checkpoint.state_dict_saver import save

    from penstock.checkpoint.dcp import StorageWriter

    with pytest.warns(UserWarning, match="disabled"):
        save({"a": torch.ones(2)}, storage_writer=StorageWriter(tmp_path / "000000000001"))
    with pytest.raises(CheckpointError, match="a dcp of step None"):
        ps.CheckpointManager(tmp_path).restore(1, into={})
