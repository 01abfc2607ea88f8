"""A store for the tests of runs."""

from __future__ import annotations

import pytest

from penstock.testing.faults import FaultServer
from tests.emulators import settings
from tests.faults.cases import PART_BYTES, small_limits


@pytest.fixture
def server(request, monkeypatch):
    """Point the environment at a server with the bucket "bucket", which savers wait for about as much as they work.

    Its dialect and what it heeds are those of a row of ``tests.emulators``, which a test may name.
    """
    chosen = settings(getattr(request, "param", "s3"), least_part_bytes=PART_BYTES, latency_ms=1)
    with FaultServer.start(chosen) as server, small_limits():
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def alone():
    """Be a group of one process."""
    import torch

    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()
