"""energon as documented: tar files over multi-storage-client, shuffled, with a buffer of 1,000 samples."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from megatron.energon import (
    Cooker,
    DefaultTaskEncoder,
    Sample,
    WorkerConfig,
    basic_sample_keys,
    edataclass,
    get_loader,
    get_train_dataset,
    stateless,
)
from meter import BUCKET, KEY, REGION, SECRET, Meter


@edataclass
class Body(Sample):
    """A sample with the bytes of its member."""

    bin: bytes


@stateless
def cooked(sample):
    """Return the sample that a tar file's members make."""
    return Body(**basic_sample_keys(sample), bin=sample["bin"])


class Encoder(DefaultTaskEncoder):
    """Batches as lists of samples."""

    cookers = (Cooker(cooked),)

    def batch(self, samples):
        """Return a batch."""
        return samples


meter = Meter()
prefix = meter.keys[0].rpartition("/")[0]
folder = meter.path(f"{prefix}/tar")
if not (folder / ".nv-meta").exists():
    # Its index is written first, from all bytes, and not measured.
    prepare = [str(Path(sys.executable).with_name("energon")), "prepare", "--non-interactive", "--num-workers", "2"]
    prepare += ["--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", str(folder)]
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
options = {"base_path": BUCKET, "endpoint_url": meter.endpoint, "region_name": REGION}
options["rust_client"] = {"allow_http": True}
# Beside the objects, on the RAM disk: it goes when they go, however this process ends.
config = folder.parent / "msc.json"
config.write_text(json.dumps({"profiles": {"bench": {"storage_provider": {"type": "s3", "options": options}}}}))
os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, MSC_CONFIG=str(config))
dataset = get_train_dataset(
    f"msc://bench/{prefix}/tar",
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
    batch_size=meter.batch,
    shuffle_buffer_size=1000,
    max_samples_per_sequence=100,
    task_encoder=Encoder(),
    repeat=False,
)
with meter:
    began = time.perf_counter()
    for batch in get_loader(dataset):
        meter.told.setdefault("first_s", time.perf_counter() - began)
        for each in batch:
            meter.check(f"{prefix}/{each.__key__.rpartition('/')[2]}.bin", each.bin)
        meter.step()
