"""The floor of windows in lanes: runs over raw sockets, 160 of them mixed, and batches of int64 made of their windows.

The fewest steps of a program that knows its files: the next 160 runs arrive in other threads, in memory used again,
while those before are permuted; a batch is one gather of NumPy's and one conversion. It checks, retries and limits
nothing, cannot go on in the middle, and takes files of whole runs only.
"""

from queue import SimpleQueue
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection
from threading import Thread

import numpy as np
from meter import BUCKET, Meter
from token_windows import LENGTH, compare

_RUN, _MIXED = 256, 160  # windows of a run, and runs that are mixed: as ps.order.Lanes() has them
_WINDOW_BYTES = 2 * LENGTH
meter, found = Meter(), []
parts = [(key, at) for key in meter.keys for at in range(0, meter.size(key), _RUN * _WINDOW_BYTES)]
draw = np.random.default_rng(0)
draw.shuffle(parts)
groups = [parts[at : at + _MIXED] for at in range(0, len(parts), _MIXED)]
asked, arrived = SimpleQueue(), SimpleQueue()
memory = [np.zeros((_MIXED * _RUN, LENGTH), np.uint16) for _ in range(2)]


def fetch():
    """Read the runs that are asked for over one connection."""
    connection = create_connection((meter.host, meter.port))
    connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    head = memoryview(bytearray(4096))
    while (wanted := asked.get()) is not None:
        (key, start), view = wanted
        lines = f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: x\r\nRange: bytes={start}-{start + len(view) - 1}\r\n\r\n"
        connection.sendall(lines.encode())
        got = connection.recv_into(head)
        end = head.obj.find(b"\r\n\r\n", 0, got) + 4
        at = got - end
        view[:at] = head[end:got]
        while at < len(view):
            at += connection.recv_into(view[at:])
        arrived.put(None)


def ask(number):
    """Have the runs of a group read into its memory."""
    view = memoryview(memory[number % 2]).cast("B")
    size = _RUN * _WINDOW_BYTES
    for slot, part in enumerate(groups[number] if number < len(groups) else ()):
        asked.put((part, view[slot * size : (slot + 1) * size]))


with meter:
    threads = [Thread(target=fetch, daemon=True) for _ in range(meter.threads)]
    for thread in threads:
        thread.start()
    ask(0)
    for number, group in enumerate(groups):
        for _ in group:
            arrived.get()
        ask(number + 1)
        order = draw.permutation(len(group) * _RUN)
        for at in range(0, len(order), meter.batch):
            batch = memory[number % 2][order[at : at + meter.batch]].astype(np.int64)
            found.append(batch[:, ::64].astype(np.uint16))
    meter.after = lambda: compare(meter, found)
