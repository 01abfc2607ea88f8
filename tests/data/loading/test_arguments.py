"""PyTorch's own arguments of a loader: its defaults pass, what is for workers reaches them, the rest is refused."""

from __future__ import annotations

import inspect

import pytest

import penstock as ps
from penstock.errors import Unusable

DATASET = ps.MapDataset.from_objects(["memory://arguments/a"])


def test_defaults_of_other_loaders_are_accepted_without_workers():
    assert ps.DataLoader(DATASET, timeout=0, sampler=None, persistent_workers=False)._workers is None


def test_only_worker_specific_options_are_passed_to_workers():
    workers = ps.DataLoader(DATASET, num_workers=2, timeout=5, persistent_workers=True, in_order=True)._workers
    assert (workers.timeout, workers.persistent_workers, workers.worker_init_fn) == (5, True, None)


@pytest.mark.parametrize("falsy", [0, [], ()])
def test_a_sampler_that_is_empty_is_a_sampler(falsy):
    with pytest.raises(Unusable, match="sampler"):
        ps.DataLoader(DATASET, sampler=falsy)


def test_signature_shows_every_option_that_works():
    parameters = inspect.signature(ps.DataLoader).parameters
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    assert parameters["persistent_workers"].default is False
