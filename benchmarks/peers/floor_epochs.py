"""The floor of an epoch: chunks over raw blocking sockets, decoded in two threads into memory that is there."""

import os
import socket

import numcodecs
import numpy as np
from epochs import EPOCHS, consume, document, opened
from meter import BUCKET, in_threads

_HEAD_BYTES = 65536
_DECODERS = 2

meter, name = opened()
metadata = document(meter, name)
codecs, per = metadata["codecs"], metadata["chunk_grid"]["configuration"]["chunk_shape"][0]
shape, shard = metadata["shape"][1:], 0
if codecs[0]["name"] == "sharding_indexed":
    shard, per = per, codecs[0]["configuration"]["chunk_shape"][0]


def spans(number):
    """Return where a chunk lies: its key, the first byte and the one past the last."""
    if not shard:
        key = f"{name}/c/{number}/0/0"
        return key, 0, meter.path(key).stat().st_size
    key, inner = f"{name}/c/{number * per // shard}/0/0", shard // per
    with meter.path(key).open("rb") as file:
        file.seek(-16 * inner - 4, os.SEEK_END)
        index = np.frombuffer(file.read(16 * inner), "<u8").reshape(inner, 2)
    start, size = index[number % inner].tolist()
    return key, start, start + size


def fetch(connection, head, key, start, stop):
    ranges = f"Range: bytes={start}-{stop - 1}\r\n"
    connection.sendall(f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: x\r\n{ranges}\r\n".encode())
    got = connection.recv_into(head)
    end = head.obj.find(b"\r\n\r\n", 0, got) + 4
    body = bytearray(stop - start)
    view, filled = memoryview(body), got - end
    view[:filled] = head[end:got]
    while filled < len(body):
        filled += connection.recv_into(view[filled:])
    return body


def read(numbers):
    connection = socket.create_connection((meter.host, meter.port))
    head, codec = memoryview(bytearray(_HEAD_BYTES)), numcodecs.Zstd()
    chunk = np.empty((per, *shape), "float32")
    for number in numbers:
        codec.decode(fetch(connection, head, *places[number]), out=chunk)
        ready.append(chunk[: len(meter.keys) - number * per].copy())


class Once:
    """What ``consume`` takes as an epoch: everything is read when it begins."""

    def __iter__(self):
        ready.clear()
        in_threads(max(_DECODERS, meter.threads), read, range(len(places)))
        return iter(ready)


places, ready = [spans(number) for number in range(-(-len(meter.keys) // per))], []
consume(meter, [Once() for _ in range(EPOCHS)])
