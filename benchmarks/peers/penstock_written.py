"""Penstock's map-style dataset, as in ``penstock_map``, while every event is written as a line of JSON."""

import tempfile
from pathlib import Path

from meter import Meter
from ours import opened

import penstock as ps
from penstock.observe import JsonLines, to

meter = Meter()
dataset = opened(ps.MapDataset, meter)
with tempfile.TemporaryDirectory() as folder:
    observed = to(JsonLines(Path(folder) / "events.jsonl"))
    with meter:
        for batch in meter.batches(range(len(dataset))):
            for sample in dataset.__getitems__(batch):
                meter.check(sample.key, sample.data)
        if not observed.close() or observed.dropped:
            raise SystemExit(f"{observed.dropped} records were dropped")
