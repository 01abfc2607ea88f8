"""The floor: GET over raw blocking sockets, no HTTP client, no check of headers, no signature."""

import queue
import socket
import threading

from meter import BUCKET, Meter, in_threads

_HEAD_BYTES = 65536


def fetch(meter, keys, deliver):
    """Read objects one after another over one connection."""
    connection = socket.create_connection((meter.host, meter.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = memoryview(bytearray(_HEAD_BYTES))
    for key in keys:
        connection.sendall(f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        got = connection.recv_into(head)
        end = head.obj.find(b"\r\n\r\n", 0, got) + 4
        body = bytearray(meter.size(key))
        view, filled = memoryview(body), got - end
        view[:filled] = head[end:got]
        while filled < len(body):
            count = connection.recv_into(view[filled:])
            if not count:
                raise SystemExit(f"{key}: the connection ended")
            filled += count
        deliver((key, body))


def ahead(meter):
    """Yield objects as they come while threads read on, up to two batches ahead."""
    ready = queue.Queue(2 * meter.batch)

    def read():
        try:
            in_threads(meter.threads, lambda keys: fetch(meter, keys, ready.put), meter.keys)
        except BaseException as error:  # noqa: BLE001  raised below, where it is waited for
            ready.put(error)

    threading.Thread(target=read, daemon=True).start()
    for _ in meter.keys:
        item = ready.get()
        if isinstance(item, BaseException):
            raise item
        yield item


meter = Meter()
with meter:
    if meter.compute_s:
        meter.consume(ahead(meter))
    else:
        in_threads(meter.threads, lambda keys: fetch(meter, keys, lambda pair: meter.check(*pair)), meter.keys)
