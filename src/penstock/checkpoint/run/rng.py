"""The states of the random generators a training draws from, as values that ``torch.load`` takes with weights only."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

__all__ = ["generator_states", "set_generator_states"]


def generator_states() -> dict[str, Any]:
    """Return where this process's generators stand: Python's, numpy's, torch's and each CUDA device's."""
    import torch

    name, keys, *rest = np.random.get_state()  # noqa: NPY002  the generator that libraries share
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_generator_states(state: dict[str, Any]) -> None:
    """Set this process's generators to what ``generator_states`` returned; CUDA's only for as many devices."""
    import torch

    name, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002  see generator_states
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
