"""A sharded model, its optimizers and the rest of a trainer in one distributed checkpoint."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.checkpoint.lightning import Loading, save_shards
from penstock.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_checkpoint_without_trainer_state_is_refused(bucket):
    writer = StorageWriter(f"{bucket.url}other", store=bucket.store)
    torch.distributed.checkpoint.save({"a": torch.zeros(2)}, storage_writer=writer, no_dist=True)
    with pytest.raises(CheckpointError, match="no trainer"):
        Loading(None, [], strict=True).shards(
            StorageReader(f"{bucket.url}other", store=bucket.store), weights_only=True
        )


@pytest.fixture
def trained():
    """Return a model that has learnt one step, and its optimizer, which holds moments."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_model_a_new_optimizer_and_the_rest_come_back_together(trained, tmp_path):
    model, optimizer = trained
    states = [get_optimizer_state_dict(model, optimizer)]
    save_shards(StorageWriter(tmp_path), model.state_dict(), states, {"epoch": 7})
    fresh = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam(fresh.parameters())
    rest = Loading(fresh, [adam], strict=True).shards(StorageReader(tmp_path), weights_only=True)
    assert rest == {"epoch": 7}
    assert torch.equal(fresh.weight, model.weight)
    assert torch.equal(adam.state[fresh.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])


def test_a_model_with_another_tensor_is_filled_only_where_it_need_not_be_strict(trained, tmp_path):
    model, _ = trained
    save_shards(StorageWriter(tmp_path), model.state_dict(), [], {})
    more = torch.nn.Linear(3, 2)
    more.register_buffer("count", torch.tensor(5))
    with pytest.raises(CheckpointException, match="count"):
        Loading(more, [], strict=True).shards(StorageReader(tmp_path), weights_only=True)
    Loading(more, [], strict=False).shards(StorageReader(tmp_path), weights_only=True)
    assert torch.equal(more.weight, model.weight)
    assert more.count == 5
