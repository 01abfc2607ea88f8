"""``indexed.py TASK``: finds the samples in made-up tar shards of large members; prints seconds and bytes read."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import penstock as ps
from penstock.engine.contracts.driver import Head
from penstock.source import open_source


def main(task):
    """Measure once."""
    command = [sys.executable, str(Path(__file__).with_name("members.py")), str(task["members"]), str(task["bytes"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        port, size = map(int, server.stdout.readline().split())
        store = ps.S3Options(
            endpoint=f"http://127.0.0.1:{port}", region="us-east-1", access_key="key", secret_key="secret"
        )
        # What the first request would import and open is there: neither is timed.
        kept, _ = open_source("s3://bucket/", store)
        kept.supports(Head)
        urls = f"s3://bucket/{{0..{task['shards'] - 1}}}.tar"
        began = time.perf_counter()
        count, wanted = len(ps.Catalog.from_shards(urls, store=store)), task["shards"] * task["members"]
        wall_s = time.perf_counter() - began
        server.stdin.close()
        percent = 100 * int(server.stdout.readline()) / (size * task["shards"])
    if count != wanted:
        raise SystemExit(f"{count} samples of {wanted}")
    print(json.dumps({"wall_s": wall_s, "percent": percent}), flush=True)
    os._exit(0)  # native runtimes take their time to end


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
