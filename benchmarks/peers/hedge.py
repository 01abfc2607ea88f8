"""``hedge.py TASK``: reads from a server that lets 1 % of requests wait for 2 s; prints what reads took.

With ``idle`` nothing waits, and what second requests cost all the same is shown as a share of a read's CPU.
"""

import json
import subprocess
import sys
import threading
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from random import Random

READS, THREADS, SIZE = 4_000, 16, 100 << 10
WARM = 400


def serve(slow_s):
    """Serve objects of ``SIZE`` bytes at 5 ms each until stdin is closed; print the address, and in the end a count."""
    from penstock.testing.servers import Scripted, reply

    answer, draw = reply(200, b"x" * SIZE, etag='"e1"'), Random(1).random
    turn = threading.Lock()

    def script(_received, send):
        with turn:
            waits = draw() < 0.01
        if slow_s:
            time.sleep(slow_s if waits else 0.005)
        send(answer)
        return True

    with Scripted(script) as server:
        print(server.url, flush=True)
        sys.stdin.read()
        print(len(server.received), flush=True)


def read(url, task):
    """Read, and return what each read took, in seconds."""
    import penstock as ps
    from penstock.source import open_source
    from penstock.values import Span

    options = ps.ReadOptions(hedge=task.get("hedge", True))
    source, _ = open_source(
        "s3://bucket/", ps.S3Options(endpoint=url, region="us-east-1", anonymous=True, read=options)
    )

    def one(number):
        began = time.perf_counter()
        source.read(Span(f"{number:06d}", 0, SIZE, "e1", whole=True))
        return time.perf_counter() - began

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(WARM)))
        began = time.process_time()
        took = sorted(pool.map(one, range(READS)))
    return took, (time.process_time() - began) / READS


def idle_s(read_s):
    """Return what a read costs for second requests that nobody needs: what its code does besides, and the looks."""
    from penstock.engine.operations.policy import Hedges
    from penstock.engine.transport.easy import Easy
    from penstock.engine.transport.late_calls import Lookout
    from penstock.engine.transport.session import Handles, Transfer
    from penstock.options import TransportOptions

    class Watch:
        def late_s(self, _now):
            return 0.05

    transfer, handles, hedges, now = Transfer(Easy(TransportOptions())), Handles(TransportOptions()), Hedges(), 1.0
    handles.watch, handles.active = Watch(), 64
    space = {"transfer": transfer, "handles": handles, "hedges": hedges, "now": now, "ended": 1}
    more = "transfer.began, transfer.ended_before = now, ended\nif hedges.open: pass"
    each_s = min(timeit.repeat(more, globals=space, number=100_000, repeat=5)) / 100_000
    lookout, busy = Lookout(), [transfer] * 64
    transfer.began = now
    look_s = min(timeit.repeat(lambda: lookout.look(busy, [handles], now), number=10_000, repeat=5)) / 10_000
    return each_s + look_s * read_s / lookout.every_s


def main(task):
    """Measure once."""
    slow_s = "0" if task.get("idle") else "2"
    command = [sys.executable, __file__, "serve", slow_s]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        took, cpu_s = read(server.stdout.readline().strip(), task)
        requests = int(server.communicate("")[0])
    found = {"p50_s": took[len(took) // 2], "p99_s": took[len(took) * 99 // 100], "most_s": took[-1]}
    found |= {"more_percent": (requests / (READS + WARM) - 1) * 100, "cpu_us": cpu_s * 1e6}
    print(json.dumps(found | {"idle_us": idle_s(50e-6) * 1e6, "idle_percent": idle_s(cpu_s) / cpu_s * 100}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(float(sys.argv[2]))
    else:
        main(json.loads(sys.argv[1]))
