"""The floor of shards: whole tar files over raw sockets, each into fresh memory, and cut by an index made before."""

import socket
import tarfile

from meter import BUCKET, Meter, in_threads

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
shards = {}
for path in sorted(meter.path(f"{prefix}/tar").glob("*.tar")):
    with tarfile.open(path) as archive:
        places = [(f"{prefix}/{each.name}", each.offset_data, each.size) for each in archive if each.name[-3:] == "bin"]
    shards[f"{prefix}/tar/{path.name}"] = (path.stat().st_size, places)


def read(connection, key, deliver):
    """Deliver the samples of a shard as their bytes arrive."""
    size, places = shards[key]
    connection.sendall(f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = bytearray(65536)
    got = connection.recv_into(head)
    end = head.find(b"\r\n\r\n", 0, got) + 4
    body = memoryview(bytearray(size))
    body[: got - end] = head[end:got]
    filled, at = got - end, 0
    while filled < size:
        filled += connection.recv_into(body[filled:])
        while at < len(places) and places[at][1] + places[at][2] <= filled:
            name, start, length = places[at]
            deliver((name, body[start : start + length]))
            at += 1


def fetch(keys, deliver):
    connection = socket.create_connection((meter.host, meter.port))
    for key in keys:
        read(connection, key, deliver)


with meter:
    in_threads(meter.threads, lambda keys: fetch(keys, lambda pair: meter.check(*pair)), list(shards))
