"""What every peer shares: its task, the checks, and the stopwatch; standard library only, and nothing of the engine's.

A peer runs in a process of its own: ``python peer.py TASK``, TASK being JSON. It prepares its dataset, reads inside
``with meter:``, and prints one JSON line. CPU is that of the timed part, of this process and of those that it started;
memory is this process's alone.
"""

from __future__ import annotations

import csv
import gc
import json
import mmap
import os
import resource
import sys
import time
import zlib
from glob import glob
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

KEY, SECRET, REGION, BUCKET = "benchmarkkey", "benchmarksecret", "us-east-1", "bench"
WRITTEN = "written/"  # the only prefix the server lets peers write under


class Meter:
    """The task of this process, and what it took."""

    def __init__(self):
        task = json.loads(sys.argv[1])
        self.endpoint, self.ca = task["endpoint"], task["ca"]
        self.manifest = task["manifest"]
        self.batch, self.threads = task["batch"], task["threads"]
        self.compute_s = task["compute_s"]
        self._digests = self.sampled = json.loads(Path(task["digests"]).read_text())
        with open(self.manifest, newline="") as file:
            self._sizes = {row["key"]: int(row["size"]) for row in csv.DictReader(file)}
        self.keys = list(self._sizes)
        self.shapes = self._digests.get("shapes", {})  # of a state's tensors
        self.told = {}  # more numbers to print
        self.epochs = 1  # how often each object is to come
        self._lengths = []  # list.append is atomic: threads may count
        self._steps, self._slept_s = 0, 0.0
        self._big = ()
        self._array = None
        self.after = lambda: None  # called once the stopwatch has stopped, to compare and count what came
        self._tensors, self._rank = {}, 0
        self._held = 0
        address = urlsplit(self.endpoint)
        self.host, self.port = address.hostname, address.port

    def size(self, key):
        return self._sizes[key]

    def check(self, key, body):
        """Count an object: the length of each is compared, and the bytes of a sample."""
        if len(body) != self._sizes[key] or (key in self._digests and zlib.crc32(body) != self._digests[key]):
            raise SystemExit(f"{key}: wrong body ({len(body)} bytes)")
        self._lengths.append(len(body))

    def check_big(self, key, body):
        """The same, for an object so large that its digest is left for after the stopwatch."""
        self._big = (key, body)
        self._held = len(body)

    def check_array(self, array):
        """Count all objects as the chunks of an array, which is compared after the stopwatch."""
        self._array = array
        for key in self.keys:
            self.count(key)

    def layout(self, name):
        """The key of a state in another layout than the task's object, which is a file."""
        return self.keys[0].rpartition("/")[0] + f"/{name}"

    def check_tensors(self, tensors, rank=None, *, fresh=True):
        """Count a state, or a rank's part, as the only object; each tensor is compared after the stopwatch.

        ``fresh`` memory is what loading must take; else it was there before.
        """
        self._tensors, self._rank = tensors, 0 if rank is None else rank + 1
        self._held = sum(tensor.nbytes for tensor in tensors.values()) if fresh else 0
        self.count(self.keys[0])

    def source(self, key):
        """What a writing peer is to write: the object's bytes, from the server's own folder."""
        return self.path(key).read_bytes()

    def path(self, key):
        """Where the server's own folder has it."""
        return Path(self.manifest).parent / "data" / BUCKET / key

    def count(self, key):
        """Count an object whose bytes this process does not get to see: the benchmark compares what was written."""
        self._lengths.append(self._sizes[key])

    def step(self):
        """Compute as a training step does: so many CPU seconds of pure Python in this thread, however long it takes."""
        if self.compute_s:
            self._steps += 1
            until = time.thread_time() + self.compute_s
            while time.thread_time() < until:
                for _ in range(1000):  # asking for the time is a system call: seldom, so that the rest is Python
                    pass

    def sleep(self, step_s):
        """Compute as an accelerator does, as far as this process can tell."""
        time.sleep(step_s)
        self._slept_s += step_s

    def consume(self, objects):
        """Check (key, body) pairs as they come, and compute after every batch."""
        for number, (key, body) in enumerate(objects, 1):
            self.check(key, body)
            if number % self.batch == 0:
                self.step()

    def batches(self, items):
        return [items[at : at + self.batch] for at in range(0, len(items), self.batch)]

    def __enter__(self):
        gc.collect()  # what importing left is not this run's: a full collection with torch loaded takes 0.1 s
        _touch(max(self._sizes.values()) * 5 // 4)
        Path("/proc/self/clear_refs").write_text("5")  # the peak is the timed part's: it begins where memory is now
        self._resident = memory("VmRSS")
        self._cpu_s, self._clock = cpu_s(), time.perf_counter()
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            return
        wall_s = time.perf_counter() - self._clock
        taken_s, peak = cpu_s() - self._cpu_s, memory("VmHWM")
        if self._big:
            self.check(*self._big)
        if self._array is not None and zlib.crc32(self._array) != self._digests["array"]:
            raise SystemExit("not the array that was written")
        self._compare()
        self.after()
        if sorted(self._lengths) != sorted(self.epochs * [*self._sizes.values()]):
            raise SystemExit(f"{len(self._lengths)} objects came, not the {len(self.keys)} that were asked for")
        print(
            json.dumps(
                {
                    "wall_s": wall_s,
                    "objects": len(self._lengths),
                    "bytes": sum(self._lengths),
                    "cpu_s": taken_s,
                    "peak_rss": peak,
                    "beyond": peak - self._resident - self._held,
                    "compute_s": self._steps * self.compute_s,
                    "slept_s": self._slept_s,
                    **self.told,
                }
            ),
            flush=True,
        )
        os._exit(0)  # native runtimes take their time to end, and some do not

    def _compare(self):
        wanted = self._digests["tensors"] if self._tensors else {}
        wrong = wanted.keys() ^ self._tensors.keys()
        wrong |= {name for name in wanted.keys() - wrong if crc(self._tensors[name]) != wanted[name][self._rank]}
        if wrong:
            raise SystemExit(f"not what was saved: {', '.join(sorted(wrong))}")


def in_threads(count, work, items):
    """Run ``work(part)`` in threads over equal parts; the first error ends the process."""
    failed = []

    def run(part):
        try:
            work(part)
        except BaseException as error:  # noqa: BLE001  told below, in the main thread
            failed.append(error)

    threads = [Thread(target=run, args=(items[number::count],)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _touch(size):
    """Have so much free memory be the machine's own again, for client and server.

    A virtual machine's host may take back what lies free, within seconds; the first touch of a GiB of it then costs
    between 0.3 and 3 s, by chance, whoever's turn it is.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
    mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=flags).close()


def crc(tensor):
    """Return the CRC-32 of a tensor's bytes."""
    return zlib.crc32(tensor.contiguous().numpy())


def cpu_s():
    """Return the CPU seconds of this process and of those that it started: ended ones, and workers that still run."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found) + _of_children(os.getpid())


def _of_children(pid):
    total_s = 0.0
    for path in glob(f"/proc/{pid}/task/*/children"):  # noqa: PTH207  Path.glob raises where the process has ended
        for child in _read(path).split():
            ticks = _read(f"/proc/{child}/stat").rpartition(")")[2].split()[11:15]
            total_s += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") + _of_children(child)
    return total_s


def _read(path):
    """Return what a file of /proc says; nothing where its thread or process has ended meanwhile."""
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory(name):
    """Return a size of this process's memory in bytes (ru_maxrss would include what was before exec)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) << 10
