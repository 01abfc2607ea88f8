"""The floor for writing one large object: PUT of parts over raw blocking sockets; no digest, no signature."""

import socket
import ssl

from meter import BUCKET, WRITTEN, Meter, in_threads

_PART_BYTES = 16 << 20
_HEAD_BYTES = 4096

meter = Meter()
(key,) = meter.keys
path = f"/{BUCKET}/{WRITTEN}{key}?uploadId=floor"
body = memoryview(meter.source(key))
starts = range(0, len(body), _PART_BYTES)


def connect():
    connection = socket.create_connection((meter.host, meter.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if meter.endpoint.startswith("https"):
        context = ssl.create_default_context(cafile=meter.ca)
        connection = context.wrap_socket(connection, server_hostname=meter.host)
    return connection


def send(connection, method, path, data):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode())
    connection.sendall(data)
    answer = connection.recv(_HEAD_BYTES)
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        raise SystemExit(f"{method} {path}: {answer[:200]}")


def write(numbers):
    connection = connect()
    for number in numbers:
        start = starts[number - 1]
        send(connection, "PUT", f"{path}&partNumber={number}", body[start : start + _PART_BYTES])


with meter:
    numbers = range(1, len(starts) + 1)
    in_threads(meter.threads, write, numbers)
    send(connect(), "POST", path, "".join(f"<PartNumber>{number}</PartNumber>" for number in numbers).encode())
    meter.count(key)
