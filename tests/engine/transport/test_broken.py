"""When Penstock itself breaks on its I/O thread, whoever waits is told, and whoever comes later too."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import penstock as ps
from penstock.errors import Bug
from penstock.engine.operations.policy import RetryPolicy
from penstock.testing.faults import FaultServer

def broken(_):
    raise RecursionError("planted")

if __name__ == "__main__":
    with FaultServer.start() as server:
        urls = [f"s3://bucket/{index}" for index in range(50)]
        for url in urls:
            server.put("bucket", url.rpartition("/")[2], b"bytes")
        dataset = ps.MapDataset.from_objects(urls, store=server.store)
        assert dataset[0].read() == b"bytes"
        RetryPolicy.succeeded = broken
        for _ in range(2):
            try:
                dataset.__getitems__(range(50))
                print("no error")
            except Bug as error:
                print(type(error.__cause__).__name__, "planted" in str(error))
"""


def test_a_bug_on_the_io_thread_hangs_no_caller(tmp_path):
    (tmp_path / "broken.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "broken.py")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "RecursionError True\n" * 2, done.stderr
