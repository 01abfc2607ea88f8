"""What metrics cost a map-style run: scrapes by Prometheus alone, of which a second of reading pays for one."""

from socket import socket
from urllib.request import urlopen

from meter import Meter
from ours import opened

import penstock as ps
from penstock.observe import Prometheus, to

SCRAPES = 20  # measured together, for one takes a millisecond

meter = Meter()
dataset = opened(ps.MapDataset, meter)
with socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with to(Prometheus(port=port)):
    url = f"http://127.0.0.1:{port}/metrics"
    dataset.__getitems__(meter.batches(range(len(dataset)))[0])
    answer = urlopen(url).read()
    if b"penstock_received_bytes_total{host=" not in answer:
        raise SystemExit("the metrics have no bytes")
    for key in meter.keys:
        meter.count(key)
    meter.told["scrapes"] = SCRAPES
    with meter:
        for _ in range(SCRAPES):
            urlopen(url).read()
