"""The floor of rows: whole Parquet files over raw sockets into fresh memory, and decoded by pyarrow from there."""

import socket

import pyarrow as pa
import pyarrow.parquet as pq
from meter import BUCKET, Meter, in_threads

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
sizes = {path.name: path.stat().st_size for path in sorted(meter.path(f"{prefix}/parquet").glob("*.parquet"))}


def read(connection, name):
    """Return the bytes of a file."""
    request = f"GET /{BUCKET}/{prefix}/parquet/{name} HTTP/1.1\r\nHost: x\r\n\r\n"
    connection.sendall(request.encode())
    head = bytearray(65536)
    got = connection.recv_into(head)
    end = head.find(b"\r\n\r\n", 0, got) + 4
    body = memoryview(bytearray(sizes[name]))
    body[: got - end] = head[end:got]
    filled = got - end
    while filled < len(body):
        filled += connection.recv_into(body[filled:])
    return body


def fetch(names):
    connection = socket.create_connection((meter.host, meter.port))
    for name in names:
        file = pq.ParquetFile(pa.BufferReader(read(connection, name)))
        for batch in file.iter_batches(meter.batch, use_threads=False):
            for row in batch.to_pylist():
                meter.check(f"{prefix}/{row['image']['path']}", row["image"]["bytes"])


with meter:
    in_threads(meter.threads, fetch, list(sizes))
