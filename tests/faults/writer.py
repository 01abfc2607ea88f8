"""A process that forks another for each object to write, so that killing one costs no interpreter."""

from __future__ import annotations

import os
import signal
import sys
import time

from penstock.options import StoreOptions, TransportOptions
from penstock.source import open_source
from tests.faults.cases import PART_BYTES, small_parts

__all__ = ["NEW", "serve"]

NEW = {"put": b"new!" * 10_000, "multipart": b"NEW!" * (6 * PART_BYTES // 4) + b"end"}


def serve():
    """Take lines `how key seconds`; kill the writer after that many, if any, and answer with its exit status."""
    for line in sys.stdin:
        how, key, seconds = line.split()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                _write(key, NEW[how])
                status = 0
            finally:
                os._exit(status)
        if float(seconds):
            time.sleep(float(seconds))  # the moment itself: nothing waits for it
            os.kill(pid, signal.SIGKILL)  # ours still, even if it has ended: nobody has waited for it yet
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _write(key, data):
    options = StoreOptions(transport=TransportOptions(stall_timeout_s=5), write=small_parts())
    source, _ = open_source("s3://bucket/", options)
    with source.open_write(key) as file:
        for at in range(0, len(data), 10_000):
            file.write(data[at : at + 10_000])
