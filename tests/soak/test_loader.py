"""Fifty epochs through the loader: memory stays within the stated budget and does not grow, nor do threads."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from pathlib import Path

import penstock as ps
from penstock.testing.faults import FaultServer

EPOCHS = 50
OBJECTS, SIZE, BATCH = 96, 640 << 10, 8  # one that is kept each epoch, or all of them once, is more than the slack
BUDGET = 8 << 20
SLACK_KIB = 24 << 10  # what the allocator keeps and other libraries take their time to settle on


def _resident_kib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def _first_bytes(sample: ps.Sample) -> tuple[str, bytes]:
    return sample.key, sample.read(8)


def test_fifty_epochs_stay_within_the_budget_and_nothing_grows(seed):
    bodies = {f"{index:03d}": bytes([index]) * SIZE for index in range(OBJECTS)}
    with FaultServer.start() as server:
        for key, body in bodies.items():
            server.put("bucket", key, body)
        store = replace(server.store, read=ps.ReadOptions(ahead_bytes=BUDGET))
        dataset = ps.IterableDataset.from_prefix(
            "s3://bucket/", transform=_first_bytes, shuffle=True, seed=seed, store=store
        )
        loader = ps.DataLoader(dataset, BATCH, collate_fn=dict, decode_threads=2)
        sizes = []
        for epoch in range(EPOCHS):
            found = {}
            for batch in loader:
                found |= batch
                if epoch == 0 or epoch == EPOCHS - 1:
                    sizes.append(_resident_kib())
            assert found == {key: body[:8] for key, body in bodies.items()}
            if epoch == 0:
                gc.collect()
                settled, threads = _resident_kib(), threading.active_count()
        assert max(sizes) - min(sizes) < (BUDGET >> 10) + SLACK_KIB
        assert _resident_kib() - settled < SLACK_KIB
        assert threading.active_count() == threads
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-decode")]
