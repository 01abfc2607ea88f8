"""The floor for one large object: ranges over raw blocking sockets (Python's ssl for TLS) into one buffer."""

import socket
import ssl

from meter import BUCKET, Meter, in_threads

_PART_BYTES = 32 << 20
_HEAD_BYTES = 4096

meter = Meter()
(key,) = meter.keys
size = meter.size(key)


def connect():
    connection = socket.create_connection((meter.host, meter.port))
    if meter.endpoint.startswith("https"):
        context = ssl.create_default_context(cafile=meter.ca)
        connection = context.wrap_socket(connection, server_hostname=meter.host)
    return connection


def fetch(starts):
    connection, head = connect(), memoryview(bytearray(_HEAD_BYTES))
    for start in starts:
        stop = min(size, start + _PART_BYTES)
        lines = f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: x\r\nRange: bytes={start}-{stop - 1}\r\n\r\n"
        connection.sendall(lines.encode())
        got = connection.recv_into(head)
        end = head.obj.find(b"\r\n\r\n", 0, got) + 4
        at = start + got - end
        view[start:at] = head[end:got]
        while at < stop:
            count = connection.recv_into(view[at:stop])
            if not count:
                raise SystemExit(f"{key}: the connection ended")
            at += count


with meter:
    body = bytearray(size)
    view = memoryview(body)
    in_threads(meter.threads, fetch, list(range(0, size, _PART_BYTES)))
    meter.check_big(key, body)
