"""The floor of tokens: ranges of 1 MiB over raw sockets into memory used again; no window is cut, mixed or kept."""

import socket

from meter import BUCKET, Meter, in_threads

_PART_BYTES = 1 << 20
meter = Meter()
parts = [(key, start) for key in meter.keys for start in range(0, meter.size(key), _PART_BYTES)]


def fetch(chosen):
    """Read ranges one after another over one connection."""
    connection = socket.create_connection((meter.host, meter.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = memoryview(bytearray(4096))
    for key, start in chosen:
        stop = min(start + _PART_BYTES, meter.size(key))
        lines = f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: x\r\nRange: bytes={start}-{stop - 1}\r\n\r\n"
        connection.sendall(lines.encode())
        got = connection.recv_into(head)
        end = head.obj.find(b"\r\n\r\n", 0, got) + 4
        view, at = memoryview(bytearray(stop - start)), got - end
        view[:at] = head[end:got]
        while at < len(view):
            count = connection.recv_into(view[at:])
            if not count:
                raise SystemExit(f"{key}: the connection ended")
            at += count


with meter:
    in_threads(meter.threads, fetch, parts)
    for key in meter.keys:
        meter.count(key)
