"""PyTorch's own arguments of a loader: its defaults pass, what is for workers reaches them, the rest is refused."""

from __future__ import annotations

import pytest

from penstock.data.loading.arguments import worker_options
from penstock.errors import Unusable


def test_defaults_without_workers_leave_nothing():
    assert worker_options({"timeout": 0, "sampler": None, "persistent_workers": False}, 0, ()) == {}


def test_only_worker_specific_options_are_passed_to_workers():
    options = {"timeout": 5, "persistent_workers": True, "in_order": True}
    assert worker_options(options, 2, ()) == {"timeout": 5, "persistent_workers": True}


@pytest.mark.parametrize("falsy", [0, [], ()])
def test_a_sampler_that_is_empty_is_a_sampler(falsy):
    with pytest.raises(Unusable, match="sampler"):
        worker_options({"sampler": falsy}, 0, ())
