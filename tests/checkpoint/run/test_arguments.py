"""A step is a whole number and a metric is one number, of whatever kind; anything else is refused by its type."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.checkpoint.run.steps import checked_metric
from penstock.checkpoint.run.store import checked_step
from penstock.errors import Unusable


@pytest.mark.parametrize("step", [7, np.int64(7), torch.tensor(7)], ids=["int", "numpy", "torch"])
def test_any_whole_number_is_a_step(step):
    assert (checked_step(step), type(checked_step(step))) == (7, int)


@pytest.mark.parametrize("step", [7.0, "7", None, -1, 10**18], ids=repr)
def test_nothing_else_is_a_step(step):
    with pytest.raises(Unusable, match="step must be"):
        checked_step(step)


@pytest.mark.parametrize("metric", [0.5, np.float32(0.5), torch.tensor([0.5])], ids=["float", "numpy", "torch"])
def test_any_one_number_is_a_metric(metric):
    assert (checked_metric(metric), type(checked_metric(metric))) == (0.5, float)
    assert checked_metric(None) is None


@pytest.mark.parametrize("metric", ["low", [0.5, 1], torch.ones(2)], ids=["text", "list", "torch"])
def test_nothing_else_is_a_metric(metric):
    with pytest.raises(Unusable, match="metric must be one number, got a"):
        checked_metric(metric)


@pytest.mark.parametrize("name", ["keep_last", "keep_every", "keep_best"])
@pytest.mark.parametrize("number", [0, -1, 2.5, float("nan"), True, "2", [2]], ids=repr)
def test_a_retention_rule_must_be_a_whole_number(tmp_path, name, number):
    with pytest.raises(Unusable, match=f"{name} must be"):
        ps.CheckpointManager(tmp_path, **{name: number})


@pytest.mark.parametrize("number", [-1, 2.5, True, "1 GiB"], ids=repr)
def test_staging_memory_must_be_a_number_of_bytes(tmp_path, number):
    with pytest.raises(Unusable, match="staging_bytes must be"):
        ps.AsyncCheckpointer(ps.CheckpointManager(tmp_path), staging_bytes=number)
