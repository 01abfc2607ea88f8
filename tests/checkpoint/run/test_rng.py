"""The random generators of a training stand again where they stood, by way of a file without code."""

from __future__ import annotations

import io
import random

import numpy as np
import torch

import penstock as ps
from penstock.checkpoint.run.steps import generator_states, set_generator_states


def _draws():
    return random.random(), np.random.random(3).tolist(), np.random.normal(), torch.rand(3).tolist()  # noqa: NPY002


def test_every_random_generator_repeats_its_draws_after_restore():
    _draws()  # numpy keeps one normal number for later: also that comes back
    states = generator_states()
    first = _draws()
    assert _draws() != first
    set_generator_states(states)
    assert _draws() == first


def test_states_come_back_from_a_file_with_weights_only():
    states, file = generator_states(), io.BytesIO()
    first = _draws()
    torch.save(states, file)
    file.seek(0)
    set_generator_states(torch.load(file, weights_only=True))
    assert _draws() == first


def test_to_look_at_the_generators_draws_from_none():
    states = generator_states()
    generator_states()
    first = _draws()
    set_generator_states(states)
    assert _draws() == first


def test_generators_resume_whatever_device_the_state_is_restored_to(tmp_path):
    run = ps.CheckpointManager(tmp_path)
    run.save(1, {"weight": torch.ones(2)})
    first = _draws()
    assert run.restore(map_location="meta")["weight"].is_meta
    assert _draws() == first
