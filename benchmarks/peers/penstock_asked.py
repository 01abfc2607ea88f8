"""What a map-style run pays for events that nobody hears: ``listening()`` alone, as often as such a run calls it."""

import sys
from itertools import repeat
from unittest.mock import Mock

from meter import Meter
from ours import opened

import penstock as ps
from penstock.events import listening

meter = Meter()
dataset = opened(ps.MapDataset, meter)
batch = meter.batches(range(len(dataset)))[0]
counted = Mock(wraps=listening)
own = [module for name, module in list(sys.modules.items()) if name.startswith("penstock.")]
askers = [module for module in own if getattr(module, "listening", None) is listening]
for module in askers:
    module.listening = counted
dataset.__getitems__(batch)
for module in askers:
    module.listening = listening
if not counted.call_count:
    raise SystemExit("no call of listening() was seen")
for key in meter.keys:
    meter.count(key)
with meter:
    for _ in repeat(None, counted.call_count * len(meter.keys) // len(batch)):
        listening()
