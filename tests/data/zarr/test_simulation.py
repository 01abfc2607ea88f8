"""What a process would read: each chunk once where the memory holds it, and again where it does not."""

from __future__ import annotations

import numpy as np

from penstock.data.zarr.plan import simulate_reads


def follow(batches, *, most_bytes=1 << 40, most=1 << 40, per_chunk=4):
    return simulate_reads(
        batches, lambda samples: (samples // per_chunk)[:, None], lambda _: 10, (most_bytes, 1 << 20), most
    )


def test_chunks_are_read_in_the_order_of_their_first_use():
    found = follow([[9, 8, 0], [1, 2, 10]])
    assert found.chunks == [2, 0]
    assert (found.samples, found.first, found.touched) == (6, 2, (2, 0))
    assert found.held_bytes == 20


def test_too_little_memory_costs_reads():
    jumping = [[at % 4 * 4 + at // 4] for at in range(16)]
    assert len(follow(jumping).chunks) == 4
    assert len(follow(jumping, most_bytes=10).chunks) == 16


def test_simulation_stops_at_the_requested_sample_limit():
    found = follow([[sample] for sample in range(1000)], most=100)
    assert (found.samples, len(found.chunks)) == (100, 25)
    empty = follow([])
    assert empty == (0, [], 0, (), 0)
    assert np.asarray(empty.touched).size == 0
