"""LitData as documented: its own chunks, shuffled; it writes them to local disk first."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from meter import BUCKET, KEY, REGION, SECRET, Meter

os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION=REGION, AWS_ALLOW_HTTP="true")
import litdata
from litdata.streaming import downloader

meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
folder = meter.path(prefix)
if not (folder / "litdata").exists():
    # Its own format is written first, and not measured.
    subprocess.run([sys.executable, str(Path(__file__).with_name("litdata_layout.py")), str(folder)], check=True)
# It refuses http:// otherwise.
downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
# Beside the objects, on the RAM disk: it goes when they go, however this process ends.
with tempfile.TemporaryDirectory(dir=meter.path("").parents[1]) as cache, meter:
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = cache
    began = time.perf_counter()
    dataset = litdata.StreamingDataset(
        f"s3://{BUCKET}/{prefix}/litdata",
        cache_dir=cache,
        shuffle=True,
        drop_last=False,
        storage_options={"endpoint_url": meter.endpoint},
        max_cache_size="10GB",
    )
    for batch in litdata.StreamingDataLoader(dataset, batch_size=meter.batch, collate_fn=list):
        meter.told.setdefault("first_s", time.perf_counter() - began)
        for each in batch:
            meter.check(f"{prefix}/{each['key']}", each["bin"])
        meter.step()
