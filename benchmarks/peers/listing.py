"""``listing.py TASK``: lists a bucket of made-up keys, 30 ms a page; prints seconds, CPU seconds and keys."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


def _penstock(endpoint, workers):
    import penstock as ps
    from penstock.data.catalog.catalog import make_catalog
    from penstock.data.catalog.discovery.scan import ScanOptions, listed
    from penstock.source import open_source

    store = ps.S3Options(endpoint=endpoint, region="us-east-1", access_key="key", secret_key="secret")
    source, prefix = open_source("s3://bucket/flat/", store)
    source.page(prefix, start_after="flat/9")  # opens the engine: connections and credentials are not the listing's
    return lambda: len(make_catalog(source.root, *listed(source, prefix, ScanOptions(**workers))))


def _s3torchconnector(endpoint):
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector._s3dataset_common import get_objects_from_prefix

    client = S3Client("us-east-1", endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True))
    return lambda: sum(1 for _ in get_objects_from_prefix("s3://bucket/flat/", client))


def _dataflux(endpoint):
    from dataflux_core import fast_list
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    os.environ["STORAGE_EMULATOR_HOST"] = endpoint
    client = storage.Client(project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})
    controller = fast_list.ListingController(16, "p", "bucket", sort_results=True, prefix="flat/")
    controller.client = client
    return lambda: len(controller.run())


ENGINES = {
    "plain": lambda endpoint: _penstock(endpoint, {"workers": 1}),
    "penstock": lambda endpoint: _penstock(endpoint, {}),
    "s3torchconnector": _s3torchconnector,
    "dataflux": _dataflux,
}


def main(task):
    """List once."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("keys.py")), str(task["keys"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        run = ENGINES[task["engine"]](f"http://127.0.0.1:{int(server.stdout.readline())}")
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        found = run()
        wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        server.stdin.close()
    if found != task["keys"]:
        raise SystemExit(f"{found} keys of {task['keys']}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "keys": found, "keys_a_second": found / wall_s}), flush=True)
    os._exit(0)  # native runtimes take their time to end


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
